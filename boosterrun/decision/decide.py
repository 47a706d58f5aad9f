"""Pairs to decision, pure: no clock, no random numbers, no files, so that a replay gives the same verdict.

A pair is one block of launches of the baseline and one adjacent block of the candidate; a coin draws which of
them runs first. Its log-ratio is ln(median of the baseline block / median of the candidate block): positive
is faster. The procedure, what it assumes and its error rates are described in docs/methodology.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from boosterrun.decision import evidence
from boosterrun.decision.budget import confirm_quota, hopeful_gain, smallest_detectable_gain
from boosterrun.decision.interval import CONFIDENCE, hodges_lehmann, prediction_interval
from boosterrun.decision.pairs import Pair, Protocol
from boosterrun.decision.policy import KEPT, Overall, policy
from boosterrun.decision.tail import slow_tail
from boosterrun.errors import UsageError

__all__ = ["KEPT", "Decider", "Decision", "Overall", "Pair", "Protocol", "decide", "policy"]

TIMER_VOID = "timer"
TAIL_ALPHA = 0.05
STEP_SHARE = 0.25
GUARDED = ("no_gain", "inconclusive")
DOING = {
    "calibrate": "measuring the noise of the baseline against itself",
    "screen": "screening",
    "confirm": "measuring in fresh processes",
}


@dataclass(frozen=True)
class Decision:
    """What to do next, or the verdict.

    ``state`` "continue": run one more pair of this ``phase`` and ``session``; "confirm": close both sides,
    open fresh processes with fresh caches, then run a pair of this ``phase`` and ``session``; "final": done.
    ``reason``: KEPT, the reason of a rejection, or None (not final; or final without a verdict, because
    launches of the baseline failed). ``gain`` is baseline / candidate - 1. ``interval`` is where the gain of
    a repetition in new processes falls 19 times of 20. ``message`` is one sentence, ``statistics`` is ready
    for JSON.
    """

    state: Literal["continue", "confirm", "final"]
    phase: str
    session: int
    reason: str | None
    gain: float | None
    interval: tuple[float, float] | None
    message: str
    statistics: dict[str, Any]


def decide(pairs: Sequence[Pair], protocol: Protocol, candidates: int = 1, shapes: int = 1) -> Decision:
    """The decision after these pairs, in the order in which they were measured.

    ``candidates`` times ``shapes`` of the whole sweep is the family over which ``alpha`` holds. Pairs after a
    final decision are ignored. Raises UsageError when the protocol cannot decide, or a pair is of a phase
    that is not due.
    """
    decider = Decider(protocol, candidates, shapes)
    for pair in pairs:
        decider.add(pair)
    return decider.decision()


class Decider:
    """``decide`` one pair at a time: ``add`` each pair, ask for the ``decision``; same results."""

    def __init__(self, protocol: Protocol, candidates: int = 1, shapes: int = 1) -> None:
        self.protocol = protocol
        self.family = max(1, candidates) * max(1, shapes)
        if problem := protocol.unreachable(self.family):
            raise UsageError(problem, "Raise the counts, or sweep fewer candidates and shapes at a time")
        self.sequential = protocol.method == "sequential"
        self.phase, self.session = ("calibrate", 0) if self.sequential else ("confirm", 1)
        self.quota = math.ceil(protocol.trials / protocol.confirm_sessions)
        self.final = self.fresh_start = False
        self.reason: str | None = None
        self.why = ""
        self.scale, self.hope = 0.0, protocol.min_gain
        self.calibration: list[float] = []
        self.screen: list[float] = []
        self.confirm: dict[int, list[float]] = {}
        self.guard: dict[int, list[float]] = {}
        self.counted: list[Pair] = []
        self.voids = self.baseline_failures = self.candidate_failures = 0
        self.plus, self.minus = evidence.Wealth(), evidence.Wealth()
        self.tail: dict[str, Any] | None = None

    def add(self, pair: Pair) -> None:
        """Take one more pair into account; once the decision is final, only a guard's pair counts."""
        if self.final:
            if pair.phase == "guard" and self.guards(pair.session):
                self._guard(pair)
            return
        self._expect(pair)
        self.session, self.fresh_start = pair.session, False
        if pair.void is not None:
            self.voids += pair.void != TIMER_VOID
            if self.voids > self.protocol.max_voids:
                self._end("inconclusive", f"the machine was disturbed, {self.voids} pairs had to be voided")
            return
        baseline, candidate = pair.failures
        both = pair.phase == "calibrate"
        self.baseline_failures += baseline + (candidate if both else 0)
        self.candidate_failures += 0 if both else candidate
        if self.baseline_failures > self.protocol.max_failures:
            self._end(None, f"no verdict, {self.baseline_failures} launches of the baseline failed")
            return
        if self.candidate_failures > self.protocol.max_failures:
            self._end("runtime_error", f"{self.candidate_failures} launches of the candidate failed")
            return
        self.counted.append(pair)
        {"calibrate": self._calibrate, "screen": self._screen, "confirm": self._confirm}[pair.phase](pair)

    def renew(self) -> None:
        """The processes of a confirmation are gone before its end: its pairs count, others go on with it.

        They are a session of their own, so that no session mixes the pairs of several processes.
        """
        if self.phase == "confirm" and not (self.final or self.fresh_start) and self.session in self.confirm:
            self.session, self.fresh_start = self.session + 1, True

    def guards(self, session: int) -> bool:
        """Whether a guard's pair is due in a session.

        A shape that was screened without a gain has been seen in one process pair only. Before another shape
        makes the candidate KEPT, it is looked at in fresh ones too: does it lose?
        """
        screened = self.final and bool(self.screen) and len(self._fresh()) < self.protocol.min_pairs
        wanted = screened and self.reason in GUARDED and session >= 1
        begun = len(self.guard.get(session, ()))
        return wanted and begun < self._guard_quota and self._guard_sessions < self.protocol.confirm_sessions

    def certain(self, guarded: int = 0) -> int:
        """How many pairs to measure before the next look, at least one: none of them can be one too many.

        ``guarded``: the session in which the shape is guarded; 0: of the phase and session that are due. As
        long as no launch fails: such a pair may be the last.
        """
        protocol = self.protocol
        if guarded:
            left = self._guard_quota - len(self.guard.get(guarded, ()))
        elif self.phase == "calibrate":
            left = protocol.calibration_pairs - len(self.calibration)
        elif self.phase == "screen":
            left = protocol.min_pairs - len(self.screen)
        else:
            left = self.quota - len(self.confirm.get(self.session, ()))
            if self.sequential:
                left = min(left, self.minus.soonest(math.log(protocol.futility_evidence)))
            elif len({*self.confirm, self.session}) >= protocol.confirm_sessions:
                left = min(left, protocol.trials - len(self._fresh()))
        return max(1, min(left, protocol.max_voids - self.voids + 1))

    @property
    def _guard_quota(self) -> int:
        protocol = self.protocol
        return max(protocol.min_pairs, math.ceil(protocol.confirm_min_pairs / protocol.confirm_sessions))

    @property
    def _guard_sessions(self) -> int:
        """Process pairs that were guarded to the end; one that was cut short does not count."""
        return sum(len(own) >= self._guard_quota for own in self.guard.values())

    def _guard(self, pair: Pair) -> None:
        if pair.void is not None:
            return
        baseline, candidate = pair.failures
        if baseline > self.protocol.max_failures:
            self._end(None, f"no verdict, {baseline} launches of the baseline failed")
        elif candidate > self.protocol.max_failures:
            self._end("runtime_error", f"{candidate} launches of the candidate failed")
        else:
            self.guard.setdefault(pair.session, []).append(pair.log_ratio)
            if self._guard_sessions >= self.protocol.confirm_sessions:
                interval = self._interval()
                if interval is not None and interval[1] < 0:
                    where = f"in {len(self.guard)} fresh process pairs"
                    self._end("regression", f"slower than the baseline, {where}")

    def _expect(self, pair: Pair) -> None:
        if pair.phase != self.phase or pair.session < self.session:
            raise UsageError(
                f"a pair of {pair.phase} {pair.session} where {self.phase} {self.session} is due",
                "The file of pairs is damaged or of another protocol: measure again",
            )

    def _calibrate(self, pair: Pair) -> None:
        self.calibration.append(pair.log_ratio)
        if len(self.calibration) >= self.protocol.calibration_pairs:
            self.phase, self.session = "screen", 0
            self.scale = evidence.noise_scale(self.calibration, self._step() or 0.0)
            self.hope = hopeful_gain(self.scale, self.family, self.protocol)

    def _bet(self, x: float) -> None:
        self.plus.add(evidence.bet(x, self.scale))
        self.minus.add(evidence.bet(math.log1p(self.hope) - x, self.scale))

    def _screen(self, pair: Pair) -> None:
        protocol = self.protocol
        self.screen.append(pair.log_ratio)
        self._bet(pair.log_ratio)
        if len(self.screen) < protocol.min_pairs:
            return
        if self.minus.log >= math.log(protocol.futility_evidence):
            self._too_little()
        elif self.plus.log >= math.log(protocol.screen_evidence):
            self.phase, self.session, self.fresh_start = "confirm", 1, True
            self.quota = confirm_quota(self.plus.log, len(self.screen), self.family, protocol)
        elif len(self.screen) >= protocol.max_pairs:
            self._end("inconclusive", f"{protocol.max_pairs} pairs were not enough to tell")

    def _confirm(self, pair: Pair) -> None:
        protocol = self.protocol
        own = self.confirm.setdefault(pair.session, [])
        own.append(pair.log_ratio)
        fresh = sum(map(len, self.confirm.values()))
        everywhere = len(self.confirm) >= protocol.confirm_sessions
        if not self.sequential:
            if everywhere and fresh >= protocol.trials:
                self._count_reached()
        else:
            self._bet(pair.log_ratio)
            if self.minus.log >= math.log(protocol.futility_evidence):
                self._too_little()
            elif everywhere and len(own) >= self.quota and fresh >= self.quota * protocol.confirm_sessions:
                # Only at the end of a session: every process pair then has the same weight.
                if self.plus.log >= math.log(self.family / protocol.alpha):
                    self._enough()
                elif fresh + self.quota > protocol.confirm_max_pairs:
                    self._end("inconclusive", f"{fresh} fresh pairs did not confirm the gain of the screen")
        if not self.final and len(own) >= self.quota:
            self.session, self.fresh_start = pair.session + 1, True

    def _count_reached(self) -> None:
        x, protocol = self._fresh(), self.protocol
        if protocol.method == "quick":
            kept = math.expm1(hodges_lehmann(x)) >= protocol.min_gain
            self._resolved(KEPT if kept else "no_gain", "a hint only, this protocol controls no error rate")
        elif evidence.signed_rank_p(x) <= protocol.alpha / self.family:
            self._enough()
        elif (
            evidence.signed_rank_p([math.log1p(protocol.min_gain) - v for v in x])
            <= 1 / protocol.futility_evidence
        ):
            self._too_little()
        else:
            self._end("inconclusive", f"{len(x)} pairs were not enough to tell")

    def _end(self, reason: str | None, why: str) -> None:
        self.final, self.reason, self.why = True, reason, why

    def _resolved(self, reason: str, why: str) -> None:
        if (step := self._step()) is not None and step > STEP_SHARE * self.protocol.min_gain:
            size = f"{step:.2%} of a launch" if math.isfinite(step) else "unknown, all samples are equal"
            reason, why = (
                "inconclusive",
                f"the timer's step ({size}) cannot resolve {self.protocol.min_gain:.2%}",
            )
        self._end(reason, why)

    def _too_little(self) -> None:
        interval = self._interval()
        if interval is not None and interval[1] < 0:
            self._end("regression", "slower than the baseline")
        elif self.hope > self.protocol.min_gain:
            self._end(
                "inconclusive", f"no gain of {self.hope:.2%} or more, and a smaller one drowns in the noise"
            )
        else:
            self._resolved("no_gain", f"no gain of {self.protocol.min_gain:.2%} or more")

    def _enough(self) -> None:
        if math.expm1(hodges_lehmann(self._fresh())) < self.protocol.min_gain:
            self._resolved("no_gain", f"faster, but by less than {self.protocol.min_gain:.2%}")
            return
        self.tail = slow_tail(self.counted)
        if self.tail["p"] < TAIL_ALPHA:
            self._end(
                "fat_tail", f"faster at the median, but with {self.tail['slow_candidate']} slow launches"
            )
        else:
            self._resolved(KEPT, f"faster, in {len(self.confirm)} fresh process pairs")

    def _fresh(self) -> list[float]:
        return [x for session in self.confirm.values() for x in session]

    def _basis(self) -> tuple[str | None, list[list[float]]]:
        """Where the gain comes from, and its log-ratios by session: the fresh pairs once there are a few."""
        if sum(map(len, self.guard.values())) >= self._guard_quota * self.protocol.confirm_sessions:
            return "guard", list(self.guard.values())
        if self.screen and len(self._fresh()) < self.protocol.min_pairs:
            return "screen", [self.screen]
        return ("confirm" if self.confirm else None), list(self.confirm.values())

    def _interval(self) -> tuple[float, float] | None:
        sessions = self._basis()[1]
        if sum(map(len, sessions)) < 2:
            return None
        freedom = max(0, len(self.calibration) - 1)
        low, high = prediction_interval(sessions, self.scale, freedom, self.protocol.process_spread)
        return math.expm1(low), math.expm1(high)

    def _step(self) -> float | None:
        steps = [
            evidence.timer_step(v for p in self.counted for v in getattr(p, side) if v is not None)
            for side in ("baseline", "candidate")
        ]
        return max((s for s in steps if s is not None), default=None)

    def decision(self) -> Decision:
        """The decision after the pairs so far."""
        x = [value for session in self._basis()[1] for value in session]
        gain = math.expm1(hodges_lehmann(x)) if x else None
        interval = self._interval()
        state: Literal["continue", "confirm", "final"] = "confirm" if self.fresh_start else "continue"
        if self.final:
            state = "final"
        message = _sentence(self.why or DOING[self.phase], gain, interval)
        return Decision(
            state, self.phase, self.session, self.reason, gain, interval, message, self._statistics()
        )

    def _statistics(self) -> dict[str, Any]:
        protocol, step = self.protocol, self._step()
        bets = self.sequential and self.phase != "calibrate"
        return {
            "method": protocol.method,
            "family": self.family,
            "e_plus": evidence.from_log(self.plus.log) if bets else None,
            "e_minus": evidence.from_log(self.minus.log) if bets else None,
            "e_needed": self.family / protocol.alpha if self.sequential else None,
            "p_value": evidence.signed_rank_p(self._fresh())
            if protocol.method == "fixed" and self.final
            else None,
            "scale": self.scale if bets else None,
            "smallest_detectable_gain": smallest_detectable_gain(self.scale, self.family, protocol)
            if bets
            else None,
            "pairs": {
                "calibrate": len(self.calibration),
                "screen": len(self.screen),
                "confirm": len(self._fresh()),
                "guard": sum(map(len, self.guard.values())),
            },
            "session_pairs": self.quota,
            "sessions": [
                {"session": n, "pairs": len(x), "gain": math.expm1(hodges_lehmann(x))}
                for n, x in (self.guard or self.confirm).items()
            ],
            "gain_from": self._basis()[0],
            "confidence": CONFIDENCE,
            "voids": self.voids,
            "baseline_failures": self.baseline_failures,
            "candidate_failures": self.candidate_failures,
            "tail": self.tail,
            "timer_step": step if step is None or math.isfinite(step) else None,
            "needs_batching": step is not None and step > STEP_SHARE * protocol.min_gain,
        }


def _sentence(why: str, gain: float | None, interval: tuple[float, float] | None) -> str:
    if gain is None:
        return f"{why[0].upper()}{why[1:]}."
    text = f"{gain:+.2%}"
    if interval is not None:
        text += f" (repeated in new processes: {interval[0]:+.2%} to {interval[1]:+.2%})"
    return f"{text}: {why}."
