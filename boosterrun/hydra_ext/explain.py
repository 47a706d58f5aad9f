"""Errors of Hydra, OmegaConf and YAML, told in one line: what is wrong, where, and what to do next."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from hydra.errors import CompactHydraException, HydraException, MissingConfigException, OverrideParseException
from omegaconf.errors import (
    ConfigAttributeError,
    ConfigKeyError,
    InterpolationResolutionError,
    MissingMandatoryValue,
    OmegaConfBaseException,
)
from yaml import MarkedYAMLError, YAMLError  # type: ignore[import-untyped]

from boosterrun.errors import UsageError
from boosterrun.hydra_ext.keys import did_you_mean, unknown_key

# Bad input reaches Hydra and OmegaConf in many forms: a defaults list that is no list is a ValueError.
COMPOSITION_ERRORS = (
    HydraException,
    OmegaConfBaseException,
    YAMLError,
    ValueError,
    OSError,
    KeyError,
    TypeError,
)


@contextmanager
def explaining(errors: tuple[type[Exception], ...] = COMPOSITION_ERRORS) -> Iterator[None]:
    """Turn ``errors`` (default: all that a composition raises) into UsageError, the original as its cause."""
    try:
        yield
    except errors as error:
        raise explain(error) from error


def explain(error: Exception) -> UsageError:  # noqa: PLR0911 - one line per kind of error
    """The one-line error for what Hydra, OmegaConf or YAML says."""
    place = _place(str(error))
    for inner in _chain(error):
        match inner:
            case OverrideParseException():
                return _parse_error(inner)
            case MissingConfigException():
                return _missing_config(inner)
            case MarkedYAMLError():
                return _yaml_error(inner)
            case YAMLError() | UnicodeDecodeError():
                return UsageError(
                    f"a config file is not valid YAML: {_first_line(inner)}", "Save it as UTF-8"
                )
            case MissingMandatoryValue():
                return UsageError(f"{_key(inner)} is not set", f"Give {_key(inner)}=VALUE")
            case InterpolationResolutionError():
                return _interpolation(inner, place)
            case ConfigAttributeError() | ConfigKeyError():
                return _bad_key(error, inner, place)
            case OmegaConfBaseException():
                return UsageError(
                    f"{place}{_key(inner)}: {_first_line(inner)}", "Give a value of the right type"
                )
    return _composition(error)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and what it came from, innermost last; Hydra often only chains implicitly."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__


def _parse_error(error: OverrideParseException) -> UsageError:
    reason = _first_line(error).removesuffix(".")
    return UsageError(
        f"cannot read the override '{error.override}': {reason}",
        "Quote the value, as in \"key='some text'\", and the whole for the shell",
    )


def _missing_config(error: MissingConfigException) -> UsageError:
    group, _, name = (error.missing_cfg_file or "").rpartition("/")
    place = _place(str(error))
    place = "" if place in {"In 'config': ", "In 'hydra/config': "} else place
    if not group or error.options is None:
        return UsageError(
            f"{place}there is no config '{error.missing_cfg_file}'", "Check --config-name and --config-path"
        )
    advice = did_you_mean(name, list(error.options))
    advice += {
        "pack": " (by path: pack=./NAME; a fetched one: pack=stored pack.name=NAME)",
        "experiment": " (your own go into ./experiments/NAME.yaml)",
    }.get(group, "")
    return UsageError(f"{place}unknown {group} '{name}'", advice)


def _yaml_error(error: MarkedYAMLError) -> UsageError:
    mark = error.problem_mark
    where = f"{mark.name}, line {mark.line + 1}" if mark is not None else "a config file"
    return UsageError(f"{where}: {error.problem or 'not valid YAML'}", "Correct the file")


def _interpolation(error: InterpolationResolutionError, place: str) -> UsageError:
    if match := re.search(r"Missing mandatory value: (\S+)", str(error)):
        return UsageError(f"{place}{match[1]} is not set", f"Give {match[1]}=VALUE")
    reason = _first_line(error).partition(" raised while resolving interpolation: ")[2] or _first_line(error)
    return UsageError(f"{place}{_key(error)}: {reason}", "Check what is inside ${...}")


def _bad_key(error: Exception, inner: OmegaConfBaseException, place: str) -> UsageError:
    match = re.match(r"Could not override '(.*)'\.\nTo append to your config use (.*)", str(error))
    key = match[1] if match else _key(inner)
    free = re.match(r"workload\.(shapes|options|env)(\.|$)", key)
    if match and free:
        problem = f"there is no '{key}' yet" if free[2] else f"'{key}' has no such key yet"
        return UsageError(problem, f"To add it write {match[2]}")
    return unknown_key(key, origin=f" ({place.rstrip(': ')})" if place else "")


def _composition(error: Exception) -> UsageError:
    text = str(error)
    if match := re.match(r"Ambiguous value for argument '(.*)'", text):
        return UsageError(
            f"'{match[1]}' is a sweep over several values", "Add -m to sweep, or use [a,b] for a list"
        )
    if match := re.match(r"Sweep parameters '(.*)' requires --multirun", text):
        return UsageError(f"'{match[1]}' is a sweep", "Add -m to run it")
    if match := re.match(
        r"(?:In '(.*?)': )?Could not override '(.*)'\.\s+No match in the defaults list", text
    ):
        return unknown_key(match[2].partition("@")[0], origin=f" (in {match[1]})" if match[1] else "")
    if match := re.match(r"You must specify '(.*?)'.*?Available options:\s*(.*)", text, re.DOTALL):
        return UsageError(f"{match[1]} is not set", did_you_mean("", match[2].split()))
    line = _first_line(error) or type(error).__name__
    kind = (
        "" if isinstance(error, CompactHydraException | OSError | ValueError) else f"{type(error).__name__}: "
    )
    return UsageError(f"the configuration is not valid: {kind}{line.rstrip('.')}", "See boosterrun --help")


def _place(text: str) -> str:
    match = re.match(r"In '([^']*)': ", text)
    return match[0] if match else ""


def _key(error: BaseException) -> str:
    return str(getattr(error, "full_key", None) or getattr(error, "key", None) or "a key")


def _first_line(error: BaseException) -> str:
    lines: Sequence[str] = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else ""
