"""The plan: what it says, and that it does nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from command import QUICK, SAMPLE, run
from made_results import result

from boosterrun import packs
from boosterrun.results import record
from boosterrun.sweeps.estimate import duration, estimate

IDS = [acf.id for acf in packs.open_pack(SAMPLE).acfs]


def test_a_plan_runs_and_writes_nothing(tmp_path: Path) -> None:
    done = run("plan", "-m", "acf=glob([01*,02*])", QUICK, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[:3] == [f"[1/2] {IDS[0]}  to run", f"[2/2] {IDS[1]}  to run", "jobs:     2: 2 new"]
    assert "workload: softmax (shapes: " in done.stdout
    assert "a guess: no results of softmax below outputs/softmax" in done.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == [".bin"]


def test_a_plan_says_what_is_done_and_what_changed(tmp_path: Path) -> None:
    sweep = ["-m", "acf=glob([01*,02*,03*])", QUICK, "hydra.sweep.dir=out"]
    assert run(*sweep, cwd=tmp_path).returncode == 0
    (tmp_path / "out" / IDS[2] / "result.json").unlink()
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")}
    for args in (["plan", *sweep], ["plan", "out"]):
        done = run(*args, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert f"[1/3] {IDS[0]}  done: " in done.stdout
        assert f"[3/3] {IDS[2]}  to run: it did not end" in done.stdout
        assert "jobs:     3: 2 done, 1 missing" in done.stdout
        assert "the mean of 2 earlier results below" in done.stdout
    done = run("plan", "out", "protocol.min_gain=0.02", cwd=tmp_path)
    assert f"[1/3] {IDS[0]}  to run: changed: protocol.min_gain: 0.01 -> 0.02" in done.stdout
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")} == files


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["acf=nope"], "unknown ACF"),
        (["nowhere"], "no such folder"),
        (["-c", "job"], "overrides of a run"),
    ],
)
def test_bad_input_is_told_in_one_line(tmp_path: Path, args: list[str], words: str) -> None:
    done = run("plan", *args, cwd=tmp_path)
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_estimates_come_from_results_of_the_same_workload(tmp_path: Path) -> None:
    made = result()
    name = made["workload"]["name"]
    for number, seconds in enumerate((2.0, 4.0)):
        folder = tmp_path / "earlier" / str(number)
        folder.mkdir(parents=True)
        record.write({**made, "job": {**made["job"], "seconds": seconds}}, folder)
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "result.json").write_text("[")
    assert estimate(tmp_path, name, "timed", 2).seconds == 3.0
    assert "2 earlier results" in estimate(tmp_path, name, "timed", 2).basis
    guess = estimate(tmp_path, "another", "timed", 2)
    assert guess.seconds == 10.0
    assert "a guess" in guess.basis
    assert estimate(tmp_path / "nowhere", name, "static", 1).seconds == 0.5


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.1, "1 s"), (99.0, "99 s"), (240.0, "4 min"), (9000.0, "2.5 h")]
)
def test_durations_in_words(seconds: float, words: str) -> None:
    assert duration(seconds) == words
