"""One shape of one job while it is measured, and its part of the record."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from boosterrun.decision.decide import Decider
from boosterrun.decision.pairs import FILENAME, Pair
from boosterrun.measure.api import Built
from boosterrun.measure.blocks import PairRunner, Timing

METRIC, UNIT = "time", "ms"


@dataclass(frozen=True)
class Application:
    """Did the ACF arrive in the candidate's code? ``code_identical`` None: the code could not be compared.

    ``kernels`` are entries of the record's ``kernels``: name, arch, code hashes and resources of both sides.
    """

    applied: str = "unproven"
    code_identical: bool | None = None
    detail: str = ""
    kernels: list[dict[str, Any]] = field(default_factory=list)

    def noting(self, ignored: Sequence[str]) -> Application:
        """The same, with the names of the shell's variables that no side got to see."""
        if not ignored:
            return self
        return replace(self, detail=f"{self.detail}; ignored from the shell: {', '.join(ignored)}")


class Rejected(Exception):  # noqa: N818 - a verdict, not an error
    """The candidate is rejected on a shape before the pairs could decide."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


@dataclass
class Trial:
    """The state of one shape; ``rejected`` once something other than the pairs has decided.

    ``sources``: the files that its sides were made of, from the first session on. ``taken_over``: how many of
    the pairs an earlier run of the job has measured.
    """

    name: str
    params: dict[str, Any]
    decider: Decider
    pairs: list[Pair] = field(default_factory=list)
    timing: Timing | None = None
    runner: PairRunner | None = None
    application: Application = field(default_factory=Application)
    built: dict[str, Built] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    checks: list[dict[str, Any]] = field(default_factory=list)
    correctness: str = "not_checked"
    rejected: Rejected | None = None
    taken_over: int = 0

    @property
    def open(self) -> bool:
        """Whether more pairs are wanted."""
        return self.rejected is None and self.decider.decision().state != "final"

    @property
    def session(self) -> int:
        """The number of the process pair in which the next pair is due; 0 is the screen's."""
        return self.decider.decision().session

    def take(self, pair: Pair) -> None:
        """Take one more pair into account."""
        self.pairs.append(pair)
        self.decider.add(pair)

    def take_over(self, pairs: Sequence[tuple[dict[str, Any], Pair]], runner: PairRunner) -> None:
        """Go on after pairs that an earlier run of the job has measured, each with its line in the log."""
        for line, pair in pairs:
            runner.take_over(line)
            self.take(pair)
        self.taken_over = len(pairs)
        self.decider.renew()

    def guards(self, session: int) -> bool:
        """Whether the shape is to be looked at for a loss in a session that confirms another."""
        return self.rejected is None and self.decider.guards(session)

    def reason(self) -> str | None:
        """KEPT, the reason of the rejection, or None: no verdict."""
        return self.rejected.reason if self.rejected is not None else self.decider.decision().reason

    def message(self) -> str:
        """The verdict in one sentence."""
        if self.rejected is not None:
            return self.rejected.message
        decision = self.decider.decision()
        failures = self.runner.failures if self.runner is not None else []
        if decision.reason in ("runtime_error", None) and failures:
            return f"{decision.message} The last one: {failures[-1]}"
        return decision.message

    def record(self, decision: str, message: str) -> dict[str, Any]:
        """The shape's block of ``result.json``."""
        state = self.decider.decision()
        measured = self.rejected is None
        used: list[Pair] = []
        for phase in ("guard", "confirm", "screen"):
            used = used or [p for p in self.pairs if p.phase == phase and p.void is None]
        valid = [p.phase for p in self.pairs if p.void is None]
        return {
            "name": self.name,
            "params": self.params,
            "decision": decision,
            "message": message,
            "correctness": self.correctness,
            "correctness_detail": {"checks": self.checks} if self.checks else None,
            "metric": METRIC,
            "unit": UNIT,
            "baseline": _summary([v for p in used for v in p.baseline]),
            "candidate": _summary([v for p in used for v in p.candidate]),
            "gain": state.gain if measured else None,
            "interval": list(state.interval) if measured and state.interval else None,
            "timer": self.timing.timer if self.timing else None,
            "application": {
                "applied": self.application.applied,
                "code_identical": self.application.code_identical,
                "detail": self.application.detail,
            },
            "kernels": self.application.kernels,
            "compile": {side: _build(self.built.get(side)) for side in ("baseline", "candidate")},
            "statistics": dict(state.statistics) if self.pairs else None,
            "pairs": {
                "file": FILENAME,
                "screen": valid.count("screen"),
                "confirm": valid.count("confirm"),
                "guard": valid.count("guard"),
                "voided": sum(p.void is not None for p in self.pairs),
                "failed": sum(sum(p.failures) for p in self.pairs),
                "taken_over": self.taken_over,
            },
        }


def _summary(values: list[float | None]) -> dict[str, Any] | None:
    good = [v for v in values if v is not None]
    if not good:
        return None
    return {
        "mean": statistics.fmean(good),
        "std": statistics.stdev(good) if len(good) > 1 else 0.0,
        "n": len(good),
    }


def _build(built: Built | None) -> dict[str, Any] | None:
    if built is None:
        return None
    return {
        "command": [str(a) for a in built.detail.get("command", [])],
        "returncode": built.detail.get("returncode", 0),
        "seconds": round(built.seconds, 6),
        "output": str(built.detail.get("output", "")),
    }
