"""The same sweep with one GPU and with several of one host: throughput, wall times, and equal decisions.

    python benchmarks/two_gpus.py --gpus 2 --override seed=1,2,3,4 --out benchmarks/results/two_gpus.json

Sweeps all sample ACFs over a kernel, with the command that a user would type: in one process on the first
GPU, and with ``hydra/launcher=joblib`` on all of them. Each starts with the canary, in new processes and
folders. Throughput is jobs by the seconds from the first pair to the last result: what comes before (imports,
the canary) takes the same time for 24 jobs as for thousands. Exit code 1 if a sweep failed or a GPU was not
used.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import random
import re
import statistics
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from boosterrun.gpus import cards, gpu

HERE = Path(__file__).resolve().parent
MAIN = "from boosterrun.cli import main; raise SystemExit(main())"


def sweep(workload: str, overrides: list[str], uuids: list[str], *, launcher: bool) -> dict[str, Any]:
    """Run one sweep on these GPUs; return its wall seconds, where its jobs ran, and what was decided."""
    devices = f"gpu.devices=[{','.join(uuids)}]"
    engine = ["hydra/launcher=joblib", f"hydra.launcher.n_jobs={len(uuids)}"] if launcher else []
    command = [sys.executable, "-c", MAIN, "-m", "acf=glob(*)", f"workload={workload}", devices]
    begun = time.monotonic()
    done = subprocess.run([*command, *engine, *overrides], check=False, stdout=subprocess.PIPE, text=True)
    seconds = time.monotonic() - begun
    sys.stdout.write(done.stdout)
    sys.stdout.flush()
    logs = re.findall(r"^log: (.*)$", done.stdout, re.MULTILINE)
    if not logs:
        raise SystemExit(f"the sweep ended with exit code {done.returncode} and without a log")
    folder = Path(logs[-1]).parent
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("*/result.json"))]
    jobs = [(r["environment"]["gpu"]["before"]["devices"], r) for r in found]
    seen = Counter(str(devices[0]["uuid"]) if devices else "none" for devices, _ in jobs)
    return {
        "gpus": len(uuids),
        "launcher": "joblib" if launcher else "none",
        "exit_code": done.returncode,
        "wall_seconds": round(seconds, 2),
        "jobs": len(found),
        "measuring_seconds": round(measuring(folder), 2),
        "jobs_by_gpu": {
            str(uuids.index(uuid)) if uuid in uuids else uuid: n for uuid, n in sorted(seen.items())
        },
        "job_seconds": round(sum(r["job"]["seconds"] for r in found), 2),
        "seconds_by_phase": {
            name: round(sum(r["phases"].get(name, 0.0) for r in found), 2)
            for name in sorted({name for r in found for name in r["phases"]})
        },
        "canary_seconds": found[0]["environment"].get("canary", {}).get("seconds") if found else None,
        "decisions": dict(Counter(r["decision"] or "undecided" for r in found)),
        "kept": dict(sorted(Counter(r["job"]["id"] for r in found if r["decision"] == "KEPT").items())),
        "versions": found[0]["environment"].get("versions") if found else None,
    }


def measuring(folder: Path) -> float:
    """Seconds from the first pair of a sweep to its last result."""
    logs = [path.read_text().partition("\n")[0] for path in folder.glob("*/pairs.jsonl")]
    first = min(float(json.loads(line)["at"]) for line in logs if line)
    return max(path.stat().st_mtime for path in folder.glob("*/result.json")) - first


def main() -> int:
    """Run the sweeps, print and write the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workload", default="triton/rmsnorm")
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--override", action="append", default=[], help="passed on to boosterrun")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    driver = gpu.snapshot([])["driver_version"]
    found, why = cards.listed()
    if len(found) < options.gpus:
        raise SystemExit(f"{options.gpus} GPUs are needed, {len(found)} are here: {why or 'use --gpus'}")
    uuids = [str(card["uuid"]) for card in found[: options.gpus]]
    plans = [(uuids[:1], False), (uuids, True)]
    dice = random.Random(0)
    runs: list[dict[str, Any]] = []
    for number in range(options.repeat):
        for wanted, launcher in dice.sample(plans, len(plans)):
            runs.append(
                {"repetition": number, **sweep(options.workload, options.override, wanted, launcher=launcher)}
            )

    def typical(gpus: int, key: str) -> float:
        return statistics.median(r[key] for r in runs if r["gpus"] == gpus)

    def ratio(key: str) -> float:
        return round(typical(1, key) / typical(options.gpus, key), 3)

    report = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "gpu": found[0]["name"],
        "driver": driver,
        "cpus": len(os.sched_getaffinity(0)),
        "load_average": [round(value, 2) for value in os.getloadavg()],
        "workload": options.workload,
        "overrides": options.override,
        "versions": runs[-1].pop("versions"),
        "throughput_ratio": ratio("measuring_seconds"),
        "wall_ratio": ratio("wall_seconds"),
        "same_kept": all(r["kept"] == runs[0]["kept"] for r in runs),
        "runs": [{key: value for key, value in r.items() if key != "versions"} for r in runs],
    }
    text = json.dumps(report, indent=1)
    sys.stdout.write(f"{text}\n")
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(f"{text}\n")
    good = all(r["exit_code"] == 0 and len(r["jobs_by_gpu"]) == r["gpus"] for r in runs)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
