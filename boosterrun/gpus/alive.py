"""After a crash or a hang: does the GPU still do a trivial task? Asked in a process of its own, with a limit.

A wedged GPU can hang whoever asks, so nobody asks in the process that goes on.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from boosterrun.errors import RunError
from boosterrun.gpus import cards
from boosterrun.measure.api import SideFailed
from boosterrun.system import process

SECONDS = 60.0
"""A busy machine may take many seconds to load the driver; a wedged GPU takes for ever."""

_MARK = "boosterrun-alive "


class GpuLost(RunError):  # noqa: N818 - says what it is
    """The GPU does not answer any more."""


def suspect(failure: SideFailed) -> bool:
    """Whether a failure of a side may come from, or have left, a wedged GPU: all but a compiler's words."""
    return not (failure.kind == "compile_error" and failure.alive)


def require(device: Mapping[str, Any] | None, seconds: float = SECONDS) -> None:
    """Ask NVML about a GPU, and have it write and read back some memory. Raises GpuLost if it does not.

    Args:
        device: ``uuid``, else ``index``; None, or neither: nothing is asked.
        seconds: no answer for so long is no answer.

    Where NVML or CUDA's driver library is missing, that part is left out.
    """
    key = None if device is None else device.get("uuid", device.get("index"))
    if key is None:
        return
    name = str(key) if isinstance(key, int) else cards.lock_name(str(key))
    argv = [sys.executable, "-m", "boosterrun.gpus.gpu_task", str(key)]
    try:
        done = process.run(argv, timeout=seconds, grace=0.5)
    except RunError:  # no process can be started: that is told by the next one who tries
        return
    why = _answer(done)
    if done.timed_out and why is None:
        why = f"a trivial task did not end within {seconds:g} s"
    elif done.signal is not None and why is None:
        why = f"a trivial task was killed by signal {done.signal}"
    if why:
        raise GpuLost(f"GPU {name} does not answer: {why}", "See dmesg for Xid errors, and reset the GPU")


def _answer(done: process.Completed) -> str | None:
    """What is wrong; an empty string: nothing; None: no answer."""
    for line in done.stdout.splitlines():
        if line.startswith(_MARK):
            return str(json.loads(line.removeprefix(_MARK)) or "")
    return None
