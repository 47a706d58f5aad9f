"""Judge a candidate by timing: build, prove, check, screen in one session, confirm in fresh ones.

The only module that knows the order of things. What runs behind a side is the adapter's business
(:mod:`boosterrun.measure.api`), and what the pairs mean is :mod:`boosterrun.decision.decide`'s.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from boosterrun.adapters.base import Job, Judgement
from boosterrun.config import Config
from boosterrun.decision.decide import Decider
from boosterrun.decision.pairs import FILENAME, Pair, Protocol
from boosterrun.errors import RunError
from boosterrun.gpus import alive, binding, lease
from boosterrun.measure import ahead, blame, imported, judged, progress, quiet, takeover
from boosterrun.measure.api import Built, Checked, Hello, Side, SideFailed, SideName
from boosterrun.measure.blocks import Compared, PairLog, PairRunner, choose_timing
from boosterrun.measure.judged import BaselineFailed
from boosterrun.measure.kept import LentBaseline, ShapeMemory
from boosterrun.measure.sessions import OpenSide, Sides, Sources, check_seeds
from boosterrun.measure.trial import UNIT, Application, Rejected, Trial
from boosterrun.measure.watch import Stages, Watch
from boosterrun.results.record import KEPT
from boosterrun.system import closer

T = TypeVar("T")
Prove = Callable[[Built, Built], Application]
_OUT_OF_MEMORY = re.compile("out ?of ?memory", re.IGNORECASE)


@dataclass
class _Session:
    number: int
    baseline: Side
    candidate: Side
    watch: Watch
    lent: LentBaseline | None


class Engine:
    """Judges one job. ``open_side`` makes a side that is not started; ``prove`` compares what both built.

    ``proves``: the adapter can prove that the ACF was applied; unless the protocol says otherwise, it must.
    ``sources``: further ways to have sides (:class:`boosterrun.measure.sessions.Sources`).
    """

    def __init__(
        self,
        job: Job,
        open_side: OpenSide,
        prove: Prove,
        *,
        proves: bool = False,
        sources: Sources | None = None,
    ) -> None:
        config = job.config
        required = config.protocol.require_proof
        self.proof_required = proves if required is None else required
        self.job = job
        self.prove = prove
        self.protocol = config.protocol
        self.trials = self.trials_of(config)
        sources = sources or Sources(open_side)
        self.sides = Sides(sources, config, job.work)
        self.phases: dict[str, float] = {}
        self.hello: Hello | None = None
        self.stages = Stages()
        self._number = 0
        self._log: PairLog | None = None

    @staticmethod
    def trials_of(config: Config) -> list[Trial]:
        """The shapes of a workload, nothing measured yet."""
        rules = Protocol.from_mapping(asdict(config.protocol))
        shapes = config.workload.shapes
        return [
            Trial(str(name), dict(params), Decider(rules, config.sweep.candidates, len(shapes)))
            for name, params in shapes.items()
        ]

    def screen(self) -> None:
        """Run the first session alone, if it is a screen; the sides of a confirmation begin to start.

        For a job that is confirmed beside others. Raises as :meth:`judge`.
        """
        try:
            self._run(last=0)
            if self._due():
                self.sides.share(self.hello)
                self.sides.go_ahead(0, [*self._due(), *self._guarded(1)], self.hello)
        except BaseException:
            self.close()
            raise

    def judge(self) -> Judgement:
        """Run the whole procedure. Raises RunError (BaselineFailed) when no candidate is at fault."""
        try:
            self._run()
        finally:
            self.close()
        return judged.judgement(
            self.job, self.trials, phases=self.phases, hello=self.hello, stages=self.stages.readings
        )

    def close(self) -> None:
        """End every side that was made for a later session. Never raises."""
        self.sides.close()
        if self._log is not None:
            self._log.close()

    def _run(self, last: int | None = None) -> None:
        if self._log is None:
            self._log = PairLog(self.job.folder / FILENAME)
        while due := self._due():
            number = min(t.session for t in due)
            if last is not None and number > last:
                break
            self._run_session(number, [t for t in due if t.session == number], self._log)
        if last is None:
            self._guard_to_the_end(self._log)

    def _guard_to_the_end(self, log: PairLog) -> None:
        """Look at the shapes that an interrupted run had not looked at in every session."""
        for _ in range(self.protocol.confirm_sessions):
            number = 1 + max((pair.session for t in self.trials for pair in t.pairs), default=0)
            late = self._guarded(number)
            if self._rejected() or not late or not any(t.reason() == KEPT for t in self.trials):
                return
            self._run_session(number, late, log)

    def _due(self) -> list[Trial]:
        """The shapes that want more pairs: none once a shape has rejected the candidate."""
        return [] if self._rejected() else [t for t in self.trials if t.open]

    def _rejected(self) -> bool:
        return any(t.rejected and t.rejected.reason != "identical_code" for t in self.trials)

    def _guarded(self, session: int) -> list[Trial]:
        """The shapes that are looked at for a loss in a session that confirms another."""
        return [t for t in self.trials if t.guards(session)]

    # ---- sessions ----

    def _run_session(self, number: int, due: list[Trial], log: PairLog) -> None:
        """Measure the shapes that are due in two fresh processes; end at one that rejects the candidate."""
        with self._blame(due[0]), self._session(number, due) as session:
            guarded = [t for t in self._guarded(number) if all(t is not other for other in due)]
            for trial in (*due, *guarded):
                with self._blame(trial):
                    self._measure(session, trial, log)
                if trial.rejected and trial.rejected.reason != "identical_code":
                    return
            if session.lent is not None:
                session.lent.prove()

    @contextlib.contextmanager
    def _session(self, number: int, due: Sequence[Trial]) -> Iterator[_Session]:
        """Two processes with fresh folders, the screen's baseline excepted; nothing of them is left."""
        self._number = number
        baseline, candidate = self.sides.take(number, self.hello)
        try:
            if number > 0:
                self.sides.go_ahead(number, [*due, *self._guarded(number)], self.hello)
            with self._phase("start"):
                hello = _both(baseline.start, candidate.start)
                self.hello = hello[1]
            lent = baseline if isinstance(baseline, LentBaseline) else None
            yield _Session(number, baseline, candidate, Watch(hello), lent)
        finally:
            for side in (baseline, candidate):
                closer.later(side.close)

    @contextlib.contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        progress.phase(name)
        begin = time.monotonic()
        try:
            yield
        finally:
            self.phases[name] = self.phases.get(name, 0.0) + time.monotonic() - begin
            self.stages.passed(name, self._number, self.hello.device if self.hello else None)

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """Time alone: what builds ahead is stopped, and other processes leave the GPU."""
        with contextlib.ExitStack() as stack:
            with self._phase("wait"):
                device = self.hello.device if self.hello is not None else None
                stack.enter_context(quiet.timing(everything=device is None))
                stack.enter_context(lease.held(binding.told(device), self.job.config.gpu.wait))
            yield

    def _device(self, failure: SideFailed) -> Mapping[str, Any] | None:
        """The GPU that a failure may be about: the one that the sides use, or should have started on."""
        if self.hello is not None:
            return binding.told(self.hello.device)
        bound = binding.current()
        return None if bound is None or failure.kind != "start_error" else {"uuid": bound.uuid}

    @contextlib.contextmanager
    def _blame(self, trial: Trial) -> Iterator[None]:
        """Turn a side's failure into a rejection of the candidate, or into the baseline's error."""
        try:
            yield
        except SideFailed as failure:
            if alive.suspect(failure):  # what broke the GPU may be innocent of what fails now
                alive.require(self._device(failure))
            where = f"shape {trial.name}: {failure.message}"
            if failure.side == "baseline" or self.job.acf is None:
                words = blame.explain(failure, None)[1]
                # A compiler's words say it all; what a framework prints beside them is the whole PTX.
                tail = failure.output_tail[-400:].strip() if words == failure.message else ""
                raise BaselineFailed(
                    f"the baseline failed ({failure.kind}): shape {trial.name}: {words}"
                    + (f"; it said: {tail}" if tail else ""),
                    "Run the workload by hand without an ACF and mend it",
                ) from failure
            if ahead.waiting() and _OUT_OF_MEMORY.search(failure.message):
                advice = "Run it again with sweep.build_ahead=0"
                raise RunError(
                    f"no memory beside {ahead.waiting()} builds ahead: {where}", advice
                ) from failure
            if failure.kind == "start_error":
                advice = "Check this machine with boosterrun acf=none"
                raise RunError(f"the candidate's side did not start: {where}", advice) from failure
            reason, words = blame.explain(failure, self.job.controls)
            trial.rejected = Rejected(reason, f"shape {trial.name}: {words}")
        except Rejected as rejection:
            trial.rejected = rejection

    # ---- one shape in one session ----

    def _measure(self, session: _Session, trial: Trial, log: PairLog) -> None:
        self._build(session, trial)
        self._check(session, trial)
        with self._turn():
            with self._phase("pairs"):
                memory = session.lent.memory(trial.name) if session.lent is not None else None
                if trial.runner is None:
                    trial.runner = self._begin(session, trial, memory, log)
                if trial.open:
                    self._pairs(session, trial, trial.runner, memory)
                else:
                    self._guard(session, trial, trial.runner)
            with self._phase("check"):  # at once: beside others that start it takes ten times as long
                self._checked(trial, "baseline", session.baseline.check_timed(trial.name), None)
                self._checked(trial, "candidate", session.candidate.check_timed(trial.name), None)

    @staticmethod
    def _pairs(session: _Session, trial: Trial, runner: PairRunner, memory: ShapeMemory | None) -> None:
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
    def _guard(session: _Session, trial: Trial, runner: PairRunner) -> None:
        """Look for a loss on a shape that did not gain, as often as voided pairs allow."""
        sides, number = Compared(session.baseline, session.candidate, trial.take), session.number
        for _ in range(trial.decider.protocol.max_voids):
            if not trial.guards(number):
                return
            runner.run(sides, session.watch, "guard", number, most=trial.decider.certain(number))

    def _begin(self, session: _Session, trial: Trial, memory: ShapeMemory | None, log: PairLog) -> PairRunner:
        """Choose how to time a shape, and take what an interrupted run or another job has measured of it."""
        acf, folder, protocol = self.job.acf, self.job.folder, self.protocol
        seed = f"{self.job.config.seed}:{acf.sha256 if acf else 'none'}:{trial.name}"
        # A self-test that failed is repeated because something else has changed: it begins anew.
        sides = takeover.fingerprint(folder, self.hello, trial.application) if acf and self.hello else None
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

    def _build(self, session: _Session, trial: Trial) -> None:
        with self._phase("build"):
            baseline, candidate = _both(
                lambda: session.baseline.build(trial.name, trial.params),
                lambda: session.candidate.build(trial.name, trial.params),
            )
        trial.built = {"baseline": baseline, "candidate": candidate}
        changed = imported.difference(trial.sources, baseline.sources, candidate.sources)
        if changed is not None:
            workload = self.job.config.workload.name
            raise RunError(f"{changed} changed while {workload} was measured", "Run it again")
        trial.sources |= {**baseline.sources, **candidate.sources}
        ahead.fit(candidate.detail.get("gpu_memory"))
        trial.application = self.prove(baseline, candidate)
        if self.job.acf is None:
            return
        applied, detail = trial.application.applied, trial.application.detail
        if applied in ("not_applied", "not_applicable"):
            reason = "acf_not_applied" if applied == "not_applied" else applied
            raise Rejected(reason, f"shape {trial.name}: {detail}")
        if applied == "unproven" and self.proof_required:
            words = f"no proof that the ACF was applied: {detail} (protocol.require_proof=false does without)"
            raise Rejected("acf_not_applied", f"shape {trial.name}: {words}")
        if trial.application.code_identical:
            raise Rejected("identical_code", f"shape {trial.name}: every kernel's code is the baseline's")

    def _check(self, session: _Session, trial: Trial) -> None:
        with self._phase("check"):
            for seed in check_seeds(self.job.config, session.number):
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

    # ---- the record ----


def _both(baseline: Callable[[], T], candidate: Callable[[], T]) -> tuple[T, T]:
    """Do both at once. When both fail, the baseline's failure counts: it explains the candidate's."""
    with ThreadPoolExecutor(max_workers=2) as pool:
        futures = [pool.submit(baseline), pool.submit(candidate)]
        return futures[0].result(), futures[1].result()
