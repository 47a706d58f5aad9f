"""Jobs of a round: screened one after the other, confirmed side by side, judged as if each were alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from boosterrun.config import SHIPPED

MAIN = "from boosterrun.cli import main; raise SystemExit(main())"
# How they behave: conf/workload/simulated.yaml.
DECISIONS = {
    "01-x": "KEPT",
    "03-x": "REJECTED:regression",
    "04-x": "REJECTED:wrong_result",
    "05-x": "REJECTED:compile_error",
    "06-x": "REJECTED:runtime_error",
    "09-x": "REJECTED:no_gain",
}
NAMES = tuple(DECISIONS)


class Sweep:
    def __init__(self, folder: Path) -> None:
        self.out = folder / "out"
        pack = folder / "pack"
        pack.mkdir()
        for name in NAMES:
            (pack / f"{name}.acf").write_bytes(name.encode())
        self.command = [
            *(sys.executable, "-c", MAIN, "-m", "acf=glob(*)", f"pack={pack}", "workload=simulated"),
            *("protocol.confirm_start=fork", f"hydra.sweep.dir={self.out}"),
        ]

    def run(self, *overrides: str) -> str:
        done = subprocess.run(
            [*self.command, *overrides], check=False, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def result(self, name: str) -> dict[str, Any]:
        (path,) = self.out.glob(f"*{name}*/result.json")
        found: dict[str, Any] = json.loads(path.read_text())
        return found

    def pairs(self, name: str) -> list[dict[str, Any]]:
        (path,) = self.out.glob(f"*{name}*/pairs.jsonl")
        return [json.loads(line) for line in path.read_text().splitlines()]

    def decisions(self) -> dict[str, str]:
        return {name: self.result(name)["decision"] for name in NAMES}


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    return Sweep(tmp_path)


def test_every_job_of_a_round_gets_the_verdict_that_it_gets_alone(sweep: Sweep) -> None:
    sweep.run("sweep.build_ahead=3")  # a round of six
    assert sweep.decisions() == DECISIONS
    # All of a round are screened before the first of them is confirmed.
    confirmed = [p["at"] for n in NAMES for p in sweep.pairs(n) if p["phase"] == "confirm"]
    screened = [
        min(p["at"] for p in sweep.pairs(n) if p["phase"] == "screen") for n in ("01-x", "03-x", "09-x")
    ]
    assert max(screened) < min(confirmed)
    assert {p["session"] for p in sweep.pairs("01-x") if p["phase"] == "confirm"} == {1, 2, 3}
    assert not list(sweep.out.glob("*/work"))
    assert all(sweep.result(name)["job"]["seconds"] > 0 for name in NAMES)


def test_a_run_that_is_killed_between_screens_and_confirmations_is_resumed(sweep: Sweep) -> None:
    process = subprocess.Popen(
        [*sweep.command, "sweep.build_ahead=2"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 120
    while sum(b"screen" in path.read_bytes() for path in sweep.out.glob("*/pairs.jsonl")) < 3:
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    sweep.run("sweep.build_ahead=2")
    found = sweep.decisions()
    # It crashes at its 40th launch in one process: with pairs taken over it may never come to that.
    assert found.pop("06-x") in ("REJECTED:runtime_error", "REJECTED:no_gain")
    assert found.items() <= DECISIONS.items()
    assert len(list(sweep.out.glob("*/result.json"))) == len(NAMES)


CASE = """
import simulated

def make(*, seed, gain, **keys):
    return simulated.make(seed=seed, behaviours={"*": {"gain": gain}}, noise={"sigma": 0.003}, **keys)
"""


def test_what_is_kept_for_one_shape_is_looked_at_in_fresh_processes_on_all_others(
    sweep: Sweep, tmp_path: Path
) -> None:
    (tmp_path / "case.py").write_text(f"import sys\nsys.path.insert(0, {str(SHIPPED / 'cases')!r})\n{CASE}")
    shapes = "{gains: {size: 16, gain: 0.05}, same: {size: 16, gain: 0.0}}"
    overrides = [f"workload.case={tmp_path}/case.py:make", f"+workload.shapes={shapes}"]
    command = [word.replace("workload=simulated", "workload=python") for word in sweep.command]
    done = subprocess.run(
        [*command, *overrides, "acf=01-x"], check=False, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    result = sweep.result("01-x")
    assert result["decision"] == "KEPT"
    shape = {s["name"]: s for s in result["shapes"]}
    assert shape["gains"]["pairs"]["guard"] == 0
    assert shape["same"]["decision"] == "REJECTED:no_gain"
    assert shape["same"]["pairs"]["guard"] == 12
    assert shape["same"]["statistics"]["gain_from"] == "guard"
    assert {p["session"] for p in sweep.pairs("01-x") if p["phase"] == "guard"} == {1, 2, 3}


def test_two_runs_in_one_folder_share_the_jobs_of_a_round(sweep: Sweep) -> None:
    command = [*sweep.command, "sweep.build_ahead=3"]
    runs = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [run.communicate(timeout=200)[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0]
    assert sweep.decisions() == DECISIONS
    assert not list(sweep.out.rglob("*.old*"))
    assert sum(stdout.count("(done before)") for stdout in said) == len(NAMES)
