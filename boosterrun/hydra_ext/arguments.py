"""The command line, before Hydra sees it: flags may stand anywhere, and ``pack=`` may be a path."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from hydra._internal.utils import get_args_parser
from hydra.core.override_parser.types import Quote, QuotedString

from boosterrun.errors import UsageError
from boosterrun.measure.progress import Level

INFO = {"all", "config", "defaults", "defaults-tree", "plugins", "searchpath"}


@dataclass(frozen=True)
class Arguments:
    """``flags`` as Hydra's own parser gives them, ``overrides`` with every pack path made absolute."""

    flags: argparse.Namespace
    overrides: list[str]

    @property
    def level(self) -> Level:
        """How much is said about jobs."""
        if self.flags.quiet:
            return Level.QUIET
        return Level.VERBOSE if self.flags.verbose else Level.NORMAL


def parse(argv: Sequence[str]) -> Arguments:
    """Split ``argv`` into flags and overrides, in any order. Raises UsageError for what is neither."""
    flags = parser().parse_intermixed_args(_info_without_value(argv))
    if flags.experimental_rerun is not None:
        raise UsageError(
            "--experimental-rerun is not supported", "Repeat the overrides of .hydra/overrides.yaml"
        )
    modes = {
        "--run": flags.run,
        "--multirun": flags.multirun,
        "--cfg": flags.cfg is not None,
        "--info": flags.info is not None,
        "--shell-completion": flags.shell_completion,
    }
    chosen = [name for name, on in modes.items() if on]
    if len(chosen) > 1:
        raise UsageError(f"{' and '.join(chosen)} cannot be combined", "Give one of them")
    if flags.quiet and flags.verbose:
        raise UsageError("-q and -v cannot be combined", "Give one of them")
    if flags.resolve and flags.cfg is None:
        raise UsageError("--resolve goes with --cfg", "Add --cfg job")
    overrides = [part for override in flags.overrides for part in _pack_by_path(override)]
    for override in overrides:
        if "=" not in override and not override.startswith("~"):
            raise UsageError(f"'{override}' is neither a flag nor key=value", "See boosterrun --help")
    return Arguments(flags, overrides)


def parser() -> argparse.ArgumentParser:
    """Hydra's own parser, with its mistakes told in one line like any other."""
    hydras = get_args_parser()
    hydras.allow_abbrev = False
    hydras.add_argument("--quiet", "-q", action="store_true", help="No line per job")
    hydras.add_argument("--verbose", "-v", action="store_true", help="Where each job's time went")
    setattr(hydras, "error", _refuse)  # noqa: B010 - a plain assignment is no type-correct override
    return hydras


def quoted(text: str) -> str:
    """``text`` as an override's value that Hydra and OmegaConf read back as exactly this text."""
    return QuotedString(text=literal(text), quote=Quote.single).with_quotes()


def literal(text: str) -> str:
    """``text`` as a config's value that OmegaConf does not interpolate."""
    return re.sub(r"(\\*)\$\{", lambda match: match[1] * 2 + "\\${", text)


def is_path(value: str) -> bool:
    """Whether a value of ``pack=`` means a place on disk and not a name of ``conf/pack/``."""
    return "/" in value or value.startswith((".", "~")) or value.endswith(".zip")


def _refuse(message: str) -> NoReturn:
    raise UsageError(message[:1].lower() + message[1:], "See boosterrun --help")


def _info_without_value(argv: Sequence[str]) -> list[str]:
    """``--info`` takes an optional word: do not let it swallow the override after it."""
    return [
        "--info=all" if arg in {"--info", "-i"} and not set(argv[i + 1 : i + 2]) & INFO else arg
        for i, arg in enumerate(argv)
    ]


def _pack_by_path(override: str) -> list[str]:
    match = re.fullmatch(r"(\+{0,2})pack=(.*)", override, re.DOTALL)
    if match is None:
        return [override]
    prefix, value = match.groups()
    if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
        value = value[1:-1]
    if not is_path(value):
        return [override]
    return [f"{prefix}pack=path", f"pack.path={quoted(str(absolute(value)))}"]


def absolute(path: str) -> Path:
    """``path`` relative to the folder in which the command runs, without resolving links."""
    try:
        return Path(path).expanduser().absolute()
    except RuntimeError:  # "~nobody": no such user
        return Path(path).absolute()
