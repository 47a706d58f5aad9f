"""One pair of blocks at a time: which timer, how many launches, in which order, and was it disturbed."""

from __future__ import annotations

import contextlib
import json
import math
import os
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from boosterrun.config import ProtocolConfig
from boosterrun.decision.pairs import Pair
from boosterrun.errors import RunError
from boosterrun.measure.api import Samples, Side, SideFailed
from boosterrun.system import interrupt, redact

# Marks a pair in the log that was measured by an earlier run of the same job.
TAKEN_OVER = "taken_over"
# Below this, an event-timed launch shows the CPU's launch cost: one 3.7 us kernel read 8 to 41 us by events.
LAUNCH_COST_SHOWS_MS = 0.1
_MIN_LAUNCHES = 3
# Seconds. To ask a busy driver takes as long as a short pair.
_BACK_TO_BACK = 0.02
_STRETCH = 0.05
Watch = Callable[[], str | None]


@dataclass(frozen=True)
class Timing:
    """How every block of a shape is timed, on both sides alike."""

    timer: str
    launches: int
    warmup: int


def choose_timing(baseline: Side, shape: str, protocol: ProtocolConfig, requested: str = "auto") -> Timing:
    """Look at a few launches of the baseline and choose the timer and the size of a block.

    A block takes ``block_seconds`` or ``block_launches`` launches, whichever is less, and at least three
    launches. Event-timed launches shorter than 0.1 ms, or on a coarse step, go to a CUDA graph, else to
    batches. Raises SideFailed of the baseline.
    """
    first = baseline.sample(shape, protocol.block_launches, requested, protocol.warmup)
    timing = Timing(first.timer, _launches(first, protocol), protocol.warmup)
    if requested != "auto" or first.timer != "events" or not _too_short(first, protocol.min_gain):
        return timing
    for timer in ("graph", "batch"):
        try:
            again = baseline.sample(shape, protocol.block_launches, timer, protocol.warmup)
        except SideFailed as failure:
            if not failure.alive:
                raise
            continue
        return Timing(again.timer, _launches(again, protocol), protocol.warmup)
    return timing


def _values(samples: Samples) -> list[float]:
    return [v for v in samples.values if v is not None and math.isfinite(v) and v > 0]


def _launches(samples: Samples, protocol: ProtocolConfig) -> int:
    if samples.timer == "launch":  # a command: one launch of the program is one block
        return 1
    values = _values(samples)
    if not values:
        return protocol.block_launches
    wanted = math.ceil(protocol.block_seconds * 1e3 / statistics.median(values))
    return max(_MIN_LAUNCHES, min(protocol.block_launches, wanted))


def _too_short(samples: Samples, min_gain: float) -> bool:
    values = sorted(set(_values(samples)))
    if not values:
        return False
    median = statistics.median(_values(samples))
    step = min((b - a for a, b in pairwise(values)), default=0.0)
    return median < LAUNCH_COST_SHOWS_MS or step > min_gain * median / 4


def toss(coin: random.Random) -> str:
    """The order of one more pair: "bc" or "cb"."""
    return "bc" if coin.random() < 0.5 else "cb"


class PairLog:
    """``pairs.jsonl``: every pair is written here before anything is decided on it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._stream = path.open("a", encoding="utf-8")
        except OSError as error:
            raise _cannot_write(path, error) from error

    def append(self, entry: dict[str, Any]) -> None:
        """Write one line through to the operating system. Raises RunError (disk full, file removed)."""
        try:
            self._stream.write(redact.text(json.dumps(entry, allow_nan=False)) + "\n")
            self._stream.flush()
            links = os.fstat(self._stream.fileno()).st_nlink
        except OSError as error:
            raise _cannot_write(self.path, error) from error
        if links == 0:  # what a decision is made from must be there to be read
            advice = "Leave a sweep's folder alone until it has ended"
            raise RunError(f"{self.path} was removed while it was written", advice)

    def close(self) -> None:
        """Close the file; what was written stays."""
        with contextlib.suppress(OSError):  # what could not be written has been told by append
            self._stream.close()


def _cannot_write(path: Path, error: OSError) -> RunError:
    return RunError(
        f"cannot write {path}: {error.strerror}", "Free some space or choose another hydra.sweep.dir"
    )


@dataclass(frozen=True)
class Compared:
    """Whom a pair compares (``other``: for calibration the baseline as well), and who gets it."""

    baseline: Side
    other: Side
    take: Callable[[Pair], None]


@dataclass(frozen=True)
class _Timed:
    """A pair of which it is not known yet whether it was disturbed; ``further``: for its line in the log."""

    pair: Pair
    unit: str
    further: dict[str, Any]


class PairRunner:
    """Runs pairs of one shape; a coin flipped from a recorded seed decides each pair's order."""

    def __init__(
        self,
        shape: str,
        timing: Timing,
        seed: str,
        log: PairLog,
        sides: str | None = None,
    ) -> None:
        """``sides``: digest of what both sides are, for a later run that may take these pairs over."""
        self.shape = shape
        self.timing = timing
        self._coin = random.Random(seed)  # noqa: S311 - a reproducible coin, not a secret # nosec B311
        self._log = log
        self._sides = sides
        self.failures: list[str] = []
        self._marked: Watch | None = None
        self._at = 0.0

    def run(self, sides: Compared, watch: Watch, phase: str, session: int, *, most: int = 1) -> None:
        """Time a pair and log it, or up to ``most`` short ones. Raises SideFailed and RunError.

        ``watch`` says what happened since its last call: pairs in that time are void if anything disturbed
        it. To ask takes as long as a short pair, so that it is asked once for those of 50 ms; a signal to end
        takes effect when they are in the log. Each is given to ``sides.take``, also those before a failure.
        """
        with interrupt.shielded():
            self._run(sides, watch, phase, session, most)

    def _run(self, sides: Compared, watch: Watch, phase: str, session: int, most: int) -> None:
        if self._marked != watch or time.monotonic() - self._at > _BACK_TO_BACK:
            watch()  # sets the mark from which the pairs are watched; else the last pair's end does
        begin, timed = time.monotonic(), list[_Timed]()
        try:
            while len(timed) < most:
                timed.append(self._pair(sides, phase, session))
                if any(timed[-1].pair.failures) or time.monotonic() - begin > _STRETCH:
                    break
        finally:
            if timed:
                void = watch()
                self._marked, self._at = watch, time.monotonic()
                for each in timed:
                    self._log.append({**self._entry(each.pair, each.unit, void), **each.further})
                for each in timed:
                    sides.take(replace(each.pair, void=void))

    def _pair(self, sides: Compared, phase: str, session: int) -> _Timed:
        order = toss(self._coin)
        blocks = {side: self._block(sides.baseline if side == "b" else sides.other) for side in order}
        if blocks["b"].timer != blocks["c"].timer:
            raise RunError(
                f"shape {self.shape}: the sides were timed by {blocks['b'].timer} and {blocks['c'].timer}",
                "Set workload.timer to one that both sides offer",
            )
        pair = Pair(
            phase=phase,
            session=session,
            order=order,
            baseline=tuple(blocks["b"].values),
            candidate=tuple(blocks["c"].values),
        )
        self.failures += [str(f) for b in blocks.values() for f in b.detail.get("failures", ())]
        failures = {side: list(b.detail["failures"]) for side, b in blocks.items() if "failures" in b.detail}
        further = {"at": time.time(), **({"failures": failures} if failures else {})}
        return _Timed(pair, blocks["b"].unit, further)

    def recall(self, pair: Pair, unit: str) -> None:
        """Log a pair that an earlier job has measured; its own log has the time."""
        self._log.append({**self._entry(pair, unit, pair.void), "at": time.time(), "reused": True})

    def take_over(self, line: dict[str, Any]) -> None:
        """Log a pair that an earlier run of this job has logged; the coin goes on after it."""
        if not line.get("reused"):
            toss(self._coin)
        self._log.append({**line, TAKEN_OVER: True})

    def _entry(self, pair: Pair, unit: str, void: str | None) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "phase": pair.phase,
            "session": pair.session,
            "order": pair.order,
            "baseline": pair.baseline,
            "candidate": pair.candidate,
            "void": void,
            "unit": unit,
            "timer": self.timing.timer,
            "launches": self.timing.launches,
            "sides": self._sides,
        }

    def _block(self, side: Side) -> Samples:
        return side.sample(self.shape, self.timing.launches, self.timing.timer, self.timing.warmup)
