"""Valid results to start from, for tests that need one."""

from __future__ import annotations

from typing import Any

from boosterrun.results import record

SHA = "0123456789abcdef" * 4


def shape(name: str = "r128", decision: str | None = "KEPT") -> dict[str, Any]:
    """A shape of a static screen, with every optional block."""
    build = {"command": ["ptxas", "a b.ptx"], "returncode": 0, "seconds": 0.25, "output": "ptxas info\n"}
    return {
        "name": name,
        "params": {"maxrregcount": 128},
        "decision": decision,
        "message": "spill_bytes from 352 to 300",
        "correctness": "not_checked",
        "correctness_detail": None,
        "metric": "spill_bytes",
        "unit": "bytes",
        "baseline": {"mean": 352.0, "std": 0.0, "n": 1},
        "candidate": {"mean": 300.0, "std": 0.0, "n": 1},
        "gain": 0.14772727272727273,
        "interval": None,
        "timer": None,
        "application": {"applied": "proven", "code_identical": False, "detail": "in the note"},
        "kernels": [
            {
                "name": "attn",
                "arch": "sm_90a",
                "code_sha256": {"baseline": SHA, "candidate": SHA},
                "baseline": {"spill_bytes": 352, "registers": 128},
                "candidate": {"spill_bytes": 300, "registers": None},
            }
        ],
        "compile": {"baseline": build, "candidate": build | {"signal": None, "timed_out": False}},
        "statistics": {"anything": [1, {"deep": None}]},
        "pairs": None,
    }


def timed(name: str = "m4096") -> dict[str, Any]:
    """A shape that was measured and kept."""
    return shape(name) | {
        "correctness": "passed",
        "metric": "time",
        "unit": "ms",
        "baseline": {"mean": 0.21280000000000002, "std": 0.0031, "n": 300},
        "candidate": {"mean": 0.19834567891234567, "std": 0.0029, "n": 300},
        "gain": 0.0729,
        "interval": [0.071, 0.0748],
        "timer": "events",
        "pairs": {"file": "pairs.jsonl", "screen": 20, "confirm": 30, "voided": 1, "failed": 0},
    }


def result(*shapes: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A decided result of a static screen; one kept shape unless shapes are given."""
    made: dict[str, Any] = {
        "schema_version": 1,
        "status": "decided",
        "decision": "KEPT",
        "message": "spill_bytes down by 14.8 %",
        "error": None,
        "job": {
            "id": "21-recompute_w_u_fwd_2-48fb75d9d1aa",
            "started_at": "2026-11-30T08:00:00Z",
            "finished_at": "2026-11-30T08:00:01.5Z",
            "seconds": 1.5,
            "command": ["boosterrun", "-m", "acf=glob(*)"],
            "overrides": ["acf=21-recompute_w_u_fwd_2-48fb75d9d1aa"],
            "boosterrun_version": "0.1.0",
            "sweep_candidates": 24,
            "seed": 7,
        },
        "acf": {
            "id": "21-recompute_w_u_fwd_2-48fb75d9d1aa",
            "filename": "21-recompute_w_u_fwd_2-48fb75d9d1aa.acf",
            "sha256": SHA,
            "size_bytes": 2288,
            "compiler_stages": ["ptxas"],
        },
        "pack": {
            "pack_id": "booster-pack-helion",
            "display_name": "Helion",
            "release_tag": "booster-packs-2026.05.27",
            "catalog_version": "2026.05.27",
            "cuda_version": "13.3.0",
            "controls_stage": "ptxas",
            "manifest_sha256": SHA,
            "location": "/packs/helion.zip",
            "gpu_supported": None,
        },
        "workload": {
            "name": "ptxas",
            "adapter": "ptxas",
            "source": "attn.ptx",
            "source_sha256": SHA,
            "benchmark_command": ["ptxas", "-arch", "sm_90a", "a b.ptx"],
        },
        "objective": {"metric": "spill_bytes", "unit": "bytes", "better": "lower", "tie_breakers": []},
        "evidence": "static",
        "toolchain": {
            "cuda_version": "13.3",
            "ptxas": {"path": "/cuda/bin/ptxas", "version": "13.3.73", "source": "PATH"},
            "nvcc": {"path": "/cuda/bin/nvcc", "version": "13.3.70", "source": "PATH"},
            "framework": {"name": "triton", "version": "3.6.0", "commit": "9844da9"},
        },
        "environment": {
            "gpu": {"driver_version": "580.159", "devices": [{"name": "NVIDIA H200"}], "error": None},
            "host": {"cores": 2},
            "packages": {"numpy": "2.4.6"},
            "experiment": {"git_commit": "a" * 40, "git_dirty": True},
        },
        "shapes": list(shapes) or [shape()],
        "phases": {"build": 1.25},
        "config": {"protocol": {"name": "screen"}, "workload": {"shapes": {"r128": {"maxrregcount": 128}}}},
    }
    return made | changes


def undecided(*shapes: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A job that could not be judged, before its first shape unless shapes are given."""
    error = {"kind": "no_space", "message": "the disk is full", "advice": "Free some space", "details": None}
    empty: dict[str, Any] = {
        "status": "undecided",
        "decision": None,
        "message": error["message"],
        "error": error,
        "objective": None,
        "toolchain": None,
        "shapes": list(shapes),
    }
    return result() | empty | changes


def self_test() -> dict[str, Any]:
    """The baseline against itself."""
    decision = record.rejected("no_difference")
    config = {"acf": {"id": "none", "filename": None, "sha256": None}}
    return result(shape(decision=decision) | {"gain": 0.0}, acf=None, decision=decision, config=config)
