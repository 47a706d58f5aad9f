"""CUDA C++ that nvcc compiles once per side, with the ACF on the command line of one of them."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import cast

from boosterrun import packs
from boosterrun.adapters.base import Job, Judgement, Toolchain
from boosterrun.compilers import nvcc_build, nvcc_options, proof
from boosterrun.compilers.cubin import applied_controls
from boosterrun.compilers.nvcc_build import Program
from boosterrun.compilers.probe import Probe, Remedies
from boosterrun.compilers.toolchain import find_nvcc, require_controls
from boosterrun.config import Config, NvccMode, NvccWorkload
from boosterrun.errors import RunError, UsageError
from boosterrun.measure import ahead, rounds
from boosterrun.measure.api import Built, Side, SideName, SideSpec
from boosterrun.measure.engine import Engine
from boosterrun.measure.judged import BaselineFailed
from boosterrun.measure.kept import LentBaseline
from boosterrun.measure.nvcc import command, open_side
from boosterrun.measure.sessions import Sources
from boosterrun.measure.trial import Application, Rejected
from boosterrun.programs import score
from boosterrun.programs.placeholders import Values

# Of the shell, these would have the driver compile from PTX, where no ACF is.
_DRIVER = ("CUDA_FORCE_PTX_JIT", "CUDA_FORCE_JIT")


@dataclass
class _Made:
    """Both programs, how they were built, and what was proven; ``rejected``: nothing is left to measure."""

    programs: dict[SideName, Path] = field(default_factory=dict)
    built: dict[str, Built] = field(default_factory=dict)
    application: Application = field(default_factory=Application)
    rejected: Rejected | None = None


class Nvcc:
    """The adapter; it keeps the baseline programs, so that a sweep builds each once."""

    evidence = "timed"
    remedies = Remedies(
        options="nvcc's command line (NVCC_APPEND_FLAGS, a wrapper around nvcc)",
        replaced="options for ptxas in the workload's flags",
        compiler="toolchain.nvcc",
        cache="a cache around nvcc or its host compiler (ccache)",
    )

    def __init__(self) -> None:
        self._baselines = nvcc_build.Baselines()
        self._early = nvcc_build.Early()

    def toolchain(self, config: Config, env: Mapping[str, str]) -> Toolchain:
        """Find an nvcc that can apply controls; raises ToolchainError."""
        nvcc = find_nvcc(config.toolchain.nvcc, env)
        require_controls(nvcc)
        return Toolchain(nvcc=nvcc)

    def source(self, config: Config) -> Path:
        """Return the first source; raises UsageError for a workload that can never work."""
        workload = _workload(config)
        if workload.mode != NvccMode.harness:
            _check_command(workload, config.seed)
        nvcc = self.toolchain(config, os.environ).nvcc
        assert nvcc is not None  # noqa: S101 - for the type checker
        return nvcc_options.plan(workload, config.gpu.arch, nvcc).sources[0]

    def benchmark_command(self, config: Config) -> list[str]:
        """Return how a program of this workload is run by hand, for the first shape."""
        workload = _workload(config)
        shape, params = next(iter(workload.shapes.items()))
        if workload.mode == NvccMode.harness:
            given = {"case": workload.case} if workload.case else {}
            values = {**given, "seed": config.seed, **workload.options, **params}
            return ["./program", *(f"{name}={value}" for name, value in values.items())]
        values_of = Values(str(shape), params, "", "", config.seed, ".", "baseline")
        return values_of.argv(command(workload, "./program").command, "workload.args")

    def judge(self, job: Job) -> Judgement:
        """Build, prove, and measure what is left. Raises RunError when no candidate is at fault."""
        return (rounds.take(self._key(job)) or self._engine(job)).judge()

    def prepare(self, job: Job) -> bool:
        """Build the candidate of a later job in the background; False when it must wait. Raises Rejected."""
        self._require_stages(job)
        return self._early.offer(self._key(job), lambda: self._build(job, "candidate"), _builds_ahead(job))

    def screen(self, job: Job) -> None:
        """Do the screen of a job before the job; :meth:`judge` goes on from there. Raises as judge."""
        rounds.screen(self._key(job), self._engine(job))

    def _engine(self, job: Job) -> Engine:
        begun = time.monotonic()
        made = self._make(job)
        seconds = time.monotonic() - begun

        def prove(baseline: Built, candidate: Built) -> Application:
            return made.application

        def side(name: SideName, work: Path) -> Side:
            return _side(job, made, name, work)

        sources = Sources(
            usual=side,
            lent=_lent(job, made, lambda work: side("baseline", work)),
            sides_ahead=_builds_ahead(job) if _workload(job.config).mode == NvccMode.harness else 0,
        )
        engine = Engine(job, side, prove, proves=True, sources=sources)
        engine.phases.seconds["build"] = seconds
        for trial in engine.trials:
            trial.built, trial.application = dict(made.built), made.application
            trial.rejected = made.rejected
        return engine

    def injects(self, config: Config) -> bool:
        """Whether the pack has an ACF that nvcc can apply for this target."""
        pack = packs.open_pack(
            Path(config.pack.path),
            cuda_version=config.pack.cuda_version,
            stage=config.pack.stage.value if config.pack.stage is not None else None,
            name=config.pack.name,
        )
        arch = config.gpu.arch or nvcc_options.detected_arch(os.environ)
        return any(nvcc_options.supports(acf.compiler_stages, arch) for acf in pack.acfs)

    def ignored(self) -> list[str]:
        """Variables of the shell that nvcc does not get to see."""
        return nvcc_options.ignored(os.environ)

    def probe(self, job: Job, begin: Callable[[], None] = lambda: None) -> Probe:
        """Build with the ACF alone; raises RunError when the machine is at fault."""
        begin()
        program = self._build(job, "candidate")
        reason, words = program.failure or (None, "")
        return Probe(reason, words, tuple(" ".join(applied_controls(code.cubin)) for code in program.codes))

    def _require_stages(self, job: Job) -> None:
        arch = job.arch or nvcc_options.detected_arch(os.environ)
        if job.acf is not None and not nvcc_options.supports(job.acf.compiler_stages, arch):
            stages = ", ".join(job.acf.compiler_stages)
            why = (
                f"the ACF is for the stages {stages}, and nvcc applies none of its own before sm_100: {arch}"
            )
            raise Rejected("unsupported_stage", why)

    def _make(self, job: Job) -> _Made:
        """Build both sides and compare their code; a verdict that needs no measurement is kept."""
        made = _Made()
        try:
            self._require_stages(job)
            baseline, candidate = self._both(job)
            made.built = {"baseline": _built(baseline), "candidate": _built(candidate)}
            _require_built(job, baseline, candidate)
            made.application = self._prove(job, baseline, candidate)
            _require_difference(job, made.application)
            # Both are written before any process starts: one forked meanwhile would keep them "busy".
            made.programs = {
                "baseline": baseline.install(job.work / "baseline"),
                "candidate": candidate.install(job.work / "candidate"),
            }
        except Rejected as verdict:
            made.rejected = verdict
        return made

    def _both(self, job: Job) -> tuple[Program, Program]:
        """Build both sides at once; the self-test runs one program on both."""
        with ThreadPoolExecutor(max_workers=2) as pool:
            ours = None if job.acf is None else pool.submit(self._candidate, job)
            baseline = self._baselines.get(self._plan(job), lambda: self._build(job, "baseline"))
            return baseline, baseline if ours is None else ours.result()

    def _candidate(self, job: Job) -> Program:
        return self._early.take(self._key(job)) or self._build(job, "candidate")

    def _key(self, job: Job) -> tuple[object, ...]:
        return self._plan(job), job.controls, job.acf.compiler_stages if job.acf else ()

    def _plan(self, job: Job) -> nvcc_options.Plan:
        if job.toolchain.nvcc is None:
            raise RunError("no nvcc was chosen for this job", "Choose one with toolchain.nvcc=/path/to/nvcc")
        return nvcc_options.plan(_workload(job.config), job.arch, job.toolchain.nvcc)

    def _build(self, job: Job, side: SideName) -> Program:
        candidate = side == "candidate" and job.acf is not None
        return nvcc_build.build(
            self._plan(job),
            job.controls if candidate else None,
            job.acf.compiler_stages if candidate and job.acf else (),
            job.work / "build" / side,
            timeout=job.config.timeouts.build,
            grace=job.config.timeouts.grace,
            base=os.environ,
        )

    def _prove(self, job: Job, baseline: Program, candidate: Program) -> Application:
        found = proof.prove(baseline.codes, candidate.codes, job.controls, job.toolchain.nvcc, self.remedies)
        if job.controls is not None and found.applied == "proven":
            part = nvcc_build.part_without(candidate.codes, job.controls)
            if part is not None:
                words = f"a part of {part} was compiled without controls: relocatable code from elsewhere"
                return Application("not_applied", None, words, found.kernels)
        return found.noting(self.ignored())


def _workload(config: Config) -> NvccWorkload:
    return cast(NvccWorkload, config.workload)


def _check_command(workload: NvccWorkload, seed: int) -> None:
    """Fill in everything once, so that a mistake is found before the first job. Raises UsageError."""
    if workload.mode == NvccMode.program:
        score.check(workload.score)
    for shape, params in workload.shapes.items():
        values = Values(str(shape), params, "", "", seed, "work", "baseline")
        values.argv(command(workload, "program").command, "workload.args")
        if workload.check is not None:
            values.argv(workload.check, "workload.check")
        for key in ("cwd", "reference_output", "output"):
            if getattr(workload, key) is not None:
                values.fill(getattr(workload, key), f"workload.{key}")
    if workload.case is not None or workload.options:
        raise UsageError(
            f"workload.case and options are not for mode {workload.mode.name}", "Use args, or mode: harness"
        )


def _side(job: Job, made: _Made, name: SideName, work: Path) -> Side:
    """A side that runs its program. None learns which one it is: it could behave."""
    workload, config = _workload(job.config), job.config
    env = {**dict.fromkeys(_DRIVER), **workload.env}
    return open_side(
        SideSpec(name, None, None, work, env, workload.case or "", workload.options, "nvcc"),
        workload,
        program=made.programs[name],
        compiled=made.built[name],
        timeouts=config.timeouts,
        seed=config.seed,
    )


def _builds_ahead(job: Job) -> int:
    return ahead.limit(job.config.sweep.build_ahead)


def _lent(job: Job, made: _Made, open_side: Callable[[Path], Side]) -> Callable[[int], LentBaseline] | None:
    """The baselines of this sweep; None where nothing follows, or the baseline is what is tested."""
    config, workload = job.config, _workload(job.config)
    if workload.mode != NvccMode.harness or job.acf is None or config.sweep.candidates < 2:
        return None
    if made.rejected is not None or not config.sweep.keep_baseline:
        return None
    key = (
        hashlib.sha256(made.programs["baseline"].read_bytes()).hexdigest(),
        repr((workload, config.timeouts, config.seed)),
        tuple(sorted(os.environ.items())),
        Path.cwd(),
    )
    # A harness is a worker: it can be stopped and ended from outside.
    return partial(LentBaseline, key, cast(Callable[[Path], ahead.Abortable], open_side))


def _require_built(job: Job, baseline: Program, candidate: Program) -> None:
    if baseline.failure is not None:
        reason, words = baseline.failure
        raise BaselineFailed(
            f"the baseline does not build ({reason}): {words}", "Build it by hand without an ACF and mend it"
        )
    if candidate.failure is not None:
        raise Rejected(*candidate.failure)
    before, after = baseline.dependencies or {}, candidate.dependencies or {}
    changed = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
    name = baseline.changed or candidate.changed or next(iter(changed), None)
    if name is not None:
        raise RunError(f"{name} changed while {job.config.workload.name} was built", "Run it again")


def _require_difference(job: Job, application: Application) -> None:
    if job.acf is None:
        return
    if application.applied == "not_applied":
        raise Rejected("acf_not_applied", application.detail)
    if application.code_identical:
        raise Rejected("identical_code", "every kernel's code is the baseline's")


def _built(program: Program) -> Built:
    detail = {"command": list(program.command), "output": program.output, "returncode": program.returncode}
    return Built(seconds=program.seconds, detail=detail)


ADAPTER = Nvcc()
