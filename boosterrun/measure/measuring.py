"""One shape in one session: build both sides, prove, check, time, and check again."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from boosterrun.adapters.base import Job
from boosterrun.decision.pairs import Pair
from boosterrun.errors import RunError
from boosterrun.measure import ahead, imported, progress, takeover
from boosterrun.measure.api import Built, Checked, Side, SideName
from boosterrun.measure.blocks import Compared, PairLog, PairRunner, choose_timing
from boosterrun.measure.judged import BaselineFailed
from boosterrun.measure.kept import LentBaseline, ShapeMemory
from boosterrun.measure.phases import Phases
from boosterrun.measure.sessions import check_seeds
from boosterrun.measure.trial import UNIT, Application, Rejected, Trial
from boosterrun.measure.watch import Watch

T = TypeVar("T")
Prove = Callable[[Built, Built], Application]


@dataclass
class Session:
    """Two processes, and what is watched while they are timed. ``lent``: the baseline, if jobs share it."""

    number: int
    baseline: Side
    candidate: Side
    watch: Watch
    lent: LentBaseline | None


class Measuring:
    """Measures shapes of one job. ``prove`` compares what both sides built.

    ``proves``: the adapter can prove that the ACF was applied; unless the protocol says otherwise, it must.
    """

    def __init__(self, job: Job, prove: Prove, phases: Phases, *, proves: bool) -> None:
        required = job.config.protocol.require_proof
        self._proof_required = proves if required is None else required
        self._job = job
        self._prove = prove
        self._phases = phases

    def run(self, session: Session, trial: Trial, log: PairLog) -> None:
        """Measure one shape as far as this session goes. Raises SideFailed, Rejected, and RunError."""
        self._build(session, trial)
        self._check(session, trial)
        with self._phases.turn(self._job.config.gpu.wait):
            with self._phases.during("pairs"):
                memory = session.lent.memory(trial.name) if session.lent is not None else None
                if trial.runner is None:
                    trial.runner = self._begin(session, trial, memory, log)
                if trial.open:
                    self._pairs(session, trial, trial.runner, memory)
                else:
                    self._guard(session, trial, trial.runner)
            with self._phases.during("check"):  # at once: beside others that start it takes ten times as long
                self._checked(trial, "baseline", session.baseline.check_timed(trial.name), None)
                self._checked(trial, "candidate", session.candidate.check_timed(trial.name), None)

    @staticmethod
    def _pairs(session: Session, trial: Trial, runner: PairRunner, memory: ShapeMemory | None) -> None:
        """Run the pairs that the decision asks for in this session."""

        def take(pair: Pair) -> None:
            trial.take(pair)
            # A launch that failed costs this job its verdict, but not the jobs that come after it.
            sound = pair.void is None and not any(pair.failures)
            if memory is not None and pair.phase == "calibrate" and sound:
                memory.calibration.append(pair)

        decision = trial.decider.decision()
        while decision.state != "final" and decision.session == session.number:
            other = session.baseline if decision.phase == "calibrate" else session.candidate
            sides = Compared(session.baseline, other, take)
            runner.run(sides, session.watch, decision.phase, session.number, most=trial.decider.certain())
            decision = trial.decider.decision()
            progress.pair(trial.name, decision)

    @staticmethod
    def _guard(session: Session, trial: Trial, runner: PairRunner) -> None:
        """Look for a loss on a shape that did not gain, as often as voided pairs allow."""
        sides, number = Compared(session.baseline, session.candidate, trial.take), session.number
        for _ in range(trial.decider.protocol.max_voids):
            if not trial.guards(number):
                return
            runner.run(sides, session.watch, "guard", number, most=trial.decider.certain(number))

    def _begin(self, session: Session, trial: Trial, memory: ShapeMemory | None, log: PairLog) -> PairRunner:
        """Choose how to time a shape, and take what an interrupted run or another job has measured of it."""
        acf, folder, protocol = self._job.acf, self._job.folder, self._job.config.protocol
        seed = f"{self._job.config.seed}:{acf.sha256 if acf else 'none'}:{trial.name}"
        # A self-test that failed is repeated because something else has changed: it begins anew.
        hello = self._phases.hello
        sides = takeover.fingerprint(folder, hello, trial.application) if acf and hello else None
        left = takeover.find(folder, trial, seed, sides, protocol.warmup)
        known = memory.timing if memory is not None else None
        timing = left.timing if left is not None else known
        trial.timing = timing or choose_timing(session.baseline, trial.name, protocol)
        runner = PairRunner(trial.name, trial.timing, seed, log, sides)
        if left is not None:
            trial.take_over(left.pairs, runner)
        if memory is not None and known in (None, trial.timing):
            memory.timing = trial.timing
            self._recall(trial, runner, memory)
        return runner

    @staticmethod
    def _recall(trial: Trial, runner: PairRunner, memory: ShapeMemory) -> None:
        """Take the baseline's pairs with itself from an earlier job: they are this job's data as well."""
        for pair in memory.calibration:
            if trial.decider.decision().phase != "calibrate":
                return
            if pair in trial.pairs:  # this job has measured it itself, before it began again
                continue
            runner.recall(pair, UNIT)
            trial.take(pair)

    def _build(self, session: Session, trial: Trial) -> None:
        with self._phases.during("build"):
            baseline, candidate = both(
                lambda: session.baseline.build(trial.name, trial.params),
                lambda: session.candidate.build(trial.name, trial.params),
            )
        trial.built = {"baseline": baseline, "candidate": candidate}
        changed = imported.difference(trial.sources, baseline.sources, candidate.sources)
        if changed is not None:
            workload = self._job.config.workload.name
            raise RunError(f"{changed} changed while {workload} was measured", "Run it again")
        trial.sources |= {**baseline.sources, **candidate.sources}
        ahead.fit(candidate.detail.get("gpu_memory"))
        trial.application = self._prove(baseline, candidate)
        if self._job.acf is None:
            return
        applied, detail = trial.application.applied, trial.application.detail
        if applied in ("not_applied", "not_applicable"):
            reason = "acf_not_applied" if applied == "not_applied" else applied
            raise Rejected(reason, f"shape {trial.name}: {detail}")
        if applied == "unproven" and self._proof_required:
            words = f"no proof that the ACF was applied: {detail} (protocol.require_proof=false does without)"
            raise Rejected("acf_not_applied", f"shape {trial.name}: {words}")
        if trial.application.code_identical:
            raise Rejected("identical_code", f"shape {trial.name}: every kernel's code is the baseline's")

    def _check(self, session: Session, trial: Trial) -> None:
        with self._phases.during("check"):
            for seed in check_seeds(self._job.config, session.number):
                self._checked(trial, "baseline", session.baseline.check(trial.name, seed), seed)
                self._checked(trial, "candidate", session.candidate.check(trial.name, seed), seed)

    def _checked(self, trial: Trial, side: SideName, checked: Checked, seed: int | None) -> None:
        trial.checks.append({"side": side, "seed": seed, "passed": checked.passed, **dict(checked.detail)})
        if checked.passed is None:
            return
        if checked.passed:
            trial.correctness = "passed"
            return
        words = checked.detail.get("message", "the output differs from the reference")
        if side == "baseline":
            raise BaselineFailed(
                f"shape {trial.name}: the baseline gives a wrong result: {words}",
                "The workload, its reference or its tolerance is wrong: no ACF is involved",
            )
        trial.correctness = "failed"
        raise Rejected("wrong_result", f"shape {trial.name}: {words}")


def both(baseline: Callable[[], T], candidate: Callable[[], T]) -> tuple[T, T]:
    """Do both at once. When both fail, the baseline's failure counts: it explains the candidate's."""
    with ThreadPoolExecutor(max_workers=2) as pool:
        futures = [pool.submit(baseline), pool.submit(candidate)]
        return futures[0].result(), futures[1].result()
