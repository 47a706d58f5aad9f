"""The GPU of this process: one for all the jobs that it runs, while it is fit for them.

``CUDA_VISIBLE_DEVICES`` of this process names it by its UUID, so both sides of every pair inherit it. A
claim, a lock that is held as long as the GPU is used, spreads processes over GPUs; who finds none unclaimed
shares one, and the lock for timing (:mod:`boosterrun.gpus.lease`) puts them in turn.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from boosterrun.config import Config
from boosterrun.errors import RunError
from boosterrun.gpus import cards, devices, gpu, neighbours, wedged
from boosterrun.gpus.devices import VISIBLE, Device
from boosterrun.system import locks

# So many processes may share one GPU before the rest goes without a claim.
_LEVELS = 64
# Seconds.
_JUST = 0.1


class NoGpu(RunError):  # noqa: N818 - says what it is
    """Every GPU that the run may use is out of it."""


@dataclass
class _Bound:
    """``claim``: the descriptor of the lock; ``level``: how many others were there before."""

    device: Device
    level: int
    claim: int | None


class _State:
    """``shell``: what CUDA_VISIBLE_DEVICES was before. ``asked``, ``allowed``: what was found once for it.

    ``said``: the last snapshot, of which GPU and when.
    """

    def __init__(self) -> None:
        self.bound: _Bound | None = None
        self.shell: str | None = None
        self.asked: tuple[str, str | None] | None = None
        self.allowed: list[Device] = []
        self.said: tuple[Device | None, float, dict[str, Any]] | None = None


_state = _State()


def current() -> Device | None:
    """The GPU of this process; None: nothing was chosen here."""
    return None if _state.bound is None else _state.bound.device


def snapshot() -> dict[str, Any]:
    """What the driver says of the GPU of this process, or of all; what it has just said, if it has.

    It takes 15 ms while other processes start, and between two jobs of a round less than that has passed.
    """
    key = current()
    if _state.said is None or _state.said[0] != key or time.monotonic() - _state.said[1] > _JUST:
        _state.said = key, time.monotonic(), gpu.snapshot(None if key is None else [key.uuid])
    return _state.said[2]


def model(config: Config) -> str | None:
    """The name of the GPU that a job has, or would have; None without any. Raises UsageError."""
    device = current()  # asked of the driver once: a GPU that hangs now may hang who asks
    return devices.model(config, os.environ) if device is None else device.name


def told(device: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """What a side has told of its GPU, with the UUID that NVML has for it; None stays None."""
    bound = current()
    return device if device is None or bound is None else {**device, "uuid": bound.uuid}


def bind(config: Config, folder: Path) -> bool:
    """Choose the GPU of the next job, the present one if it is fit: not wedged, no stranger at work on it.

    ``folder`` is the sweep's, which knows the wedged ones. Never waits. Returns whether the process had
    another GPU before: what lives there is of no use any more. Raises NoGpu, and UsageError for a
    ``gpu.devices`` that cannot be.
    """
    before = current()
    if before is not None and os.environ.get(VISIBLE) != before.uuid:
        _drop()  # somebody else has chosen since: that is the shell now
        before = None
    if not devices.chosen(config):
        release()
        return before is not None
    if before is None:
        _state.shell = os.environ.get(VISIBLE)
    allowed = _allowed(config)
    if not allowed:
        release()
        return before is not None
    out = wedged.reasons(folder)
    fit = [device for device in allowed if device.uuid not in out]
    if not fit:
        words = "; ".join(f"{device.uuid}: {out[device.uuid]}" for device in allowed)
        raise NoGpu(
            f"no GPU is left for this sweep: {words}",
            f"Reset them (nvidia-smi --gpu-reset), then boosterrun resume {folder}",
        )
    bound = _claimed(fit)
    _take(bound)
    if before in (None, bound.device):
        return False
    sys.stderr.write(f"boosterrun: going on with GPU {bound.device.index} ({bound.device.uuid})\n")
    sys.stderr.flush()
    return True


def release() -> None:
    """Give the GPU back, and the shell its variable."""
    if _state.bound is None:
        return
    ours = os.environ.get(VISIBLE) == _state.bound.device.uuid
    _drop()
    if ours and _state.shell is None:
        del os.environ[VISIBLE]
    elif ours and _state.shell is not None:
        os.environ[VISIBLE] = _state.shell


@contextlib.contextmanager
def lent(configs: Sequence[Config], folder: Path) -> Iterator[None]:
    """Have a GPU for as long as the block, for what is no job: that of the jobs, if there is one by now."""
    if current() is not None:
        yield
        return
    config = next((config for config in configs if devices.chosen(config)), None)
    try:
        if config is not None and cards.listed()[0]:
            bind(config, folder)
        yield
    finally:
        release()


def lost(result: Mapping[str, Any], folder: Path, job: str) -> bool:
    """Take the GPU out of the sweep if a job has lost it; whether there is another one for the job."""
    error, bound = result["error"], _state.bound
    if error is None or error["kind"] != "gpu_lost" or bound is None:
        return False
    wedged.take_out(folder, bound.device, str(error["message"]), job)
    out = wedged.reasons(folder)
    return any(device.uuid not in out for device in _state.allowed)


def _allowed(config: Config) -> list[Device]:
    """Asked once: a GPU that has fallen off the bus meanwhile is lost, not unknown."""
    asked = (str(config.gpu.devices), _state.shell)
    if _state.asked != asked:
        shell = {name: value for name, value in os.environ.items() if name != VISIBLE}
        if _state.shell is not None:
            shell[VISIBLE] = _state.shell
        _state.allowed = devices.allowed(config.gpu.devices, shell)
        _state.asked = asked
    return _state.allowed


def _claimed(fit: Sequence[Device]) -> _Bound:
    """The best GPU: without strangers, with as few other runs as can be, the present one if equal."""
    bound = _state.bound
    if bound is not None and bound.device in fit:
        if bound.level == 0 and not neighbours.strangers(bound.device.uuid):
            return bound
        fit = [bound.device, *(device for device in fit if device != bound.device)]
    quiet = [device for device in fit if not neighbours.strangers(device.uuid)] or list(fit)
    for level in range(_LEVELS):
        for device in quiet:
            if bound is not None and (device, level) == (bound.device, bound.level):
                return bound
            try:
                claim = locks.take(f"{neighbours.claim_prefix(device.uuid)}{level}")
            except OSError:  # the lease tells
                return _Bound(quiet[0], 0, None)
            if claim is not None:
                return _Bound(device, level, claim)
    return _Bound(quiet[0], _LEVELS, None)


def _take(bound: _Bound) -> None:
    if bound is _state.bound:
        return
    _drop()
    _state.bound = bound
    os.environ[VISIBLE] = bound.device.uuid


def _drop() -> None:
    bound, _state.bound = _state.bound, None
    if bound is not None and bound.claim is not None:
        os.close(bound.claim)


os.register_at_fork(after_in_child=release)
