"""How long a timed sweep of 24 candidates takes, by phase, with and without what makes it fast. No GPU.

    python benchmarks/sweep_speed.py --out benchmarks/results/sweep_speed.json

A Python case whose worker imports a framework (here pandas, some tenths of a second; torch takes seconds),
"compiles" for a while and runs the shipped simulated kernel: 1 of 8 candidates faster, 1 of 8 wrong, the rest
slower or equal. The decisions must be the same however the workers start.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from boosterrun.adapters.base import Job, Toolchain
from boosterrun.config import (
    SHIPPED,
    AcfConfig,
    Config,
    ProtocolConfig,
    PythonWorkload,
    SweepConfig,
    TimeoutsConfig,
)
from boosterrun.measure import ahead, kept, warm
from boosterrun.measure.resident import ResidentAdapter
from boosterrun.packs import Acf

CASE = """
import sys, time
import {framework}
sys.path.insert(0, {cases!r})
import simulated

def make(*, seed, compile_seconds, **keys):
    if seed == 0:
        time.sleep(compile_seconds)
    return simulated.make(seed=seed, **keys)
"""
GAINS: list[dict[str, Any]] = [
    {"gain": 0.1},
    {"gain": -0.1},
    {"gain": 0.0},
    {"gain": -0.3},
    {"fail": "wrong"},
    {"gain": -0.05},
    {"gain": 0.0},
    {"gain": -0.2},
]


@dataclass
class Workload(PythonWorkload):
    """A Python workload that says what a warm process may import."""

    preload: list[str] = field(default_factory=list)


@dataclass
class Sweep(SweepConfig):
    """The switches that are compared."""

    warm_start: bool = True
    keep_baseline: bool = True
    build_ahead: Any = 0


def sweep(
    folder: Path, arguments: argparse.Namespace, *, warm_start: bool, keep_baseline: bool, build_ahead: int
) -> dict[str, Any]:
    """Judge all candidates one after the other; return seconds by phase, decisions and pair counts."""
    case = folder / "case.py"
    case.write_text(CASE.format(framework=arguments.framework, cases=str(SHIPPED / "cases")))
    names = [f"{index:02}-x" for index in range(arguments.candidates)]
    options = {
        "compile_seconds": arguments.compile_seconds,
        "noise": {"sigma": 0.005},
        "behaviours": {f"{n[:2]}-*": GAINS[i % len(GAINS)] for i, n in enumerate(names)},
    }
    switches = Sweep(len(names), warm_start, keep_baseline, build_ahead)
    adapter = ResidentAdapter()

    def job(name: str) -> Job:
        here = folder / name
        (here / "work").mkdir(parents=True, exist_ok=True)
        workload = Workload(
            name="simulated",
            case=f"{case}:make",
            shapes={"one": {"size": 64}},
            options=options,
            preload=[arguments.framework],
        )
        config = Config(
            AcfConfig(id=name),
            workload=workload,
            protocol=ProtocolConfig(name="screen"),
            timeouts=TimeoutsConfig(),
            sweep=switches,
        )
        acf = Acf(name, f"{name}.acf", "0" * 64, 1, ("ptxas",), "", f"{name}.acf")
        return Job(config, acf, here / "0.acf", here, here / "work", Toolchain(), None)

    phases: Counter[str] = Counter()
    decisions: dict[str, str] = {}
    told = 0
    begin = time.monotonic()
    for number, name in enumerate(names):
        told = max(told, number + 1)
        while told < len(names) and adapter.prepare(job(names[told])):
            told += 1
        judgement = adapter.judge(job(name))
        phases.update(judgement.phases)
        decisions[name] = judgement.decision
    ahead.close()
    kept.close()
    warm.close()
    wall = time.monotonic() - begin
    return {
        "warm_start": warm_start,
        "keep_baseline": keep_baseline,
        "build_ahead": build_ahead,
        "wall_seconds": round(wall, 2),
        "seconds_per_candidate": round(wall / len(names), 3),
        "phases": {name: round(seconds, 2) for name, seconds in sorted(phases.items())},
        "other_seconds": round(wall - sum(phases.values()), 2),
        "decisions": dict(sorted(Counter(decisions.values()).items())),
        "_decisions": decisions,
    }


def main() -> int:
    """Run every combination, print and write the figures; 1 if a decision depends on how workers start."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--candidates", type=int, default=24)
    parser.add_argument("--framework", default="pandas", help="module that each worker imports")
    parser.add_argument("--compile-seconds", type=float, default=0.3)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    runs = []
    switches = ("warm_start", "keep_baseline", "build_ahead")
    for values in ((False, False, 0), (True, False, 0), (False, True, 0), (True, True, 0), (True, True, 4)):
        with tempfile.TemporaryDirectory() as folder:
            runs.append(sweep(Path(folder), arguments, **dict(zip(switches, values, strict=True))))
        print(json.dumps({k: v for k, v in runs[-1].items() if k != "_decisions"}), flush=True)
    differing = {
        name: [run["_decisions"][name] for run in runs]
        for name in runs[0]["_decisions"]
        if len({run["_decisions"][name] for run in runs}) > 1
    }
    result = {
        "command": ["python", *sys.argv],
        "machine": {"python": platform.python_version(), "cpus": len(os.sched_getaffinity(0))},
        "candidates": arguments.candidates,
        "framework": arguments.framework,
        "compile_seconds": arguments.compile_seconds,
        "runs": [{k: v for k, v in run.items() if k != "_decisions"} for run in runs],
        "differing_decisions": differing,
    }
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=2) + "\n")
    print(f"differing decisions: {differing or 'none'}")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
