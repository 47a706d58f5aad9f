"""After a crash: a GPU that answers is told from one that does not, without hanging."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import drivers
import pytest
from command import environment

from boosterrun.gpus import alive
from boosterrun.measure.api import SideFailed

ASK = """
import json, sys
from boosterrun.gpus import alive
try:
    alive.require(json.loads(sys.argv[1]), float(sys.argv[2]))
    print("alive")
except alive.GpuLost as lost:
    print(lost)
"""
ONE = "gpu GPU-ab12 NVIDIA_H200 9\n"
HELD = 60.0


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return drivers.build(tmp_path_factory.mktemp("driver"))


def ask(library: Path, folder: Path, machine: str, device: str, seconds: float = HELD) -> str:
    (folder / "machine").write_text(machine)
    done = subprocess.run(
        [sys.executable, "-c", ASK, device, str(seconds)],
        env=environment(**drivers.variables(library, folder / "machine", folder / "locks")),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("machine", "device", "words"),
    [
        (ONE, '{"uuid": "ab12"}', "alive"),
        (ONE, '{"uuid": null, "index": 0}', "alive"),
        (ONE, "null", "alive"),
        (ONE, '{"name": "unknown"}', "alive"),
        (ONE, '{"uuid": "gone"}', "GPU GPU-gone does not answer: NVML cannot open device gone"),
        (ONE + "dead GPU-ab12\n", '{"uuid": "ab12"}', "GPU-ab12 does not answer: NVML cannot open device"),
        (ONE + "cuda GPU-ab12 719\n", '{"uuid": "ab12"}', "cuCtxSynchronize fails with CUDA error 719"),
        (ONE + "cuda GPU-ab12 2\n", '{"uuid": "ab12"}', "alive"),  # no memory is left: it is alive
        ("", '{"uuid": "ab12"}', "alive"),  # without NVML, CUDA has the last word
        ("cuda GPU-ab12 46\n", '{"uuid": "ab12"}', "alive"),
        ("cuda GPU-ab12 999\n", '{"uuid": "ab12"}', "cuCtxSynchronize fails with CUDA error 999"),
        ("gpu MIG-ab12 NVIDIA_H200_MIG 9\ncuda GPU-ab12 100\n", '{"uuid": "ab12"}', "alive"),
        ("gpu MIG-ab12 NVIDIA_H200_MIG 9\ncuda MIG-ab12 719\n", '{"uuid": "ab12"}', "CUDA error 719"),
    ],
)
def test_a_gpu_that_answers_no_more_is_told(
    library: Path, tmp_path: Path, machine: str, device: str, words: str
) -> None:
    found = ask(library, tmp_path, machine, device)
    assert words in found
    assert "dmesg" in found or found == "alive"


def test_a_gpu_that_hangs_is_not_waited_for(library: Path, tmp_path: Path) -> None:
    found = ask(library, tmp_path, ONE + "cuda GPU-ab12 -1\n", '{"uuid": "ab12"}', seconds=3)
    assert "GPU-ab12 does not answer: a trivial task did not end within 3 s" in found


def test_only_a_compilers_words_are_above_suspicion() -> None:
    def failure(kind: str, *, alive: bool) -> SideFailed:
        return SideFailed("candidate", kind, "", alive=alive)  # type: ignore[arg-type]

    assert not alive.suspect(failure("compile_error", alive=True))
    assert alive.suspect(failure("compile_error", alive=False))  # the first run is part of a build
    for kind in ("compile_timeout", "runtime_error", "runtime_timeout", "start_error", "protocol_error"):
        assert alive.suspect(failure(kind, alive=True))
