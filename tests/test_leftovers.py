"""Scratch folders of killed runs: removed by the next run, and never anybody else's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from command import environment, loose_pack, run, start

from boosterrun.system import leftovers

OWNER = """
import sys, time
from pathlib import Path
from boosterrun.system import leftovers
path = leftovers.make("scratch-", Path(sys.argv[1]))
(path / "file").write_text("x")
print(path, flush=True)
time.sleep(600)
"""


def owner(folder: Path) -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, folder], env=environment(), stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def test_only_what_dead_owners_have_left_is_removed(tmp_path: Path) -> None:
    killed, left = owner(tmp_path)
    living, kept = owner(tmp_path)
    try:
        assert left.name.startswith("scratch-")
        end(killed)
        other = tmp_path / "other-x"
        other.mkdir()
        mine = leftovers.make("scratch-", tmp_path)
        assert not left.exists()
        assert (kept / "file").exists()
        assert sorted(tmp_path.iterdir()) == sorted([kept, other, mine])
        leftovers.make("scratch-", tmp_path)
        assert mine.exists()  # of this very process too
    finally:
        end(killed)
        end(living)


def test_links_and_files_stay(tmp_path: Path) -> None:
    target = tmp_path / "target"
    (target / "inside").mkdir(parents=True)
    place = tmp_path / "place"
    place.mkdir()
    (place / "scratch-link").symlink_to(target)
    (place / "scratch-file").write_text("x")
    leftovers.make("scratch-", place)
    assert (target / "inside").exists()
    assert (place / "scratch-link").is_symlink()
    assert (place / "scratch-file").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make another user's folder")
def test_another_users_folder_stays(tmp_path: Path) -> None:
    theirs = tmp_path / "scratch-theirs"
    theirs.mkdir()
    os.chown(theirs, 12345, 12345)
    leftovers.make("scratch-", tmp_path)
    assert theirs.exists()


def test_a_fork_does_not_keep_its_parents_folders(tmp_path: Path) -> None:
    script = (
        "import os, sys, time\nfrom pathlib import Path\nfrom boosterrun.system import leftovers\n"
        "path = leftovers.make('scratch-', Path(sys.argv[1]))\n"
        "pid = os.fork()\n"
        "os.write(1, b'%d\\n' % pid)\ntime.sleep(600)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, tmp_path], env=environment(), stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    # The child says that it is there, or it might not have let go yet when its parent is killed.
    child = sum(int(process.stdout.readline()) for _ in range(2))
    try:
        process.kill()
        process.wait()
        (left,) = tmp_path.iterdir()
        leftovers.make("scratch-", tmp_path)
        assert not left.exists()
    finally:
        os.kill(child, signal.SIGKILL)
        process.communicate()


def test_a_block_leaves_nothing_and_a_full_disk_is_told(tmp_path: Path) -> None:
    with leftovers.scratch("scratch-", tmp_path) as path:
        (path / "file").write_text("x")
    assert not list(tmp_path.iterdir())
    with pytest.raises(leftovers.RunError, match=r"cannot write to .*missing"):
        leftovers.make("scratch-", tmp_path / "missing")


def test_a_killed_sweep_leaves_nothing_for_long(tmp_path: Path) -> None:
    loose_pack(tmp_path / "acfs", ["01-a", "02-b", "03-c"])
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    words = (
        "-m",
        "acf=glob(*)",
        "workload=simulated",
        "pack=./acfs",
        "pack.cuda_version='13.3'",
    )
    sweep = (*words, "canary.required=false", "report=false")
    with start(sweep, tmp_path, TMPDIR=str(temporary)) as process:
        deadline = time.monotonic() + 120
        while not list(temporary.glob("boosterrun-baseline-*")) and time.monotonic() < deadline:
            time.sleep(0.02)
        process.kill()
        process.communicate()
    assert list(temporary.glob("boosterrun-baseline-*"))
    done = run(*sweep, cwd=tmp_path, TMPDIR=str(temporary))
    assert done.returncode == 0, done.stderr
    assert not [path for path in temporary.iterdir() if "baseline" in path.name]


def test_folders_are_made_by_many_threads_at_once(tmp_path: Path) -> None:
    """One that has no name yet was taken by another thread for one that is gone, and its lock was closed."""

    def one(number: int) -> bool:
        with leftovers.scratch(f"s{number % 3}-", tmp_path) as path:
            return path.is_dir() and not path.name.startswith(leftovers._NEW)

    with ThreadPoolExecutor(max_workers=8) as pool:
        assert all(pool.map(one, range(400)))
    assert list(tmp_path.iterdir()) == []
