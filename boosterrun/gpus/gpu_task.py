"""A trivial task for a GPU, as a program: it tells on standard output what is wrong, or null.

``python -m boosterrun.gpus.gpu_task UUID``; an index is CUDA's own.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from typing import Any

from boosterrun.gpus import cards, gpu

_WORDS = 1024
_PATTERN = 0x600DF00D
# Answers that say nothing bad about the GPU: out of memory, a stub library, a card in exclusive use, a driver
# and library that do not fit, no connection to an MPS server.
_INNOCENT = {2, 34, 46, 803, 804, 805, 806, 807, 808, 809}


class _Failed(Exception):  # noqa: N818 - an answer
    """A call of CUDA's driver did not succeed."""


def main(device: str) -> str | None:
    """Return what is wrong with a GPU; None: nothing."""
    key: int | str = int(device) if device.isdecimal() else device
    found = gpu.snapshot([key])
    told = found["devices"] and found["devices"][0]["name"] is not None
    if found["driver_version"] is not None and not told:
        return str(found["error"] or "it does not even tell its name")
    if isinstance(key, str):  # NVML knows whether it is a MIG instance
        name = found["devices"][0]["uuid"] if told else None
        os.environ["CUDA_VISIBLE_DEVICES"] = str(name or cards.lock_name(key))
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    try:
        _compute(cuda, key if isinstance(key, int) else 0)
    except _Failed as failure:
        return str(failure)
    except AttributeError:  # a library without these functions
        return None
    return None


def _compute(cuda: Any, index: int) -> None:
    """Fill some memory on the device and read it back. Raises _Failed."""
    device, context, pointer = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    values = (ctypes.c_uint32 * _WORDS)()
    size = ctypes.c_size_t(ctypes.sizeof(values))
    calls: list[tuple[Any, ...]] = [
        ("cuInit", ctypes.c_uint(0)),
        ("cuDeviceGet", ctypes.byref(device), ctypes.c_int(index)),
        ("cuDevicePrimaryCtxRetain", ctypes.byref(context), device),
        ("cuCtxSetCurrent", context),
        ("cuMemAlloc_v2", ctypes.byref(pointer), size),
        ("cuMemsetD32_v2", pointer, ctypes.c_uint(_PATTERN), ctypes.c_size_t(_WORDS)),
        ("cuCtxSynchronize",),
        ("cuMemcpyDtoH_v2", values, pointer, size),
    ]
    for name, *arguments in calls:
        code = getattr(cuda, name)(*arguments)
        if code in _INNOCENT:
            return
        if code:
            raise _Failed(f"{name} fails with CUDA error {code}")
    if any(value != _PATTERN for value in values):
        raise _Failed("its memory does not hold what was written")


if __name__ == "__main__":
    print("boosterrun-alive " + json.dumps(main(sys.argv[1])), flush=True)  # noqa: T201
    os._exit(0)  # taking a broken context apart can hang
