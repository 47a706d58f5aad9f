"""Start, build, check and prepare sides before their turn, but not while pairs are timed.

Nothing is decided on what went wrong ahead of its turn: such a side is started again in its turn.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from boosterrun.measure import quiet
from boosterrun.measure.api import Built, Checked, Closing, Hello, Samples, Side, SideFailed, SideSpec
from boosterrun.measure.blocks import Timing

# Of four cores three may build: one is left for the pairs and for us.
_SHARE = 0.75
_LEAST_CORES = 4
# Where two processes with a GPU each start sides, each takes twice as long to start (docs/cluster.md).
_MOST = 20
_PATIENCE = 0.02
# Sides that are ahead may have half of the GPU's free memory; besides what it allocates, each has a context.
_MEMORY = 0.5
_CONTEXT = 600 << 20


class Abortable(Side, quiet.Stoppable, Protocol):
    """A side of which more can be done before its turn, from another thread."""

    def ready(self, shape: str, launches: int, timer: str, warmup: int = 0) -> None:
        """Do what the first such block needs, but time nothing. Raises SideFailed."""

    def abort(self) -> None:
        """Kill what runs; whoever waits for it gets SideFailed. Never raises."""

    def alive(self) -> bool:
        """Whether its process is there. Never raises."""


@dataclass(frozen=True)
class Errand:
    """A shape to build, the seeds of the checks to make after that, and how it will be timed, once known."""

    shape: str
    params: Mapping[str, Any]
    seeds: Sequence[int] = ()
    timing: Callable[[], Timing | None] = lambda: None


def limit(wanted: str | int) -> int:
    """Return how many sides may be ahead: ``auto`` is three for every four cores, 20 at most; 0 is off."""
    if wanted == "auto":
        cores = len(os.sched_getaffinity(0))
        return min(_MOST, int(cores * _SHARE)) if cores >= _LEAST_CORES else 0
    return max(0, int(wanted))


class _Cancelled(Exception):  # noqa: N818 - not an error
    """Nobody waits for the side any more."""


class EarlySide(Closing):
    """A side that starts, builds and checks in the background, when there is room for it.

    ``make`` makes the side, not started; ``errands`` are done in their order. Sides get room in the order in
    which they were made, ``most`` at a time until they are taken. See :class:`boosterrun.measure.api.Side`
    for the methods.
    """

    def __init__(self, make: Callable[[], Abortable], errands: Sequence[Errand], most: int) -> None:
        self._make = make
        self._side = make()
        self._errands = tuple(errands)
        self._cancelled = threading.Event()
        self._hello: Hello | None = None
        self._built: dict[str, tuple[dict[str, Any], Built]] = {}
        self._checked: dict[tuple[str, int], Checked] = {}
        self._thread: threading.Thread | None = None
        _room.ask(self, most)

    def begin(self) -> None:
        """Start now; called when there is room."""
        self._thread = threading.Thread(target=self._run, name="boosterrun-ahead", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        # Whatever is wrong will be wrong again in its turn, and is told then.
        with contextlib.suppress(Exception):
            with quiet.working(quiet.Work(self._side, True, self._cancelled)):
                if self._cancelled.is_set():
                    return
                hello = self._side.start()
            for errand in self._errands:
                if not self._do(errand):
                    break
            self._hello = hello

    def _do(self, errand: Errand) -> bool:
        """Build, check and prepare a shape; False when it is wrong. Raises _Cancelled, and as any side."""
        shape = errand.shape
        with self._not_beside_pairs():
            built = self._side.build(shape, errand.params)
        self._built[shape] = dict(errand.params), built
        for seed in errand.seeds:
            with self._not_beside_pairs():
                self._checked[shape, seed] = found = self._side.check(shape, seed)
            if found.passed is False:
                return False
        if (timing := errand.timing()) is not None:
            with self._not_beside_pairs():
                self._ready(shape, timing)
        return True

    def _ready(self, shape: str, timing: Timing) -> None:
        try:
            self._side.ready(shape, timing.launches, timing.timer, timing.warmup)
        except SideFailed as failure:
            if not failure.alive:
                raise

    @contextlib.contextmanager
    def _not_beside_pairs(self) -> Iterator[None]:
        """Raises _Cancelled when it need not be done any more."""
        with quiet.working(quiet.Work(self._side, False, self._cancelled)):
            if self._cancelled.is_set():
                raise _Cancelled
            yield

    @property
    def spec(self) -> SideSpec:
        """What this side was made from."""
        return self._side.spec

    def start(self) -> Hello:
        """Wait until it is ready; when that failed, start anew. Raises as any side."""
        _room.leave(self)
        if self._thread is None:
            self._hello = self._hello or self._side.start()
            return self._hello
        self._thread.join()
        if self._hello is None:
            self._side.close()
            shutil.rmtree(self._side.spec.work, ignore_errors=True)
            self._built.clear()
            self._checked.clear()
            self._side = self._make()
            self._hello = self._side.start()
        return self._hello

    def build(self, shape: str, params: Mapping[str, Any]) -> Built:
        """Build a shape unless it is built. Raises SideFailed."""
        known = self._built.get(shape)
        return known[1] if known and known[0] == dict(params) else self._side.build(shape, params)

    def check(self, shape: str, seed: int) -> Checked:
        """Check unless that check has passed ahead. Raises SideFailed."""
        known = self._checked.get((shape, seed))
        return known if known and known.passed is not False else self._side.check(shape, seed)

    def check_timed(self, shape: str) -> Checked:
        """As any side."""
        return self._side.check_timed(shape)

    def sample(self, shape: str, launches: int, timer: str, warmup: int = 0) -> Samples:
        """As any side."""
        return self._side.sample(shape, launches, timer, warmup)

    def alive(self) -> bool:
        """Whether its process is there."""
        return self._side.alive()

    def close(self) -> None:
        """End it, also in the middle of a build. Never raises; may be called twice."""
        quiet.end(self._cancelled)
        _room.leave(self)
        while self._thread is not None and self._thread.is_alive():
            self._side.abort()
            self._thread.join(_PATIENCE)
        self._side.close()


class _Room:
    """Who waits for room, in order, and who has it: begun and not yet taken or closed."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._queue: deque[EarlySide] = deque()
        self._begun: set[EarlySide] = set()
        self._most = 1
        self._fits: int | None = None

    def ask(self, side: EarlySide, most: int) -> None:
        with self._lock:
            self._most = max(1, most)
            self._queue.append(side)
            self._fill()

    def leave(self, side: EarlySide) -> None:
        with self._lock:
            self._begun.discard(side)
            if side in self._queue:
                self._queue.remove(side)
            self._fill()

    def _fill(self) -> None:
        most = self._most if self._fits is None else min(self._most, self._fits)
        while self._queue and len(self._begun) < most:
            side = self._queue.popleft()
            self._begun.add(side)
            side.begin()

    def fit(self, more: int) -> None:
        with self._lock:
            self._fits = len(self._begun) + more

    def taken(self) -> int:
        return len(self._begun)

    def empty(self) -> None:
        """Nobody waits any more."""
        with self._lock:
            self._queue.clear()


_room = _Room()
_offered: dict[Hashable, EarlySide] = {}


def fit(memory: Mapping[str, int] | None) -> None:
    """Keep those that are ahead within the GPU's memory.

    ``memory`` in bytes: ``free`` there, ``side``: what a side like these takes; None: that is not known.
    """
    if memory is not None:
        _room.fit(int(_MEMORY * memory["free"] / (memory["side"] + _CONTEXT)))


def waiting() -> int:
    """Return how many sides are ahead of their turn: they take memory from those whose turn it is."""
    return _room.taken()


def offer(key: Hashable, make: Callable[[], Abortable], errands: Sequence[Errand], most: int) -> None:
    """Make a side for a later job ready, when there is room (``most`` at a time)."""
    if key not in _offered:
        _offered[key] = EarlySide(make, errands, most)


def take(key: Hashable) -> EarlySide | None:
    """Return the side that was offered with an equal key, for the caller to close; None if there is none."""
    return _offered.pop(key, None)


def drop(folder: Path) -> None:
    """End the sides that were offered and work below ``folder``. Never raises."""
    for key in [key for key, side in _offered.items() if side.spec.work.is_relative_to(folder)]:
        _offered.pop(key).close()


def close() -> None:
    """End all sides that were offered and not taken; whoever waits for room waits in vain. Never raises."""
    _room.empty()
    while _offered:
        _offered.popitem()[1].close()


def _forget() -> None:
    """In a fork of this process they are not ours."""
    global _room  # noqa: PLW0603 - one a process
    _offered.clear()
    _room = _Room()


os.register_at_fork(after_in_child=_forget)
atexit.register(close)
