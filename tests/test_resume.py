"""Resuming end to end: what stands, what runs again and why, and that nothing is deleted."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from command import ROOT, SAMPLE, results, run

from boosterrun import packs
from boosterrun.results import record
from boosterrun.results.redecide import NotAgain, redecide

IDS = [acf.id for acf in packs.open_pack(SAMPLE).acfs]
EXPERIMENT = """\
defaults: [{override /workload: python}]
workload:
  name: own
  case: ./case.py:make
  shapes: {small: {size: 16}}
protocol: {min_gain: 0.1, calibration_pairs: 4, checks: 1}
"""
CASE = """\
from boosterrun.shipped.cases.simulated import make as simulated
import helper

def make(**given):
    behaviours = {"01-*": {"gain": 0.5}, "03-*": {"fail": "compile_error"}}
    return simulated(noise={"sigma": helper.SIGMA}, behaviours=behaviours, **given)
"""
SWEEP = ["-m", f"acf={IDS[0]},{IDS[1]},{IDS[2]}", "experiment=own", "hydra.sweep.dir=out"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished sweep of three jobs; never changed, only copied."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "experiments").mkdir()
    (folder / "experiments" / "own.yaml").write_text(EXPERIMENT)
    (folder / "case.py").write_text(CASE)
    (folder / "helper.py").write_text("SIGMA = 0.002\n")
    done = run(*SWEEP, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture
def place(finished: Path, tmp_path: Path) -> Path:
    """A copy, so that the command's folder is gone from where it was run."""
    copy = tmp_path / "copy"
    shutil.copytree(finished, copy)
    return copy


def again(place: Path, *more: str, code: int = 0) -> list[str]:
    """The same command once more; the lines that it printed about jobs."""
    done = run(*SWEEP, *more, cwd=place)
    assert done.returncode == code, done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if line.startswith(("[", "again:"))]


def rerun(lines: list[str]) -> list[str]:
    return [line.split()[1].rstrip(":") for line in lines if line.startswith("again:")]


def test_what_is_done_stands_to_the_byte(place: Path) -> None:
    before = {path: path.read_bytes() for path in (place / "out").rglob("*.json*")}
    lines = again(place, "keep_work=true", "timeouts.build=119", "sweep.build_ahead=0")
    assert all("(done before)" in line for line in lines)
    assert len(lines) == 3
    assert {path: path.read_bytes() for path in before if path.name != "command.json"} == {
        path: data for path, data in before.items() if path.name != "command.json"
    }


def test_resume_repeats_the_command_from_anywhere(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished / "out", tmp_path / "moved away")
    (tmp_path / "moved away" / IDS[1] / "result.json").unlink()
    done = run("resume", "moved away", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("(done before)") == 2
    assert f"again: {IDS[1]}: it did not end" in done.stdout
    assert [result["status"] for result in results(tmp_path / "moved away")] == ["decided"] * 3
    assert len(results(finished)) == 3
    assert (tmp_path / "moved away" / IDS[1] / "pairs.jsonl.old").exists()


def test_where_all_is_done_nothing_is_imported(tmp_path: Path) -> None:
    (tmp_path / "experiments").mkdir()
    own = EXPERIMENT.replace("  name: own\n", "  name: own\n  preload: [marker]\n")
    (tmp_path / "experiments" / "own.yaml").write_text(own)
    (tmp_path / "case.py").write_text(CASE)
    (tmp_path / "helper.py").write_text("SIGMA = 0.002\n")
    (tmp_path / "marker.py").write_text("open('imported', 'a').close()\n")
    for imported in (True, False):
        done = run(*SWEEP, cwd=tmp_path, PYTHONPATH=f"{ROOT}:{tmp_path}")
        assert done.returncode == 0, done.stdout + done.stderr
        assert (tmp_path / "imported").exists() == imported
        (tmp_path / "imported").unlink(missing_ok=True)
    assert done.stdout.count("(done before)") == 3


def test_a_change_of_what_a_case_imports_is_told_and_rerun(place: Path) -> None:
    (place / "helper.py").write_text("SIGMA = 0.003\n")
    lines = again(place)
    assert rerun(lines) == IDS[:3]
    assert "changed: file.helper.py: " in lines[0]
    assert len(list((place / "out").rglob("result.json.old"))) == 3
    assert not rerun(again(place))


def test_changed_settings_are_told_and_rerun(place: Path) -> None:
    lines = again(place, "workload.shapes.small.size=17", "protocol.min_gain=0.11")
    assert rerun(lines) == IDS[:3]
    assert "workload.shapes.small.size: 16 -> 17; protocol.min_gain: 0.1 -> 0.11" in lines[0]


def test_invalid_undecided_and_unknown_results_run_again(place: Path) -> None:
    one, two, three = (place / "out" / name for name in IDS[:3])
    (one / "result.json").write_text("{")
    result = json.loads((two / "result.json").read_text())
    error = {"kind": "interrupted", "message": "the job was interrupted", "advice": "", "details": None}
    result.update(status="undecided", decision=None, message="the job was interrupted", error=error)
    record.write(result, two)
    (three / "identity.json").write_text("[]")
    lines = again(place)
    assert rerun(lines) == IDS[:3]
    told = [line for line in lines if line.startswith("again:")]
    assert "its result is not valid" in told[0]
    assert "not judged: the job was interrupted" in told[1]
    assert "it is not known what its result was measured on" in told[2]
    assert (one / "result.json.old").read_text() == "{"
    assert json.loads((three / "result.json.old").read_text())["decision"] == "REJECTED:compile_error"
    assert not (two / "result.json.old").exists()


def test_more_candidates_are_decided_by_the_old_pairs_or_rerun(place: Path) -> None:
    before = {result["job"]["id"]: result for result in results(place / "out")}
    done = run("-m", "acf=glob([0*,10*])", *SWEEP[2:], cwd=place)
    assert done.returncode == 0, done.stderr
    after = {result["job"]["id"]: result for result in results(place / "out")}
    assert {result["job"]["sweep_candidates"] for result in after.values()} == {10}
    for name in IDS[:3]:
        kept = f"{name}  {before[name]['decision']}  own (done before)" in done.stdout
        assert kept or f"again: {name}: changed: 3 -> 10 candidates" in done.stdout
        assert after[name]["decision"] == before[name]["decision"]
        for shape in after[name]["shapes"]:
            if shape["statistics"]:
                assert shape["statistics"]["family"] == 10
    fewer = run(*SWEEP, cwd=place)
    assert fewer.stdout.count("(done before)") == 3


def test_one_job_is_resumed_like_a_sweep(finished: Path, tmp_path: Path) -> None:
    place = tmp_path / "copy"
    shutil.copytree(finished, place, ignore=shutil.ignore_patterns("out"))
    for expected in (False, True):
        done = run(f"acf={IDS[0]}", *SWEEP[2:], cwd=place)
        assert done.returncode == 0, done.stderr
        assert ("(done before)" in done.stdout) is expected
    assert "(done before)" in run("resume", "out", cwd=place).stdout


def test_a_folder_that_no_run_has_made_is_told(finished: Path, tmp_path: Path) -> None:
    for folder, words in (
        ("gone", "no such folder"),
        (str(finished), f"The newest below it is {finished}/out"),
        (str(finished / "out" / IDS[0]), f"This is the folder of a job: resume {finished}/out"),
        (str(tmp_path), "Name the output folder of a sweep"),
    ):
        done = run("resume", folder, cwd=tmp_path)
        assert done.returncode == 2
        assert words in done.stderr
        assert done.stderr.count("\n") == 1
    (tmp_path / "command.json").write_text('{"argv": 1}')
    assert "cannot read" in run("resume", ".", cwd=tmp_path).stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_told(place: Path) -> None:
    (place / "out").chmod(0o555)
    done = run(*SWEEP, cwd=place)
    (place / "out").chmod(0o755)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1


# ---- deciding again ----


def kept(finished: Path) -> tuple[dict[str, Any], Path]:
    folder = finished / "out" / IDS[0]
    result = record.load(folder / "result.json")
    assert result["decision"] == "KEPT"
    return result, folder


def test_the_same_number_of_candidates_gives_the_same_statistics(finished: Path) -> None:
    result, folder = kept(finished)
    assert redecide(result, folder, 3) == result


def test_too_many_candidates_leave_it_open(finished: Path) -> None:
    result, folder = kept(finished)
    with pytest.raises(NotAgain, match=r"small is open, not KEPT|cannot decide"):
        redecide(result, folder, 10_000_000)
    other = record.load(finished / "out" / IDS[2] / "result.json")
    assert redecide(other, finished / "out" / IDS[2], 10_000_000)["job"]["sweep_candidates"] == 10_000_000


@pytest.mark.parametrize("text", ["", "{", '{"shape": "small"}\n', '{"shape": "other", "phase": "no"}\n'])
def test_damaged_pairs_decide_nothing(finished: Path, tmp_path: Path, text: str) -> None:
    result, _ = kept(finished)
    (tmp_path / "pairs.jsonl").write_text(text)
    with pytest.raises(NotAgain):
        redecide(result, tmp_path, 4)
    with pytest.raises(NotAgain, match="cannot be read"):
        redecide(result, tmp_path / "gone", 4)
