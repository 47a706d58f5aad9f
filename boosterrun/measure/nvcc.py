"""Sides that run a program which nvcc has just built: a resident worker, one that prints scores, NVBench."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from boosterrun.compilers import nvbench
from boosterrun.config import CommandWorkload, NvccMode, NvccWorkload, ScoreConfig
from boosterrun.measure.api import Built, FailureKind, Side, SideFailed, SideSpec, Timeouts
from boosterrun.measure.command import CommandSide
from boosterrun.measure.side import WorkerSide
from boosterrun.system.process import Completed

_RESULT = "{work}/nvbench.json"
# What is built already: whatever fails now is not the compiler's doing.
_KINDS: Mapping[FailureKind, FailureKind] = {
    "compile_error": "runtime_error",
    "compile_timeout": "runtime_timeout",
}


def open_side(
    spec: SideSpec, workload: NvccWorkload, *, program: Path, compiled: Built, timeouts: Timeouts, seed: int
) -> Side:
    """A side of the workload's mode. ``compiled`` says how ``program`` was built, for the record."""
    if workload.mode == NvccMode.harness:
        return HarnessSide(spec, program, compiled, timeouts)
    if workload.mode == NvccMode.nvbench:
        return NvbenchSide(spec, command(workload, str(program)), compiled, timeouts, seed)
    return ProgramSide(spec, command(workload, str(program)), compiled, timeouts, seed)


def command(workload: NvccWorkload, program: str) -> CommandWorkload:
    """The workload as one that runs ``program``: its arguments, its scores, its check."""
    args = list(workload.args)
    score = workload.score
    if workload.mode == NvccMode.nvbench:
        args += ["--jsonbin", _RESULT]
        score = ScoreConfig(regex="(.*)", file=_RESULT)  # removed before each launch, and read here
    return CommandWorkload(
        name=workload.name,
        shapes=workload.shapes,
        env=workload.env,
        command=[program.replace("{", "{{").replace("}", "}}"), *args],
        score=score,
        check=workload.check,
        reference_output=workload.reference_output,
        output=workload.output,
        tolerance=workload.tolerance,
        cwd=workload.cwd,
    )


class HarnessSide(WorkerSide):
    """A program made with ``boosterrun.cuh``: it is its own worker and speaks the worker's protocol."""

    def __init__(self, spec: SideSpec, program: Path, compiled: Built, timeouts: Timeouts) -> None:
        super().__init__(spec, timeouts)
        self._program = program
        self._compiled = compiled

    def worker(self) -> list[str]:
        """The program itself."""
        return [str(self._program)]

    def build(self, shape: str, params: Mapping[str, Any]) -> Built:
        """Make a shape's inputs and references and run it once. Raises SideFailed."""
        try:
            built = super().build(shape, params)
        except SideFailed as failure:
            failure.kind = _KINDS.get(failure.kind, failure.kind)
            raise
        return _merged(self._compiled, built)


class ProgramSide(CommandSide):
    """A program that prints its own scores; one launch is one block."""

    def __init__(
        self, spec: SideSpec, workload: CommandWorkload, compiled: Built, timeouts: Timeouts, seed: int
    ) -> None:
        super().__init__(spec, workload, timeouts, seed)
        self._compiled = compiled

    def build(self, shape: str, params: Mapping[str, Any]) -> Built:
        """Run the program once. Raises SideFailed."""
        return _merged(self._compiled, super().build(shape, params))


class NvbenchSide(ProgramSide):
    """An NVBench program; one launch of it gives the raw times of many launches of the kernel."""

    def _scores(self, shape: str, done: Completed) -> list[float]:
        values = self._values(shape, self._seed)
        if done.returncode != 0:
            return super()._scores(shape, done)
        return nvbench.samples(self._path(_RESULT, values), self._cwd(values))


def _merged(compiled: Built, built: Built) -> Built:
    """What nvcc did, with what is known of the case."""
    return replace(
        compiled, kernels=built.kernels, versions=built.versions, detail={**built.detail, **compiled.detail}
    )
