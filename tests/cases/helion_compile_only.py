"""Helion's shipped kernels compiled for an H100 on a machine without a GPU: launches alone are missing.

``trap`` names something that a user's case may do and that would hide the ACF from the compiler.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import helion
import numpy as np
import torch
import triton
from torch._subclasses.fake_tensor import FakeTensorMode
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import MockTensor

import boosterrun
from boosterrun import Case

SHIPPED = Path(boosterrun.__file__).parent / "shipped" / "cases" / "helion_kernels.py"
BF16, HALF, FP8 = torch.bfloat16, torch.float16, torch.float8_e4m3fn
# The arguments of each kernel: shapes and types of tensors, or plain numbers.
ARGUMENTS: dict[str, list[Any]] = {
    "softmax": [((64, 4096), HALF), ((64, 4096), HALF)],
    "fp8_quant": [((64, 4096), BF16), ((64, 4096), FP8), ((64,), torch.float32)],
    "conv1d_causal": [((2, 64, 256), BF16), ((256, 4), BF16), ((256,), BF16), ((2, 64, 256), BF16)],
    "gated_delta": [
        *[((4, 20, 64), BF16)] * 3,
        *[((4, 20), torch.float32)] * 2,
        ((4, 20, 64), BF16),
        0.125,
    ],
}


class Driver:
    """The H100 that is not there, as far as Triton asks before a launch."""

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


@contextlib.contextmanager
def h100() -> Iterator[None]:
    """Let torch say what Helion asks of a card, and nobody else."""
    properties = types.SimpleNamespace(
        name="NVIDIA H100", major=9, minor=0, multi_processor_count=132, total_memory=80 << 30
    )
    said = {
        "is_available": True,
        "current_device": 0,
        "get_device_capability": (9, 0),
        "get_device_properties": properties,
    }
    before = {name: getattr(torch.cuda, name) for name in said}
    version = torch.version.cuda
    for name, value in said.items():
        setattr(torch.cuda, name, lambda *_, value=value: value)
    torch.version.cuda = "13.0"
    triton.runtime.driver.set_active(Driver())
    try:
        yield
    finally:
        torch.version.cuda = version
        for name, value in before.items():
            setattr(torch.cuda, name, value)


def _shipped() -> Any:
    spec = importlib.util.spec_from_file_location("shipped_helion_kernels", SHIPPED)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


with h100():
    KERNELS = _shipped()


def compiled(kernel: helion.Kernel[Any], arguments: list[Any]) -> Any:
    """What Triton makes of a kernel when Helion launches it, the launch itself excepted."""
    done: list[Any] = []

    def launch(function: Any, grid: Any, *args: Any, **options: Any) -> None:
        mock = [MockTensor.wrap_dtype(a.dtype) if isinstance(a, torch.Tensor) else a for a in args]
        done.append(function.run(*mock, grid=grid, warmup=True, **options))

    with h100():
        with FakeTensorMode():
            values = tuple(
                torch.empty(*a[0], dtype=a[1], device="cuda") if isinstance(a, tuple) else a
                for a in arguments
            )
        bound = kernel.bind(values)
        bound.ensure_config_exists(values)
        assert bound._run is not None
        bound._run(*values, _launcher=launch)
    return done[0]


def make(
    *, seed: int, kernels: tuple[str, ...] = ("softmax",), trap: str = "", warps: int | None = None
) -> Case:
    """Compile each kernel once; the output is the number of warps of each, as pinned or ``warps``."""
    said = np.zeros(len(kernels))
    facts: dict[str, Any] = {}
    if trap == "own_acf":
        KERNELS.softmax.configs[0].config["advanced_controls_file"] = "/some/where/else.acf"
    elif trap == "own_acf_is_ours" and "BOOSTERRUN_ACF" in os.environ:
        KERNELS.softmax.configs[0].config["advanced_controls_file"] = os.environ["BOOSTERRUN_ACF"]
    elif trap == "untuned":
        KERNELS.softmax.configs.clear()

    def run() -> None:
        for name in kernels:
            if name not in facts:
                facts[name] = compiled(getattr(KERNELS, name), ARGUMENTS[name]).metadata
        said[:] = [facts[name].num_warps for name in kernels]

    pinned = {"softmax": 8, "fp8_quant": 8, "conv1d_causal": 4, "gated_delta": 2}
    expected = np.array([warps or pinned[name] for name in kernels], float)
    return Case(run=run, reference=lambda: expected, outputs=[said])
