"""Start and build sides before their turn, but never while a pair is timed.

Builds are mostly work of the CPU, but each ends in a first run on the GPU. So whoever times pairs has the
machine alone (:func:`timing`), and builds share it in between. Nothing is decided on what happened ahead of
its turn: a side that failed then is started again in its turn.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, Protocol

from boosterrun.measure.api import Built, Checked, Closing, Hello, Samples, Side, SideSpec

# A build may take this many cores for itself: the compiler, and what its framework does beside it.
_CORES = 4
_MOST = 4
_PATIENCE = 0.02


class Abortable(Side, Protocol):
    """A side whose running request can be made to fail from another thread."""

    def abort(self) -> None:
        """Kill what runs; whoever waits for it gets SideFailed. Never raises."""


def limit(wanted: str | int) -> int:
    """Return how many sides may be ahead: ``auto`` is one for every four cores, four at most; 0 is off."""
    if wanted == "auto":
        return min(_MOST, len(os.sched_getaffinity(0)) // _CORES)
    return max(0, int(wanted))


class _Turns:
    """Many may build or one may time; who waits to time goes before those who come to build later."""

    def __init__(self) -> None:
        self._change = threading.Condition()
        self._building = 0
        self._timing = 0

    @contextlib.contextmanager
    def building(self) -> Iterator[None]:
        with self._change:
            self._change.wait_for(lambda: self._timing == 0)
            self._building += 1
        try:
            yield
        finally:
            with self._change:
                self._building -= 1
                self._change.notify_all()

    @contextlib.contextmanager
    def timing(self) -> Iterator[None]:
        with self._change:
            self._timing += 1
        try:
            with self._change:
                self._change.wait_for(lambda: self._building == 0)
            yield
        finally:
            with self._change:
                self._timing -= 1
                self._change.notify_all()


_turns = _Turns()


def timing() -> contextlib.AbstractContextManager[None]:
    """Hold back every build that is ahead of its turn; waits for those that run."""
    return _turns.timing()


def building() -> contextlib.AbstractContextManager[None]:
    """Be one of those that build ahead: waits while pairs are timed, and is waited for."""
    return _turns.building()


class Batches:
    """Lets builds begin a batch at a time, when the last batch is used up.

    Pairs wait for every build that runs. Were one begun after each job, each next job would wait for a whole
    build: measured with nvcc on an H200, 8 s a job of which 1 s was its own. A batch is waited for once.
    """

    def __init__(self) -> None:
        self._open = True

    def room(self, held: int, most: int) -> bool:
        """Whether one more may begin: ``held`` are built or on their way, ``most`` make a batch."""
        if held == 0:
            self._open = True
        elif held >= most:
            self._open = False
        return self._open and held < most


class EarlySide(Closing):
    """A side that starts and builds its first shape in the background from the moment it is made.

    ``make`` makes the side, not started. See :class:`boosterrun.measure.api.Side` for the methods.
    """

    def __init__(self, make: Callable[[], Abortable], shape: str, params: Mapping[str, Any]) -> None:
        self._make = make
        self._side = make()
        self._first = shape, dict(params)
        self._cancelled = threading.Event()
        self._hello: Hello | None = None
        self._built: Built | None = None
        _waiting.add(self)
        self._thread = threading.Thread(target=self._run, name="boosterrun-ahead", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        # Whatever is wrong will be wrong again in its turn, and is told then.
        with contextlib.suppress(Exception):
            with _turns.building():
                hello = None if self._cancelled.is_set() else self._side.start()
            with _turns.building():
                if not self._cancelled.is_set():
                    self._built = self._side.build(*self._first)
                    self._hello = hello

    @property
    def spec(self) -> SideSpec:
        """What this side was made from."""
        return self._side.spec

    def start(self) -> Hello:
        """Wait until it is built; when that failed, start anew. Raises as any side."""
        self._thread.join()
        _waiting.discard(self)
        if self._hello is None:
            self._side.close()
            shutil.rmtree(self._side.spec.work, ignore_errors=True)
            self._side = self._make()
            self._hello = self._side.start()
        return self._hello

    def build(self, shape: str, params: Mapping[str, Any]) -> Built:
        """Build a shape unless it was the first and is built. Raises SideFailed."""
        if self._built is not None and self._first == (shape, dict(params)):
            return self._built
        return self._side.build(shape, params)

    def check(self, shape: str, seed: int) -> Checked:
        """As any side."""
        return self._side.check(shape, seed)

    def check_timed(self, shape: str) -> Checked:
        """As any side."""
        return self._side.check_timed(shape)

    def sample(self, shape: str, launches: int, timer: str, warmup: int = 0) -> Samples:
        """As any side."""
        return self._side.sample(shape, launches, timer, warmup)

    def close(self) -> None:
        """End it, also in the middle of a build. Never raises; may be called twice."""
        self._cancelled.set()
        _waiting.discard(self)
        while self._thread.is_alive():
            self._side.abort()
            self._thread.join(_PATIENCE)
        self._side.close()


_waiting: set[EarlySide] = set()
_offered: dict[Hashable, EarlySide] = {}
_batches = Batches()


def waiting() -> int:
    """Return how many sides are ahead of their turn: they take memory from those whose turn it is."""
    return len(_waiting)


def offer(
    key: Hashable, make: Callable[[], Abortable], shape: str, params: Mapping[str, Any], most: int
) -> bool:
    """Build a side for a later job if its batch has room (``most``); return whether it is on its way."""
    if key in _offered:
        return True
    if not _batches.room(len(_offered), most) or len(_waiting) >= most:
        return False
    _offered[key] = EarlySide(make, shape, params)
    return True


def take(key: Hashable) -> EarlySide | None:
    """Return the side that was offered with an equal key, for the caller to close; None if there is none."""
    return _offered.pop(key, None)


def close() -> None:
    """End all sides that were offered and not taken. Never raises."""
    while _offered:
        _offered.popitem()[1].close()


def _forget() -> None:
    """In a fork of this process they are not ours."""
    _offered.clear()
    _waiting.clear()


os.register_at_fork(after_in_child=_forget)
atexit.register(close)
