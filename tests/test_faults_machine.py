"""The fault matrix: what the machine does, with kills, full disks, damage and a clock that jumps.

BOOSTERRUN_TEST_FAULTS=FOLDER runs all of it and leaves a line per cell there; else a part runs.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from command import SAMPLE
from faults import cells
from faults.harness import (
    GAIN,
    HERE,
    LOSER,
    OTHERS,
    WINNER,
    Fault,
    Outcome,
    Sweep,
    undisturbed,
)
from faults.lines import ALL, note, settle, whole_matrix

from boosterrun.results import record

BAD = OTHERS[0]
JOBS = [WINNER, BAD, LOSER]
KILL = "kill -9 $PPID"
# Where no foreign code runs, the moment is that at which the runner has opened one of these.
OPENED = {
    "pack": "booster-pack-sample.zip",
    "write": f"{BAD}/.result.json.",
    "merge": "out/.booster-pack-log.csv.",
}


def misbehave(fault: str) -> str:
    """A command for sh."""
    return f"{sys.executable} -I -S {HERE / 'misbehave.py'} {fault}"


def disturbed(folder: Path, fault: str, phase: str, **settings: object) -> Sweep:
    """A sweep in which code of ``BAD``, or of its baseline or the canary, does it."""
    adapter = "ptxas" if phase == "canary" else "python"
    who = {"canary": "canary", "calibrate": "baseline"}.get(phase, BAD)
    faults = [] if phase in OPENED else [Fault(who, phase, fault)]
    jobs = [BAD, WINNER, LOSER] if phase == "calibrate" else JOBS
    gains = {BAD: GAIN} if phase == "confirm" else {}
    return Sweep(folder, adapter, jobs, faults, gains=gains, **settings)  # type: ignore[arg-type]


def usual(sweep: Sweep, phase: str) -> dict[str, str]:
    return undisturbed(sweep.adapter, sweep.acfs, [BAD] if phase == "confirm" else [])


def whole(sweep: Sweep) -> dict[str, bytes]:
    """Every final result that is there; all of them are valid."""
    found = {}
    for path in sorted(sweep.out.glob(f"*/{record.FILENAME}")):
        if record.load(path)["status"] == "decided":
            found[path.parent.name] = path.read_bytes()
    return found


def goes_on(sweep: Sweep, phase: str, before: dict[str, bytes]) -> Outcome:
    """The same command again keeps what was decided, and comes to the decisions of an undisturbed sweep."""
    again = sweep.again()
    assert (again.code, again.decisions) == (0, usual(sweep, phase)), again.words
    after = whole(sweep)
    assert {name: after[name] for name in before} == before, "a final result was changed"
    return again


@pytest.mark.parametrize("phase", cells.PHASES if ALL else ["write"])
def test_a_killed_runner_loses_nothing(tmp_path: Path, phase: str) -> None:
    sweep = disturbed(tmp_path, "runner_killed", phase)
    done = sweep.run(at=OPENED[phase], do=KILL) if phase in OPENED else sweep.run()
    assert done.code == -signal.SIGKILL, done.words
    again = goes_on(sweep, phase, whole(sweep))
    note(sweep, "runner_killed", phase, "resumed", done, again, leftovers=sweep.leftovers())
    settle()


@pytest.mark.parametrize("phase", cells.SIDES if ALL else ["pairs"])
def test_what_a_killed_run_left_may_be_damaged(tmp_path: Path, phase: str) -> None:
    sweep = disturbed(tmp_path, "runner_killed", phase)
    done = sweep.run()
    cut = [path for path in (sweep.out / BAD).rglob("*") if path.is_file()]
    assert cut
    for path in cut:
        halve(path)
    again = goes_on(sweep, phase, whole(sweep))
    note(sweep, "truncated", phase, "resumed", done, again, leftovers=sweep.leftovers())
    settle()


def halve(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def test_a_result_that_is_cut_is_missed_and_made_again(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, "python", JOBS)
    assert sweep.run().code == 0
    halve(sweep.out / BAD / record.FILENAME)
    told(sweep, sweep.run(["collect", "out"]), "truncated", "write")


@whole_matrix
def test_a_result_that_is_cut_while_results_are_merged_is_missed(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, "python", JOBS)
    cut = f"truncate -s 100 out/{BAD}/{record.FILENAME}"
    told(sweep, sweep.run(at=OPENED["merge"], do=cut), "truncated", "merge")


def told(sweep: Sweep, done: Outcome, fault: str, phase: str) -> None:
    """One job has no decision, and that is said; the others are as ever; run again, all is well."""
    assert done.code == 1, done.words
    rejects = (sweep.out / "booster-pack-rejects.csv").read_text()
    assert BAD in rejects, rejects
    expected = usual(sweep, phase)
    others = "; ".join(a for a in sweep.acfs if a != BAD and done.decisions[a] != expected[a])
    leftovers = sweep.leftovers()
    again = goes_on(sweep, phase, {})
    note(sweep, fault, phase, done.decisions[BAD], done, again, leftovers=leftovers, others=others)
    settle()


@pytest.mark.parametrize("phase", ["write", "merge"] if ALL else ["merge"])
def test_a_job_whose_folder_goes_is_missed(tmp_path: Path, phase: str) -> None:
    """It must not be as if there had never been such a job."""
    sweep = Sweep(tmp_path, "python", JOBS)
    done = sweep.run(at=OPENED[phase], do=f"rm -rf out/{BAD}")
    assert done.code == 1, done.words
    expected = usual(sweep, phase)
    others = "; ".join(a for a in sweep.acfs if a != BAD and done.decisions[a] != expected[a])
    said = (sweep.out / "booster-pack-log.csv").read_text() + done.stdout
    assert BAD in said
    leftovers = sweep.leftovers()
    again = goes_on(sweep, phase, {})
    note(sweep, "folder_deleted", phase, done.decisions[BAD], done, again, leftovers=leftovers, others=others)
    settle()


def test_a_sweep_whose_folder_goes_says_so(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, "python", JOBS)
    done = sweep.run(at=OPENED["write"], do="rm -rf out")
    assert done.code == 1, done.words
    goes_on(sweep, "write", {})


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A disk of some MiB, to be filled; skips where nothing may be mounted (unshare -rm allows it)."""
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", folder], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("nothing may be mounted here: run it under unshare -rm")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


@pytest.mark.parametrize("phase", cells.PHASES if ALL else ["pairs"])
def test_a_full_disk_loses_nothing(tmp_path: Path, phase: str) -> None:
    with small_disk(tmp_path / "disk") as disk:
        sweep = disturbed(disk, "disk_full", phase, state=tmp_path / "state")
        done = sweep.run(at=OPENED[phase], do=misbehave("disk_full")) if phase in OPENED else sweep.run()
        assert done.code == 1, done.words
        assert re.search("No space left on device|could not write", done.stdout + done.stderr), done.words
        before = whole(sweep)
        came = "stopped" if phase in ("pack", "canary") and not before else done.decisions[BAD]
        if phase not in ("pack", "canary", "calibrate"):  # the first job has been decided before
            assert WINNER in before, done.words
        (disk / "tmp" / "fill").unlink()
        again = goes_on(sweep, phase, before)
        note(sweep, "disk_full", phase, came, done, again, leftovers=sweep.leftovers())
    settle()


def test_a_clock_that_jumps_changes_no_decision(tmp_path: Path) -> None:
    """In each phase that runs foreign code, a day forward or two back."""
    phases = dict(zip(("build", "check", "pairs", "confirm"), OTHERS, strict=False))
    faults = [Fault(acf, phase, "clock") for phase, acf in phases.items()]
    faults.append(Fault("baseline", "calibrate", "clock"))
    jobs = [WINNER, *phases.values(), LOSER]
    winner = phases["confirm"]
    sweep = Sweep(tmp_path, "python", jobs, faults, gains={winner: GAIN})
    done = sweep.run(clock=True)
    expected = undisturbed("python", jobs, [winner])
    fired = len(list(sweep.state.glob("fired-*")))
    assert (done.code, fired) == (0, len(faults)), done.words
    others = "; ".join(a for a in (WINNER, LOSER) if done.decisions[a] != expected[a])
    leftovers = sweep.leftovers()
    for phase, acf in [*phases.items(), ("calibrate", WINNER)]:
        came = "same" if done.decisions[acf] == expected[acf] else done.decisions[acf]
        note(
            sweep,
            "clock",
            phase,
            came,
            done,
            leftovers=leftovers,
            others=others,
            seconds=done.job_seconds[acf],
        )
    settle()


@whole_matrix
@pytest.mark.parametrize("phase", ["pack", "canary", "write", "merge"])
def test_a_clock_that_jumps_while_the_runner_works_changes_no_decision(tmp_path: Path, phase: str) -> None:
    sweep = disturbed(tmp_path, "clock", phase)
    if phase in OPENED:
        done = sweep.run(clock=True, at=OPENED[phase], do=misbehave("clock"))
    else:
        done = sweep.run(clock=True)
    assert sweep.clock.read_bytes() != bytes(8), "the clock did not jump"
    came = "same" if (done.code, done.decisions) == (0, usual(sweep, phase)) else str(done.decisions)
    note(sweep, "clock", phase, came, done, leftovers=sweep.leftovers())
    settle()


@pytest.mark.parametrize("fault", ["hang", "flood", "folder_deleted", "truncated"] if ALL else ["hang"])
def test_a_pack_that_cannot_be_read_stops_the_sweep(tmp_path: Path, fault: str) -> None:
    """A pipe that nobody writes into, a file without an end, a pack that goes meanwhile, half a pack."""
    (tmp_path / "packs").mkdir()
    pack = tmp_path / "packs" / "mine.zip"
    sweep = Sweep(tmp_path, "python", JOBS, pack="packs/mine.zip")
    do = ""
    if fault == "hang":
        os.mkfifo(pack)
    elif fault == "flood":
        pack.symlink_to("/dev/zero")
    else:
        shutil.copy(SAMPLE, pack)
        if fault == "truncated":
            halve(pack)
        else:
            do = "rm -rf packs"
    done = sweep.run(at="mine.zip", do=do)
    stopped = (done.code, done.stderr.count("\n")) == (2, 1) and not whole(sweep)
    shutil.rmtree(pack.parent, ignore_errors=True)
    pack.parent.mkdir()
    shutil.copy(SAMPLE, pack)
    goes_on(sweep, "pack", {})
    note(sweep, fault, "pack", "stopped" if stopped else done.words, done, leftovers=sweep.leftovers())
    settle()


@whole_matrix
def test_a_canary_that_is_cut_stops_the_sweep(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, "ptxas", JOBS)
    assert sweep.run().code == 0
    before = whole(sweep)
    halve(sweep.out / "canary.json")
    done = sweep.run()
    assert (done.code, done.stderr.count("boosterrun: error: ")) == (1, 1), done.words
    assert "canary.json" in done.stderr
    (sweep.out / "canary.json").unlink()
    goes_on(sweep, "canary", before)
    note(sweep, "truncated", "canary", "stopped", done, leftovers=sweep.leftovers())
    settle()


def test_a_log_that_is_open_and_locked_elsewhere_is_replaced(tmp_path: Path) -> None:
    """Its reader keeps what it has opened; whoever locks the folder for a while is waited for."""
    sweep = Sweep(tmp_path, "python", JOBS)
    assert sweep.run().code == 0
    log = sweep.out / "booster-pack-log.csv"
    old = log.read_bytes()
    halve(sweep.out / BAD / record.FILENAME)
    folder = os.open(sweep.out, os.O_RDONLY)
    with log.open("rb") as reader:
        fcntl.flock(reader, fcntl.LOCK_EX)
        fcntl.flock(folder, fcntl.LOCK_EX)
        release = threading.Timer(4.0, os.close, [folder])
        release.start()
        done = sweep.run()
        release.join()
        assert reader.read() == old
    came = "same" if (done.code, done.decisions) == (0, usual(sweep, "merge")) else done.words
    note(sweep, "csv_locked", "merge", came, done, leftovers=sweep.leftovers())
    settle()


@whole_matrix  # it waits for a minute
def test_a_folder_that_somebody_locks_for_ever_is_not_waited_for(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, "python", JOBS)
    assert sweep.run().code == 0
    folder = os.open(sweep.out, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        begun = time.monotonic()
        done = sweep.run()
        assert time.monotonic() - begun < 120
    finally:
        os.close(folder)
    assert done.code == 1, done.words
    assert done.stderr.count("error:") == 1, done.words
    assert len(whole(sweep)) == len(JOBS)
