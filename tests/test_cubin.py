"""Cubins of the real ptxas, whole and damaged."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from compilers import KERNELS, assemble, controls, ptxas, two_kernels
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from boosterrun.compilers import cubin
from boosterrun.errors import RunError


def make(folder: Path, kernel: str, *flags: str) -> bytes:
    output = folder / f"{kernel}.cubin"
    assemble(KERNELS / f"{kernel}.ptx", output, *flags)
    return output.read_bytes()


def instructions_of_nvdisasm(path: Path) -> dict[str, int]:
    tool = ptxas().path.with_name("nvdisasm")
    if not tool.exists():
        pytest.skip("no nvdisasm beside ptxas (wheel nvidia-cuda-nvdisasm)")
    said = subprocess.run([tool, "-c", path], capture_output=True, text=True, check=True, timeout=60).stdout
    counts: dict[str, int] = {}
    for line in said.splitlines():
        if section := re.match(r"\s*\.section\s+\.text\.(\w+)", line):
            counts[name := section[1]] = 0
        elif (code := re.match(r"\s*/\*[0-9a-f]{4,}\*/\s+(.*?);", line)) and not code[1].startswith("NOP"):
            counts[name] += 1
    return counts


@pytest.mark.parametrize("kernel", ["attn_causal", "rmsnorm", "nbody", "fp8_rowquant"])
def test_counts_instructions_like_nvdisasm(tmp_path: Path, kernel: str) -> None:
    _, acf = controls(tmp_path, 1)
    for flags in ((), ("--apply-controls", str(acf))):
        read = cubin.read(make(tmp_path, kernel, *flags))
        counted = {found.name: found.sass_instructions for found in read.kernels}
        assert counted == instructions_of_nvdisasm(tmp_path / f"{kernel}.cubin")
        assert counted[kernel] > 50


def test_reads_each_kernel_of_a_file_with_its_device_functions(tmp_path: Path) -> None:
    output = tmp_path / "two.cubin"
    assemble(two_kernels(tmp_path), output)
    read = cubin.read(output)
    assert [kernel.name for kernel in read.kernels] == ["calls", "shares"]
    assert {kernel.name: kernel.sass_instructions for kernel in read.kernels} == instructions_of_nvdisasm(
        output
    )
    assert all(kernel.code_bytes == len(kernel.code) > 0 for kernel in read.kernels)


def test_notes_name_the_controls_that_were_applied(tmp_path: Path) -> None:
    _, first = controls(tmp_path, 1)
    _, second = controls(tmp_path, 2)
    plain = cubin.read(make(tmp_path, "rmsnorm"))
    assert cubin.applied_controls(plain) == []
    assert plain.options is not None
    assert "-arch sm_90a" in plain.options
    assert plain.tool_version is not None
    assert ptxas().version in plain.tool_version
    one = cubin.read(make(tmp_path, "rmsnorm", f"--apply-controls={first}"))
    assert cubin.applied_controls(one) == [str(first)]
    both = cubin.read(make(tmp_path, "rmsnorm", "-apply-controls", str(first), f"--apply-controls={second}"))
    assert cubin.applied_controls(both) == [str(second)]


def test_code_is_compared_without_the_path_of_the_controls(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    acf, here = controls(tmp_path, 1)
    there = tmp_path / "elsewhere" / here.name
    there.write_bytes(here.read_bytes())
    one, other = (make(tmp_path, "rmsnorm", "--apply-controls", str(path)) for path in (here, there))
    assert one != other
    assert cubin.read(one).code_sha256 == cubin.read(other).code_sha256
    assert cubin.read(one).code_sha256 != cubin.read(make(tmp_path, "rmsnorm")).code_sha256
    assert len(acf.sha256) == len(cubin.read(one).kernels[0].code_sha256) == 64


def test_refuses_what_is_no_cubin(tmp_path: Path) -> None:
    text = tmp_path / "text.cubin"
    text.write_text(".version 9.3\n")
    for path, word in (
        (text, "text.cubin"),
        (tmp_path / "gone.cubin", "cannot read"),
        (Path("/bin/sh"), "machine"),
    ):
        with pytest.raises(RunError, match=word):
            cubin.read(path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return make(tmp_path_factory.mktemp("whole"), "nbody")


@given(data=st.data())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damaged_cubins_are_refused_or_read_never_worse(whole: bytes, data: st.DataObject) -> None:
    damaged = bytearray(whole[: data.draw(st.integers(0, len(whole)))] if data.draw(st.booleans()) else whole)
    # Headers and the section table at the end are where damage does most.
    for _ in range(data.draw(st.integers(0, 4))):
        if damaged:
            near_end = data.draw(st.integers(1, min(len(damaged), 2000)))
            place = data.draw(st.sampled_from([len(damaged) - near_end, min(near_end, len(damaged) - 1)]))
            damaged[place] = data.draw(st.integers(0, 255))
    try:
        read = cubin.read(bytes(damaged))
    except RunError as error:
        assert "\n" not in str(error)
        return
    for kernel in read.kernels:
        assert 0 <= kernel.sass_instructions <= kernel.code_bytes // 16
    cubin.applied_controls(read)
