"""The lock of a GPU between processes, and against those who mean harm."""

from __future__ import annotations

import fcntl
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import drivers
import pytest
from command import environment

from boosterrun.gpus.lease import GpuBusy, held
from boosterrun.system import locks

DEVICE = {"uuid": "GPU-ab12", "index": 0, "name": "NVIDIA H200"}
HOLDER = """
import sys, time
from boosterrun.gpus.lease import held
with held({"uuid": sys.argv[1]}):
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(locks.FOLDER_VARIABLE, str(tmp_path / "locks"))
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


BUSY = """
import sys
from boosterrun.gpus.lease import GpuBusy, held
try:
    with held({"uuid": sys.argv[1], "name": "NVIDIA H200"}, wait=float(sys.argv[2])):
        print("held")
except GpuBusy as busy:
    print(busy)
"""
# A program with a CUDA context, as far as the kernel shows.
PROGRAM = "import ctypes, time; ctypes.CDLL('libcuda.so.1'); print('up', flush=True); time.sleep(600)"
RUN = """
import sys
from boosterrun.system import process
child = process.spawn([sys.executable, "-c", sys.argv[1]])
print(child.popen.stdout.readline().decode().strip(), child.pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return drivers.build(tmp_path_factory.mktemp("driver"))


class Machine:
    """One GPU and what computes on it."""

    def __init__(self, library: Path, folder: Path) -> None:
        self.file = folder / "machine"
        self.variables = drivers.variables(library, self.file, folder / "locks")

    def start(self, *argv: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", *argv],
            env=environment(**self.variables),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def has(self, *processes: str) -> None:
        lines = "".join(f"process GPU-ab12 {words}\n" for words in processes)
        self.file.write_text("gpu GPU-ab12 NVIDIA_H200 9\n" + lines)

    def ask(self, uuid: str = "ab12", wait: float = 0) -> str:
        process = self.start(BUSY, uuid, str(wait))
        return process.communicate(timeout=120)[0].strip()


@pytest.fixture
def machine(library: Path, tmp_path: Path) -> Machine:
    return Machine(library, tmp_path)


def test_a_gpu_that_others_compute_on_is_waited_for(machine: Machine) -> None:
    with machine.start(PROGRAM) as stranger:
        try:
            assert stranger.stdout is not None
            stranger.stdout.readline()
            machine.has(f"{stranger.pid} 80")
            assert machine.ask().startswith(f"GPU GPU-ab12 has been in use by process {stranger.pid} (python")
            machine.has(f"{stranger.pid} -1")  # nothing is told of how busy it is
            assert "has been in use" in machine.ask()
            machine.has(f"{stranger.pid} 0")  # a notebook that nobody uses
            assert machine.ask() == "held"
            machine.has(f"{stranger.pid} 80")
            with machine.start(BUSY, "ab12", "120") as waiting:
                time.sleep(1)
                assert waiting.poll() is None
                machine.has()
                assert waiting.communicate(timeout=120)[0] == "held\n"
        finally:
            stranger.kill()


def test_what_a_run_has_started_is_no_stranger(machine: Machine) -> None:
    with machine.start(RUN, PROGRAM) as other:
        try:
            assert other.stdout is not None
            pid = other.stdout.readline().split()[1]
            machine.has(f"{pid} 80")
            assert machine.ask() == "held"
        finally:
            other.kill()  # its guardian ends the program


def test_numbers_of_processes_elsewhere_are_not_believed(machine: Machine) -> None:
    """In a container the driver may tell the host's numbers: here one of nobody, and one of somebody else."""
    with machine.start("import time; time.sleep(600)") as innocent:
        try:
            machine.has("4194305 80", f"{innocent.pid} 80")
            assert machine.ask() == "held"
        finally:
            innocent.kill()
