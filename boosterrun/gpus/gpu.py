"""What the GPU and its driver say about themselves, by NVML; works without root, and without a GPU.

Every field is nullable: cards, drivers and containers differ in what they tell. Nothing here raises for a
missing driver or an unsupported query, and nothing here creates a CUDA context.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypedDict

from boosterrun.gpus.nvml import ask as _ask
from boosterrun.gpus.nvml import handle as _handle
from boosterrun.gpus.nvml import load as _nvml

# NVML's clocks-event ("throttle") reasons, by bit.
REASONS = {
    0x001: "gpu_idle",
    0x002: "applications_clocks_setting",
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal_slowdown",
    0x040: "hw_thermal_slowdown",
    0x080: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}

# Time counters as NVML field ids, which are part of NVML's ABI; older pynvml has no names for the last
# three, and older drivers do not know them.
_COUNTER_FIELDS = {
    74: "sw_power_cap",
    75: "thermal",
    76: "sync_boost",
    77: "board_limit",
    79: "reliability",
    269: "sw_thermal_slowdown",
    270: "hw_thermal_slowdown",
    271: "hw_power_brake_slowdown",
}

# nvmlPerfPolicyType_t; the counters of drivers that do not know the fields above.
_POLICIES = {0: "sw_power_cap", 1: "thermal", 2: "sync_boost", 3: "board_limit", 5: "reliability"}

# The counters read for every pair. On an H200 each further one costs 0.2-0.4 ms (a question to the card's own
# processor), these four 0.6 ms together.
_LIGHT_FIELDS = (74, 269, 270, 271)

# What makes a pair of measurements worthless. The software power cap is not here: a busy data-centre card
# sits in it all the time, and adjacent blocks in random order cope with it.
DISTURBING = (
    "hw_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
    "sw_thermal_slowdown",
    "thermal",
)


class Light(TypedDict):
    """The few facts that a check between two blocks needs: reason bits, time counters in ns, compute pids."""

    reasons: int | None
    counters_ns: dict[str, int]
    pids: list[int] | None


def _counters(nvml: Any, handle: Any, fields: Sequence[int]) -> dict[str, int]:
    """Return the time counters in ns; a driver that lacks the thermal fields is asked the old way."""
    answers = _ask(nvml.nvmlDeviceGetFieldValues, handle, list(fields)) or ()
    found = {_COUNTER_FIELDS[f.fieldId]: int(f.value.ullVal) for f in answers if f.nvmlReturn == 0}
    if not any(name in found for name in DISTURBING):
        for policy, name in _POLICIES.items():
            answer = _ask(nvml.nvmlDeviceGetViolationStatus, handle, policy)
            if answer is not None:
                found[name] = int(answer.violationTime)
    return found


def _reasons(nvml: Any, handle: Any) -> int | None:
    bits = _ask(nvml.nvmlDeviceGetCurrentClocksEventReasons, handle)
    if bits is None:  # the name before driver 535
        bits = _ask(nvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
    return bits if bits is None else int(bits)


def reason_names(bits: int | None) -> list[str] | None:
    """Return the names of the clocks-event reasons set in ``bits``; unknown bits as hexadecimal."""
    if bits is None:
        return None
    names = [name for bit, name in REASONS.items() if bits & bit]
    rest = bits & ~sum(REASONS)
    return [*names, hex(rest)] if rest else names


def _processes(nvml: Any, handle: Any) -> list[dict[str, int | None]] | None:
    running = _ask(nvml.nvmlDeviceGetComputeRunningProcesses, handle)
    if running is None:
        return None
    return [{"pid": int(p.pid), "used_memory_bytes": p.usedGpuMemory} for p in running]


def _milli(value: int | None) -> float | None:
    return None if value is None else value / 1000


def _describe(nvml: Any, handle: Any) -> dict[str, Any]:
    """Return everything a result records about one device."""
    capability = _ask(nvml.nvmlDeviceGetCudaComputeCapability, handle)
    memory = _ask(nvml.nvmlDeviceGetMemoryInfo, handle)
    pci = _ask(nvml.nvmlDeviceGetPciInfo, handle)
    persistence = _ask(nvml.nvmlDeviceGetPersistenceMode, handle)
    mig = _ask(nvml.nvmlDeviceGetMigMode, handle)
    ecc = _ask(nvml.nvmlDeviceGetEccMode, handle)
    bus_id = getattr(pci, "busId", None)
    clock, top = nvml.nvmlDeviceGetClockInfo, nvml.nvmlDeviceGetMaxClockInfo
    sm, mem = nvml.NVML_CLOCK_SM, nvml.NVML_CLOCK_MEM
    return {
        "index": _ask(nvml.nvmlDeviceGetIndex, handle),
        "uuid": _ask(nvml.nvmlDeviceGetUUID, handle),
        "name": _ask(nvml.nvmlDeviceGetName, handle),
        "pci_bus_id": bus_id.decode("ascii", "replace") if isinstance(bus_id, bytes) else bus_id,
        "compute_capability": None if capability is None else f"{capability[0]}.{capability[1]}",
        "clocks_mhz": {
            "sm": _ask(clock, handle, sm),
            "memory": _ask(clock, handle, mem),
            "sm_max": _ask(top, handle, sm),
            "memory_max": _ask(top, handle, mem),
        },
        "power_w": {
            "draw": _milli(_ask(nvml.nvmlDeviceGetPowerUsage, handle)),
            "limit": _milli(_ask(nvml.nvmlDeviceGetEnforcedPowerLimit, handle)),
        },
        "temperature_c": _ask(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
        "pstate": _ask(nvml.nvmlDeviceGetPerformanceState, handle),
        "persistence_mode": None if persistence is None else bool(persistence),
        "mig_mode": None if mig is None else bool(mig[0]),
        "memory_bytes": {
            "used": None if memory is None else int(memory.used),
            "total": None if memory is None else int(memory.total),
        },
        "clocks_event_reasons": reason_names(_reasons(nvml, handle)),
        "counters_ns": _counters(nvml, handle, tuple(_COUNTER_FIELDS)),
        "compute_processes": _processes(nvml, handle),
        "ecc": {
            "enabled": None if ecc is None else bool(ecc[0]),
            "corrected": _ask(nvml.nvmlDeviceGetTotalEccErrors, handle, 0, 0),
            "uncorrected": _ask(nvml.nvmlDeviceGetTotalEccErrors, handle, 1, 0),
        },
    }


def snapshot(devices: Sequence[int | str] | None = None) -> dict[str, Any]:
    """Return driver and devices as a JSON-ready dict; never raises.

    Args:
        devices: NVML indices or UUIDs (with or without the ``GPU-`` prefix); None: all that NVML lists.

    Returns:
        ``driver_version``, ``cuda_driver_version`` ("13.0"), ``devices`` (clocks in MHz, power in W,
        temperature in degrees C, memory in bytes, time counters in ns since the driver was loaded, process
        ids as the driver sees them, volatile ECC error counts) and ``error`` (why there is nothing, else
        None).
    """
    nvml, error = _nvml()
    if nvml is None:
        return {"driver_version": None, "cuda_driver_version": None, "devices": [], "error": error}
    if devices is None:
        devices = range(_ask(nvml.nvmlDeviceGetCount) or 0)
    handles = {device: _handle(nvml, device) for device in devices}
    missing = [str(device) for device, handle in handles.items() if handle is None]
    cuda = _ask(nvml.nvmlSystemGetCudaDriverVersion)
    return {
        "driver_version": _ask(nvml.nvmlSystemGetDriverVersion),
        "cuda_driver_version": None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
        "devices": [_describe(nvml, handle) for handle in handles.values() if handle is not None],
        "error": f"NVML cannot open device {', '.join(missing)}" if missing else None,
    }


def visible_device(environment: Mapping[str, str]) -> dict[str, Any] | None:
    """Return index, uuid, name and capability of the first GPU that a program with this environment sees."""
    first = environment.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip()
    devices = snapshot([first])["devices"] if first and first != "-1" else []
    return (
        {key: devices[0][key] for key in ("index", "uuid", "name", "compute_capability")} if devices else None
    )


def light(device: int | str = 0) -> Light | None:
    """Return what `disturbance` compares (0.8 ms on an H200); None without a GPU. Never raises."""
    nvml, _ = _nvml()
    handle = None if nvml is None else _handle(nvml, device)
    if handle is None:
        return None
    processes = _ask(nvml.nvmlDeviceGetComputeRunningProcesses, handle)
    return {
        "reasons": _reasons(nvml, handle),
        "counters_ns": _counters(nvml, handle, _LIGHT_FIELDS),
        "pids": None if processes is None else [int(p.pid) for p in processes],
    }


def throttled(before: Light | None, after: Light | None) -> dict[str, float]:
    """Return the seconds that each time counter moved between two light snapshots; only those that moved."""
    if before is None or after is None:
        return {}
    start = before["counters_ns"]
    moved = {name: value - start.get(name, value) for name, value in after["counters_ns"].items()}
    return {name: delta / 1e9 for name, delta in moved.items() if delta > 0}


def disturbance(
    before: Light | None, after: Light | None, own_pids: Collection[int], ignore: Collection[str] = ()
) -> str | None:
    """Say what disturbed the measurement between two light snapshots, or None.

    A disturbance is a thermal or hardware slow-down (its time counter moved, or its bit is set afterwards),
    or a compute process that is neither in ``own_pids`` nor was there before. In a container the driver may
    report process ids of the host: processes that were there before are therefore never foreign.

    Args:
        before, after: from `light`; None (no GPU) disturbs nothing.
        own_pids: process ids of both sides.
        ignore: counter or reason names (`DISTURBING`), or ``"process"``, that shall not count.
    """
    if before is None or after is None:
        return None
    moved = throttled(before, after)
    bits = reason_names(after["reasons"]) or []
    for name in DISTURBING:
        if name in ignore:
            continue
        if name in moved:
            return f"{name} for {moved[name]:.6f} s"
        if name in bits:
            return f"{name} is active"
    if "process" not in ignore and before["pids"] is not None and after["pids"] is not None:
        foreign = set(after["pids"]) - set(before["pids"]) - set(own_pids)
        if foreign:
            return f"another process uses the GPU: pid {', '.join(map(str, sorted(foreign)))}"
    return None


def vitals(device: int | str = 0) -> dict[str, Any] | None:
    """Return how a device is doing, small enough to be kept for each stage; None without a GPU. Never raises.

    Clocks in MHz, power in W, temperature in degrees C, time counters in ns since the driver was loaded.
    """
    nvml, _ = _nvml()
    handle = None if nvml is None else _handle(nvml, device)
    if handle is None:
        return None
    return {
        "sm_mhz": _ask(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM),
        "memory_mhz": _ask(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_MEM),
        "power_w": _milli(_ask(nvml.nvmlDeviceGetPowerUsage, handle)),
        "power_limit_w": _milli(_ask(nvml.nvmlDeviceGetEnforcedPowerLimit, handle)),
        "temperature_c": _ask(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
        "reasons": reason_names(_reasons(nvml, handle)),
        "counters_ns": _counters(nvml, handle, _LIGHT_FIELDS),
    }
