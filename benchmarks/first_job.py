"""Seconds until the first of 500 jobs starts, and what the command costs per job; stock Hydra beside it.

    PYTHONPATH=. python benchmarks/first_job.py [--acfs 500] [--jobs 40] [--json FILE]

Real processes on a folder of loose ``.acf`` files. The job itself is replaced by one that only notes the
time: what remains is the framework, that is start, composing, folders, Hydra's files, reporting. The stock
figure is Hydra's own sweeper on the same configuration, which composes every job before the first.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from statistics import median

from boosterrun.config import SHIPPED
from boosterrun.packs import open_pack

ROOT = Path(__file__).parent.parent

# Runs in the child: the command as installed, with a job that notes when it began and when it returned.
CHILD = """
import json, os, sys, time
from pathlib import Path
from boosterrun import cli
from boosterrun.sweeps import app
log = open(os.environ["BENCH_LOG"], "a", buffering=1)
limit = int(os.environ["BENCH_JOBS"])
seen = 0
def run_job(cfg, folder):
    global seen
    log.write(f"{time.time()}\\n")
    seen += 1
    if seen == limit:
        log.close()
        os._exit(0)
    return {"status": "decided", "decision": "REJECTED:no_gain", "message": "", "error": None,
            "job": {"id": cfg.acf.id}, "workload": {"name": cfg.workload.name}, "acf": None, "shapes": []}
app.run_job = run_job
sys.exit(cli.main(sys.argv[1:]))
"""

# The same command with Hydra's own sweeper in place of ours.
STOCK = """
from hydra.core.plugins import Plugins
Plugins.instance()
from boosterrun.sweeps import sweep
sweep.TARGET = sweep.SweeperConfig._target_ = "hydra._internal.core_plugins.basic_sweeper.BasicSweeper"
sweep.register = lambda: sweep.ConfigStore.instance().store(
    group="hydra/sweeper", name="boosterrun", node=sweep.SweeperConfig(_target_=sweep.TARGET), provider="b")
"""


def jobs_of(code: str, folder: Path, jobs: int) -> list[float]:
    """Seconds from the start of the process to the beginning of each job."""
    log = folder / "times.txt"
    log.unlink(missing_ok=True)
    environment = {**os.environ, "BENCH_LOG": str(log), "BENCH_JOBS": str(jobs), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code, "-m", "acf=glob(*)", "pack=./pack", "workload=ptxas"]
    begun = time.time()
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    times = [float(line) - begun for line in log.read_text().split()] if log.exists() else []
    if len(times) < jobs:
        raise SystemExit(f"only {len(times)} jobs ran: {done.stderr}")
    return times


def main() -> None:
    """Measure and print; with ``--json`` also write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--acfs", type=int, default=500)
    parser.add_argument("--jobs", type=int, default=40, help="jobs to watch before stopping")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    load = round(os.getloadavg()[0], 2)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "pack").mkdir()
        sample = open_pack(SHIPPED / "packs" / "booster-pack-sample.zip")
        real = [sample.read(acf) for acf in sample.acfs]
        for number in range(options.acfs):
            (folder / "pack" / f"{number:04}-bench.acf").write_bytes(real[number % len(real)])
        ours = [jobs_of(CHILD, folder, options.jobs) for _ in range(options.repeats)]
        stock = jobs_of(STOCK + CHILD, folder, 3)
    figures = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "python": platform.python_version(),
        "hydra_core": version("hydra-core"),
        "omegaconf": version("omegaconf"),
        "cpus": os.cpu_count(),
        "load_average_before": load,
        "acfs": options.acfs,
        "first_job_seconds": round(median(times[0] for times in ours), 3),
        "seconds_per_job": round(median((t[-1] - t[0]) / (len(t) - 1) for t in ours), 4),
        "stock_sweeper_first_job_seconds": round(stock[0], 3),
        "stock_sweeper_seconds_per_job": round((stock[-1] - stock[0]) / (len(stock) - 1), 4),
    }
    text = json.dumps(figures, indent=2) + "\n"
    print(text, end="")
    if options.json:
        options.json.write_text(text)


if __name__ == "__main__":
    main()
