"""The baseline of a sweep, kept from job to job: started, built and checked once, not for each candidate.

It serves in screens only; a confirmation always has two fresh processes. At most one is kept in a process,
for as long as everything about it stays the same.
"""

from __future__ import annotations

import atexit
import os
import shutil
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from boosterrun import leftovers
from boosterrun.measure.api import Built, Checked, Closing, Hello, Samples, Side, SideFailed, SideSpec
from boosterrun.measure.blocks import Timing
from boosterrun.pairs import Pair


@dataclass
class ShapeMemory:
    """What is known of one shape of a kept baseline, measured once and valid for each job."""

    params: dict[str, Any]
    built: Built
    passed: dict[int, Checked] = field(default_factory=dict)
    timing: Timing | None = None
    calibration: list[Pair] = field(default_factory=list)


@dataclass
class _Kept:
    key: Hashable
    side: Side
    hello: Hello
    folder: Path
    shapes: dict[str, ShapeMemory] = field(default_factory=dict)

    def lives(self) -> bool:
        """Prove it: a candidate may have broken the GPU. Whatever fails here fails for no candidate."""
        try:
            return all(self.side.check_timed(shape).passed is not False for shape in self.shapes)
        except (SideFailed, RuntimeError):  # RuntimeError: it was closed when it failed
            return False

    def close(self) -> None:
        self.side.close()
        shutil.rmtree(self.folder, ignore_errors=True)


_kept: _Kept | None = None


def _forget() -> None:
    """In a fork of this process the baseline is not ours."""
    global _kept  # noqa: PLW0603 - one a process
    _kept = None


def close() -> None:
    """End the baseline that is kept, if any. Never raises."""
    kept = _kept
    _forget()
    if kept is not None:
        kept.close()


os.register_at_fork(after_in_child=_forget)
atexit.register(close)


class LentBaseline(Closing):
    """A kept baseline as one job sees it: a :class:`boosterrun.measure.api.Side` that does nothing twice.

    ``open_side`` makes the side in a folder, unstarted; with an equal ``key`` it is used again.
    """

    def __init__(self, key: Hashable, open_side: Callable[[Path], Side]) -> None:
        self._key = key
        self._open_side = open_side

    @property
    def spec(self) -> SideSpec:
        """What the side was made from."""
        return self._it.side.spec

    def start(self) -> Hello:
        """Take the baseline that is kept if it is the same and lives, else start one. Raises as any side."""
        global _kept  # noqa: PLW0603 - one a process
        if _kept is None or _kept.key != self._key or not _kept.lives():
            close()
            folder = _folder()
            side = self._open_side(folder)
            try:
                _kept = _Kept(self._key, side, side.start(), folder)
            except BaseException:
                side.close()
                shutil.rmtree(folder, ignore_errors=True)
                raise
        if _kept is None:
            raise RuntimeError("the baseline was closed while it was started")
        self._it = _kept
        return self._it.hello

    def memory(self, shape: str) -> ShapeMemory:
        """Return what is known of a shape that was built."""
        return self._it.shapes[shape]

    def build(self, shape: str, params: Mapping[str, Any]) -> Built:
        """Build a shape unless it was built. Raises SideFailed."""
        known = self._it.shapes.get(shape)
        if known is None or known.params != dict(params):
            self._it.shapes.pop(shape, None)
            known = ShapeMemory(dict(params), self._it.side.build(shape, params))
            self._it.shapes[shape] = known
        return known.built

    def check(self, shape: str, seed: int) -> Checked:
        """Check unless the same seed has passed before. Raises SideFailed."""
        passed = self._it.shapes[shape].passed
        if seed in passed:
            return passed[seed]
        checked = self._it.side.check(shape, seed)
        if checked.passed is not False:
            passed[seed] = checked
        return checked

    def check_timed(self, shape: str) -> Checked:
        """Check the case that is timed, always. Raises SideFailed."""
        return self._it.side.check_timed(shape)

    def sample(self, shape: str, launches: int, timer: str, warmup: int = 0) -> Samples:
        """Time a block. Raises SideFailed."""
        return self._it.side.sample(shape, launches, timer, warmup)

    def close(self) -> None:
        """Give it back; the next job proves that it lives before it uses it."""


def _folder() -> Path:
    return leftovers.make("boosterrun-baseline-")
