"""What a running job tells of itself: its phase and its pairs, to whoever listens in this process."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from enum import IntEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from boosterrun.decision.decide import Decision


class Level(IntEnum):
    """How much is said about jobs: nothing, a line each, and where their time went."""

    QUIET = 0
    NORMAL = 1
    VERBOSE = 2


class Listener(Protocol):
    """Hears of the job that runs. Must not raise, and must return at once: pairs wait for it."""

    def job(self, name: str) -> None:
        """A job begins."""

    def phase(self, name: str) -> None:
        """A phase of it begins: start, build, check, wait, pairs."""

    def pair(self, shape: str, decision: Decision) -> None:
        """A pair has been measured; ``decision`` is what is known after it."""


class _State:
    level = Level.NORMAL
    listener: Listener | None = None


def set_level(level: Level) -> None:
    """Choose how much this process says about jobs."""
    _State.level = level


def level() -> Level:
    """How much this process says about jobs."""
    return _State.level


@contextlib.contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """Let ``listener`` hear of what runs inside."""
    before, _State.listener = _State.listener, listener
    try:
        yield
    finally:
        _State.listener = before


def job(name: str) -> None:
    """Say that a job begins."""
    if _State.listener is not None:
        _State.listener.job(name)


def phase(name: str) -> None:
    """Say that a phase of the job begins."""
    if _State.listener is not None:
        _State.listener.phase(name)


def pair(shape: str, decision: Decision) -> None:
    """Say what is known after one more pair."""
    if _State.listener is not None:
        _State.listener.pair(shape, decision)
