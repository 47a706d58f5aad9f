"""What the doctor says of a GPU, its driver and its neighbours: a driver written in C, and none at all."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from compilers import pack
from doctors import doctor, setup
from hypothesis import given
from hypothesis import strategies as st
from test_gpu import FAKE

from boosterrun.doctor import controls, device, examine, nvml
from boosterrun.doctor.finding import Finding
from boosterrun.doctor.setup import Setup

MODE = """
int nvmlDeviceGetComputeMode(void *h, u32 *v) { CALL(Mode); *v = setting("mode", 0); return OK; }
int nvmlShutdown(void) { return OK; }
"""
CHANGES = {
    "*n = 1; return OK": '*n = setting("cards", 1); return OK',
    "*h = (void *)1; return i ?": '*h = (void *)(i + 1ull); return i >= setting("cards", 1) ?',
    "CALL(Index); *i = 0": "CALL(Index); *i = (u64)h - 1",
    'n, "GPU-ab12"); return OK': 'n, "GPU-ab1%d", 1 + (int)(u64)h); return OK',
    'if (setting("pid", 0)) pids': 'if (setting("pid", 0) && (u64)h == setting("busy", 1)) pids',
    "*v = 13000": '*v = setting("cuda", 13000)',
    "*a = 9; *b = 0": '*a = setting("major", 9); *b = 0',
    "CALL(Persistence); *v = 1": 'CALL(Persistence); *v = setting("persistence", 1)',
    "*a = *b = 0; return OK": '*a = *b = setting("mig", 0); return OK',
    "m->used = 7": 'm->used = setting("used", 7)',
    "*v = t; return OK": '*v = setting("ecc", 0) * t; return OK',
    "int nvmlInitWithFlags(u32 flags) {": 'int nvmlInitWithFlags(u32 flags) { while (setting("hang", 0));',
}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler: the fake NVML cannot be built")
    source = FAKE + MODE
    for old, new in CHANGES.items():
        assert source.count(old) == 1, old
        source = source.replace(old, new)
    folder = tmp_path_factory.mktemp("nvml")
    (folder / "nvml.c").write_text(source)
    target = folder / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-w", "-shared", "-fPIC", "-o", target, folder / "nvml.c"], check=True)
    return folder


@pytest.fixture
def driver(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The driver that every process started here finds; what is written to this file, it says."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library))
    monkeypatch.setenv("FAKE_NVML", str(tmp_path / "settings"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return tmp_path / "settings"


def examined(driver: Path, settings: str, wanted: Setup | None = None) -> dict[str, Finding]:
    """What is said of the GPU, by subject, when the driver answers as ``settings`` say."""
    driver.write_text(settings)
    wanted = wanted or setup("nvcc", pack())
    return {f.subject: f for f in examine(wanted, (*device.CHECKS, *controls.CHECKS))}


def test_a_quiet_card_passes(driver: Path, tmp_path: Path) -> None:
    driver.write_text("")
    found = doctor(tmp_path, "workload=nvcc")
    subjects = ("GPU", "driver", "clocks", "persistence mode", "other processes", "pack and GPU")
    assert {name: found[name]["status"] for name in subjects} == dict.fromkeys(subjects, "PASS")
    assert found["GPU"]["detail"] == "NVIDIA H200, compute capability 9.0"
    assert "580.159" in found["driver"]["detail"]
    assert "cubins of CUDA 13.3" in found["driver"]["detail"]
    assert not {"compute mode", "MIG", "GPU memory", "gpu.arch"} & set(found)


@pytest.mark.parametrize(
    ("settings", "subject", "status", "words"),
    [
        ("cuda 12080", "driver", "FAIL", "12.8"),
        ("cuda 13030", "driver", "PASS", "runs what CUDA 13.3 compiles"),
        ("fail:Cuda 1", "driver", "WARN", "does not say"),
        ("reasons 8", "clocks", "WARN", "hw_slowdown"),
        ("reasons 4", "clocks", "PASS", "power limit"),
        ("fail:Reasons 1", "clocks", "WARN", "does not say why"),
        ("persistence 0", "persistence mode", "WARN", "off"),
        ("mode 3", "compute mode", "FAIL", "EXCLUSIVE_PROCESS"),
        ("mig 1", "MIG", "WARN", "slice"),
        ("pid 4711", "other processes", "WARN", "4711"),
        ("used 9000000000", "other processes", "WARN", "8.4 GiB"),
        ("fail:Processes 1", "other processes", "WARN", "does not tell"),
        ("ecc 2", "GPU memory", "WARN", "2 uncorrected"),
        ("init 9", "GPU", "FAIL", "Driver Not Loaded"),
    ],
)
def test_what_the_driver_says_is_judged(
    driver: Path, settings: str, subject: str, status: str, words: str
) -> None:
    found = examined(driver, settings)
    assert found[subject].status == status
    assert words in found[subject].detail


def test_a_driver_that_tells_nothing_breaks_no_check(driver: Path) -> None:
    kept = {"Count", "Index", "Init"}
    calls = sorted({line.partition(")")[0] for line in FAKE.split("CALL(")[1:]} - kept - {"name"})
    assert len(calls) > 15
    found = examined(driver, "".join(f"fail:{call} 1\n" for call in calls))
    assert [f for f in found.values() if "could not be examined" in f.detail] == []
    assert found["driver"].status == "WARN"
    assert found["GPU"].status == "PASS"


@pytest.mark.parametrize(("named", "there"), [("0", True), ("GPU-ab", True), ("", False), ("3", False)])
def test_the_card_is_the_one_that_a_run_would_see(driver: Path, named: str, there: bool) -> None:
    found = examined(driver, "", setup("nvcc", pack(), CUDA_VISIBLE_DEVICES=named))
    assert found["GPU"].status == ("PASS" if there else "FAIL")
    if not there:
        assert "CUDA_VISIBLE_DEVICES" in found["GPU"].fix


def several(wanted: object, **variables: str) -> Setup:
    made = setup("nvcc", pack(), **variables)
    assert made.config is not None
    made.config.gpu.devices = wanted
    return made


def test_each_card_that_a_run_may_use_is_examined(driver: Path) -> None:
    found = examined(driver, "cards 4\npid 4711\nbusy 3\nmode 3", several([1, 2, 3]))
    assert found["GPU"].detail == "3 x NVIDIA H200 (GPUs 1, 2, 3), compute capability 9.0; 1 more not used"
    assert found["compute mode"].detail.startswith("GPUs 1, 2, 3: EXCLUSIVE_PROCESS: ")
    assert found["clocks"].detail.startswith("GPUs 1, 2, 3: SM 345 of 1980 MHz")
    driver.write_text("cards 4\npid 4711\nbusy 3")
    said = [f for f in device.quiet(several("auto")) if f.subject == "other processes"]
    assert [(f.status, f.detail) for f in said] == [
        ("PASS", "GPUs 0, 1, 3: none on this GPU"),
        ("WARN", "GPU 2: on this GPU: pid 4711"),
    ]
    found = examined(driver, "cards 4\npid 4711\nbusy 3", several("auto", CUDA_VISIBLE_DEVICES="3"))
    assert found["GPU"].detail == "NVIDIA H200, compute capability 9.0; 3 more not used"
    assert found["other processes"].status == "PASS"


def test_the_command_line_names_cards(driver: Path, tmp_path: Path) -> None:
    driver.write_text("cards 3")
    found = doctor(tmp_path, "workload=nvcc", "gpu.devices=[1,GPU-ab14]")
    assert found["GPU"]["detail"].startswith("2 x NVIDIA H200 (GPUs 1, 2), ")


def test_cards_that_are_not_there_fail(driver: Path) -> None:
    found = examined(driver, "cards 2", several([0, 7]))
    assert (found["GPU"].status, set(found) - {"compiler stages"}) == ("FAIL", {"GPU", "driver"})
    assert "there is no GPU 7 here" in found["GPU"].detail
    assert found["GPU"].fix == "There are: 0 (GPU-ab12), 1 (GPU-ab13)"


def test_a_workload_that_chooses_its_card_is_believed(driver: Path) -> None:
    mine = several("auto", CUDA_VISIBLE_DEVICES="0")
    assert mine.config is not None
    mine.config.workload.env = {"CUDA_VISIBLE_DEVICES": "1"}
    found = examined(driver, "cards 2\npid 4711\nbusy 2", mine)
    assert found["other processes"].status == "WARN"


def test_a_target_of_another_card_fails(driver: Path, tmp_path: Path) -> None:
    driver.write_text("")
    found = doctor(tmp_path, "workload=nvcc", "gpu=b200", code=1)
    assert found["gpu.arch"]["status"] == "FAIL"
    assert "sm_100a" in found["gpu.arch"]["detail"]
    mine = setup("nvcc", pack())
    assert mine.config is not None
    mine.config.gpu.arch = "sm_90a"
    assert examined(driver, "", mine)["gpu.arch"].status == "PASS"


@pytest.mark.parametrize(("names", "status"), [(("B200",), "WARN"), (("H200",), "PASS"), ((), "WARN")])
def test_a_pack_for_other_cards_is_a_warning(driver: Path, names: tuple[str, ...], status: str) -> None:
    found = examined(driver, "", setup("nvcc", dataclasses.replace(pack(), supported_gpus=names)))
    assert found["pack and GPU"].status == status
    assert "H200" in found["pack and GPU"].detail


def test_a_workload_without_a_gpu_hears_nothing_of_it_but_its_name(driver: Path) -> None:
    found = examined(driver, "pid 4711\npersistence 0", setup("ptxas", pack()))
    assert "does not use it" in found["GPU"].detail
    assert not {"other processes", "persistence mode", "driver"} & set(found)


def test_a_driver_that_hangs_is_given_up(driver: Path) -> None:
    driver.write_text("hang 1")
    found = nvml.ask("auto", {}, timeout=2.0)
    assert found["devices"] == []
    assert "no answer within 2 s" in found["error"]


def test_without_a_driver_a_workload_that_may_need_one_gets_a_warning() -> None:
    if nvml.ask("auto", {})["devices"]:
        pytest.skip("this machine has a GPU")
    for adapter, status in (("triton", "FAIL"), ("python", "WARN"), ("ptxas", "PASS")):
        (found,) = device.present(setup(adapter, **os.environ))
        assert (adapter, found.status) == (adapter, status)


@pytest.mark.parametrize(
    ("arch", "capability", "expected"),
    [
        ("sm_90a", "9.0", True),
        ("sm_90", "9.0", True),
        ("sm_90a", "10.0", False),
        ("sm_80", "8.6", True),
        ("sm_86", "8.0", False),
        ("sm_80", "9.0", False),
        ("sm_100f", "10.3", True),
        ("sm_100a", "10.3", False),
        ("compute_90", "9.0", False),
    ],
)
def test_which_target_runs_where(arch: str, capability: str, expected: bool) -> None:
    assert device.runs(arch, capability) is expected


@given(st.text(max_size=10), st.tuples(st.integers(1, 99), st.integers(0, 9)))
def test_any_target_gets_an_answer(arch: str, capability: tuple[int, int]) -> None:
    assert device.runs(arch, f"{capability[0]}.{capability[1]}") in {True, False}
