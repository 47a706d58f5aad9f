"""What ptxas says about kernels, against what its cubins and NVIDIA's own tools say."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from compilers import KERNELS, assemble, ptxas, two_kernels

from boosterrun.compilers import cubin, resources
from boosterrun.errors import RunError


def of_cuobjdump(path: Path) -> dict[str, tuple[int, int]]:
    tool = ptxas().path.with_name("cuobjdump")
    if not tool.exists():
        pytest.skip("no cuobjdump beside ptxas (wheel nvidia-cuda-cuobjdump)")
    argv = [tool, "-res-usage", path]
    said = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout
    found = re.findall(r"Function (\w+):\s+REG:(\d+) STACK:(\d+)", said)
    return {name: (int(registers), int(stack)) for name, registers, stack in found}


@pytest.mark.parametrize("kernel", ["attn_causal", "softmax", "nbody"])
def test_registers_and_stack_agree_with_cuobjdump(tmp_path: Path, kernel: str) -> None:
    output = tmp_path / "out.cubin"
    limit = ("--maxrregcount", "64", "--override-directive-values")
    for flags in ((), limit):
        text = assemble(KERNELS / f"{kernel}.ptx", output, *flags)
        measured = resources.measure(text, cubin.read(output))
        assert {n: (m["registers"], m["stack_bytes"]) for n, m in measured.items()} == of_cuobjdump(output)
        assert all(set(metrics) == set(resources.METRICS) for metrics in measured.values())
    if kernel == "attn_causal":  # needs 208 registers
        spills = measured[kernel]
        assert spills["spill_bytes"] == spills["spill_store_bytes"] + spills["spill_load_bytes"] > 0


def test_spills_of_device_functions_count_for_their_kernel(tmp_path: Path) -> None:
    output = tmp_path / "two.cubin"
    text = assemble(two_kernels(tmp_path), output, "--maxrregcount", "24")
    measured = resources.measure(text, cubin.read(output))
    stores = {name: int(count) for name, count in re.findall(r"for (\w+)\n.*?(\d+) bytes spill stores", text)}
    assert stores["_Z5heavyPfi"] > 0
    assert measured["calls"]["spill_store_bytes"] == stores["calls"] + stores["_Z5heavyPfi"]
    assert measured["shares"]["spill_bytes"] == 0
    assert measured["shares"]["shared_bytes"] == 333 * 4
    assert all(metrics["compile_seconds"] > 0 for metrics in measured.values())
    assert {name: metrics["stack_bytes"] for name, metrics in measured.items()} == {
        name: stack for name, (_, stack) in of_cuobjdump(output).items()
    }


def test_never_takes_silence_for_zero(tmp_path: Path) -> None:
    output = tmp_path / "out.cubin"
    text = assemble(KERNELS / "nbody.ptx", output)
    image = cubin.read(output)
    for changed in (
        "",
        text.replace("'nbody'", "'other'"),
        text.replace("spill", "sp1ll"),
        text.replace("Used", ""),
    ):
        with pytest.raises(RunError, match="ptxas -v"):
            resources.measure(changed, image)


def test_ptx_without_a_kernel_is_the_workloads_fault(tmp_path: Path) -> None:
    ptx = tmp_path / "empty.ptx"
    ptx.write_text(".version 9.3\n.target sm_90a\n.address_size 64\n")
    text = assemble(ptx, tmp_path / "empty.cubin")
    with pytest.raises(RunError, match="no kernel"):
        resources.measure(text, cubin.read(tmp_path / "empty.cubin"))
