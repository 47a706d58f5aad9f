"""Watch the GPU between two moments: was the pair disturbed from outside?"""

from __future__ import annotations

from collections.abc import Sequence

from boosterrun import gpu
from boosterrun.measure.api import Hello


class Watch:
    """Each call compares the GPU's state with the call before; without a GPU nothing is ever disturbed."""

    def __init__(self, sides: Sequence[Hello]) -> None:
        self._pids = [h.pid for h in sides if h.pid is not None]
        device = next((h.device for h in sides if h.device), None)
        self._device: int | str | None = None if device is None else device.get("uuid", device.get("index"))
        self._before: gpu.Light | None = None

    def __call__(self) -> str | None:
        """Say what disturbed the time since the last call, or None."""
        if self._device is None:
            return None
        before, self._before = self._before, gpu.light(self._device)
        return gpu.disturbance(before, self._before, self._pids)
