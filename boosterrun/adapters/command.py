"""Any program that prints its own scores: a process per launch, the ACF by placeholders or environment."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from boosterrun.adapters.base import Job, Judgement, Toolchain
from boosterrun.config import CommandWorkload, Config
from boosterrun.errors import UsageError
from boosterrun.measure.api import Side, SideName, SideSpec
from boosterrun.measure.command import CommandSide
from boosterrun.measure.engine import Engine
from boosterrun.measure.trial import Application
from boosterrun.programs import score
from boosterrun.programs.placeholders import Values

_INTERPRETER = re.compile(r"(python|pypy|bash|sh|perl|julia|env)[\d.]*")
_COMMANDS = ("command", "build", "check")


class Command:
    """The adapter. What the program compiles is its own business: an ACF is never proven to be applied."""

    evidence = "timed"

    def toolchain(self, config: Config, env: Mapping[str, str]) -> Toolchain:
        """No compiler is chosen here: the program calls its own."""
        return Toolchain()

    def source(self, config: Config) -> Path | None:
        """Return the program: the first argument that is a file here, else the executable that PATH gives.

        Raises UsageError for a workload that can never work; this is where it is checked.
        """
        workload = _workload(config)
        score.check(workload.score)
        for shape in workload.shapes:
            for acf in ("", "/acf"):
                _fill(workload, _values(config, shape, acf))
        _check_reference(workload)
        shape = next(iter(workload.shapes))
        values = _values(config, shape, "")
        cwd = (
            Path.cwd() if workload.cwd is None else Path(values.fill(workload.cwd, "workload.cwd")).absolute()
        )
        if workload.shell:
            return None
        argv = values.argv(workload.command, "workload.command")
        files = [cwd / word for word in argv if "/" in word or word != argv[0] if os.path.isfile(cwd / word)]  # noqa: PTH113 - a word may be too long for a path
        found = shutil.which(argv[0]) if "/" not in argv[0] else None
        if files:
            interpreted = len(files) > 1 and _INTERPRETER.fullmatch(files[0].name)
            return files[1] if interpreted else files[0]
        if found is None and workload.build is None:
            raise UsageError(
                f"workload.command: there is no program {argv[0]}",
                f"Relative paths begin at {cwd} (workload.cwd); other names are looked up in PATH",
            )
        return Path(found) if found else None

    def benchmark_command(self, config: Config) -> list[str]:
        """Return the command of the baseline for the first shape."""
        workload = _workload(config)
        values = _values(config, next(iter(workload.shapes)), "")
        # A shell only where the user's YAML asks for it.
        return values.argv(workload.command, "workload.command", shell=workload.shell)  # nosec B604

    def judge(self, job: Job) -> Judgement:
        """Launch the program in turn for both sides. Raises RunError when no candidate is at fault."""
        config, workload = job.config, _workload(job.config)

        def open_side(side: SideName, work: Path) -> Side:
            candidate = side == "candidate" and job.acf is not None
            spec = SideSpec(
                name=side,
                acf=job.controls if candidate else None,
                acf_id=job.acf.id if candidate and job.acf else None,
                work=work,
                adapter="command",
            )
            return CommandSide(spec, workload, config.timeouts, config.seed)

        unknown = Application(detail="what the program compiles is not looked at")
        return Engine(job, open_side, lambda baseline, candidate: unknown).judge()


def _workload(config: Config) -> CommandWorkload:
    return cast(CommandWorkload, config.workload)


def _values(config: Config, shape: str, acf: str) -> Values:
    params = _workload(config).shapes[shape]
    return Values(str(shape), params, acf, "acf" if acf else "", config.seed, "work", "baseline")


def _fill(workload: CommandWorkload, values: Values) -> None:
    """Fill in everything once, so that a mistake is found before the first job."""
    for key in _COMMANDS:
        command = getattr(workload, key)
        if command is not None or key == "command":
            # As above; nothing is run here.
            values.argv(command, f"workload.{key}", shell=workload.shell)  # nosec B604
    for name, value in workload.env.items():
        values.variable(value, f"workload.env.{name}")
    for key, path in (
        ("cwd", workload.cwd),
        ("score.file", workload.score.file),
        ("output", workload.output),
        ("reference_output", workload.reference_output),
    ):
        if path is not None:
            values.fill(path, f"workload.{key}")


def _check_reference(workload: CommandWorkload) -> None:
    reference, output = workload.reference_output, workload.output
    if reference is None:
        return
    if reference == output:
        raise UsageError(
            "workload.output and workload.reference_output are one file",
            "The output is removed before each launch",
        )
    if output is None and workload.score.regex is None and workload.score.file is None:
        raise UsageError(
            "workload.reference_output cannot be compared with standard output, which holds the JSON scores",
            "Let the program write a file and name it in workload.output",
        )
    if "{seed}" in str(workload.command) and "{seed}" not in reference:
        raise UsageError(
            "workload.command has {seed}, so one reference_output cannot be right for all seeds",
            "Put {seed} into its name too, or use workload.check",
        )


ADAPTER = Command()
