"""Ask NVML in a process of its own: a hung driver must not hang the command."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from boosterrun.errors import RunError
from boosterrun.system import process

_SECONDS = 20.0
_MARK = "boosterrun-nvml "
# The compute mode is no part of a result, so a snapshot does not have it.
_SCRIPT = f"""
import json, sys
from boosterrun.errors import UsageError
from boosterrun.gpus import devices, gpu
found = gpu.snapshot()
for device in found["devices"]:
    try:
        import pynvml
        handle = pynvml.nvmlDeviceGetHandleByIndex(device["index"])
        device["compute_mode"] = int(pynvml.nvmlDeviceGetComputeMode(handle))
    except Exception:
        device["compute_mode"] = None
found["allowed"], found["refused"] = [], None
try:
    found["allowed"] = [device.index for device in devices.allowed(*json.loads(sys.argv[1]))]
except UsageError as error:
    found["refused"] = error.message, error.advice
print({_MARK!r} + json.dumps(found))
"""


def ask(wanted: Any, env: Mapping[str, str], timeout: float = _SECONDS) -> dict[str, Any]:
    """Return :func:`boosterrun.gpus.gpu.snapshot` with a ``compute_mode`` per device; ``error``: what failed.

    Further keys: ``allowed``, indices of the cards that :func:`boosterrun.gpus.devices.allowed` returns for
    ``wanted`` and ``env``, and ``refused``, the message and advice of its UsageError, or None. Takes at most
    ``timeout`` seconds and some for a process that cannot be killed. Never raises.
    """
    question = json.dumps([wanted, dict(env)])
    try:
        done = process.run([sys.executable, "-c", _SCRIPT, question], timeout=timeout, grace=0.5)
    except RunError as error:
        return _nothing(error.message)
    for line in done.stdout.splitlines():
        if line.startswith(_MARK):
            found: dict[str, Any] = json.loads(line.removeprefix(_MARK))
            return found
    if done.timed_out:
        return _nothing(f"the driver gave no answer within {timeout:.0f} s")
    said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}, signal {done.signal}"]
    return _nothing(f"asking NVML failed: {said[-1]}")


def _nothing(error: str) -> dict[str, Any]:
    return {
        "driver_version": None,
        "cuda_driver_version": None,
        "devices": [],
        "error": error,
        "allowed": [],
        "refused": None,
    }
