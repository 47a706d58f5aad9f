"""How long a merge of many results takes, and how much memory: ``python benchmarks/merge.py [N] [--json]``.

Makes N results of realistic size (three shapes, 2 KB of compiler output a side, packages, a resolved config)
in a temporary folder and merges them in a process of its own.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import os
import platform
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from boosterrun.results import record
from boosterrun.results.collect import collect

OUTPUT = Path(__file__).parent / "results" / "merge.json"
METRICS = ("spill_bytes", "registers", "stack_bytes", "sass_instructions", "code_bytes", "shared_bytes")
PACKAGES = ("torch", "triton", "helion", "numpy", "hydra-core", "omegaconf", "nvidia-cuda-nvcc", "pandas")


def made_result(index: int, rng: random.Random) -> dict[str, Any]:
    """A valid result with the size of a real one; no two are alike."""
    sha = hashlib.sha256(str(index).encode()).hexdigest()
    acf = {"id": f"{index:05}-sample-{sha[:12]}", "filename": f"{index:05}-sample-{sha[:12]}.acf"}
    kept = rng.random() < 0.1
    command = [
        "/opt/cuda/bin/ptxas",
        "-arch",
        "sm_90a",
        "-v",
        "--apply-controls",
        f"/cache/{sha}.acf",
        "attn.ptx",
    ]
    return {
        "schema_version": 1,
        "status": "decided",
        "decision": "KEPT" if kept else "REJECTED:no_gain",
        "message": "spill bytes fall by 12.3 % at r128" if kept else "no shape gains 1 %",
        "error": None,
        "job": {
            "id": acf["id"],
            "started_at": "2026-11-30T08:00:00.000000Z",
            "finished_at": "2026-11-30T08:00:02.500000Z",
            "seconds": rng.uniform(1, 3),
            "command": ["boosterrun", "-m", "acf=glob(*)", "workload=ptxas"],
            "overrides": [f"acf={acf['id']}", "workload=ptxas"],
            "boosterrun_version": "0.1.0",
            "sweep_candidates": 10_000,
            "seed": 0,
        },
        "acf": acf | {"sha256": sha, "size_bytes": 2288, "compiler_stages": ["ptxas"]},
        "pack": {
            "pack_id": "sample-pack",
            "display_name": "Sample Booster Pack",
            "release_tag": "booster-packs-2026.11.30",
            "catalog_version": "2026.11.30",
            "cuda_version": "13.3.0",
            "controls_stage": "ptxas",
            "manifest_sha256": sha,
            "location": "/packs/booster-pack-sample.zip",
            "gpu_supported": True,
        },
        "workload": {
            "name": "ptxas",
            "adapter": "ptxas",
            "source": "kernels/attn_causal.ptx",
            "source_sha256": sha,
            "benchmark_command": command,
        },
        "objective": {
            "metric": "spill_bytes",
            "unit": "bytes",
            "better": "lower",
            "tie_breakers": ["sass_instructions"],
        },
        "evidence": "static",
        "toolchain": {
            "cuda_version": "13.3",
            "ptxas": {"path": command[0], "version": "13.3.73", "source": "PATH"},
            "nvcc": None,
            "framework": None,
        },
        "environment": {
            "gpu": {"driver_version": "580.159.04", "devices": [{"name": "NVIDIA H200", "index": 0}]},
            "host": {"hostname": "node", "cpu": "x86-64", "cores": 16, "python": "3.12.3"},
            "packages": dict.fromkeys(PACKAGES, "1.2.3"),
            "experiment": {"git_commit": sha[:40], "git_dirty": False},
        },
        "shapes": [made_shape(registers, kept, command, rng) for registers in (128, 160, 192)],
        "phases": {"load": 0.01, "build": 1.9, "decide": 0.001},
        "config": {f"group{i}": {f"key{j}": rng.random() for j in range(12)} for i in range(8)},
    }


def made_shape(registers: int, kept: bool, command: list[str], rng: random.Random) -> dict[str, Any]:
    """One shape with a kernel and both compiler outputs."""
    build = {"command": command, "returncode": 0, "seconds": rng.random(), "output": "ptxas info: " * 170}
    return {
        "name": f"r{registers}",
        "params": {"maxrregcount": registers},
        "decision": "KEPT" if kept else "REJECTED:no_gain",
        "message": "352 to 300 bytes",
        "correctness": "not_checked",
        "correctness_detail": None,
        "metric": "spill_bytes",
        "unit": "bytes",
        "baseline": {"mean": rng.uniform(300, 400), "std": 0.0, "n": 1},
        "candidate": {"mean": rng.uniform(200, 300), "std": 0.0, "n": 1},
        "gain": rng.uniform(0, 0.3),
        "interval": None,
        "timer": None,
        "application": {"applied": "proven", "code_identical": False, "detail": "in the note of the cubin"},
        "kernels": [
            {
                "name": "attn_causal",
                "arch": "sm_90a",
                "code_sha256": {side: hashlib.sha256(rng.randbytes(8)).hexdigest() for side in SIDES},
            }
            | {side: {metric: rng.randrange(10_000) for metric in METRICS} for side in SIDES}
        ],
        "compile": dict.fromkeys(SIDES, build),
        "statistics": None,
        "pairs": None,
    }


SIDES = ("baseline", "candidate")


def merge(folder: Path) -> None:
    """Merge and print seconds, peak memory and rows as JSON: run in a process of its own."""
    start, cpu_start = time.perf_counter(), time.process_time()
    merged = collect([folder])
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    figures = {
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "peak_rss_bytes": peak,
        "rows": merged.rows,
        "invalid": merged.invalid,
    }
    print(json.dumps(figures))


def main() -> None:
    """Make the results, merge them, print and store the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", nargs="?", type=int, default=10_000)
    parser.add_argument("--json", action="store_true", help=f"write {OUTPUT}")
    parser.add_argument("--merge", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.merge:
        merge(args.merge)
        return
    rng = random.Random(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        total = 0
        for index in range(args.count):
            job = folder / "sweep" / f"{index:05}"
            (job / ".hydra").mkdir(parents=True)
            data = json.dumps(made_result(index, rng), indent=1).encode()
            total += (job / record.FILENAME).write_bytes(data)
        load = round(os.getloadavg()[0], 2)
        child = subprocess.run(
            [sys.executable, __file__, "--merge", name], check=True, capture_output=True, text=True
        )
        figures = json.loads(child.stdout)
        log_bytes = (folder / "booster-pack-log.csv").stat().st_size
    figures = {
        "command": f"python benchmarks/merge.py {args.count} --json",
        "date": datetime.date.today().isoformat(),
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "load_average_before": load,
        "results": args.count,
        "input_bytes": total,
        "log_bytes": log_bytes,
    } | figures
    print(
        f"{args.count} results of {total / args.count / 1e3:.1f} kB: {figures['rows']} rows in "
        f"{figures['seconds']:.2f} s ({figures['cpu_seconds']:.2f} s of CPU), "
        f"peak {figures['peak_rss_bytes'] / 2**20:.0f} MiB, {figures['invalid']} invalid"
    )
    if args.json:
        OUTPUT.parent.mkdir(exist_ok=True)
        OUTPUT.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
