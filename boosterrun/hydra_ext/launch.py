"""Everything of the command that is no verb: one job, a sweep, or a look at the configuration."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import hydra
from hydra._internal.hydra import Hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import CompactHydraException
from hydra.types import RunMode
from omegaconf import OmegaConf

from boosterrun import __version__
from boosterrun.errors import BoosterrunError, RunError, UsageError
from boosterrun.hydra_ext import arguments as command_line
from boosterrun.hydra_ext.explain import explaining
from boosterrun.hydra_ext.setup import set_up
from boosterrun.measure import progress
from boosterrun.system import closer, interrupt, redact


def run(argv: Sequence[str], verbs: Mapping[str, str] | None = None) -> int:
    """Do what the command line says. Returns the exit code. ``verbs``: summaries for the help, by name.

    Raises BoosterrunError for bad input, before anything has run.
    """
    if "--version" in argv:
        sys.stdout.write(f"boosterrun {__version__} (hydra-core {hydra.__version__})\n")
        return 0
    set_up()
    from boosterrun.hydra_ext import plan  # noqa: PLC0415

    if "--shell-completion" in argv or "-sc" in argv:
        return _complete(argv)
    parsed = command_line.parse(argv)
    if parsed.flags.help:
        return _help(parsed, verbs or {})
    planned = plan.make(parsed)
    progress.set_level(parsed.level)
    with prepared(planned.search_path) as app:
        if parsed.flags.cfg or parsed.flags.info or parsed.flags.hydra_help:
            return _show(app, planned, parsed.flags)
        return _run(app, planned, argv)


@contextlib.contextmanager
def prepared(search_path: Any) -> Iterator[Hydra]:
    """Hydra with our search path, for as long as the block."""
    GlobalHydra.instance().clear()
    try:
        yield Hydra.create_main_hydra2(task_name="boosterrun", config_search_path=search_path)
    finally:
        GlobalHydra.instance().clear()


def _show(app: Hydra, planned: Any, flags: Any) -> int:
    name, overrides = planned.config_name, planned.overrides
    with explaining():
        if flags.hydra_help:
            app.hydra_help(config_name=name, args_parser=command_line.parser(), args=flags)
        elif flags.info:
            app.show_info(flags.info, config_name=name, overrides=overrides)
        else:
            app.show_cfg(
                config_name=name,
                overrides=overrides,
                cfg_type=flags.cfg,
                package=flags.package,
                resolve=flags.resolve,
            )
    return 0


def _run(app: Hydra, planned: Any, argv: Sequence[str]) -> int:
    from boosterrun.config import typed  # noqa: PLC0415
    from boosterrun.gpus import binding, wedged  # noqa: PLC0415
    from boosterrun.hydra_ext.remembered import remember  # noqa: PLC0415
    from boosterrun.packs import match  # noqa: PLC0415
    from boosterrun.results import record  # noqa: PLC0415
    from boosterrun.sweeps import app as job  # noqa: PLC0415
    from boosterrun.sweeps import canary, sweep, turns  # noqa: PLC0415

    for config in planned.configs:
        redact.learn(OmegaConf.to_container(config, resolve=True))
        job.preflight(config)
    if any(config.acf.id != job.SELF_TEST for config in planned.configs):
        match.announce(planned.pack)
    explicit = [
        o for o in planned.overrides if o.lstrip("+").startswith(("hydra.sweep.dir=", "hydra.run.dir="))
    ]
    overrides = list(planned.overrides)
    place = planned.folder if explicit else new_folder(planned.folder)
    if not explicit:
        overrides.append(f"hydra.sweep.dir={command_line.quoted(str(place))}")
    remember(place, argv)
    with interrupt.handling(), explaining((CompactHydraException,)):
        wedged.readmit(place)
        if planned.multirun:
            measured = [c for c in planned.configs if c.acf.id != job.SELF_TEST]

            def prove() -> None:
                with binding.lent([typed(config) for config in measured], place):
                    canary.before_sweep(measured, place)

            goes_on = any(place.glob(f"*/{record.FILENAME}"))
            if planned.here and not goes_on:  # else there may be nothing left to do
                turns.warm_up(planned.configs[0], place)
            sweep.before_jobs(prove)
            overrides.append(f"hydra.mode={RunMode.MULTIRUN.name}")
            code = app.multirun(
                config_name=planned.config_name, task_function=turns.run_job, overrides=overrides
            )
            return int(code) if isinstance(code, int) else 0
        binding.bind(typed(planned.configs[0]), place)  # Hydra tells of an error in a job in words of its own
        overrides.append(f"hydra.mode={RunMode.RUN.name}")
        return _one(app, planned.config_name, overrides)


def _one(app: Hydra, config_name: str, overrides: list[str]) -> int:
    from boosterrun.sweeps import live, summary, turns  # noqa: PLC0415

    try:
        returned = app.run(config_name=config_name, task_function=turns.run_job, overrides=overrides)
    except OSError as error:  # Hydra's own files; a job's errors are in its result
        raise RunError(
            f"cannot write {error.filename or 'to the output folder'}: {error.strerror or error}",
            "Free some space or choose another hydra.sweep.dir",
        ) from error
    finally:
        closer.finish()
    live.View(1).finished(returned.return_value)
    assert returned.hydra_cfg is not None  # noqa: S101 - for the type checker
    folder = Path(str(returned.hydra_cfg.hydra.runtime.output_dir))
    return summary.merge(folder.parent)


def new_folder(wanted: Path) -> Path:
    """Make a folder that no other run has, adding ``-2``, ``-3``, ... where another was faster.

    Raises RunError if it cannot be made.
    """
    for number in range(1, 1000):
        folder = wanted if number == 1 else wanted.with_name(f"{wanted.name}-{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise RunError(
                f"cannot make {folder}: {error.strerror}", "Give hydra.sweep.dir=FOLDER"
            ) from error
        return folder
    raise RunError(f"{wanted} and 998 more like it exist", "Give hydra.sweep.dir=FOLDER")


def _help(parsed: command_line.Arguments, verbs: Mapping[str, str]) -> int:
    from boosterrun.hydra_ext import help, plan, search  # noqa: PLC0415

    path = search.search_path(None, parsed.flags.config_path, parsed.flags.config_dir)
    with contextlib.suppress(BoosterrunError):  # help is for when things do not work
        path = plan.make(parsed, may_fetch=False).search_path
    sys.stdout.write(help.text(search.loader(path), verbs))
    return 0


def _complete(argv: Sequence[str]) -> int:
    """Hydra's shell completion, with the pack that the line so far means."""
    from boosterrun.hydra_ext import plan, search  # noqa: PLC0415

    line = os.environ.get("COMP_LINE", "")
    path = search.search_path(None)
    if line:
        path, os.environ["COMP_LINE"] = _completable(line, plan)
    requests = [arg for arg in argv if not arg.startswith("-")]
    with prepared(path) as app:
        try:
            app.shell_completion(config_name="config", overrides=requests)
        except ValueError as error:
            raise UsageError(
                f"completion: {' '.join(str(error).split())}", "Use -sc install=bash, uninstall=bash"
            ) from error
    return 0


def _completable(line: str, plan: Any) -> tuple[Any, str]:
    """The search path that a half-written line means, and the line as Hydra's completion can read it."""
    from boosterrun.hydra_ext import search  # noqa: PLC0415

    begun = "" if line[-1:].isspace() else line.rsplit(maxsplit=1)[-1]
    head = line[: len(line) - len(begun)]
    try:
        words = shlex.split(head)
    except ValueError:
        words = head.split()
    if not words:
        words = [begun or "boosterrun"]
    try:
        parsed = command_line.parse(words[1:])
        path = plan.make(parsed, may_fetch=False).search_path
        overrides = parsed.overrides
    except BoosterrunError:
        path, overrides = search.search_path(None), []
    readable = [word for word in overrides if _readable(word)]
    return path, " ".join(["boosterrun", *readable, begun])


def _readable(word: str) -> bool:
    if any(character.isspace() for character in word):
        return False
    try:
        return not OverridesParser.create().parse_override(word).is_sweep_override()
    except CompactHydraException:
        return False
