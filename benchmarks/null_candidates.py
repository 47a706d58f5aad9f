"""Candidates that do nothing, and candidates with a known gain, through the whole tool on this machine's GPU.

    python benchmarks/null_candidates.py --nulls 40 --slowed 10 --json benchmarks/results/null_candidates.json

Nulls: both sides run the same code; none may be KEPT. Slowed: the baseline works on 3 % more rows; each must
be KEPT, and the gain of each must lie in the interval of the others: they repeat one measurement.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
import tempfile
from collections import Counter
from itertools import permutations
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


def sweep(name: str, candidates: int, folder: Path, *overrides: str) -> list[dict[str, Any]]:
    """Run one sweep over made-up ACFs that nothing reads; return its results."""
    pack = folder / f"pack-{name}"
    pack.mkdir(parents=True)
    for number in range(candidates):
        (pack / f"{name}-{number:03}.acf").write_bytes(f"{name} {number}".encode())
    out = folder / name
    case = f"{HERE / 'cases' / 'slowed.py'}:make_rmsnorm"
    command = [
        *(sys.executable, "-c", "from boosterrun.cli import main; raise SystemExit(main())"),
        *("-m", "acf=glob(*)", f"pack={pack}", "workload=python", f"workload.name={name}"),
        "workload.preload=[torch]",
        *(f"workload.case={case}", f"hydra.sweep.dir={out}", *overrides),
    ]
    subprocess.run(command, check=False)
    return [json.loads(path.read_text()) for path in sorted(out.glob("*/result.json"))]


def summary(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Decisions, gains, pairs and the seconds of each phase, on average over the jobs."""
    names = sorted({name for r in results for name in r["phases"]})
    return {
        "decisions": dict(Counter(r["decision"] or "undecided" for r in results)),
        "gains": [s["gain"] for r in results for s in r["shapes"]],
        "intervals": [s["interval"] for r in results for s in r["shapes"]],
        "pairs": [s["pairs"] for r in results for s in r["shapes"]],
        "timer": sorted({str(s["timer"]) for r in results for s in r["shapes"]}),
        "seconds_per_verdict": sum(r["job"]["seconds"] for r in results) / max(1, len(results)),
        "seconds_per_phase": {n: sum(r["phases"].get(n, 0.0) for r in results) / len(results) for n in names},
    }


def coverage(results: list[dict[str, Any]]) -> dict[str, int]:
    """How often the gain of one repetition lies in the interval of another."""
    measured = [s for r in results for s in r["shapes"] if s["interval"]]
    inside = [a["interval"][0] <= b["gain"] <= a["interval"][1] for a, b in permutations(measured, 2)]
    return {"inside": sum(inside), "of": len(inside)}


def main() -> None:
    """Run both sweeps and write what came out."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nulls", type=int, default=40)
    parser.add_argument("--slowed", type=int, default=10)
    parser.add_argument("--slow", type=float, default=0.03, help="fraction of rows more on the baseline")
    parser.add_argument("--json", type=Path)
    parser.add_argument("overrides", nargs="*", help="passed on to boosterrun")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        nulls = sweep("nulls", options.nulls, folder, *options.overrides)
        slowed = sweep(
            "slowed",
            options.slowed,
            folder,
            f"+workload.shapes.default.slow={options.slow}",
            *options.overrides,
        )
    everything = nulls + slowed
    device = next(iter(everything[0]["environment"]["gpu"]["before"]["devices"]), {}) if everything else {}
    report = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "gpu": device.get("name"),
        "driver": everything[0]["environment"]["gpu"]["before"]["driver_version"] if everything else None,
        "versions": everything[0]["environment"].get("versions") if everything else None,
        "null": summary(nulls),
        "slowed": {"slow": options.slow, **summary(slowed), "coverage": coverage(slowed)},
    }
    text = json.dumps(report, indent=1)
    if options.json:
        options.json.write_text(text + "\n")
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    main()
