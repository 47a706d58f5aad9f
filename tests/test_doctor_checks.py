"""What the doctor sees in compilers, variables, frameworks, folders and limits of a made-up machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from command import ROOT, environment, executable
from compilers import ptxas, script
from doctors import compiler, distribution, doctor, setup
from hypothesis import given
from hypothesis import strategies as st

from boosterrun import packs
from boosterrun.compilers import toolchain
from boosterrun.config import SHIPPED
from boosterrun.doctor import compilers, controls, examine, frameworks, limits, storage, variables
from boosterrun.doctor.finding import Finding, Status

QUICK = "workload=ptxas/softmax"


def test_a_compiler_that_cannot_apply_controls_fails_with_the_way_to_one(tmp_path: Path) -> None:
    old = compiler(tmp_path / "old" / "ptxas", "12.8.93", controls=False)
    found = doctor(tmp_path, QUICK, f"toolchain.ptxas={old}", code=1)
    assert found["ptxas"]["status"] == "PASS"
    assert "no --apply-controls" in found["ptxas, ACFs"]["detail"]
    assert "boosterrun[cuda13]" in found["ptxas, ACFs"]["fix"]


def test_a_compiler_of_another_cuda_than_the_pack_fails(tmp_path: Path) -> None:
    other = compiler(tmp_path / "new" / "ptxas", "13.4.59")
    found = doctor(tmp_path, QUICK, code=1, BOOSTERRUN_PTXAS=str(other))
    assert found["ptxas, ACFs"]["status"] == "FAIL"
    assert "13.3" in found["ptxas, ACFs"]["detail"]
    assert "BOOSTERRUN_PTXAS" in found["ptxas"]["detail"]


@pytest.mark.parametrize("how", ["link", "script"])
def test_a_compiler_cache_in_front_is_named(tmp_path: Path, how: str) -> None:
    cache = script(tmp_path / "bin" / "ccache", 'exec "$REAL" "$@"')
    front = tmp_path / "front" / "ptxas"
    front.parent.mkdir()
    if how == "link":
        front.symlink_to(cache)
    else:
        script(front, f'exec {cache} "$@"')
    found = doctor(tmp_path, QUICK, f"toolchain.ptxas={front}", code=0)
    assert found["ccache before ptxas"]["status"] == "WARN"
    assert "toolchain.ptxas=" in found["ccache before ptxas"]["fix"]


def test_wheels_of_two_cuda_versions_fail(tmp_path: Path) -> None:
    distribution(tmp_path / "site", "nvidia-nvvm", "13.5.10")
    path = f"{tmp_path / 'site'}:{ROOT}"
    found = doctor(tmp_path, "workload=nvcc", code=1, PYTHONPATH=path)
    assert "nvidia-nvvm 13.5.10" in found["CUDA wheels"]["detail"]
    assert found["CUDA wheels"]["status"] == "FAIL"
    assert doctor(tmp_path, "workload=nvcc")["CUDA wheels"]["status"] == "PASS"


def test_a_host_compiler_that_is_not_there_fails(tmp_path: Path) -> None:
    found = doctor(tmp_path, "workload=nvcc", NVCC_CCBIN="/nowhere/g++")
    assert found["host compiler"]["status"] == "FAIL"
    assert "NVCC_CCBIN" in found["host compiler"]["fix"]


def test_only_a_workload_that_names_the_acf_has_the_compilers_on_its_path_looked_at(tmp_path: Path) -> None:
    compiler(tmp_path / "bin" / "nvcc", "12.8.93", controls=False)
    executable(tmp_path / ".bin")
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    plain = doctor(tmp_path, "workload=command", "workload.command=[sh,-c,true]", PATH=path)
    assert not [name for name in plain if "PATH" in name]
    named = "workload.command=[nvcc,'{acf_flags}',x.cu]"
    found = doctor(tmp_path, "workload=command", named, PATH=path, code=0)
    assert found["nvcc on PATH, ACFs"]["status"] == "WARN"


def test_stages_that_no_compiler_of_the_adapter_has_fail() -> None:
    both = packs.open_pack(ROOT / "tests" / "data" / "nvcc-pack")
    assert all("nvcc" in acf.compiler_stages for acf in both.acfs)
    for adapter in ("ptxas", "triton", "nvcc"):
        (found,) = controls.stages(setup(adapter, both))
        assert (adapter, found.status) == (adapter, Status.FAIL)
    blackwell = setup("nvcc", both)
    assert blackwell.config is not None
    blackwell.config.gpu.arch = "sm_100a"
    assert [finding.status for finding in controls.stages(blackwell)] == [Status.PASS]
    ptxas_only = packs.open_pack(SHIPPED / "packs" / "booster-pack-sample.zip")
    assert [finding.status for finding in controls.stages(setup("nvcc", ptxas_only))] == [Status.PASS]


def shell(monkeypatch: pytest.MonkeyPatch, adapter: str, **values: str) -> dict[str, Finding]:
    """What is said of a shell with these variables."""
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    return {finding.subject: finding for finding in examine(setup(adapter, **os.environ), variables.CHECKS)}


def test_variables_that_are_kept_from_both_sides_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"PTXAS_OPTIONS": "-O1", "TRITON_PTXAS_PATH": "/nowhere", "TRITON_CACHE_DIR": "/shared"}
    found = shell(monkeypatch, "triton", **values)
    assert [found[name].status for name in values] == [Status.WARN] * 3
    assert "-O1" in found["PTXAS_OPTIONS"].detail
    assert "workload.env.PTXAS_OPTIONS" in found["PTXAS_OPTIONS"].fix
    assert "shell" not in found


@pytest.mark.parametrize(
    ("adapter", "words"),
    [("nvcc", "kept from both"), ("command", "kept from both"), ("python", "reaches both")],
)
def test_flags_for_nvcc_in_the_shell_are_told(
    monkeypatch: pytest.MonkeyPatch, adapter: str, words: str
) -> None:
    found = shell(monkeypatch, adapter, NVCC_APPEND_FLAGS="-G")
    assert found["NVCC_APPEND_FLAGS"].status is Status.WARN
    assert words in found["NVCC_APPEND_FLAGS"].detail


def test_variables_that_take_the_acf_away_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"CUDA_FORCE_PTX_JIT": "1", "CUDA_LAUNCH_BLOCKING": "1", "LD_PRELOAD": ""}
    found = doctor(tmp_path, "workload=simulated", code=1, **values)
    assert found["CUDA_FORCE_PTX_JIT"]["status"] == "FAIL"
    assert found["CUDA_LAUNCH_BLOCKING"]["status"] == "WARN"
    assert "LD_PRELOAD" not in found
    quiet = shell(monkeypatch, "python", CUDA_FORCE_PTX_JIT="0")
    assert "CUDA_FORCE_PTX_JIT" not in quiet
    assert quiet["shell"].status is Status.PASS


def test_an_unusable_ptxas_of_triton_is_told(tmp_path: Path) -> None:
    text = tmp_path / "ptxas"
    text.write_text("no program")
    for path in (str(text), str(tmp_path), "/nowhere"):
        (found,) = variables.usable_ptxas(setup("python", TRITON_PTXAS_BLACKWELL_PATH=path))
        assert found.status is Status.FAIL, "its own Triton would take the bundled one"
    assert not list(variables.usable_ptxas(setup("python", TRITON_PTXAS_PATH=str(ptxas().path))))


def test_flashinfer_and_helion_have_their_own_variables() -> None:
    (found,) = variables.measuring(setup("flashinfer", FLASHINFER_DISABLE_JIT="1"))
    assert (found.status, found.subject) == (Status.FAIL, "FLASHINFER_DISABLE_JIT")
    (found,) = variables.measuring(setup("helion", HELION_AUTOTUNE_SEARCH_ACF="a.acf"))
    assert found.status is Status.WARN
    assert not list(variables.measuring(setup("triton", FLASHINFER_DISABLE_JIT="1")))


@pytest.mark.parametrize(
    ("version", "status"), [("3.5.1", "FAIL"), ("3.6.0", "PASS"), ("3.9.0", "PASS"), ("4.0.0", "WARN")]
)
def test_triton_is_judged_by_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, status: str
) -> None:
    distribution(tmp_path, "triton", version)
    monkeypatch.syspath_prepend(tmp_path)
    (found,) = frameworks.triton(setup("triton"))
    assert found.status == status
    assert (version in found.detail) == (status != "PASS")
    assert not list(frameworks.triton(setup("nvcc")))


def test_the_real_triton_imports_and_a_broken_one_says_why(tmp_path: Path) -> None:
    found = doctor(tmp_path, "workload=triton")
    assert found["triton"]["status"] == "PASS"
    assert "3.6.0, imported in" in found["triton"]["detail"]
    site = tmp_path / "site"
    distribution(site, "torch", "2.11.0", "torch", "print('noise')\nraise ImportError('libcudart.so.13: no')")
    distribution(site, "triton", "3.6.0", "triton", "import os\nos._exit(9)")
    found = doctor(tmp_path, "workload=triton", code=1, PYTHONPATH=f"{site}:{ROOT}")
    assert "ImportError: libcudart.so.13: no" in found["torch"]["detail"]
    assert found["torch"]["status"] == "FAIL"
    assert "exit code 9" in found["triton"]["detail"]


def test_a_framework_that_never_ends_its_import_is_ended(tmp_path: Path) -> None:
    distribution(tmp_path / "site", "torch", "2.11.0", "torch", "import time\ntime.sleep(600)")
    path = f"{tmp_path / 'site'}:{ROOT}"
    found = doctor(tmp_path, "workload=triton", "timeouts.start=1", code=1, PYTHONPATH=path)
    assert "not imported within 1 s" in found["torch"]["detail"]


def test_helion_that_does_not_import_names_the_version_that_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    distribution(tmp_path, "helion", "1.5.1", "helion", "raise ImportError('IntelGPUError')")
    distribution(tmp_path, "torch", "2.11.0", "torch", "raise ImportError('none here')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    found = {finding.subject: finding for finding in frameworks.installed(setup("helion"))}
    assert "IntelGPUError" in found["helion"].detail
    assert "helion==1.4.0" in found["helion"].fix


def test_prebuilt_flashinfer_kernels_fail_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = setup("flashinfer", PATH=os.environ["PATH"])
    before = {finding.subject for finding in frameworks.flashinfer(wanted)}
    assert "prebuilt kernels" not in before
    distribution(tmp_path, "flashinfer-jit-cache", "0.6.6", "flashinfer_jit_cache", "raise SystemExit")
    distribution(tmp_path, "flashinfer-python", "0.7.4")
    monkeypatch.syspath_prepend(tmp_path)
    found = {finding.subject: finding for finding in frameworks.flashinfer(wanted)}
    assert found["prebuilt kernels"].fix == "pip uninstall flashinfer-jit-cache"
    assert found["FlashInfer version"].status is Status.WARN


def test_flashinfer_wants_ninja_and_lib64(tmp_path: Path) -> None:
    root = tmp_path / "cuda"
    nvcc = compiler(root / "bin" / "nvcc", "13.3.73")
    (root / "lib").mkdir()
    found = {
        f.subject: f for f in frameworks.flashinfer(setup("flashinfer", BOOSTERRUN_NVCC=str(nvcc), PATH=""))
    }
    assert found["ninja"].status is Status.FAIL
    assert f"ln -s lib {root}/lib64" in found["CUDA libraries"].fix
    (root / "lib64").symlink_to("lib")
    found = {
        f.subject: f for f in frameworks.flashinfer(setup("flashinfer", BOOSTERRUN_NVCC=str(nvcc), PATH=""))
    }
    assert "CUDA libraries" not in found


def test_folders_that_cannot_be_written_fail_with_another_place(tmp_path: Path) -> None:
    found = doctor(tmp_path, QUICK, "hydra.sweep.dir=/proc/outputs", code=1)
    assert found["results"]["status"] == "FAIL"
    assert "hydra.sweep.dir=" in found["results"]["fix"]
    spaced = tmp_path / "a cache"
    found = doctor(tmp_path, QUICK, code=0, XDG_CACHE_HOME=str(spaced))
    assert " " not in found["ACF store"]["detail"].partition(":")[0], "compilers split paths at spaces"
    plain = tmp_path / "cache"
    found = doctor(tmp_path, QUICK, code=0, XDG_CACHE_HOME=str(plain))
    assert found["ACF store"]["detail"].startswith(f"{plain}/")
    assert list(plain.rglob("*.acf")) == [], "nothing stays behind"


MOUNTS = """\
22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
30 22 0:5 / /home rw - nfs4 server:/home rw
31 22 0:6 / /home/me/local\\040disk rw shared:3 - xfs /dev/sdb rw
32 22 0:7 / /data rw - lustre a@tcp:/data rw
33 22 0:8 / /data rw - tmpfs tmpfs rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "ext4"),
        ("/homework", "ext4"),
        ("/home", "nfs4"),
        ("/home/me/x", "nfs4"),
        ("/home/me/local disk/y", "xfs"),
        ("/data/x", "tmpfs"),
    ],
)
def test_the_file_system_is_that_of_the_nearest_mount(path: str, kind: str) -> None:
    assert storage.file_system(Path(path), MOUNTS) == kind


@given(st.text(max_size=200), st.text("/ab", max_size=8))
def test_any_mountinfo_can_be_read(mounts: str, path: str) -> None:
    assert storage.file_system(Path("/" + path), mounts)


def test_network_file_systems_are_known() -> None:
    assert all(map(storage.is_network, ("nfs", "nfs4", "cifs", "smb3", "lustre", "fuse.sshfs", "9p", "ceph")))
    assert not any(map(storage.is_network, ("ext4", "xfs", "btrfs", "tmpfs", "overlay", "zfs", "unknown")))
    real = storage.file_system(Path("/proc"), Path("/proc/self/mountinfo").read_text())
    assert real == "proc"


def test_tight_limits_are_warnings(tmp_path: Path) -> None:
    command = executable(tmp_path / ".bin")
    tight = tmp_path / ".bin" / "tight"
    tight.write_text(f'#!/bin/bash\nulimit -n 200 -t 1000\nexec {command} "$@"\n')
    tight.chmod(0o755)
    done = subprocess.run(
        [tight, "doctor", "--json", QUICK], cwd=tmp_path, env=environment(), capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    said = [f["detail"] for f in json.loads(done.stdout)["findings"] if f["subject"] == "limits"]
    assert any("200 open files" in words for words in said)
    assert any("1000 s of CPU time" in words for words in said)


def test_memory_is_told_in_bytes() -> None:
    free = limits.available_memory()
    assert free is not None
    total = int(Path("/proc/meminfo").read_text().split()[1]) * 1024
    assert 0 < free < total


def test_python_headers_are_those_of_this_python() -> None:
    (found,) = compilers.python_headers(setup("triton"))
    assert f"python{sys.version_info.major}.{sys.version_info.minor}" in found.detail
    assert not list(compilers.python_headers(setup("nvcc")))


def test_a_compiler_is_looked_for_once(tmp_path: Path) -> None:
    tool = compiler(tmp_path / "ptxas", "13.3.73")
    wanted = setup("ptxas", BOOSTERRUN_PTXAS=str(tool))
    first = compilers.find(wanted, "ptxas")
    tool.unlink()
    assert compilers.find(wanted, "ptxas") is first
    with pytest.raises(toolchain.ToolchainError):
        compilers.find(setup("ptxas", BOOSTERRUN_PTXAS=str(tool)), "ptxas")
