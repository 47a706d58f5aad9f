"""NVML itself: loaded once per process, asked without ever raising."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any


@lru_cache(maxsize=1)
def load() -> tuple[Any, str | None]:
    """Load and initialise NVML once per process; (module, None) or (None, why not)."""
    try:
        import pynvml  # noqa: PLC0415 - loads ctypes structures of 100 ms; many commands never need it
    except ImportError as error:
        return None, f"nvidia-ml-py cannot be imported: {error}"
    try:
        pynvml.nvmlInit()
    except (pynvml.NVMLError, OSError) as error:
        return None, f"NVML: {error}"
    return pynvml, None


def ask(call: Callable[..., Any], *args: Any) -> Any:
    """Return the answer of one NVML call, or None where this card, driver or container does not tell."""
    try:
        return call(*args)
    except Exception:  # NVMLError, but also decoding and ctypes errors of mismatched drivers
        return None


def handle(nvml: Any, device: int | str) -> Any:
    """Return NVML's handle of a GPU, by index or by UUID with or without prefix; None: there is none."""
    if isinstance(device, int) or device.isdecimal():
        return ask(nvml.nvmlDeviceGetHandleByIndex, int(device))
    if device.startswith(("GPU-", "MIG-")):
        return ask(nvml.nvmlDeviceGetHandleByUUID, device)
    # torch reports UUIDs without NVML's prefix.
    found = (ask(nvml.nvmlDeviceGetHandleByUUID, f"{prefix}{device}") for prefix in ("GPU-", "MIG-"))
    return next((handle for handle in found if handle is not None), None)
