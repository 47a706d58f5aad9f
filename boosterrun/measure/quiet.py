"""Pairs have the machine to themselves: what works ahead of its turn is stopped while one is timed.

Compilers and first runs would share the caches or the GPU with a pair, so their processes are stopped for as
long as one is timed. Beside pairs on a GPU, sides start all the same (a fork, imports, a CUDA context): no
pair shows it (docs/methodology.md has the figures).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

# What a stopped process had queued on the GPU comes to its end meanwhile, in seconds.
_SETTLE = 0.005


class Stoppable(Protocol):
    """Something whose process can be stopped from another thread. Neither raises."""

    def pause(self) -> None:
        """Stop what runs where it is."""

    def unpause(self) -> None:
        """Let it go on."""


@dataclass(frozen=True)
class Work:
    """What goes on ahead of its turn.

    Attributes:
        side: None: it cannot be stopped. start: it is a side's start, which no pair on a GPU shows.
        over: it need not begin any more.
    """

    side: Stoppable | None
    start: bool = False
    over: threading.Event = field(default_factory=threading.Event)


class _Turns:
    """Many may work ahead or one may time; who waits to time goes before those who come later."""

    def __init__(self) -> None:
        self._change = threading.Condition()
        self._working: list[Work] = []
        self._timing: list[bool] = []

    @contextlib.contextmanager
    def working(self, work: Work) -> Iterator[None]:
        with self._change:
            self._change.wait_for(lambda: work.over.is_set() or not self._stops(work))
            self._working.append(work)
        try:
            yield
        finally:
            with self._change:
                self._working.remove(work)
                if work.side is not None and self._stops(work):  # stopped just when it had finished
                    work.side.unpause()
                self._change.notify_all()

    @contextlib.contextmanager
    def timing(self, everything: bool) -> Iterator[None]:
        with self._change:
            self._timing.append(everything)
            stopped = [work.side for work in self._working if work.side is not None and self._stops(work)]
            for side in stopped:
                side.pause()
        try:
            with self._change:
                self._change.wait_for(lambda: not any(work.side is None for work in self._working))
            if stopped:
                time.sleep(_SETTLE)
            yield
        finally:
            with self._change:
                self._timing.remove(everything)
                for work in self._working:
                    if work.side is not None and not self._stops(work):
                        work.side.unpause()
                self._change.notify_all()

    def end(self, over: threading.Event) -> None:
        """Let whoever waits with this event wait no longer."""
        with self._change:
            over.set()
            self._change.notify_all()

    def _stops(self, work: Work) -> bool:
        return any(everything or not work.start for everything in self._timing)


_turns = _Turns()


def timing(*, everything: bool = True) -> contextlib.AbstractContextManager[None]:
    """Stop every build that is ahead of its turn, or ``everything``; waits for what cannot be stopped."""
    return _turns.timing(everything)


def working(work: Work) -> contextlib.AbstractContextManager[None]:
    """Do something ahead of its turn, but not while pairs are timed: it is stopped then."""
    return _turns.working(work)


def end(over: threading.Event) -> None:
    """Let whoever waits with this event wait no longer."""
    _turns.end(over)


def building() -> contextlib.AbstractContextManager[None]:
    """Be one of those that build ahead and cannot be stopped: waits while pairs are timed, is waited for."""
    return _turns.working(Work(None))


class Batches:
    """Lets builds begin a batch at a time, when the last batch is used up.

    Pairs wait for every build that cannot be stopped. Were one begun after each job, each next job would
    wait for a whole build: measured with nvcc on an H200, 8 s a job of which 1 s was its own. A batch is
    waited for once.
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
