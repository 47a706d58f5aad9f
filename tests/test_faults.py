"""Sweeps that are killed at random moments, and disks that are full: nothing is lost, doubled or damaged.

BOOSTERRUN_TEST_KILLS sets the number of kills (6).
"""

from __future__ import annotations

import csv
import json
import os
import random
import resource
import signal
import subprocess
import time
from pathlib import Path

import pytest
from command import AS_USERS, SAMPLE, environment, executable, results, run, start

from boosterrun import packs
from boosterrun.results import record

KILLS = int(os.environ.get("BOOSTERRUN_TEST_KILLS", "6"))
PARTS = max(1, KILLS // 10)  # they run side by side
IDS = [acf.id for acf in packs.open_pack(SAMPLE).acfs][:15]

# Clear cases only: whatever the noise, each decision comes out again; what fails does so in the first pair of
# any process, as earlier pairs are used again. What the shipped workload says of an ACF (08
# has a tail) holds where it is not said otherwise here. 15 ACFs and two seeds: 30 jobs.
EXPERIMENT = """\
defaults: [{override /workload: simulated}]
workload:
  options:
    noise: {sigma: 0.002}
    behaviours:
      01-*: {gain: 0.3}
      02-*: {gain: 0.0}
      03-*: {gain: -0.2}
      04-*: {fail: wrong}
      05-*: {fail: compile_error}
      06-*: {fail: crash_run, after: 5}
      07-*: {fail: ignore_sigterm, after: 5}
      08-*: {gain: 0.0, tail: 0.0}
      "*-sample_1-*": {gain: 0.3}
protocol: {min_gain: 0.1, calibration_pairs: 4, confirm_sessions: 1, checks: 1}
timeouts: {sample: 0.5, grace: 0.05}
"""
ACFS = "acf=glob([0*,10*,11*,12*,13*,14*,15*])"
SWEEP = ["-m", ACFS, "seed=1,2", "experiment=kills", "hydra.sweep.dir=out"]


def place(folder: Path) -> Path:
    """A folder to sweep in."""
    (folder / "experiments").mkdir(parents=True)
    (folder / "experiments" / "kills.yaml").write_text(EXPERIMENT)
    return folder


def decisions(folder: Path) -> dict[str, str]:
    """What the log says of each job, by its folder."""
    with (folder / "booster-pack-log.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    found = {row["result"]: row["decision"] for row in rows}
    assert len(found) == len(rows), "a job is there twice"
    return found


def decided(folder: Path) -> dict[Path, bytes]:
    """Every final result, all of them valid."""
    found = {}
    for path in folder.rglob(record.FILENAME):
        if record.load(path)["status"] == "decided":
            found[path] = path.read_bytes()
    return found


def left(token: str) -> list[int]:
    """Processes that have the test's token in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                if token.encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def gone(token: str) -> bool:
    deadline = time.monotonic() + 20
    while left(token) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not left(token)


@pytest.mark.parametrize("part", range(PARTS))
def test_a_sweep_survives_kills_at_any_moment(tmp_path: Path, part: int) -> None:
    whole = run(*SWEEP, cwd=place(tmp_path / "undisturbed"))
    assert whole.returncode == 0, whole.stderr
    expected = decisions(tmp_path / "undisturbed" / "out")
    assert len(expected) == 30
    assert len(set(expected.values())) >= 6
    chance = random.Random(4711 + part)
    kills = number = 0
    while kills < KILLS / PARTS:
        number += 1
        folder = place(tmp_path / f"run-{number}")
        token = f"TOKEN={folder}"
        args, safe = SWEEP, dict[Path, bytes]()
        while True:
            process = start(args, folder, TOKEN=str(folder), **AS_USERS)
            try:  # on a slow machine a sweep that is never left alone would not end
                patience = chance.uniform(0.5, 4) if kills < KILLS / PARTS else 250
                stdout, stderr = process.communicate(timeout=patience)
            except subprocess.TimeoutExpired:
                sent = chance.choice([signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
                process.send_signal(sent)
                begun = time.monotonic()
                stdout, stderr = process.communicate(timeout=60)
                if process.returncode != 0:  # it had not just ended by itself
                    kills += 1
                    assert process.returncode in (-sent, {2: 130, 15: 143}.get(sent, -sent)), stderr
                    assert time.monotonic() - begun < 20
                    assert gone(token)
                    assert "Traceback" not in stderr
            found = decided(folder) if (folder / "out").exists() else {}
            assert {path: found.get(path) for path in safe} == safe, "a final result was lost or changed"
            safe = found
            if process.returncode == 0:
                break
            assert process.returncode != 1, stdout + stderr
            if (folder / "out" / "command.json").exists():
                args = ["resume", "out"]
        assert decisions(folder / "out") == expected
        assert gone(token)


def test_two_runs_in_one_folder_share_the_jobs(tmp_path: Path) -> None:
    first, second = (start(SWEEP, folder) for folder in [place(tmp_path)] * 2)
    said = [process.communicate(timeout=120) for process in (first, second)]
    assert [first.returncode, second.returncode] == [0, 0], said
    assert len(decisions(tmp_path / "out")) == 30
    assert not list((tmp_path / "out").rglob("*.old*"))
    assert sum(stdout.count("(done before)") for stdout, _ in said) == 30


def limited(args: list[str], cwd: Path, size: int) -> subprocess.CompletedProcess[str]:
    """The command where no file may become larger than ``size`` bytes: what a full disk says, but EFBIG."""

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    return subprocess.run(
        [executable(cwd / ".bin"), *args],
        cwd=cwd,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        preexec_fn=limit,
    )


@pytest.mark.parametrize("size", [4_096, 8_192, 12_000])
def test_a_full_disk_damages_nothing(tmp_path: Path, size: int) -> None:
    few = ["-m", "acf=glob([01*,04*])", *SWEEP[2:]]
    full = limited(few, place(tmp_path), size)
    assert full.returncode in (1, 2), full.stderr
    assert "Traceback" not in full.stderr
    assert "File too large" in full.stderr + full.stdout
    decided(tmp_path)  # all that is there is whole
    again = run(*few, cwd=tmp_path)
    assert again.returncode == 0, again.stdout + again.stderr
    assert len(decisions(tmp_path / "out")) == 4


def test_a_file_in_place_of_a_folder_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("in the way")
    done = run(*SWEEP, cwd=place(tmp_path))
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1, done.stderr
    assert "out" in done.stderr
    assert (tmp_path / "out").read_text() == "in the way"


def test_a_folder_in_place_of_a_result_harms_its_job_only(tmp_path: Path) -> None:
    few = ["-m", f"acf={IDS[0]},{IDS[3]}", "seed=1", *SWEEP[3:]]
    (tmp_path / "out" / IDS[0] / "result.json").mkdir(parents=True)
    done = run(*few, cwd=place(tmp_path))
    assert done.returncode == 0, done.stderr
    assert f"again: {IDS[0]}" in done.stdout
    assert len(decisions(tmp_path / "out")) == 2
    assert (tmp_path / "out" / IDS[0] / "result.json.old").is_dir()
    assert all(result["status"] == "decided" for result in results(tmp_path / "out" / IDS[3]))
    assert json.loads((tmp_path / "out" / IDS[0] / "result.json").read_text())["status"] == "decided"
