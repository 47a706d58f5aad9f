"""The adapter of whatever runs in resident Python workers: plain Python here; frameworks derive from it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Hashable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import cast

from boosterrun.adapters.base import Job, Judgement, Toolchain
from boosterrun.case import parse_source
from boosterrun.compilers import proof
from boosterrun.compilers.cubin import applied_controls
from boosterrun.compilers.probe import Probe, Remedies
from boosterrun.config import Config, PythonWorkload
from boosterrun.errors import RunError
from boosterrun.measure import ahead, blame, rounds
from boosterrun.measure.api import Built, Side, SideFailed, SideName, SideSpec
from boosterrun.measure.engine import Engine
from boosterrun.measure.kept import LentBaseline
from boosterrun.measure.sessions import Sources, errands
from boosterrun.measure.side import WorkerSide, warm_up
from boosterrun.measure.trial import Application, Rejected

# A framework's own modules read the side's environment when they are imported: only what they build on.


class ResidentAdapter:
    """One worker process a side; ``BOOSTERRUN_ACF`` holds the ACF's path, and is absent on the baseline.

    A framework derives from this and overrides :meth:`environment` (injection, fresh caches, scrubbed
    variables), :meth:`toolchain` and :meth:`prove`; ``proves`` says that the latter can.
    """

    name = "python"
    evidence = "timed"
    proves = False
    remedies = Remedies(
        options="workload.env",
        replaced="options in the case",
        compiler="the compiler that the case uses",
        cache="the cache that the case uses",
    )

    def toolchain(self, config: Config, env: Mapping[str, str]) -> Toolchain:
        """No compiler is chosen here: the workload's own environment does."""
        return Toolchain()

    def source(self, config: Config) -> Path | None:
        """The case's file; None for ``package.module:function``. Raises UsageError when it is not there."""
        return parse_source(_workload(config).case).path

    def benchmark_command(self, config: Config) -> list[str]:
        """The case is run by the worker; it has no command line of its own."""
        return ["python", "-m", "boosterrun.measure.worker", _workload(config).case]

    def environment(self, job: Job, side: SideName, work: Path) -> dict[str, str | None]:
        """Variables of one side on top of the shell's; None removes one."""
        mine = side == "candidate" and job.acf is not None and job.controls is not None
        acf = {"BOOSTERRUN_ACF": str(job.controls) if mine else None}
        return {**acf, **self.workload_environment(job, mine)}

    def workload_environment(self, job: Job, candidate: bool) -> dict[str, str | None]:
        """``workload.env`` with ``{acf}`` filled in; the baseline goes without a variable that names it."""
        filled: dict[str, str | None] = {}
        for name, value in job.config.workload.env.items():
            if "{acf}" in value and not candidate:
                filled[name] = None
            else:
                filled[name] = value.replace("{acf}", str(job.controls))
        return filled

    def prove(self, job: Job, baseline: Built, candidate: Built) -> Application:
        """Nothing is known of how the code was compiled."""
        return Application(detail="this adapter does not know what compiled the code")

    def framework(self) -> dict[str, str | None] | None:
        """Name, version and commit of the framework, for the record."""
        return None

    def require_stages(self, job: Job) -> None:
        """Raise Rejected for an ACF whose compiler stages this adapter does not have."""

    def injects(self, config: Config) -> bool:
        """Whether a compiler is handed the ACF for certain: here, if ``workload.env`` names it."""
        return any("{acf}" in value for value in config.workload.env.values())

    def ignored(self) -> list[str]:
        """Variables of the shell that no side gets to see."""
        return []

    def probe(self, job: Job, begin: Callable[[], None] = lambda: None) -> Probe:
        """Build the first shape on a candidate's side alone. Raises RunError when it does not even start."""
        shape, params = next(iter(job.config.workload.shapes.items()))
        try:
            with self.side(job, "candidate", job.work) as side:
                if not self.proves:  # then who knows what the case does with the ACF when it is imported?
                    begin()
                side.start()
                if self.proves:
                    begin()
                built = side.build(shape, params)
                codes = proof.read(built, job.toolchain.ptxas or job.toolchain.nvcc)
        except SideFailed as failure:
            reason, words = blame.explain(failure, job.controls)
            if reason == "start_error":
                raise RunError(
                    f"the workload does not start: {words}", "Run it by hand and mend it"
                ) from failure
            return Probe(reason, words)
        except Rejected as rejection:
            return Probe(rejection.reason, rejection.message)
        return Probe(None, "", tuple(" ".join(applied_controls(code.cubin)) for code in codes))

    def preload(self, config: Config) -> tuple[str, ...] | None:
        """Modules that a warm process may import for the workers; None: each imports its own."""
        if not config.sweep.warm_start:
            return None
        return tuple(_workload(config).preload)

    def side(self, job: Job, side: SideName, work: Path, *, fresh: bool = False) -> WorkerSide:
        """One side, not started; ``fresh``: a process of its own from the start.

        Raises Rejected for an ACF of stages that the adapter does not have.
        """
        self.require_stages(job)
        return WorkerSide(self._spec(job, side, work, fresh=fresh), job.config.timeouts)

    def _spec(self, job: Job, side: SideName, work: Path, *, fresh: bool = False) -> SideSpec:
        workload = _workload(job.config)
        source = self.source(job.config)
        function = workload.case.rpartition(":")[2]
        candidate = side == "candidate" and job.acf is not None
        return SideSpec(
            name=side,
            acf=job.controls if candidate else None,
            acf_id=job.acf.id if candidate and job.acf else None,
            work=work,
            env=self.environment(job, side, work),
            case=f"{source}:{function}" if source else workload.case,
            options=workload.options,
            adapter=self.name,
            preload=None if fresh else self.preload(job.config),
        )

    def judge(self, job: Job) -> Judgement:
        """Measure with two resident workers. Raises RunError when no candidate is at fault."""
        engine = rounds.take(self._candidate_key(job)) or self._engine(job)
        judgement = engine.judge()
        judgement.framework = self.framework()
        return judgement

    def warm_up(self, config: Config, toolchain: Toolchain) -> None:
        """Begin to import what the workers import before they become one side."""
        nothing = Job(config, None, None, Path(), Path(), toolchain, config.gpu.arch)
        warm_up(self._spec(nothing, "baseline", Path()))

    def prepare(self, job: Job) -> bool:
        """Start, build and check the candidate of a later job in the background.

        The job's first session takes it over if nothing about it has changed. Always True: it waits for room.
        """
        try:
            self.require_stages(job)
        except Rejected:
            return True  # there is nothing to build
        lent, most = self._lent(job), _sides_ahead(job.config)
        timing = None if lent is None else lent(0).timing
        todo = errands(job.config, 0, Engine.trials_of(job.config), timing)
        if lent is not None:
            lent(0).begin(todo, most)
        spec = self._candidate(job)
        ahead.offer(self._key(job, spec), partial(WorkerSide, spec, job.config.timeouts), todo, most)
        return True

    def screen(self, job: Job) -> None:
        """Do the screen of a job before the job; :meth:`judge` goes on from there. Raises as judge."""
        rounds.screen(self._candidate_key(job), self._engine(job))

    def _engine(self, job: Job) -> Engine:
        def open_side(side: SideName, work: Path) -> Side:
            self.require_stages(job)
            return ahead.take(self._key(job, self._spec(job, side, work))) or self.side(job, side, work)

        def open_fresh(side: SideName, work: Path) -> Side:
            return self.side(job, side, work, fresh=True)

        def prove(baseline: Built, candidate: Built) -> Application:
            return self.prove(job, baseline, candidate)

        sources = Sources(
            usual=open_side,
            fresh=open_fresh,
            lent=self._lent(job),
            confirm_start=job.config.protocol.confirm_start,
            sides_ahead=_sides_ahead(job.config),
        )
        return Engine(job, open_side, prove, proves=self.proves, sources=sources)

    def _lent(self, job: Job) -> Callable[[int], LentBaseline] | None:
        """The baselines of this sweep; None where nothing follows, or the baseline is what is tested."""
        if job.acf is None or job.config.sweep.candidates < 2:
            return None
        if not job.config.sweep.keep_baseline:
            return None
        key, timeouts = self._key(job, self._spec(job, "baseline", Path())), job.config.timeouts

        def lent(session: int) -> LentBaseline:
            return LentBaseline(
                key, lambda work: WorkerSide(self._spec(job, "baseline", work), timeouts), session
            )

        return lent

    def _candidate(self, job: Job) -> SideSpec:
        return self._spec(job, "candidate", job.work / "session-0" / "candidate")

    def _candidate_key(self, job: Job) -> Hashable:
        return self._key(job, self._candidate(job))

    def _key(self, job: Job, spec: SideSpec) -> Hashable:
        """Everything that makes a side what it is: with an equal key another job's side may serve."""
        source = self.source(job.config)
        return (
            json.dumps(asdict(spec), sort_keys=True, default=str),
            hashlib.sha256(source.read_bytes()).hexdigest() if source else "",
            repr((job.toolchain, job.arch, job.config.timeouts)),
            tuple(sorted(os.environ.items())),
            Path.cwd(),
        )


def _workload(config: Config) -> PythonWorkload:
    return cast(PythonWorkload, config.workload)


def _sides_ahead(config: Config) -> int:
    return ahead.limit(config.sweep.build_ahead)
