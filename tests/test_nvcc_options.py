"""What nvcc is called with, and what may not be asked of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nvcc_programs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from boosterrun.compilers import nvcc_options
from boosterrun.config import NvccMode, NvccWorkload
from boosterrun.errors import UsageError

ACF = Path("/acf/0123.acf")


def workload(folder: Path, **keys: Any) -> NvccWorkload:
    keys = {"sources": [str(nvcc_programs.plain(folder))], "mode": NvccMode.program, **keys}
    return NvccWorkload(name="mine", shapes={"default": {}}, **keys)


def plan(folder: Path, arch: str | None = "sm_90a", **keys: Any) -> nvcc_options.Plan:
    return nvcc_options.plan(workload(folder, **keys), arch, nvcc_programs.nvcc())


def test_each_stage_has_its_option(tmp_path: Path) -> None:
    made = plan(tmp_path, flags=["-O3", "-lineinfo"], include_dirs=[str(tmp_path)])
    begin = (
        str(nvcc_programs.nvcc().path), "-O3", "-lineinfo", "-gencode", "arch=compute_90a,code=sm_90a",
        "-I", str(tmp_path), "-Xptxas", "-v",
    )  # fmt: skip
    end = (str(tmp_path / "plain.cu"), "-o", "p")
    assert made.command(None, (), "p") == (*begin, *end)
    assert made.command(ACF, ("ptxas",), "p") == (*begin, "-Xptxas", f"--apply-controls={ACF}", *end)
    assert made.command(ACF, ("nvcc", "ptxas"), "p") == (*begin, "--apply-controls", str(ACF), *end)
    assert made.command(ACF, ("nvcc",), "p") == (*begin, "--apply-controls", str(ACF), *end)


def test_only_a_worker_gets_our_header(tmp_path: Path) -> None:
    assert str(nvcc_options.INCLUDE) not in plan(tmp_path).command(None, (), "p")
    assert str(nvcc_options.INCLUDE) in plan(tmp_path, mode=NvccMode.harness).command(None, (), "p")


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("-Xptxas=--apply-controls=/x", "may not hold"),
        ("--apply-controls=/x", "the ACF is added here"),
        ("-o", "a place of its own"),
        ("--output-file=x", "a place of its own"),
        ("-arch=sm_80", "set gpu.arch"),
        ("-code=compute_90", "set gpu.arch"),
        ("-gencode", "set gpu.arch"),
        ("-gencode arch=compute_90,code=sm_90", "set gpu.arch"),
        ("-dlto", "at link time"),
        ("-lto", "at link time"),
        ("-ptx", "makes no program"),
        ("-cubin", "makes no program"),
        ("-dc", "makes no program"),
        ("--options-file=x", "list the options in flags"),
        ("-MD", "listed anyway"),
    ],
)
def test_flags_that_would_defeat_the_comparison_are_refused(tmp_path: Path, flag: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        plan(tmp_path, flags=["-O3", flag])
    assert str(caught.value).startswith("workload mine: flags may not hold ") and flag in str(caught.value)


@pytest.mark.parametrize(
    "flag", ["-rdc=true", "-cudart", "none", "-O3", "-lcublas", "-lineinfo", "-Xptxas", "-dlcm=cg"]
)
def test_other_flags_are_taken_as_they_are(tmp_path: Path, flag: str) -> None:
    assert flag in plan(tmp_path, flags=[flag]).command(None, (), "p")


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"sources": []}, "workload mine has no sources"),
        ({"sources": ["/nowhere/x.cu"]}, "sources: there is no file /nowhere/x.cu"),
        ({"include_dirs": ["/nowhere"]}, "include_dirs: there is no folder /nowhere"),
        ({"flags": ["-O3", ""]}, r"flags is \['-O3', ''\], not a list of texts"),
        ({"env": {"NVCC_APPEND_FLAGS": "-O0"}}, "env may not set NVCC_APPEND_FLAGS"),
        ({"env": {"MINE": "{acf}"}}, r"env.MINE names \{acf\}"),
    ],
)
def test_a_workload_that_cannot_work_is_refused(tmp_path: Path, keys: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        plan(tmp_path, **keys)


@pytest.mark.parametrize("arch", ["compute_90", "90a", "sm_90x", "sm_90a,sm_100a", "lto_90", "native"])
def test_only_machine_code_for_one_gpu_is_made(tmp_path: Path, arch: str) -> None:
    with pytest.raises(UsageError, match=f"gpu.arch={arch} is no GPU"):
        plan(tmp_path, arch)


@pytest.mark.parametrize(
    ("capability", "arch"),
    [
        ("9.0", "sm_90a"),
        ("10.0", "sm_100a"),
        ("12.1", "sm_121a"),
        ("8.9", "sm_89"),
        ("7.5", "sm_75"),
        (None, "sm_90a"),
    ],
)
def test_the_target_is_this_machines_gpu(
    monkeypatch: pytest.MonkeyPatch, capability: str | None, arch: str
) -> None:
    monkeypatch.setattr("boosterrun.gpus.gpu.visible_device", lambda env: {"compute_capability": capability})
    assert nvcc_options.detected_arch({}) == arch
    monkeypatch.setattr("boosterrun.gpus.gpu.visible_device", lambda env: None)
    assert nvcc_options.detected_arch({}) == "sm_90a"


@given(st.sampled_from(["sm_75", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_100a", "sm_103f", "sm_120a"]))
def test_the_stage_of_nvcc_begins_with_sm_100(arch: str) -> None:
    new = arch.startswith(("sm_10", "sm_12"))
    assert nvcc_options.supports(["nvcc", "ptxas"], arch) == nvcc_options.supports(["nvcc"], arch) == new
    assert nvcc_options.supports(["ptxas"], arch)


def test_nvcc_sees_nothing_of_the_shell_that_adds_options_or_caches(tmp_path: Path) -> None:
    shell = {
        "PATH": "/bin",
        "NVCC_APPEND_FLAGS": "-O0",
        "NVCC_PREPEND_FLAGS": "-O0",
        "NVCC_CCBIN": "/usr/bin/g++",
        "PTXAS_OPTIONS": "-O0",
        "CCACHE_DIR": "/old",
        "CCACHE_NODISABLE": "1",
        "SCCACHE_DIR": "/old",
        "TMPDIR": "/tmp",
    }
    env = plan(tmp_path, env={"CPATH": "/mine", "CCACHE_DISABLE": "0"}).environment(shell, tmp_path / "t")
    assert env == {
        "PATH": "/bin",
        "NVCC_CCBIN": "/usr/bin/g++",
        "CPATH": "/mine",
        "CCACHE_DISABLE": "1",
        "SCCACHE_RECACHE": "1",
        "TMPDIR": str(tmp_path / "t"),
    }
    assert nvcc_options.ignored(shell) == [
        "CCACHE_DIR", "CCACHE_NODISABLE", "NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS", "PTXAS_OPTIONS",
        "SCCACHE_DIR",
    ]  # fmt: skip
