"""One GPU for a process: claims spread processes over GPUs, and sweeps outlive a GPU that breaks."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import drivers
import pytest
from command import environment, loose_pack, results, run

TWO = "gpu GPU-aa11 NVIDIA_H200 9\ngpu GPU-bb22 NVIDIA_H200 9\n"
VISIBLE = "CUDA_VISIBLE_DEVICES"
# Reads one command a line: binds again, or gives the GPU back, and says what both sides would see.
BINDER = """
import json, os, sys
from pathlib import Path
from boosterrun.gpus import binding
from boosterrun.config import CommandWorkload, Config, GpuConfig
from boosterrun.errors import RunError
gpus = GpuConfig(devices=json.loads(sys.argv[2]))
config = Config(gpu=gpus, workload=CommandWorkload(name="w", command=["x"]))
for line in sys.stdin:
    moved = None
    try:
        if line.strip() == "release":
            binding.release()
        elif line.strip() == "fork":
            if (pid := os.fork()) == 0:
                os._exit(0 if binding.current() is None and "CUDA_VISIBLE_DEVICES" not in os.environ else 1)
            assert os.waitpid(pid, 0)[1] == 0
        elif line.strip() == "lend":
            with binding.lent([config], Path(sys.argv[1])):
                moved = os.environ["CUDA_VISIBLE_DEVICES"]
        elif line.startswith("look "):
            binding._JUST = float(line.split()[1])
            moved = [process["pid"] for process in binding.snapshot()["devices"][0]["compute_processes"]]
        elif line.startswith("shell "):
            os.environ["CUDA_VISIBLE_DEVICES"] = line.split()[1]
        else:
            moved = binding.bind(config, Path(sys.argv[1]))
        print(json.dumps([os.environ.get("CUDA_VISIBLE_DEVICES"), moved]), flush=True)
    except RunError as error:
        print(json.dumps(str(error)), flush=True)
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return drivers.build(tmp_path_factory.mktemp("driver"))


class Machine:
    """GPUs, and processes that bind to them."""

    def __init__(self, library: Path, folder: Path) -> None:
        self.file = folder / "machine"
        self.folder = folder
        self.variables = drivers.variables(library, self.file, folder / "locks")
        self.file.write_text(TWO)
        self.processes: list[subprocess.Popen[str]] = []

    def start(self, devices: str = '"auto"', **extra: str) -> subprocess.Popen[str]:
        variables = environment(**self.variables)
        variables.pop(VISIBLE, None)
        process = subprocess.Popen(
            [sys.executable, "-c", BINDER, self.folder, devices],
            env={**variables, **extra},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.processes.append(process)
        return process


def tell(process: subprocess.Popen[str], words: str = "bind") -> Any:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{words}\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


@pytest.fixture
def machine(library: Path, tmp_path: Path) -> Iterator[Machine]:
    made = Machine(library, tmp_path)
    yield made
    for process in made.processes:
        end(process)


def test_processes_spread_over_gpus_and_share_when_there_are_more(machine: Machine) -> None:
    first, second, third, fourth = (machine.start() for _ in range(4))
    assert tell(first) == ["GPU-aa11", False]
    assert tell(second) == ["GPU-bb22", False]
    assert sorted([tell(third)[0], tell(fourth)[0]]) == ["GPU-aa11", "GPU-bb22"]
    assert tell(first) == ["GPU-aa11", False]  # and stays, with the baseline that lives there
    end(second)
    here = tell(third)[0]  # who shares moves to where it is alone
    assert (here, tell(third)) == ("GPU-bb22", ["GPU-bb22", False])


def test_a_released_gpu_is_free_and_the_shell_has_its_variable_back(machine: Machine) -> None:
    first, second = machine.start(), machine.start(**{VISIBLE: "0"})
    assert tell(first)[0] == "GPU-aa11"
    assert tell(first, "release") == [None, None]
    assert tell(second)[0] == "GPU-aa11"
    assert tell(second, "release") == ["0", None]
    assert tell(first)[0] == "GPU-aa11"
    assert tell(first, "fork")[0] == "GPU-aa11"
    assert tell(machine.start())[0] == "GPU-bb22"  # the fork's end has not given the claim back


def test_what_the_driver_has_just_said_is_not_asked_again(machine: Machine) -> None:
    process = machine.start()
    tell(process)
    assert tell(process, "look 60")[1] == []
    machine.file.write_text(f"{TWO}process GPU-aa11 {process.pid} 50\n")
    assert tell(process, "look 60")[1] == []
    assert tell(process, "look 0")[1] == [process.pid]
    tell(process, "release")
    machine.file.write_text(TWO)
    assert tell(process, "look 60")[1] == []  # of all GPUs by now


def test_what_is_done_before_the_jobs_has_a_gpu_too(machine: Machine) -> None:
    process = machine.start("[1]")
    assert tell(process, "lend") == [None, "GPU-bb22"]
    tell(process)
    assert tell(process, "lend") == ["GPU-bb22", "GPU-bb22"]  # not taken from the jobs


def test_what_an_engine_has_chosen_is_respected(machine: Machine) -> None:
    """As Slurm and Ray bind: two processes on one GPU share it, whatever else is free."""
    for value in ("1", "GPU-bb22"):
        assert tell(machine.start(**{VISIBLE: value}))[0] == "GPU-bb22"
    later = machine.start()
    assert tell(later)[0] == "GPU-aa11"
    tell(later, "shell GPU-bb22")
    assert tell(later)[0] == "GPU-bb22"
    none = machine.start(**{VISIBLE: ""})
    assert tell(none) == ["", False]


def test_a_gpu_that_others_compute_on_is_left_alone_while_another_is_free(machine: Machine) -> None:
    program = "import ctypes, time; ctypes.CDLL('libcuda.so.1'); print('up', flush=True); time.sleep(600)"
    stranger = subprocess.Popen(
        [sys.executable, "-c", program],
        env=environment(**machine.variables),
        stdout=subprocess.PIPE,
        text=True,
    )
    machine.processes.append(stranger)
    assert stranger.stdout is not None
    stranger.stdout.readline()
    process = machine.start()
    assert tell(process)[0] == "GPU-aa11"
    machine.file.write_text(TWO + f"process GPU-aa11 {stranger.pid} 70\n")
    assert tell(process) == ["GPU-bb22", True]
    assert tell(machine.start())[0] == "GPU-bb22"  # rather with another run than with a stranger
    machine.file.write_text(TWO + "".join(f"process GPU-{n} {stranger.pid} 70\n" for n in ("aa11", "bb22")))
    assert tell(process) == ["GPU-bb22", False]  # none is free: the lease waits


def test_without_a_folder_for_locks_it_works_all_the_same(machine: Machine) -> None:
    (machine.folder / "locks").write_text("")
    assert tell(machine.start())[0] == "GPU-aa11"


# ---- sweeps on GPUs that break ----

# A simulated kernel that takes its GPU with it when its ACF is 01.
PROGRAM = """
import os, signal, sys
gpu, acf = os.environ["CUDA_VISIBLE_DEVICES"], os.environ.get("BOOSTERRUN_ACF_ID", "")
with open(os.environ["SEEN"], "a") as log:
    log.write(f"{acf or 'baseline'} {gpu}\\n")
broken = os.environ["BREAKS"].split(",")
if broken == ["first"] and acf.startswith("01-") and not os.path.exists("broke"):
    open("broke", "x").close()
    broken = [gpu]
if acf.startswith("01-") and gpu in broken:
    with open(os.environ["FAKE_DRIVER"], "a") as machine:
        machine.write(os.environ["HOW"].replace("GPU", gpu) + "\\n")
    os.kill(os.getpid(), signal.SIGSEGV)
print("time: 1.0 ms" if not acf else "time: 1.5 ms")
"""
SWEEP = (
    "workload=command",
    "protocol=quick",
    "workload.command=[{python},program.py]",
    "workload.score.regex='time: (\\S+) ms'",
    "pack=./acfs",
    "pack.cuda_version='13.3'",
    "hydra.sweep.dir=out",
    "report=false",
    "canary.required=false",
)


def sweep(
    machine: Machine, breaks: str, how: str, *more: str, **extra: str
) -> subprocess.CompletedProcess[str]:
    folder = machine.folder
    if not (folder / "acfs").exists():
        loose_pack(folder / "acfs", ["00-a", "01-b", "02-c", "03-d"])
        (folder / "program.py").write_text(PROGRAM)
    words = [word.replace("{python}", sys.executable) for word in (*SWEEP, *more)]
    variables = {**machine.variables, "BREAKS": breaks, "HOW": how, "SEEN": str(folder / "seen"), **extra}
    return run("-m", "acf=glob(*)", *words, cwd=folder, **variables)


def seen(machine: Machine) -> list[str]:
    return list(dict.fromkeys((machine.folder / "seen").read_text().splitlines()))


@pytest.mark.parametrize("how", ["dead GPU", "cuda GPU 719"])
def test_a_wedged_gpu_leaves_the_sweep_and_its_job_runs_elsewhere(machine: Machine, how: str) -> None:
    done = sweep(machine, "GPU-aa11", how)
    assert done.returncode == 0, done.stderr
    found = {r["job"]["id"][:2]: r for r in results(machine.folder / "out")}
    assert {r["status"] for r in found.values()} == {"decided"}
    devices = [found[n]["environment"]["gpu"]["before"]["devices"] for n in sorted(found)]
    assert [[device["index"] for device in each] for each in devices] == [[0], [1], [1], [1]]
    on = {line.split()[0][:2]: line.split()[1] for line in seen(machine) if line[:2].isdigit()}
    assert on == {"00": "GPU-aa11", "01": "GPU-bb22", "02": "GPU-bb22", "03": "GPU-bb22"}
    note = json.loads((machine.folder / "out" / "wedged" / "GPU-aa11.json").read_text())
    assert (note["index"], note["job"][:2]) == (0, "01")
    assert "does not answer" in note["reason"]
    assert "GPU 0 is out of this sweep: GPU GPU-aa11 does not answer" in done.stderr
    assert "going on with GPU 1 (GPU-bb22)" in done.stderr


def test_a_candidate_may_break_two_gpus_and_no_more(machine: Machine) -> None:
    machine.file.write_text(TWO + "gpu GPU-cc33 NVIDIA_H200 9\n")
    done = sweep(machine, "GPU-aa11,GPU-bb22,GPU-cc33", "dead GPU")
    assert done.returncode == 1
    found = {r["job"]["id"][:2]: r for r in results(machine.folder / "out")}
    assert found["01"]["status"] == "undecided"
    assert found["01"]["error"]["kind"] == "gpu_lost"
    assert {found[n]["status"] for n in ("00", "02", "03")} == {"decided"}
    on = {line.split()[0][:2]: line.split()[1] for line in seen(machine) if line[:2].isdigit()}
    assert on["03"] == "GPU-cc33"
    assert sorted(p.name for p in (machine.folder / "out" / "wedged").iterdir()) == [
        "GPU-aa11.json",
        "GPU-bb22.json",
    ]


def test_without_a_gpu_left_the_sweep_stops_and_goes_on_after_a_reset(machine: Machine) -> None:
    machine.file.write_text("gpu GPU-aa11 NVIDIA_H200 9\n")
    done = sweep(machine, "GPU-aa11", "dead GPU")
    assert done.returncode == 1
    assert "no GPU is left for this sweep: GPU-aa11: GPU GPU-aa11 does not answer" in done.stderr
    assert "go on with: boosterrun resume" in done.stderr
    found = {r["job"]["id"][:2]: r["status"] for r in results(machine.folder / "out")}
    assert found == {"00": "decided", "01": "undecided"}
    machine.file.write_text("gpu GPU-aa11 NVIDIA_H200 9\n")
    done = sweep(machine, "", "", "gpu.devices=[0]")
    assert done.returncode == 0, done.stderr
    assert "GPU GPU-aa11 answers again, and is back in this sweep" in done.stdout
    assert [r["status"] for r in results(machine.folder / "out")] == ["decided"] * 4
    assert not (machine.folder / "out" / "wedged" / "GPU-aa11.json").exists()


def test_joblibs_processes_have_a_gpu_each_and_one_may_break(machine: Machine) -> None:
    pytest.importorskip("joblib.externals.loky")
    done = sweep(machine, "first", "cuda GPU 719", "hydra/launcher=joblib")
    assert done.returncode == 0, done.stderr
    assert [r["status"] for r in results(machine.folder / "out")] == ["decided"] * 4
    assert {line.split()[1] for line in seen(machine)} == {"GPU-aa11", "GPU-bb22"}
    (note,) = (machine.folder / "out" / "wedged").iterdir()
    broken = json.loads(note.read_text())["uuid"]
    on = {line.split()[1] for line in seen(machine) if line.startswith("01-")}
    assert on == {"GPU-aa11", "GPU-bb22"}  # on the one that it broke, and then on the other
    (other,) = on - {broken}
    used = {r["job"]["id"][:2]: r["environment"]["gpu"]["before"]["devices"] for r in results(machine.folder)}
    assert used["01"][0]["uuid"] == other
