"""The record of a job before anything is known, and the blocks that need no judge."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf

from boosterrun import __version__, packs
from boosterrun.adapters import base
from boosterrun.config import Config
from boosterrun.packs.support import supported
from boosterrun.results import record


def blank(cfg: DictConfig, config: Config) -> dict[str, Any]:
    """A record that is undecided and complete but for its error: what schema/result-v1.json asks for."""
    workload = config.workload
    return {
        "schema_version": record.SCHEMA_VERSION,
        "status": "undecided",
        "decision": None,
        "message": "",
        "error": None,
        "job": {
            "id": config.acf.id,
            "started_at": now(),
            "finished_at": now(),
            "seconds": 0.0,
            "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
            "overrides": _overrides(),
            "boosterrun_version": __version__,
            "sweep_candidates": config.sweep.candidates,
            "seed": config.seed,
        },
        "acf": None,
        "pack": None,
        "workload": {
            "name": workload.name,
            "adapter": workload.adapter,
            "source": None,
            "source_sha256": None,
            "benchmark_command": [],
        },
        "objective": None,
        "evidence": "timed",
        "toolchain": None,
        "environment": {},
        "shapes": [],
        "phases": {},
        "config": cast(dict[str, Any], OmegaConf.to_container(cfg, resolve=True, enum_to_str=True)),
    }


def acf_block(acf: packs.Acf) -> dict[str, Any]:
    """The candidate."""
    return {
        "id": acf.id,
        "filename": acf.filename,
        "sha256": acf.sha256,
        "size_bytes": acf.size_bytes,
        "compiler_stages": list(acf.compiler_stages),
    }


def pack_block(pack: packs.Pack, device: Mapping[str, Any] | None) -> dict[str, Any]:
    """The pack, and whether it is for ``device``, the GPU that a job sees (None: there is none)."""
    fits = None
    if device is not None:
        fits = supported(pack.supported_gpus, device["name"], device["compute_capability"])
    return {
        "pack_id": pack.pack_id,
        "display_name": pack.display_name,
        "release_tag": pack.release_tag,
        "catalog_version": pack.catalog_version,
        "cuda_version": pack.cuda_version,
        "controls_stage": pack.controls_stage,
        "manifest_sha256": pack.manifest_sha256,
        "location": str(pack.location),
        "gpu_supported": fits,
    }


def toolchain_block(toolchain: base.Toolchain) -> dict[str, Any]:
    """The compilers; ``framework`` is known only when the job has been judged."""
    found = {"ptxas": toolchain.ptxas, "nvcc": toolchain.nvcc}
    return {
        "cuda_version": next((c.cuda_version for c in found.values() if c is not None), None),
        **{
            name: None if c is None else {"path": str(c.path), "version": c.version, "source": c.source}
            for name, c in found.items()
        },
        "framework": None,
    }


def now() -> str:
    """The time as ISO 8601, UTC."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _overrides() -> list[str]:
    from hydra.core.hydra_config import HydraConfig  # noqa: PLC0415 - a job may run outside Hydra in tests

    return list(HydraConfig.get().overrides.task) if HydraConfig.initialized() else []
