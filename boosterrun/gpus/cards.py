"""Which GPUs there are, and who computes on them, by NVML; never raises, and needs neither root nor a GPU."""

from __future__ import annotations

import re
from typing import Any

from boosterrun.gpus import nvml


def lock_name(device: str) -> str:
    """Return what a GPU is called in file names: its UUID (MIG instances have their own), with its prefix."""
    plain = re.sub(r"[^A-Za-z0-9-]", "-", device)
    return plain if plain.startswith(("GPU-", "MIG-")) else f"GPU-{plain}"


def listed() -> tuple[list[dict[str, Any]], str | None]:
    """Return index, uuid, name, capability and memory of every GPU that can be chosen, and why there is none.

    MIG instances take the place of a card that is split into them, with its index. Never raises.
    """
    api, error = nvml.load()
    if api is None:
        return [], error
    found = []
    for index in range(nvml.ask(api.nvmlDeviceGetCount) or 0):
        card = nvml.handle(api, index)
        capability = nvml.ask(api.nvmlDeviceGetCudaComputeCapability, card)
        for handle in _instances(api, card):
            memory = nvml.ask(api.nvmlDeviceGetMemoryInfo, handle)
            found.append(
                {
                    "index": index,
                    "uuid": nvml.ask(api.nvmlDeviceGetUUID, handle),
                    "name": nvml.ask(api.nvmlDeviceGetName, handle),
                    "capability": capability,
                    "memory_bytes": None if memory is None else int(memory.total),
                }
            )
    return found, None if found else "NVML lists no GPU"


def _instances(api: Any, card: Any) -> list[Any]:
    """Return the MIG instances of a card, or the card itself."""
    mode = nvml.ask(api.nvmlDeviceGetMigMode, card)
    if mode is None or not mode[0]:
        return [card]
    count = nvml.ask(api.nvmlDeviceGetMaxMigDeviceCount, card) or 0
    handles = (nvml.ask(api.nvmlDeviceGetMigDeviceHandleByIndex, card, number) for number in range(count))
    return [handle for handle in handles if handle is not None]


def compute_pids(device: int | str) -> list[int] | None:
    """Return the ids of the compute processes on a GPU as the driver sees them; None: it does not tell."""
    api, _ = nvml.load()
    handle = None if api is None else nvml.handle(api, device)
    running = None if handle is None else nvml.ask(api.nvmlDeviceGetComputeRunningProcesses, handle)
    return None if running is None else [int(each.pid) for each in running]


def working_pids(device: int | str, since: float) -> set[int] | None:
    """Return the ids of those that kept a GPU busy after ``since`` (seconds of the epoch); None: not told."""
    api, _ = nvml.load()
    handle = None if api is None else nvml.handle(api, device)
    if handle is None:
        return None
    try:
        samples = api.nvmlDeviceGetProcessUtilization(handle, int(since * 1e6))
    except Exception as error:  # see nvml.ask
        return set() if getattr(error, "value", None) == api.NVML_ERROR_NOT_FOUND else None
    return {int(each.pid) for each in samples if each.smUtil or each.memUtil}
