"""End a run from outside: by Ctrl-C, by a terminal that closes, by a batch system that is about to kill it.

The first signal lets what is shielded (a pair, a result that is written) come to its end, for a second at
most, and then unwinds the run through its ``finally`` blocks. The same signal again ends it at once; the
guardian then clears up.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from boosterrun.system import process

# Slurm sends SIGUSR1 or SIGUSR2 (--signal; submitit's is SIGUSR2) or SIGTERM some time before it kills.
EXIT_CODES = {
    signal.SIGINT: 130,
    signal.SIGTERM: 143,
    signal.SIGHUP: 129,
    signal.SIGUSR1: 143,
    signal.SIGUSR2: 143,
}

# Seconds until children are killed, so that nobody waits for them: a pair may come to its end first.
_FOR_A_PAIR = 1.0
_FOR_NOTHING = 0.2
_AGAIN = 0.3
_SHOW_CURSOR = "\x1b[?25h"


class _State:
    """What has happened to this process. ``pending``: a signal has come that has not been raised yet."""

    def __init__(self) -> None:
        self.depth = 0
        self.installed = False
        self.clear()

    def clear(self) -> None:
        self.number: int | None = None
        self.pending = False
        self.over = threading.Event()


_state = _State()


def _forget() -> None:
    global _state  # noqa: PLW0603 - one a process; a fork has not been told to end
    _state = _State()


os.register_at_fork(after_in_child=_forget)


@contextmanager
def handling() -> Iterator[None]:
    """Let these signals end what runs inside: SIGINT raises KeyboardInterrupt, the others SystemExit.

    Signals that are ignored (nohup) stay so. What a signal raises may get lost (in a destructor) or turn into
    another error (in a library that it stops halfway): it is raised at the end all the same. Does nothing
    inside itself and in threads other than the first.
    """
    if _state.installed or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in EXIT_CODES}
    _state.clear()
    _state.installed = True
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, _received)
    try:
        yield
    finally:
        _state.depth = 0
        for number, handler in before.items():
            signal.signal(number, handler)
        _state.installed = False
        _state.over.set()
        check()


@contextmanager
def shielded() -> Iterator[None]:
    """Let what is inside come to its end before a signal takes effect.

    A signal that came meanwhile is raised at the end, instead of whatever error its effects have caused. Does
    nothing in threads other than the first: signals are raised there alone.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _state.depth += 1
    try:
        yield
    finally:
        _state.depth -= 1
        if _state.depth == 0 and _state.pending:
            _raise()


def stopping() -> bool:
    """Whether a signal to end has come: nothing that fails from now on says anything about a candidate."""
    return _state.number is not None


def check() -> None:
    """Raise again what a signal has raised, if one has come: KeyboardInterrupt or SystemExit."""
    if stopping():
        _raise()


def _received(number: int, frame: FrameType | None) -> None:
    if _state.number is not None:
        if number == _state.number:
            _end_at_once(number)
        return  # a batch system sends another one while we end
    _state.number, _state.pending = number, True
    patience = _FOR_A_PAIR if _state.depth else _FOR_NOTHING
    threading.Thread(target=_clear_away, args=(patience, _state.over), daemon=True).start()
    if _state.depth == 0:
        _raise()


def _raise() -> None:
    _state.pending = False
    if _state.number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(EXIT_CODES[signal.Signals(_state.number or signal.SIGTERM)])


def _clear_away(patience: float, over: threading.Event) -> None:
    """Kill what somebody may be waiting for, in threads too, until the run has ended."""
    while not over.wait(patience):
        process.kill_all()
        patience = _AGAIN


def _end_at_once(number: int) -> None:
    if sys.stderr.isatty():
        os.write(2, _SHOW_CURSOR.encode())
    os.write(2, b"boosterrun: ended at once; a job that ran has no result\n")
    os._exit(EXIT_CODES[signal.Signals(number)])
