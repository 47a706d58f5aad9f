"""Watch the GPU: was a pair disturbed from outside, and how did the card do from stage to stage?"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

from boosterrun.gpus import gpu, neighbours
from boosterrun.measure.api import Hello

# Seconds.
_AT_ONCE = 0.02


class Watch:
    """Each call compares the GPU's state with the call before; without a GPU nothing is ever disturbed."""

    def __init__(self, sides: Sequence[Hello]) -> None:
        self._pids = [h.pid for h in sides if h.pid is not None]
        device = next((h.device for h in sides if h.device), None)
        self._device = _named(device)
        self._before: gpu.Light | None = None

    def __call__(self) -> str | None:
        """Say what disturbed the time since the last call, or None."""
        if self._device is None:
            return None
        before, self._before = self._before, gpu.light(self._device)
        return gpu.disturbance(before, self._before, [*self._pids, *_started_here(before, self._before)])


def _started_here(before: gpu.Light | None, after: gpu.Light | None) -> list[int]:
    """Sides of this very run that have come to the GPU meanwhile: they start beside pairs, on purpose."""
    if before is None or after is None:
        return []
    new = set(after["pids"] or ()) - set(before["pids"] or ())
    return [pid for pid in new if neighbours.ours(pid)]


class Stages:
    """How the GPU did before and after each stage; where one ends, the next begins, with one reading.

    A stage that was over at once has the reading from before it: to ask takes longer than such a stage.
    """

    def __init__(self) -> None:
        self.readings: list[dict[str, Any]] = []
        self._last: dict[str, Any] | None = None
        self._at = -math.inf

    def passed(self, stage: str, session: int, device: Mapping[str, Any] | None) -> None:
        """Take a reading at the end of a stage; nothing happens without a GPU."""
        name = _named(device)
        if name is None:
            return
        before = self._last
        if time.monotonic() - self._at > _AT_ONCE:
            self._last, self._at = gpu.vitals(name), time.monotonic()
        self.readings.append({"stage": stage, "session": session, "before": before, "after": self._last})


def _named(device: Mapping[str, Any] | None) -> int | str | None:
    return None if device is None else device.get("uuid", device.get("index"))
