"""Candidates that do nothing, and candidates with known gains, through the whole tool on this machine's GPU.

    python benchmarks/null_candidates.py --nulls 100 --slowed 10 --json out.json --pairs out.jsonl.gz

Nulls: both sides run the same code, on each of the kernels; none may be KEPT. Slowed: the baseline works on a
few per cent more rows, so each candidate gains so much; how many are KEPT, and does the gain of each lie in
the interval of the others? They repeat one measurement. ``--pairs`` keeps every block, gzipped.
"""

from __future__ import annotations

import argparse
import datetime
import gzip
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from itertools import permutations
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SLOWED = HERE / "cases" / "slowed.py"
SHIPPED = HERE.parent / "boosterrun" / "shipped" / "cases" / "triton_kernels.py"


def sweep(name: str, case: str, candidates: int, folder: Path, *overrides: str) -> dict[str, Any]:
    """Run one sweep over made-up ACFs that nothing reads; return its results and its wall seconds."""
    pack = folder / f"pack-{name}"
    pack.mkdir(parents=True)
    for number in range(candidates):
        (pack / f"{name}-{number:03}.acf").write_bytes(f"{name} {number}".encode())
    out = folder / name
    command = [
        *(sys.executable, "-c", "from boosterrun.cli import main; raise SystemExit(main())"),
        *("-m", "acf=glob(*)", f"pack={pack}", "workload=python", f"workload.name={name}"),
        *("workload.preload=[torch]", "+workload.env.CUDA_DEVICE_MAX_CONNECTIONS='1'"),
        *(f"workload.case={case}", f"hydra.sweep.dir={out}", *overrides),
    ]
    begun = time.monotonic()
    subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
    seconds = time.monotonic() - begun
    results = [json.loads(path.read_text()) for path in sorted(out.glob("*/result.json"))]
    pairs = [
        {"sweep": name, "job": path.parent.name, **json.loads(line)}
        for path in sorted(out.glob("*/pairs.jsonl"))
        for line in path.read_text().splitlines()
    ]
    return {"results": results, "pairs": pairs, "seconds": seconds}


def summary(shapes: list[dict[str, Any]]) -> dict[str, Any]:
    """Decisions and gains of shapes; how often the gain of one repetition lies in another's interval."""
    measured = [s for s in shapes if s["interval"]]
    inside = [a["interval"][0] <= b["gain"] <= a["interval"][1] for a, b in permutations(measured, 2)]
    gains = [s["gain"] for s in measured]
    return {
        "decisions": dict(Counter(s["decision"] for s in shapes)),
        "median_gain": statistics.median(gains) if gains else None,
        "least_gain": min(gains, default=None),
        "greatest_gain": max(gains, default=None),
        "gain_in_another_interval": {"inside": sum(inside), "of": len(inside)},
        "pairs": dict(sum((Counter(_counts(s)) for s in shapes), Counter())),
        "timers": sorted({str(s["timer"]) for s in shapes}),
    }


def _counts(shape: dict[str, Any]) -> dict[str, int]:
    return {k: v for k, v in shape["pairs"].items() if isinstance(v, int)}


def spread(pairs: list[dict[str, Any]]) -> dict[str, float] | None:
    """1.4826 * MAD of the log-ratios of screens about their job's median, and that of the jobs' medians."""
    from boosterrun.decision.pairs import Pair  # noqa: PLC0415 - not needed for --help

    ratios: dict[str, list[float]] = {}
    for pair in pairs:
        if pair["phase"] == "screen" and pair["void"] is None:
            ratios.setdefault(f"{pair['job']}/{pair['shape']}", []).append(Pair.from_entry(pair).log_ratio)
    if not ratios:
        return None
    middles = {key: statistics.median(values) for key, values in ratios.items()}
    apart = [abs(x - middles[key]) for key, values in ratios.items() for x in values]
    middle = statistics.median(middles.values())
    between = [abs(x - middle) for x in middles.values()]
    return {"within": 1.4826 * statistics.median(apart), "between": 1.4826 * statistics.median(between)}


def main() -> int:
    """Run the sweeps and write what came out. Returns 1 if a null was KEPT."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kernels", nargs="*", default=["rmsnorm", "softmax", "conv1d_causal"])
    parser.add_argument("--nulls", type=int, default=100, help="for each kernel")
    parser.add_argument("--slowed", type=int, default=10, help="for each fraction")
    parser.add_argument("--slow", type=float, nargs="*", default=[0.015, 0.02, 0.03, 0.05])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--pairs", type=Path, help="a .jsonl.gz for every block")
    parser.add_argument("--override", action="append", default=[], help="passed on to boosterrun")
    options = parser.parse_args()
    pairs: list[dict[str, Any]] = []
    report: dict[str, Any] = {"date": datetime.datetime.now(datetime.UTC).date().isoformat()}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for kernel in options.kernels if options.nulls else ():
            found = sweep(
                f"null-{kernel}", f"{SHIPPED}:make_{kernel}", options.nulls, folder, *options.override
            )
            report.setdefault("nulls", {})[kernel] = _record(found, report)
            pairs += found["pairs"]
        if options.slowed:
            shapes = ", ".join(f"slow{round(s * 1e4):04}: {{slow: {s}}}" for s in options.slow)
            where = f"+workload.shapes={{{shapes}}}"
            found = sweep(
                "slowed", f"{SLOWED}:make_rmsnorm", options.slowed, folder, where, *options.override
            )
            report["slowed"] = _record(found, report)
            by_level = report["slowed"]["levels"] = {}
            for level in options.slow:
                name = f"slow{round(level * 1e4):04}"
                own = [s for r in found["results"] for s in r["shapes"] if s["name"] == name]
                by_level[str(level)] = summary(own)
            pairs += found["pairs"]
    text = json.dumps(report, indent=1)
    if options.json:
        options.json.write_text(text + "\n")
    if options.pairs:
        with gzip.open(options.pairs, "wt") as stream:
            stream.writelines(json.dumps(_compact(pair)) + "\n" for pair in pairs)
    sys.stdout.write(text + "\n")
    return int(any("KEPT" in null["decisions"] for null in report.get("nulls", {}).values()))


def _record(found: dict[str, Any], report: dict[str, Any]) -> dict[str, Any]:
    results = found["results"]
    if results:
        before = results[0]["environment"]["gpu"]["before"]
        report["gpu"] = next((device["name"] for device in before["devices"]), None)
        report["driver"] = before["driver_version"]
        report["versions"] = results[0]["environment"].get("versions")
    names = sorted({name for r in results for name in r["phases"]})
    return {
        "jobs": len(results),
        "wall_seconds": round(found["seconds"], 1),
        "seconds_by_phase": {n: round(sum(r["phases"].get(n, 0.0) for r in results), 2) for n in names},
        "spread": spread(found["pairs"]),
        **summary([shape for r in results for shape in r["shapes"]]),
    }


def _compact(pair: dict[str, Any]) -> dict[str, Any]:
    """A pair with samples of six digits, and what tells it from others."""
    kept = {k: pair[k] for k in ("sweep", "job", "shape", "phase", "session", "order", "void", "timer")}
    samples = {k: [v and float(f"{v:.6g}") for v in pair[k]] for k in ("baseline", "candidate")}
    return {**kept, **samples, **({"reused": True} if pair.get("reused") else {})}


if __name__ == "__main__":
    raise SystemExit(main())
