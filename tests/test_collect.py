from __future__ import annotations

import csv
import fcntl
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from made_results import result, self_test, shape, undecided

from boosterrun.errors import RunError, UsageError
from boosterrun.results import csvlog, record
from boosterrun.results.collect import REJECTS_FILENAME, collect


def job(folder: Path, made: dict[str, Any] | bytes | None = None) -> Path:
    """A job's folder as Hydra makes it, with a result (valid unless bytes are given)."""
    (folder / ".hydra").mkdir(parents=True)
    if isinstance(made, bytes):
        (folder / "result.json").write_bytes(made)
    else:
        record.write(made or result(), folder)
    return folder


def table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream, strict=True))


def results_in(path: Path) -> list[str]:
    return [row["result"] for row in table(path)]


def test_one_row_per_acf_and_shape_in_the_order_of_the_paths(tmp_path: Path) -> None:
    job(tmp_path / "b" / "2", result(shape("x"), shape("y", "REJECTED:no_gain")))
    job(tmp_path / "b" / "10", self_test())
    job(tmp_path / "a", undecided())
    job(tmp_path / "c", result(shapes=[], decision="REJECTED:acf_invalid"))
    merged = collect([tmp_path])
    assert merged.csv == tmp_path / "booster-pack-log.csv"
    assert (merged.rows, merged.invalid, merged.rejects, merged.undecided) == (5, 0, None, 1)
    assert merged.decisions == Counter({"KEPT": 1, "REJECTED:no_difference": 1, "REJECTED:acf_invalid": 1})
    assert [(row["result"], row["shape"]) for row in table(merged.csv)] == [
        ("a/result.json", ""),
        ("b/10/result.json", "r128"),
        ("b/2/result.json", "x"),
        ("b/2/result.json", "y"),
        ("c/result.json", ""),
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "booster-pack-log.csv", "c"]


def test_the_same_results_give_the_same_bytes(tmp_path: Path) -> None:
    for name in "abc":
        job(tmp_path / name)
    first = collect([tmp_path]).csv.read_bytes()
    assert collect([tmp_path]).csv.read_bytes() == first
    assert first.endswith(b"\n")
    assert b"\r" not in first


def test_a_result_cut_at_any_byte_is_listed_and_the_others_are_merged(tmp_path: Path) -> None:
    whole = (job(tmp_path / "good" / "1") / "result.json").read_bytes().rstrip()
    job(tmp_path / "good" / "2")
    for length in range(len(whole)):
        folder = tmp_path / "cut" / f"{length:05}"
        folder.mkdir(parents=True)
        (folder / "result.json").write_bytes(whole[:length])
    merged = collect([tmp_path])
    assert (merged.rows, merged.invalid) == (2, len(whole))
    assert results_in(merged.csv) == ["good/1/result.json", "good/2/result.json"]
    assert merged.rejects == tmp_path / "booster-pack-rejects.csv"
    rejected = table(merged.rejects)
    assert [row["path"] for row in rejected] == [f"cut/{n:05}/result.json" for n in range(len(whole))]
    assert all(0 < len(row["reason"]) < 250 for row in rejected)


def test_rejects_say_why_and_go_away_when_all_is_in_order(tmp_path: Path) -> None:
    job(tmp_path / "good")
    job(tmp_path / "schema", b'{"schema_version": 9}')
    (tmp_path / "running" / ".hydra").mkdir(parents=True)
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / "result.json").symlink_to("../good/result.json")
    (tmp_path / "folder" / "result.json").mkdir(parents=True)
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe" / "result.json")
    merged = collect([tmp_path])
    assert (merged.rows, merged.invalid) == (1, 5)
    assert merged.rejects is not None
    assert {row["path"]: row["reason"] for row in table(merged.rejects)} == {
        "folder/result.json": "not a regular file",
        "link/result.json": "a symbolic link",
        "pipe/result.json": "not a regular file",
        "running/result.json": "missing: the job has not finished, or was killed",
        "schema/result.json": "schema version 9, only 1 is known",
    }
    for name in ("schema", "running", "link", "folder", "pipe"):
        shutil.rmtree(tmp_path / name)
    assert collect([tmp_path]).rejects is None
    assert not (tmp_path / "booster-pack-rejects.csv").exists()


def test_only_bad_results_give_an_empty_log(tmp_path: Path) -> None:
    job(tmp_path / "bad", b"{")
    merged = collect([tmp_path])
    assert (merged.rows, merged.invalid) == (0, 1)
    assert merged.csv.read_text() == csvlog.header() + "\n"


def test_links_are_not_followed_and_a_jobs_own_files_are_not_searched(tmp_path: Path) -> None:
    root = tmp_path / "root"
    job(root / "a")
    job(tmp_path / "outside")
    (root / "out").symlink_to(tmp_path / "outside")
    (root / "loop").symlink_to(root)
    for inner in ("work", ".hydra"):
        (root / "a" / inner).mkdir(exist_ok=True)
        (root / "a" / inner / "result.json").write_text("the program's own")
    merged = collect([root])
    assert (results_in(merged.csv), merged.invalid) == (["a/result.json"], 0)


def test_a_root_may_be_a_link_or_a_job_itself(tmp_path: Path) -> None:
    folder = job(tmp_path / "sweep" / "a")
    (tmp_path / "latest").symlink_to("sweep")
    assert results_in(collect([tmp_path / "latest"]).csv) == ["a/result.json"]
    assert results_in(collect([folder]).csv) == ["result.json"]


def test_overlapping_roots_give_each_result_once(tmp_path: Path) -> None:
    job(tmp_path / "one" / "a")
    job(tmp_path / "two" / "b")
    out = tmp_path / "new" / "logs"
    merged = collect([tmp_path / "two", tmp_path, tmp_path / "one" / "a", tmp_path], out)
    assert merged.csv == out / "booster-pack-log.csv"
    assert results_in(merged.csv) == ["../../one/a/result.json", "../../two/b/result.json"]


def test_several_roots_are_merged_where_the_command_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job(tmp_path / "one" / "a")
    job(tmp_path / "two" / "b")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    merged = collect([Path("../two"), Path("../one")])
    assert merged.csv == tmp_path / "here" / "booster-pack-log.csv"
    assert results_in(merged.csv) == ["../one/a/result.json", "../two/b/result.json"]


def test_odd_names_of_folders_are_written_safely(tmp_path: Path) -> None:
    for name in ("=cmd|x", "a,b", 'q"', "line\nend", os.fsdecode(b"\xff")):
        job(tmp_path / "jobs" / name)
        job(tmp_path / "bad" / name, b"")
    merged = collect([tmp_path / "jobs", tmp_path / "bad"], tmp_path / "jobs")
    names = ["=cmd|x", "a,b", "line | end", 'q"', "\\udcff"]
    assert results_in(merged.csv) == [
        f"'{names[0]}/result.json",
        *(f"{name}/result.json" for name in names[1:]),
    ]
    assert merged.rejects is not None
    assert [row["path"] for row in table(merged.rejects)] == [f"../bad/{name}/result.json" for name in names]
    assert len(merged.csv.read_text().splitlines()) == 6


def test_very_deep_folders_are_searched(tmp_path: Path) -> None:
    names = ["d"] * 1_200
    here = os.open(tmp_path, os.O_RDONLY)
    try:  # step by step: one call takes no path of this length
        for name in names:
            os.mkdir(name, dir_fd=here)
            below = os.open(name, os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = below
        job(Path(f"/proc/self/fd/{here}/job"))
        assert results_in(collect([tmp_path]).csv) == ["/".join([*names, "job", "result.json"])]
    finally:
        os.close(here)
        # Python's own removal of a tree gives up at such a depth, pytest's of old temporary folders too.
        subprocess.run(["rm", "-rf", str(tmp_path / "d")], check=True)


def test_no_such_folder_and_nothing_below(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    for name in ("absent", "file"):
        with pytest.raises(UsageError, match=f"no such folder: .*/{name}"):
            collect([tmp_path, tmp_path / name])
    with pytest.raises(UsageError, match=r"no result\.json below .*/empty"):
        collect([tmp_path / "empty"])
    assert list((tmp_path / "empty").iterdir()) == []
    merged = collect([tmp_path / "empty"], allow_empty=True)
    assert (merged.rows, merged.csv.read_text()) == (0, csvlog.header() + "\n")


def test_a_target_that_cannot_be_made_or_written(tmp_path: Path) -> None:
    job(tmp_path / "a")
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot make the folder"):
        collect([tmp_path], tmp_path / "file")
    (tmp_path / "out" / "booster-pack-log.csv").mkdir(parents=True)
    with pytest.raises(RunError, match=r"cannot write .*/out/booster-pack-log\.csv"):
        collect([tmp_path], tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["booster-pack-log.csv"]


COLLECT = """
import pathlib, resource, sys
from boosterrun.results.collect import REJECTS_FILENAME, collect
if sys.argv[2] != "-":
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
merged = collect([pathlib.Path(sys.argv[1])])
print(merged.rows, merged.invalid)
"""


def command(folder: Path, limit: str = "-") -> list[str]:
    return [sys.executable, "-c", COLLECT, str(folder), limit]


ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent)}


@pytest.mark.parametrize(("limit", "bad"), [("1000", 0), ("4000", 40)], ids=["log", "rejects"])
def test_a_full_disk_leaves_the_old_log(tmp_path: Path, limit: str, bad: int) -> None:
    job(tmp_path / "a")
    job(tmp_path / "a-bad", b"")
    collect([tmp_path])
    before = {path.name: path.read_bytes() for path in tmp_path.glob("*.csv")}
    job(tmp_path / "b")
    for index in range(bad):
        job(tmp_path / f"{'long' * 50}{index}", b"")
    done = subprocess.run(
        command(tmp_path, limit), env=ENVIRONMENT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "RunError: cannot write" in done.stderr
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.csv")} == before
    assert not list(tmp_path.glob(".*.tmp"))


def test_merging_the_same_folder_at_once(tmp_path: Path) -> None:
    for index in range(20):
        job(tmp_path / f"{index:02}")
    job(tmp_path / "bad", b"")
    running = [
        subprocess.Popen(command(tmp_path), env=ENVIRONMENT, stdout=subprocess.PIPE, text=True)
        for _ in range(6)
    ]
    log = tmp_path / "booster-pack-log.csv"
    while any(process.poll() is None for process in running):
        if log.exists():  # whole at any moment
            assert len(log.read_bytes().splitlines()) == 21
    assert [process.communicate()[0] for process in running] == ["20 1\n"] * 6
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == [
        "booster-pack-log.csv",
        "booster-pack-rejects.csv",
    ]


def test_a_job_that_was_run_and_whose_folder_is_gone_is_listed(tmp_path: Path) -> None:
    job(tmp_path / "a")
    merged = collect([tmp_path], expected=["a", "b"])
    assert (merged.rows, merged.invalid) == (1, 1)
    [missing] = table(tmp_path / REJECTS_FILENAME)
    assert missing == {"path": "b/result.json", "reason": "missing: the job's folder has been removed"}


def test_a_folder_that_is_locked_for_long_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job(tmp_path / "a")
    monkeypatch.setattr("boosterrun.results.collect._PATIENCE", 0.2)
    holder = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(holder, fcntl.LOCK_EX)
        with pytest.raises(RunError, match="locked for"):
            collect([tmp_path])
    finally:
        os.close(holder)
    assert collect([tmp_path]).rows == 1


def test_what_a_killed_merge_has_left_is_removed_and_what_another_writes_is_not(tmp_path: Path) -> None:
    job(tmp_path / "a")
    dead = tmp_path / f".{csvlog.FILENAME}.123.0123abcd.tmp"
    dead.write_text("half a ro")
    alive = tmp_path / f".{csvlog.FILENAME}.124.0123abcd.tmp"
    with alive.open("w") as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        collect([tmp_path])
        assert (dead.exists(), alive.exists()) == (False, True)
