"""The lock of a GPU between processes, and against those who mean harm."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command import environment
from test_gpu import FAKE

from boosterrun import lease
from boosterrun.lease import GpuBusy, held, require_alive

DEVICE = {"uuid": "GPU-ab12", "index": 0, "name": "NVIDIA H200"}
HOLDER = """
import sys, time
from boosterrun.lease import held
with held({"uuid": sys.argv[1]}):
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(lease.FOLDER_VARIABLE, str(tmp_path / "locks"))
    return tmp_path / "locks"


def holder(uuid: str, seconds: float) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, uuid, str(seconds)],
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_without_a_gpu_nothing_is_made(folder: Path) -> None:
    with held(None), held({"name": "unknown"}):
        assert not folder.exists()
    require_alive(None)


def test_everybody_may_use_the_folder_and_nobody_can_write_the_file(folder: Path) -> None:
    before = os.umask(0o077)
    try:
        with held(DEVICE):
            assert stat.S_IMODE(folder.stat().st_mode) == 0o1777
            (file,) = folder.iterdir()
            assert file.name == "GPU-ab12.lock"
            assert stat.S_IMODE(file.stat().st_mode) == 0o444
    finally:
        os.umask(before)


def test_one_gpu_is_had_by_one_process_at_a_time_with_or_without_prefix() -> None:
    process = holder("ab12", 60)
    try:
        with pytest.raises(GpuBusy, match=rf"GPU-ab12 has been in use by process {process.pid} for 0 s"):
            held(DEVICE, wait=0.2).__enter__()
        with held({"uuid": "GPU-other"}, wait=0), held({"uuid": "MIG-ab12"}, wait=0):
            pass
        process.send_signal(signal.SIGKILL)
        process.wait()
        with held(DEVICE, wait=0):
            pass
    finally:
        process.kill()
        process.communicate()


def test_a_gpu_is_waited_for_and_that_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    process = holder("GPU-ab12", 3)
    begun = time.monotonic()
    with held(DEVICE, wait=60):
        assert time.monotonic() - begun > 2
    process.communicate()
    said = capfd.readouterr().err
    assert said == (f"boosterrun: waiting for NVIDIA H200 (GPU-ab12), in use by process {process.pid}\n")


def test_a_lock_whose_file_was_cleared_away_is_none(folder: Path) -> None:
    """What a cleaner of /tmp does: the next one must not lock another file while the first is held."""
    with held(DEVICE):
        (folder / "GPU-ab12.lock").unlink()
        process = holder("ab12", 0)
        process.communicate()
    with held(DEVICE, wait=0):
        descriptor = os.open(folder / "GPU-ab12.lock", os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(descriptor)


@pytest.mark.parametrize("trap", ["folder", "file", "pipe"])
def test_links_and_pipes_are_not_followed(
    folder: Path, tmp_path: Path, trap: str, capfd: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "target"
    if trap == "folder":
        target.mkdir()
        folder.symlink_to(target)
    else:
        folder.mkdir()
        if trap == "file":
            (folder / "GPU-ab12.lock").symlink_to(target)
        else:
            os.mkfifo(folder / "GPU-ab12.lock")
    with held(DEVICE, wait=0):
        pass
    assert "no lock for GPU-ab12" in capfd.readouterr().err
    assert not target.exists() or not list(target.iterdir())


def test_odd_names_stay_in_the_folder(folder: Path, tmp_path: Path) -> None:
    with held({"uuid": "../../x/\0y"}):
        assert [path.name for path in folder.iterdir()] == ["GPU-------x--y.lock"]
    with held({"uuid": None, "index": 3}):
        assert (folder / "index-3.lock").exists()


PROBE = """
import sys
from boosterrun.lease import require_alive
require_alive({"uuid": sys.argv[1]})
print("alive")
"""


@pytest.mark.parametrize(
    ("uuid", "settings", "words"),
    [
        ("ab12", "", "alive"),
        ("GPU-dead", "", "GPU-dead does not answer: NVML cannot open device GPU-dead"),
        ("ab12", "fail:Name 1", "it does not even tell its name"),
        ("GPU-dead", "init 9", "alive"),
    ],
)
def test_a_gpu_that_answers_no_more_is_told(tmp_path: Path, uuid: str, settings: str, words: str) -> None:
    """Against a driver library of our own; without NVML nothing is known and nothing is said."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler: the fake NVML cannot be built")
    (tmp_path / "nvml.c").write_text(FAKE)
    target = tmp_path / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-w", "-shared", "-fPIC", "-o", target, tmp_path / "nvml.c"], check=True)
    (tmp_path / "settings").write_text(settings)
    variables = {"LD_LIBRARY_PATH": str(tmp_path), "FAKE_NVML": str(tmp_path / "settings")}
    done = subprocess.run(
        [sys.executable, "-c", PROBE, uuid],
        env=environment(**variables),
        capture_output=True,
        text=True,
        check=False,
    )
    assert words in done.stdout + done.stderr
