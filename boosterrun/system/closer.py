"""End things in the background: who is done with a process, or with a folder, need not watch it go."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait

from boosterrun.system import interrupt

_THREADS = 4


class _Closer:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(_THREADS, "boosterrun-closer")
        self._pending: list[Future[None]] = []

    def later(self, what: Callable[[], object], *, last: bool) -> None:
        # A thread whose start is broken off by a signal is unknown to its pool: nobody would ever end it, and
        # the end of the process would wait for it.
        with interrupt.shielded(), self._lock:
            self._pending = [one for one in self._pending if not one.done()]
            before = tuple(self._pending) if last else ()
            self._pending.append(self._pool.submit(_do, what, before))

    def wait(self) -> None:
        with self._lock:
            pending = tuple(self._pending)
        wait(pending)


def _do(what: Callable[[], object], before: tuple[Future[None], ...]) -> None:
    wait(before)
    with contextlib.suppress(Exception):  # there is nobody to be told
        what()


_closer = _Closer()


def later(what: Callable[[], object], *, last: bool = False) -> None:
    """Do this soon; ``last``: after everything that was put off before. What it raises is dropped."""
    _closer.later(what, last=last)


def finish() -> None:
    """Wait until everything that was put off is done. The end of the process waits for it too."""
    _closer.wait()


def _forget() -> None:
    """In a fork of this process there are no threads, and nothing of this is ours to end."""
    global _closer  # noqa: PLW0603 - one a process
    _closer = _Closer()


os.register_at_fork(after_in_child=_forget)
