"""What a sweep costs beside what its jobs do, and whether its memory and open files stay flat over the jobs.

    python benchmarks/sweep_overhead.py [--jobs 1000] [--json benchmarks/results/sweep_overhead.json]

The command as installed, on simulated candidates: real workers whose launches take no time. One candidate of
a hundred is faster, one does not compile, one crashes, one is wrong; the rest are the baseline. After each
job the runner's memory, open files, threads and child processes are read from /proc. Exits 1 if a job is
without a valid result or a row of the log, or if what the runner holds grows.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, linear_regression
from typing import Any

from boosterrun.config import SHIPPED
from boosterrun.packs import open_pack
from boosterrun.results import record
from boosterrun.results.csvlog import FILENAME as LOG

ROOT = Path(__file__).parent.parent
CLI = "import sys; from boosterrun.cli import main; sys.exit(main())"
EXPERIMENT = """\
defaults: [{override /workload: simulated}]
workload:
  options:
    behaviours:
      '*00-bench': {gain: 0.05}
      '*25-bench': {fail: compile_error}
      '*50-bench': {fail: crash_run, after: 40}
      '*75-bench': {fail: wrong}
"""
# Phases in which the runner waits for the workers of a job: starting, building, checking, timing.
WORK = ("start", "build", "check", "pairs")
SPAN = 100
# What the allocator rounds up and a few caches may add; a leak of 1 KiB a job shows in a soak.
RSS_SLACK = 4 * 2**20
# What is open while the next candidates build depends on the moment; a pool of threads fills up once.
SLACK = {"rss_bytes": RSS_SLACK, "open_files": 4, "threads": 2, "children": 1}


@dataclass(frozen=True)
class Sample:
    """The runner as one of its jobs has ended."""

    at: float
    rss_bytes: int
    open_files: int
    threads: int
    children: int
    cpu_seconds: float


def sample(pid: int) -> Sample | None:
    """Read /proc; None once the process has ended."""
    proc = Path("/proc", str(pid))
    try:
        status = dict(line.split(":", 1) for line in (proc / "status").read_text().splitlines())
        stat = (proc / "stat").read_text().rpartition(")")[2].split()
        children = sum(len(_children(task)) for task in (proc / "task").iterdir())
        files = len(list((proc / "fd").iterdir()))
        return Sample(
            at=time.monotonic(),
            rss_bytes=int(status["VmRSS"].split()[0]) * 1024,
            open_files=files,
            threads=int(status["Threads"]),
            children=children,
            cpu_seconds=(int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK"),
        )
    except (OSError, KeyError, ValueError):
        return None


def _children(task: Path) -> list[str]:
    """The children of a thread, which may end meanwhile."""
    try:
        return (task / "children").read_text().split()
    except OSError:
        return []


def sweep(folder: Path, jobs: int, *overrides: str) -> tuple[list[Sample], dict[str, Any]]:
    """Run the sweep in ``folder``; what was read after each job, and figures of the whole process."""
    pack = folder / "pack"
    pack.mkdir()
    shipped = open_pack(SHIPPED / "packs" / "booster-pack-sample.zip")
    real = [shipped.read(acf) for acf in shipped.acfs]
    for number in range(jobs):
        (pack / f"{number:05}-bench.acf").write_bytes(real[number % len(real)])
    (folder / "experiments").mkdir()
    (folder / "experiments" / "overhead.yaml").write_text(EXPERIMENT)
    command = [
        *(sys.executable, "-c", CLI, "-m", "acf=glob(*)", f"pack={pack}", "experiment=overhead"),
        *(f"hydra.sweep.dir={folder / 'out'}", *overrides),
    ]
    begun = time.monotonic()
    samples: list[Sample] = []
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with (folder / "stderr").open("w+") as errors:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True
        )
        assert process.stdout is not None
        for line in process.stdout:  # one a job
            if line.startswith("[") and (found := sample(process.pid)) is not None:
                samples.append(found)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        process.stdout.close()
        errors.seek(0)
        said = errors.read()
    return samples, {
        "exit_code": process.returncode,
        "stderr": said[-2000:],
        "wall_seconds": round(time.monotonic() - begun, 2),
        "first_job_done_seconds": round(samples[0].at - begun, 2) if samples else None,
        "end_seconds": round(time.monotonic() - samples[-1].at, 2) if samples else None,
        "peak_rss_bytes": usage.ru_maxrss * 1024,
    }


def completeness(out: Path, jobs: int) -> dict[str, Any]:
    """Which jobs lack a valid result or their one row of the log, and the time that the results tell of."""
    names = {f"{number:05}-bench" for number in range(jobs)}
    invalid: list[str] = []
    decisions: Counter[str] = Counter()
    inside = worked = 0.0
    found: Counter[str] = Counter()
    for path in out.glob(f"*/{record.FILENAME}"):
        try:
            result = record.load(path)
        except record.InvalidResult as error:
            invalid.append(f"{path.parent.name}: {error}")
            continue
        found[result["job"]["id"]] += 1
        decisions[result["decision"] or "undecided"] += 1
        inside += result["job"]["seconds"]
        worked += sum(result["phases"].get(phase, 0.0) for phase in WORK)
    with (out / LOG).open(newline="") as stream:
        rows = Counter(row["acf_filename"].removesuffix(".acf") for row in csv.DictReader(stream))
    return {
        "results": sum(found.values()),
        "rows": sum(rows.values()),
        "invalid": invalid,
        "missing_results": sorted(names - set(found)),
        "missing_rows": sorted(names - set(rows)),
        "surplus": sorted({*(set(found) | set(rows)) - names, *(n for n in rows if rows[n] > 1)}),
        "decisions": dict(decisions.most_common()),
        "job_seconds": inside,
        "worked_seconds": worked,
    }


def growth(samples: list[Sample], name: str) -> dict[str, float]:
    """One figure over the jobs: means of the first and the last hundred (or fourth, if less), and slope."""
    values = [float(getattr(s, name)) for s in samples]
    span = min(SPAN, len(values) // 4)
    slope = linear_regression(range(len(values)), values).slope
    return {
        "first": round(fmean(values[:span]), 3),
        "last": round(fmean(values[-span:]), 3),
        "highest": max(values),
        "slope_per_job": round(slope, 6),
    }


def measure(folder: Path, jobs: int, *overrides: str) -> dict[str, Any]:
    """Run, check and sum up one sweep of at least 8 jobs in an empty ``folder``."""
    load = round(os.getloadavg()[0], 2)
    samples, whole = sweep(folder, jobs, *overrides)
    after = round(os.getloadavg()[0], 2)
    if len(samples) < jobs:
        raise SystemExit(f"only {len(samples)} of {jobs} jobs ended: {whole['stderr']}")
    complete = completeness(folder / "out", jobs)
    wall = samples[-1].at - samples[0].at
    # The first job has the imports and the first start of everything.
    per_job = wall / (jobs - 1)
    worked = complete.pop("worked_seconds") / jobs
    cpu = (samples[-1].cpu_seconds - samples[0].cpu_seconds) / (jobs - 1)
    inside = complete.pop("job_seconds") / jobs
    held = ("rss_bytes", "open_files", "threads", "children")
    return {
        "jobs": jobs,
        "load_average_before": load,
        "load_average_after": after,
        **whole,
        "seconds_per_job": round(per_job, 4),
        "worked_seconds_per_job": round(worked, 4),
        "framework_seconds_per_job": round(per_job - worked, 4),
        "framework_seconds_per_job_inside": round(inside - worked, 4),
        "runner_cpu_seconds_per_job": round(cpu, 4),
        "held": {name: growth(samples, name) for name in held},
        "complete": complete,
    }


def problems(figures: dict[str, Any]) -> list[str]:
    """What is not as it must be, one line each."""
    complete, held = figures["complete"], figures["held"]
    lists = ("invalid", "missing_results", "missing_rows", "surplus")
    found = [f"{name}: {', '.join(complete[name][:3])}" for name in lists if complete[name]]
    if figures["exit_code"] != 0:
        found.append(f"exit code {figures['exit_code']}: {figures['stderr']}")
    for name, slack in SLACK.items():
        if held[name]["last"] > held[name]["first"] + slack:
            found.append(f"{name} grows from {held[name]['first']:.0f} to {held[name]['last']:.0f}")
    return found


def main() -> int:
    """Measure, print, and with ``--json`` write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--json", type=Path)
    parser.add_argument("overrides", nargs="*", help="passed on to boosterrun")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        figures = measure(Path(name), options.jobs, *options.overrides)
    wrong = problems(figures)
    said = " ".join(["python benchmarks/sweep_overhead.py", f"--jobs {options.jobs}", *options.overrides])
    figures = {
        "command": said,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        **figures,
        "problems": wrong,
    }
    text = json.dumps(figures, indent=2) + "\n"
    print(text, end="")
    if options.json:
        options.json.write_text(text)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
