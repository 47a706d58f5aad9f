"""A GPU for oneself while pairs are timed: one lock per GPU, shared by all users of this machine."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from boosterrun.errors import RunError
from boosterrun.gpus import cards, neighbours
from boosterrun.system import interrupt, locks

WAIT = 3600.0
"""Seconds for which a GPU that is in use is waited for, unless ``gpu.wait`` says otherwise."""

_POLL = 0.05
_POLL_STRANGERS = 0.5
_TELL_AFTER = 2.0


class GpuBusy(RunError):  # noqa: N818 - says what it is
    """Another process has used the GPU for longer than we may wait."""


@contextlib.contextmanager
def held(device: Mapping[str, Any] | None, wait: float = WAIT) -> Iterator[None]:
    """Have a GPU alone for as long as the block; waits for others, and says so on stderr.

    Others are runs that time on it, and processes that are no run's and at work on it
    (:func:`boosterrun.gpus.neighbours.strangers`).

    Args:
        device: what a side has said of its GPU (``uuid``, else ``index``); None: no GPU, nothing is locked.
        wait: seconds; 0 does not wait.

    Raises GpuBusy when the time is over. Where the lock's folder cannot be used a warning is all: a GPU that
    nobody else uses needs no lock.
    """
    key = _key(device)
    if device is None or key is None:
        yield
        return
    name = cards.lock_name(key) if isinstance(key, str) else f"index-{key}"
    waiting = _Waiting(f"{device.get('name') or 'GPU'} ({name})", name, wait)
    descriptor = None
    try:
        while (descriptor := locks.take(f"{name}.lock")) is None:
            waiting.on(partial(_holder, f"{name}.lock"), _POLL)
    except OSError as error:
        _warn(f"no lock for {name} in {locks.folder()}: {error.strerror}; others may time on it meanwhile")
    try:
        while found := neighbours.strangers(key):
            waiting.on(partial(_named, found), _POLL_STRANGERS)
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


class _Waiting:
    """Waits for a GPU, tells so once, and gives up. ``what``, ``name``: the GPU, at length and in short."""

    def __init__(self, what: str, name: str, limit: float) -> None:
        self._what = what
        self._name = name
        self._limit = limit
        self._begun = time.monotonic()
        self._told = False

    def on(self, by: Callable[[], str], pause: float) -> None:
        """Wait for ``pause`` seconds. Raises GpuBusy, with ``by`` saying who uses it, when all is over."""
        waited = time.monotonic() - self._begun
        if waited >= self._limit:
            raise GpuBusy(
                f"GPU {self._name} has been in use{by()} for {waited:.0f} s",
                "Wait until it is free, choose another one by gpu.devices, or raise gpu.wait",
            )
        if waited >= _TELL_AFTER and not self._told:
            self._told = True
            _warn(f"waiting for {self._what}, in use{by()}")
        interrupt.check()
        time.sleep(pause)


def _key(device: Mapping[str, Any] | None) -> str | int | None:
    if device is None:
        return None
    uuid = device.get("uuid")
    return str(uuid) if uuid is not None else device.get("index")


def _named(pids: list[int]) -> str:
    return f" by {neighbours.named(pids)}"


def _holder(name: str) -> str:
    """Who has the lock, where the kernel tells."""
    pids = sorted(locks.holders(name))
    return f" by process {pids[0]}" if pids else ""


def _warn(words: str) -> None:
    sys.stderr.write(f"boosterrun: {words}\n")
    sys.stderr.flush()
