"""Baselines that jobs share: started, built and checked once, not for each candidate.

That of the screen (session 0) serves for as long as everything about it stays the same. Jobs that are
confirmed side by side share the fresh baseline of each confirmation; the next ones get fresh ones again.
"""

from __future__ import annotations

import atexit
import os
import shutil
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from boosterrun.decision.pairs import Pair
from boosterrun.measure import ahead, imported
from boosterrun.measure.api import Built, Checked, Closing, Hello, Samples, SideFailed, SideSpec
from boosterrun.measure.blocks import Timing
from boosterrun.system import closer, leftovers


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
    """``proven``: it was right after all that the last candidate did."""

    key: Hashable
    side: ahead.Abortable | ahead.EarlySide
    folder: Path
    hello: Hello | None = None
    shapes: dict[str, ShapeMemory] = field(default_factory=dict)
    proven: bool = False

    def lives(self) -> bool:
        """Prove it: a candidate may have broken the GPU. Whatever fails here fails for no candidate.

        What has changed since it was imported makes it another baseline.
        """
        proven, self.proven = self.proven, False
        sources = {name: digest for s in self.shapes.values() for name, digest in s.built.sources.items()}
        if not imported.current(sources):
            return False
        if proven:
            return self.side.alive()
        try:
            return all(self.side.check_timed(shape).passed is not False for shape in self.shapes)
        except (SideFailed, RuntimeError):  # RuntimeError: it was closed when it failed
            return False

    def close(self) -> None:
        self.side.close()
        shutil.rmtree(self.folder, ignore_errors=True)


# By session.
_kept: dict[int, _Kept] = {}
_workspaces: dict[str, Path] = {}
_making = threading.Lock()


def workspace(key: str) -> Path:
    """A folder for what baselines with this key build once, there until :func:`close`. Raises RunError."""
    with _making:
        if key not in _workspaces:
            _workspaces[key] = _folder()
        return _workspaces[key]


def close() -> None:
    """End every baseline that is kept. Never raises."""
    while _kept:
        _kept.popitem()[1].close()
    while _workspaces:
        shutil.rmtree(_workspaces.popitem()[1], ignore_errors=True)


def end_round() -> None:
    """End the baselines of confirmations: the next ones are to be fresh. Never raises."""
    for session in [session for session in _kept if session > 0]:
        closer.later(_kept.pop(session).close)


def _forget() -> None:
    """In a fork of this process they are not ours."""
    global _making  # noqa: PLW0603 - another thread may have held it
    _making = threading.Lock()
    _kept.clear()
    _workspaces.clear()


os.register_at_fork(after_in_child=_forget)
atexit.register(close)


class LentBaseline(Closing):
    """A kept baseline as one job sees it: a :class:`boosterrun.measure.api.Side` that does nothing twice.

    ``open_side`` makes the side in a folder, unstarted; with an equal ``key`` it is used again in the same
    ``session``.
    """

    def __init__(self, key: Hashable, open_side: Callable[[Path], ahead.Abortable], session: int = 0) -> None:
        self._key = key
        self._open_side = open_side
        self._session = session

    @property
    def spec(self) -> SideSpec:
        """What the side was made from."""
        return self._it.side.spec

    def begin(self, errands: Sequence[ahead.Errand], most: int) -> None:
        """Make it ready in the background, unless it is kept."""
        if (kept := _kept.get(self._session)) is not None and kept.key == self._key:
            return
        self._forget()
        folder = _folder()
        early = ahead.EarlySide(partial(self._open_side, folder), errands, most)
        _kept[self._session] = _Kept(self._key, early, folder)

    def start(self) -> Hello:
        """Take the baseline that is kept if it is the same and lives, else start one. Raises as any side."""
        kept = _kept.get(self._session)
        if kept is None or kept.key != self._key or not kept.lives():
            self._forget()
            folder = _folder()
            kept = _kept[self._session] = _Kept(self._key, self._open_side(folder), folder)
        if kept.hello is None:
            try:
                kept.hello = kept.side.start()
            except BaseException:
                self._forget()
                raise
        self._it = kept
        return kept.hello

    def _forget(self) -> None:
        if self._session in _kept:
            _kept.pop(self._session).close()

    def timing(self, shape: str) -> Timing | None:
        """How a shape has been timed by a job before, if this baseline is the one that is kept."""
        kept = _kept.get(self._session)
        known = kept.shapes.get(shape) if kept is not None and kept.key == self._key else None
        return None if known is None else known.timing

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

    def prove(self) -> None:
        """All has been right after a candidate's session: the next job need not check again."""
        self._it.proven = True

    def sample(self, shape: str, launches: int, timer: str, warmup: int = 0) -> Samples:
        """Time a block. Raises SideFailed."""
        return self._it.side.sample(shape, launches, timer, warmup)

    def close(self) -> None:
        """Give it back; the next job proves that it lives before it uses it."""


def _folder() -> Path:
    return leftovers.make("boosterrun-baseline-")
