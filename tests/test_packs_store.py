"""Copies for the compilers: right content at a plain path, whoever else writes there."""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boosterrun.errors import PackError, RunError
from boosterrun.packs import materialise

DATA = b"controls"
SHA = hashlib.sha256(DATA).hexdigest()


def test_a_copy_is_named_by_its_content(tmp_path: Path) -> None:
    path = materialise(DATA, SHA, tmp_path / "new" / "root")
    assert path == tmp_path / "new" / "root" / f"{SHA}.acf"
    assert path.read_bytes() == DATA
    assert stat.S_IMODE(path.stat().st_mode) == 0o444
    assert list(path.parent.iterdir()) == [path]


def test_an_equal_copy_is_left_alone(tmp_path: Path) -> None:
    before = materialise(DATA, SHA, tmp_path).stat()
    after = materialise(DATA, SHA, tmp_path).stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@pytest.mark.parametrize("wrong", [b"", b"control", b"controls!", b"CONTROLS"])
def test_a_wrong_copy_is_repaired(tmp_path: Path, wrong: bytes) -> None:
    path = tmp_path / f"{SHA}.acf"
    path.write_bytes(wrong)
    assert materialise(DATA, SHA, tmp_path).read_bytes() == DATA


def test_a_link_or_fifo_in_its_place_is_replaced(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(DATA)
    path = tmp_path / f"{SHA}.acf"
    path.symlink_to(target)
    assert not materialise(DATA, SHA, tmp_path).is_symlink()
    path.unlink()
    os.mkfifo(path)
    assert materialise(DATA, SHA, tmp_path).read_bytes() == DATA
    assert target.read_bytes() == DATA


def test_a_directory_in_its_place_is_told(tmp_path: Path) -> None:
    (tmp_path / f"{SHA}.acf" / "x").mkdir(parents=True)
    with pytest.raises(RunError, match="cannot be written: Is a directory") as caught:
        materialise(DATA, SHA, tmp_path)
    assert caught.value.exit_code == 1
    assert list(tmp_path.iterdir()) == [tmp_path / f"{SHA}.acf"], "no temporary file stays"


def test_other_bytes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PackError, match="is not the one with SHA-256"):
        materialise(b"other", SHA, tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "name", ["a b", "a,b", "a'b", 'a"b', "a$b", "a;b", "é", "a\nb", "a:b", "a\\b", "(a)"]
)
def test_a_root_that_compilers_misread_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(PackError, match="compilers cannot take") as caught:
        materialise(DATA, SHA, tmp_path / name)
    assert str(caught.value).isprintable()
    assert not list(tmp_path.iterdir())


def test_the_default_is_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert materialise(DATA, SHA) == tmp_path / "boosterrun" / "acf" / f"{SHA}.acf"


@pytest.mark.parametrize("cache", ["with space", "file"])
def test_without_a_plain_cache_a_private_directory_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: str
) -> None:
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / cache))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    path = materialise(DATA, SHA)
    private = tmp_path / "tmp" / f"boosterrun-{os.geteuid()}"
    assert path == private / "acf" / f"{SHA}.acf"
    assert stat.S_IMODE(private.stat().st_mode) == 0o700
    # One that was left open to others is closed; one that is a link to elsewhere is not used.
    private.chmod(0o777)
    materialise(DATA, SHA)
    assert stat.S_IMODE(private.stat().st_mode) == 0o700
    private.rename(tmp_path / "elsewhere")
    private.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RunError, match="is not a directory of this user"):
        materialise(DATA, SHA)


def test_a_private_directory_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/nowhere")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    (tmp_path / "boosterrun-12345").mkdir()
    with pytest.raises(RunError, match="is not a directory of this user"):
        materialise(DATA, SHA)


def test_no_plain_directory_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a b"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "c d"))
    with pytest.raises(RunError, match="Set TMPDIR or XDG_CACHE_HOME"):
        materialise(DATA, SHA)


WRITER = """
import hashlib, sys
from pathlib import Path
from boosterrun.packs import materialise
for index in range(60):
    data = b"%d" % index * 100_000
    path = materialise(data, hashlib.sha256(data).hexdigest(), Path(sys.argv[1]))
    assert path.read_bytes() == data
"""


def test_several_processes_at_once(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, tmp_path], env=env, stderr=subprocess.PIPE)
        for _ in range(3)
    ]
    errors = [writer.communicate()[1] for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0, 0], errors
    assert len(list(tmp_path.iterdir())) == 60, "no temporary file stays"


@given(st.binary(max_size=50))
@settings(max_examples=30, deadline=None)
def test_any_content_comes_back(data: bytes) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as root:
        sha256 = hashlib.sha256(data).hexdigest()
        assert materialise(data, sha256, Path(root)).read_bytes() == data
