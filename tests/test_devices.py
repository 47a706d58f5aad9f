"""Which GPUs a run may use on many kinds of machines: gpu.devices, CUDA_VISIBLE_DEVICES, MIG, bad entries."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import drivers
import pytest
from command import environment, run

TWO = "gpu GPU-aa11 NVIDIA_H200 9\ngpu GPU-bb22 NVIDIA_H200 9\n"
MIXED = "gpu GPU-t4 Tesla_T4 7\ngpu GPU-aa11 NVIDIA_H200 9\ngpu GPU-bb22 NVIDIA_H200 9\n"
SPLIT = (
    "gpu GPU-aa11 NVIDIA_H200 9\ninstance GPU-aa11 MIG-1 NVIDIA_H200_MIG_1g\n"
    "instance GPU-aa11 MIG-2 NVIDIA_H200_MIG_1g\n"
)
SCRIPT = """
import json, sys
from boosterrun.gpus import devices
from boosterrun.errors import UsageError
try:
    wanted, env = json.loads(sys.argv[1])
    print(json.dumps([device.uuid for device in devices.allowed(wanted, env)]))
except UsageError as error:
    print(json.dumps(str(error)))
"""
VISIBLE = "CUDA_VISIBLE_DEVICES"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return drivers.build(tmp_path_factory.mktemp("driver"))


def allowed(library: Path, tmp_path: Path, machine: str, wanted: Any, **env: str) -> Any:
    path = tmp_path / "machine"
    path.write_text(machine)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps([wanted, env])],
        env=environment(**drivers.variables(library, path, tmp_path / "locks")),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("machine", "wanted", "env", "expected"),
    [
        (TWO, "auto", {}, ["GPU-aa11", "GPU-bb22"]),
        (TWO, [1, 0], {}, ["GPU-bb22", "GPU-aa11"]),
        (TWO, 1, {}, ["GPU-bb22"]),
        (TWO, ["GPU-bb22"], {}, ["GPU-bb22"]),
        (TWO, ["GPU-b", "1"], {}, ["GPU-bb22"]),
        (TWO, "auto", {VISIBLE: "1"}, ["GPU-bb22"]),
        (TWO, "auto", {VISIBLE: "GPU-bb22,GPU-aa11"}, ["GPU-bb22", "GPU-aa11"]),
        (TWO, "auto", {VISIBLE: ""}, []),
        (TWO, "auto", {VISIBLE: "NoDevFiles"}, []),
        (TWO, "auto", {VISIBLE: "1,-1,0"}, ["GPU-bb22"]),  # as CUDA has it: nothing after a bad entry
        (TWO, [0, 1], {VISIBLE: "1"}, ["GPU-bb22"]),
        # The more capable model is meant; by index only CUDA knows which.
        (MIXED, "auto", {}, ["GPU-aa11", "GPU-bb22"]),
        (MIXED, [0], {}, ["GPU-t4"]),
        (MIXED, "auto", {VISIBLE: "1"}, []),
        (MIXED, "auto", {VISIBLE: "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, ["GPU-aa11"]),
        (MIXED, "auto", {VISIBLE: "GPU-t4"}, ["GPU-t4"]),
        (SPLIT, "auto", {}, ["MIG-1", "MIG-2"]),
        (SPLIT, [0], {}, ["MIG-1", "MIG-2"]),
        (SPLIT, ["MIG-2"], {}, ["MIG-2"]),
        (SPLIT, "auto", {VISIBLE: "MIG-2"}, ["MIG-2"]),
        # Off the bus: the other one keeps its number.
        (TWO + "dead GPU-aa11\n", "auto", {}, ["GPU-bb22"]),
        ("", "auto", {}, []),
    ],
)
def test_what_a_run_may_use(
    library: Path, tmp_path: Path, machine: str, wanted: Any, env: dict[str, str], expected: list[str]
) -> None:
    assert allowed(library, tmp_path, machine, wanted, **env) == expected


@pytest.mark.parametrize(
    ("machine", "wanted", "env", "words"),
    [
        (TWO, [2], {}, "there is no GPU 2 here. There are: 0 (GPU-aa11), 1 (GPU-bb22)"),
        (TWO, ["GPU-cc"], {}, "there is no GPU GPU-cc here"),
        (TWO, ["GPU-"], {}, "GPU- is the beginning of 2 UUIDs"),
        (TWO, ["first"], {}, "'first' names no GPU. Give auto"),
        (TWO, [-1], {}, "-1 names no GPU"),
        (TWO, [True], {}, "True names no GPU"),
        (TWO, [None], {}, "None names no GPU"),
        (TWO, [], {}, "leaves no GPU"),
        (TWO, [0], {VISIBLE: "1"}, "CUDA_VISIBLE_DEVICES=1 leaves none of them"),
        (MIXED, [0, 1], {}, "of several models: NVIDIA H200, Tesla T4"),
        (MIXED, [1], {VISIBLE: "1"}, "CUDA numbers them by speed"),
        ("", [0], {}, "there is no GPU here: NVML: "),
    ],
)
def test_what_cannot_be_is_told(
    library: Path, tmp_path: Path, machine: str, wanted: Any, env: dict[str, str], words: str
) -> None:
    found = allowed(library, tmp_path, machine, wanted, **env)
    assert isinstance(found, str)
    assert words in found


def test_the_command_refuses_it_in_one_line(library: Path, tmp_path: Path) -> None:
    machine = tmp_path / "machine"
    machine.write_text(TWO)
    variables = drivers.variables(library, machine, tmp_path / "locks")
    for devices, words in (("[0,7]", "there is no GPU 7 here"), ("[zero]", "'zero' names no GPU")):
        done = run("workload=simulated_command", f"gpu.devices={devices}", cwd=tmp_path, **variables)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.count("\n") == 1
        assert words in done.stderr
    machine.write_text("")
    done = run("workload=simulated_command", "gpu.devices=[0]", cwd=tmp_path, **variables)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "gpu.devices=[0]: there is no GPU here: NVML: " in done.stderr
    both = ("workload=simulated_command", "gpu.devices=[1]", "+workload.env.CUDA_VISIBLE_DEVICES='0'")
    done = run(*both, cwd=tmp_path, **variables)
    assert done.returncode == 2
    assert "gpu.devices and workload.env.CUDA_VISIBLE_DEVICES both choose a GPU" in done.stderr
