"""What a decision is made from: pairs of adjacent blocks, and the protocol: how many, and how sure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from statistics import median
from typing import Any

from boosterrun.errors import UsageError

FILENAME = "pairs.jsonl"
"""In a job's folder: every pair, one a line, written before anything is decided on it."""
PHASES = ("calibrate", "screen", "confirm", "guard")
METHODS = ("sequential", "fixed", "quick")
FAILED_RATIO = 10.0
MIN_CALIBRATION = 4
# Milliseconds, with much room on both sides. What lies outside is no time, and sums of it overflow.
SHORTEST, LONGEST = 1e-15, 1e12


@dataclass(frozen=True)
class Pair:
    """Raw samples of two adjacent blocks, in the unit of the workload (lower is better).

    ``phase`` is calibrate (both sides are the baseline), screen, confirm, or guard (a shape that did not
    gain, in the processes that confirm another: does it lose?); ``session`` numbers the process pairs of a
    phase; ``order`` tells which side ran first ("bc": the baseline). A sample that is None, not a time
    (:func:`is_time`) is a failed launch. ``void`` says why a disturbed pair does not count ("timer": the
    timer was changed). Raises UsageError for an unknown phase or order.
    """

    phase: str
    session: int
    order: str
    baseline: tuple[float | None, ...]
    candidate: tuple[float | None, ...]
    void: str | None = None

    def __post_init__(self) -> None:
        if self.phase not in PHASES or self.order not in ("bc", "cb"):
            raise UsageError(
                f"a pair of phase {self.phase!r} and order {self.order!r}",
                f"The phase must be one of {', '.join(PHASES)}, the order bc or cb",
            )
        for side in ("baseline", "candidate"):
            object.__setattr__(self, side, tuple(_clean(v) for v in getattr(self, side)))

    @classmethod
    def from_entry(cls, entry: Mapping[str, Any]) -> Pair:
        """The pair of one line of ``pairs.jsonl``. Raises UsageError, KeyError, TypeError if it is none."""
        return cls(
            phase=entry["phase"],
            session=entry["session"],
            order=entry["order"],
            baseline=tuple(entry["baseline"]),
            candidate=tuple(entry["candidate"]),
            void=entry["void"],
        )

    @cached_property
    def log_ratio(self) -> float:
        """ln(baseline / candidate) of block medians, a failed launch being slower than any; within +-10."""
        baseline, candidate = _score(self.baseline), _score(self.candidate)
        if math.isinf(baseline) or math.isinf(candidate):
            return FAILED_RATIO * (math.isinf(baseline) - math.isinf(candidate))
        return max(-FAILED_RATIO, min(FAILED_RATIO, math.log(baseline / candidate)))

    @cached_property
    def failures(self) -> tuple[int, int]:
        """Failed launches of (baseline, candidate); a block without samples is one."""
        return _failed(self.baseline), _failed(self.candidate)


def is_time(value: float) -> bool:
    """Whether a number can be the time of a launch in ms: NaN, zero, negative and absurd ones cannot."""
    return SHORTEST <= value <= LONGEST


def _clean(value: float | None) -> float | None:
    return float(value) if value is not None and is_time(value) else None


def _failed(block: tuple[float | None, ...]) -> int:
    return sum(v is None for v in block) if block else 1


def _score(block: tuple[float | None, ...]) -> float:
    return median(math.inf if v is None else v for v in block) if block else math.inf


@dataclass(frozen=True)
class Protocol:
    """How many pairs decide, and how sure they must be; the keys of ``conf/protocol/`` of these names.

    ``min_gain``, ``alpha`` and ``process_spread`` (a standard deviation) are fractions; ``screen_evidence``
    and ``futility_evidence`` are e-values. Raises UsageError when a value makes no sense.
    """

    method: str = "sequential"
    min_gain: float = 0.01
    alpha: float = 0.05
    calibration_pairs: int = 10
    min_pairs: int = 4
    max_pairs: int = 60
    confirm_sessions: int = 3
    confirm_min_pairs: int = 10
    confirm_max_pairs: int = 80
    trials: int = 30
    max_voids: int = 20
    max_failures: int = 0
    every_shape: bool = False
    process_spread: float = 0.003
    screen_evidence: float = 20.0
    futility_evidence: float = 5.0

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Protocol:
        """The protocol of a config node; keys that only the measuring side knows are passed over."""
        return cls(**{f.name: values[f.name] for f in fields(cls) if f.name in values})

    def __post_init__(self) -> None:
        for ok, problem in (
            (self.method in METHODS, f"method={self.method} is not one of {', '.join(METHODS)}"),
            (0 < self.min_gain < 1, f"min_gain={self.min_gain} is not between 0 and 1 (0.01 is 1 %)"),
            (0 < self.alpha < 1, f"alpha={self.alpha} is not between 0 and 1"),
            (
                self.calibration_pairs >= MIN_CALIBRATION,
                f"calibration_pairs={self.calibration_pairs} is below {MIN_CALIBRATION}",
            ),
            (
                1 <= self.min_pairs <= self.max_pairs,
                f"min_pairs={self.min_pairs} is not between 1 and max_pairs={self.max_pairs}",
            ),
            (self.confirm_sessions >= 1, f"confirm_sessions={self.confirm_sessions} is below 1"),
            (
                max(1, self.confirm_min_pairs, self.confirm_sessions) <= self.confirm_max_pairs,
                f"confirm_max_pairs={self.confirm_max_pairs} is below confirm_min_pairs or confirm_sessions",
            ),
            (
                self.trials >= self.confirm_sessions,
                f"trials={self.trials} is below confirm_sessions={self.confirm_sessions}",
            ),
            (self.max_voids >= 0, f"max_voids={self.max_voids} is negative"),
            (self.max_failures >= 0, f"max_failures={self.max_failures} is negative"),
            (self.process_spread >= 0, f"process_spread={self.process_spread} is negative"),
            (self.screen_evidence > 1, f"screen_evidence={self.screen_evidence} is not above 1"),
            (self.futility_evidence > 1, f"futility_evidence={self.futility_evidence} is not above 1"),
        ):
            if not ok:
                raise UsageError(f"protocol.{problem}", "Correct it in the YAML or on the command line")

    def unreachable(self, family: int) -> str | None:
        """Why no data at all could give KEPT among ``family`` comparisons, one sentence; None: some could."""
        from boosterrun.decision import evidence  # noqa: PLC0415 - NumPy: a sweep that times nothing starts without it

        needed = math.log(family / self.alpha)
        if self.method == "fixed" and self.trials < (least := math.ceil(needed / math.log(2))):
            return f"protocol.trials={self.trials} cannot decide {family} comparisons, {least} could"
        if self.method == "sequential":
            screen = evidence.most_log_evidence(self.max_pairs)
            most = evidence.most_log_evidence(self.max_pairs + self.confirm_max_pairs)
            if screen < math.log(self.screen_evidence) or most < needed:
                return (
                    f"protocol.max_pairs={self.max_pairs} and confirm_max_pairs={self.confirm_max_pairs} "
                    f"cannot decide {family} comparisons"
                )
        return None
