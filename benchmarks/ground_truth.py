"""Sweeps of the 24 sample ACFs on an H200, held against what each ACF is known to do to each kernel.

    python benchmarks/ground_truth.py triton/rmsnorm triton/softmax nvcc/sgemm --out benchmarks/results

For every workload: a sweep with the command that a user would type, wall time by phase, and every difference
from ``benchmarks/data/h200-sample-pack-outcomes.json``. A known wrong result must be REJECTED:wrong_result, a
known crash REJECTED:runtime_error; a winner of +2 % or more, confirmed there by two processes, must be KEPT
within 1.5 points of its gain; nothing measured there as slower may be KEPT. Writes log and summary of each.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from boosterrun.decision.pairs import Pair

HERE = Path(__file__).resolve().parent
KNOWN = json.loads((HERE / "data" / "h200-sample-pack-outcomes.json").read_text())
WINNER, CLOSE = 2.0, 1.5


def sweep(workload: str, overrides: list[str]) -> tuple[Path, float]:
    """Run one sweep; return its folder and its wall seconds."""
    main = "from boosterrun.cli import main; raise SystemExit(main())"
    command = [sys.executable, "-c", main, "-m", "acf=glob(*)", f"workload={workload}", *overrides]
    begun = time.monotonic()
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    seconds = time.monotonic() - begun
    sys.stdout.write(done.stdout)
    sys.stdout.flush()
    return Path(re.findall(r"^log: (.*)$", done.stdout, re.MULTILINE)[-1]).parent, seconds


def compare(kernel: str, results: dict[str, dict[str, Any]]) -> list[str]:
    """Every difference from the known outcomes, in words."""
    differences = []
    for known in KNOWN["acfs"]:
        name, truth = known["acf"].removesuffix(".acf"), known["kernels"][kernel]
        found = results.get(name)
        if found is None:
            differences.append(f"{name}: no result")
            continue
        decision = found["decision"] or f"undecided: {found['message'][:200]}"
        gain = found["shapes"][0]["gain"] if found["shapes"] else None
        said = f"{name}: {decision} ({'no gain' if gain is None else f'{gain:+.2%}'})"
        outcome, expected, how = truth["outcome"], truth.get("gain_pct"), truth.get("measured") or ""
        if outcome.startswith("wrong") and decision != "REJECTED:wrong_result":
            differences.append(f"{said}, known: wrong result")
        elif outcome.startswith("crash") and decision != "REJECTED:runtime_error":
            differences.append(f"{said}, known: crash")
        elif outcome.startswith("right"):
            if decision == "REJECTED:wrong_result" or "error" in decision:
                differences.append(f"{said}, known: right result")
            elif (_slower(expected) and decision == "KEPT") or (
                _confirmed(expected, how) and (decision != "KEPT" or abs(100 * gain - expected) > CLOSE)
            ):
                differences.append(f"{said}, known: {expected:+.2f} % ({how})")
    return differences


def _slower(expected: float | None) -> bool:
    return expected is not None and expected < 0


def _confirmed(expected: float | None, how: str) -> bool:
    return expected is not None and expected >= WINNER and how.startswith("2 processes")


def import_torch() -> float:
    """Seconds that the import of torch takes a new process, with its files in the cache."""
    code = "import time; begun = time.monotonic(); import torch; print(time.monotonic() - begun)"
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True)
    return float(done.stdout)


def a_a_spread(folder: Path) -> float | None:
    """Standard deviation of the log-ratios of a sweep's pairs of the baseline with itself, in per cent."""
    lines = [
        json.loads(line) for path in folder.glob("*/pairs.jsonl") for line in path.read_text().splitlines()
    ]
    pairs = [
        Pair.from_entry(line) for line in lines if line["phase"] == "calibrate" and not line.get("reused")
    ]
    found = [pair.log_ratio for pair in pairs if pair.void is None]
    return round(100 * statistics.stdev(found), 3) if len(found) > 1 else None


def summary(workload: str, folder: Path, seconds: float, torch: float) -> dict[str, Any]:
    """What the sweep found, how long it took, and where it differs."""
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("*/result.json"))]
    results = {r["job"]["id"]: r for r in found}
    kernel = workload.partition("/")[2]
    known = {a["acf"].removesuffix(".acf"): a["kernels"][kernel].get("gain_pct") for a in KNOWN["acfs"]}
    environment = found[0]["environment"]
    devices = environment["gpu"]["before"]["devices"]
    names = sorted({n for r in found for n in r["phases"]})
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "gpu": devices[0]["name"] if devices else None,
        "driver": environment["gpu"]["before"]["driver_version"],
        "versions": environment.get("versions"),
        "toolchain": {k: v["version"] for k, v in found[0]["toolchain"].items() if isinstance(v, dict)},
        "workload": workload,
        "cpus": len(os.sched_getaffinity(0)),
        "wall_seconds": round(seconds, 2),
        "import_torch_seconds": round(torch, 2),
        "wall_seconds_after_import_torch": round(seconds - torch, 2),
        "seconds_by_phase": {n: round(sum(r["phases"].get(n, 0.0) for r in found), 2) for n in names},
        "canary": environment.get("canary", {}).get("seconds"),
        "a_a_spread_pct": a_a_spread(folder),
        "decisions": dict(Counter(r["decision"] or "undecided" for r in found)),
        "timer": sorted({str(s["timer"]) for r in found for s in r["shapes"]}),
        "rows": [
            {
                "acf": name,
                "decision": r["decision"],
                "gain_pct": _percent(r["shapes"][0]["gain"]) if r["shapes"] else None,
                "interval_pct": [_percent(v) for v in r["shapes"][0]["interval"] or ()]
                if r["shapes"]
                else [],
                "known_gain_pct": known.get(name),
                "applied": r["shapes"][0]["application"]["applied"] if r["shapes"] else None,
            }
            for name, r in sorted(results.items())
        ],
        "differences": compare(kernel, results),
    }


def _percent(value: float | None) -> float | None:
    return None if value is None else round(100 * value, 3)


def main() -> None:
    """Run the sweeps that the command line names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("workloads", nargs="+", help="triton/rmsnorm, nvcc/sgemm, ...")
    parser.add_argument("--out", type=Path, default=HERE / "results")
    parser.add_argument("--override", action="append", default=[], help="passed on to boosterrun")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for workload in options.workloads:
        torch = import_torch()
        folder, seconds = sweep(workload, options.override)
        report = summary(workload, folder, seconds, torch)
        target = options.out / f"h200_{workload.replace('/', '_')}"
        target.with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n")
        shutil.copyfile(folder / "booster-pack-log.csv", target.with_suffix(".csv"))
        sys.stdout.write(f"{workload}: {seconds:.1f} s {report['seconds_by_phase']}\n")
        for line in report["differences"] or ["no difference from what is known"]:
            sys.stdout.write(f"  {line}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
