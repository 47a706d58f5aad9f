"""Where a result was made, as plain facts: to show, and to compare two sweeps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def facts(result: Mapping[str, Any]) -> dict[str, str]:
    """Everything about the machine, the tools and the inputs that could change a result, by name.

    What is not known is left out.
    """
    return {name: str(value) for name, value in _facts(result) if value not in (None, "", [])}


def devices(result: Mapping[str, Any], end: str = "before") -> list[dict[str, Any]]:
    """The GPUs in the snapshot ``before`` or ``after`` a job (where there is one snapshot only: that one)."""
    gpu = result["environment"].get("gpu") or {}
    snapshot = gpu.get(end) if "before" in gpu or "after" in gpu else gpu if end == "before" else None
    listed = (snapshot or {}).get("devices")
    return [device for device in listed if isinstance(device, dict)] if isinstance(listed, list) else []


def _facts(result: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    environment = result["environment"]
    gpu = environment.get("gpu") or {}
    gpu = gpu.get("before") or gpu
    cards = devices(result)
    yield "GPU", " + ".join(str(card.get("name")) for card in cards)
    yield "driver", gpu.get("driver_version")
    yield "NVML", gpu.get("error")
    if cards:
        yield "GPU clock limit (MHz)", (cards[0].get("clocks_mhz") or {}).get("sm_max")
        yield "GPU power limit (W)", (cards[0].get("power_w") or {}).get("limit")
        yield "MIG", cards[0].get("mig_mode")
    toolchain = result["toolchain"] or {}
    yield "CUDA toolkit", toolchain.get("cuda_version")
    for compiler in ("ptxas", "nvcc"):
        yield compiler, (toolchain.get(compiler) or {}).get("version")
        yield f"{compiler} path", (toolchain.get(compiler) or {}).get("path")
    framework = toolchain.get("framework")
    if framework:
        commit = f" ({framework['commit']})" if framework["commit"] else ""
        yield f"framework {framework['name']}", f"{framework['version'] or ''}{commit}".strip()
    pack = result["pack"] or {}
    yield "pack", pack.get("pack_id")
    yield "pack release", pack.get("release_tag") or pack.get("catalog_version")
    yield "pack manifest SHA-256", pack.get("manifest_sha256")
    yield f"source of {result['workload']['name']} (SHA-256)", result["workload"]["source_sha256"]
    protocol = result["config"].get("protocol")
    if isinstance(protocol, dict):
        yield "protocol", protocol.get("name")
    experiment = environment.get("experiment") or {}
    dirty = " with changes" if experiment.get("git_dirty") else ""
    yield "experiment commit", f"{experiment['git_commit']}{dirty}" if experiment.get("git_commit") else None
    yield "boosterrun", result["job"]["boosterrun_version"]
    host = environment.get("host") or {}
    for name, key in (
        ("host", "hostname"),
        ("operating system", "os"),
        ("kernel", "kernel"),
        ("CPU", "cpu_model"),
        ("CPU governor", "cpu_governor"),
        ("Python", "python"),
    ):
        yield name, host.get(key)
    for name, version in sorted((environment.get("packages") or {}).items()):
        yield f"package {name}", version
