"""Judge a candidate by timing: screen in one session, confirm in fresh ones, and say who is to blame.

The only module that knows the order of sessions; that of one shape in a session is
:mod:`boosterrun.measure.measuring`'s. What runs behind a side is the adapter's business
(:mod:`boosterrun.measure.api`), and what the pairs mean is :mod:`boosterrun.decision.decide`'s.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from boosterrun.adapters.base import Job, Judgement
from boosterrun.config import Config
from boosterrun.decision.decide import Decider
from boosterrun.decision.pairs import FILENAME, Protocol
from boosterrun.errors import RunError
from boosterrun.gpus import alive, binding
from boosterrun.measure import ahead, blame, judged
from boosterrun.measure.api import SideFailed
from boosterrun.measure.blocks import PairLog
from boosterrun.measure.judged import BaselineFailed
from boosterrun.measure.kept import LentBaseline
from boosterrun.measure.measuring import Measuring, Prove, Session, both
from boosterrun.measure.phases import Phases
from boosterrun.measure.sessions import OpenSide, Sides, Sources
from boosterrun.measure.trial import Rejected, Trial
from boosterrun.measure.watch import Watch
from boosterrun.results.record import KEPT
from boosterrun.system import closer

_OUT_OF_MEMORY = re.compile("out ?of ?memory", re.IGNORECASE)


class Engine:
    """Judges one job. ``open_side`` makes a side that is not started; for ``prove`` and ``proves`` see
    :class:`boosterrun.measure.measuring.Measuring`.

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
        self.job = job
        self.trials = self.trials_of(job.config)
        self.sides = Sides(sources or Sources(open_side), job.config, job.work)
        self.phases = Phases()
        self._measuring = Measuring(job, prove, self.phases, proves=proves)
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
                self.sides.share(self.phases.hello)
                self.sides.go_ahead(0, [*self._due(), *self._guarded(1)], self.phases.hello)
        except BaseException:
            self.close()
            raise

    def judge(self) -> Judgement:
        """Run the whole procedure. Raises RunError (BaselineFailed) when no candidate is at fault."""
        try:
            self._run()
        finally:
            self.close()
        return judged.judgement(self.job, self.trials, self.phases)

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
        for _ in range(self.job.config.protocol.confirm_sessions):
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
                    self._measuring.run(session, trial, log)
                if trial.rejected and trial.rejected.reason != "identical_code":
                    return
            if session.lent is not None:
                session.lent.prove()

    @contextlib.contextmanager
    def _session(self, number: int, due: Sequence[Trial]) -> Iterator[Session]:
        """Two processes with fresh folders, the screen's baseline excepted; nothing of them is left."""
        self.phases.session = number
        baseline, candidate = self.sides.take(number, self.phases.hello)
        try:
            if number > 0:
                self.sides.go_ahead(number, [*due, *self._guarded(number)], self.phases.hello)
            with self.phases.during("start"):
                hello = both(baseline.start, candidate.start)
                self.phases.hello = hello[1]
            lent = baseline if isinstance(baseline, LentBaseline) else None
            yield Session(number, baseline, candidate, Watch(hello), lent)
        finally:
            for side in (baseline, candidate):
                closer.later(side.close)

    def _device(self, failure: SideFailed) -> Mapping[str, Any] | None:
        """The GPU that a failure may be about: the one that the sides use, or should have started on."""
        if self.phases.hello is not None:
            return binding.told(self.phases.hello.device)
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
