"""The baseline that a sweep keeps: used again only while it lives and is the same, and gone afterwards."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from boosterrun.adapters import base
from boosterrun.adapters.base import Job, Judgement, Toolchain
from boosterrun.config import (
    SHIPPED,
    AcfConfig,
    Config,
    ProtocolConfig,
    PythonWorkload,
    SweepConfig,
    TimeoutsConfig,
)
from boosterrun.measure import kept, warm
from boosterrun.measure.judged import BaselineFailed
from boosterrun.packs import Acf
from boosterrun.system import closer

TIMEOUTS = TimeoutsConfig(start=60.0, build=60.0, check=60.0, sample=60.0, grace=0.3)

CASE = f"""
import os, sys
sys.path.insert(0, {str(SHIPPED / "cases")!r})
import simulated

with open(os.environ["PROCESSES"], "a") as log:
    log.write(f"{{'candidate' if 'BOOSTERRUN_ACF' in os.environ else 'baseline'}} {{os.getpid()}}\\n")

def make(*, seed, builds="", **keys):
    if builds:
        with open(builds, "a") as log:
            log.write(f"{{seed}}\\n")
    return simulated.make(seed=seed, **keys)
"""

BEHAVIOURS = {
    "01-*": {"gain": -0.2},
    "02-*": {"gain": 0.2},
    "03-*": {"fail": "crash_run", "after": 8},
    "04-*": {"gain": -0.3},
}


class Sweep:
    """Judges candidates one after the other in this process, as a sweep does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "processes"
        self.case = folder / "case.py"
        self.case.write_text(CASE)
        self.options: dict[str, Any] = {"noise": {"sigma": 0.005}, "behaviours": BEHAVIOURS}
        self.candidates = 4

    def judge(self, name: str) -> Judgement:
        folder = self.folder / f"job-{len(list(self.folder.glob('job-*')))}"
        (folder / "work").mkdir(parents=True)
        workload = PythonWorkload(
            name="s",
            case=f"{self.case}:make",
            shapes={"a": {"size": 16}, "b": {"size": 32}},
            options=self.options,
        )
        protocol = ProtocolConfig(name="screen", calibration_pairs=4, checks=2)
        config = Config(
            AcfConfig(id=name), workload=workload, protocol=protocol, timeouts=TIMEOUTS,
            sweep=SweepConfig(candidates=self.candidates),
        )  # fmt: skip
        acf = Acf(name, f"{name}.acf", "0" * 64, 1, ("ptxas",), "", f"{name}.acf") if name != "none" else None
        controls = folder / "0.acf" if acf else None
        self.latest = folder
        return base.load("python").judge(
            Job(config, acf, controls, folder, folder / "work", Toolchain(), None)
        )

    def pairs(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.latest / "pairs.jsonl").read_text().splitlines()]

    def processes(self, side: str) -> list[int]:
        lines = [line.split() for line in self.log.read_text().splitlines()]
        return [int(pid) for name, pid in lines if name == side]


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sweep]:
    monkeypatch.setenv("PROCESSES", str(tmp_path / "processes"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    made = Sweep(tmp_path)
    yield made
    kept.close()
    warm.close()
    closer.finish()
    assert not list(tmp_path.glob("boosterrun-baseline-*"))
    assert not any(alive(pid) for pid in made.processes("baseline") + made.processes("candidate"))


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_one_baseline_serves_all_screens(sweep: Sweep) -> None:
    sweep.options["builds"] = str(sweep.folder / "builds")
    assert sweep.judge("01-x").decision == "REJECTED:regression"
    first = sweep.pairs()
    assert sweep.judge("04-x").decision == "REJECTED:regression"
    second = sweep.pairs()
    assert len(sweep.processes("baseline")) == 1
    assert len(sweep.processes("candidate")) == 2
    measured = [p for p in first if p["phase"] == "calibrate"]
    recalled = [p for p in second if p["phase"] == "calibrate"]
    assert measured
    assert not any("reused" in p for p in first)
    assert [{**p, "reused": True, "at": 0} for p in measured] == [{**p, "at": 0} for p in recalled]
    assert {p["shape"] for p in second if p["phase"] == "screen"} == {
        p["shape"] for p in first if p["phase"] == "screen"
    }
    # Per side and shape: one case that is timed and one for each of two checks; the baseline's only once.
    shapes = len({p["shape"] for p in first})
    assert len((sweep.folder / "builds").read_text().split()) == 3 * 3 * shapes


def test_a_confirmation_has_fresh_processes(sweep: Sweep) -> None:
    assert sweep.judge("01-x").decision == "REJECTED:regression"
    assert sweep.judge("02-x").decision == "KEPT"
    sessions = {p["session"] for p in sweep.pairs() if p["phase"] == "confirm"}
    assert len(sessions) >= 2
    assert len(sweep.processes("baseline")) == 1 + len(sessions)
    assert len(set(sweep.processes("baseline"))) == 1 + len(sessions)


def test_it_serves_on_after_a_candidate_crashed(sweep: Sweep) -> None:
    assert sweep.judge("03-x").decision == "REJECTED:runtime_error"
    assert sweep.judge("01-x").decision == "REJECTED:regression"
    assert len(sweep.processes("baseline")) == 1


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_dead_baseline_is_started_again(sweep: Sweep, number: int) -> None:
    sweep.judge("01-x")
    (pid,) = sweep.processes("baseline")
    os.kill(pid, number)
    deadline = time.monotonic() + 60
    while alive(pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert sweep.judge("04-x").decision == "REJECTED:regression"
    assert not any("reused" in p for p in sweep.pairs())
    assert len(sweep.processes("baseline")) == 2


def test_a_baseline_that_went_astray_is_started_again(sweep: Sweep) -> None:
    sweep.options["behaviours"] = {"*": {"gain": -0.2}}
    sweep.case.write_text(CASE + """
_make = make
def make(**keys):
    case = _make(**keys)
    run = case.run
    def astray():
        y = run()
        if os.path.exists(os.environ["PROCESSES"] + ".astray") and "BOOSTERRUN_ACF" not in os.environ:
            y[:] = 0
        return y
    case.run = astray
    return case
""")  # fmt: skip
    sweep.judge("01-x")
    astray = Path(f"{sweep.log}.astray")
    astray.touch()
    with pytest.raises(BaselineFailed, match="the baseline gives a wrong result"):
        sweep.judge("04-x")
    assert len(sweep.processes("baseline")) == 1
    astray.unlink()
    assert sweep.judge("04-x").decision == "REJECTED:regression"


def test_another_workload_has_another_baseline_and_the_old_one_ends(sweep: Sweep) -> None:
    sweep.judge("01-x")
    sweep.options = {**sweep.options, "noise": {"sigma": 0.004}}
    sweep.judge("01-x")
    sweep.case.write_text(CASE + "\n# changed\n")
    sweep.judge("01-x")
    baselines = sweep.processes("baseline")
    assert len(baselines) == 3
    assert [alive(pid) for pid in baselines] == [False, False, True]


def test_a_single_job_and_a_self_test_keep_nothing(sweep: Sweep) -> None:
    sweep.judge("none")
    sweep.candidates = 1
    sweep.judge("01-x")
    closer.finish()
    assert not any(alive(pid) for pid in sweep.processes("baseline"))
