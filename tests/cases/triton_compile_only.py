"""Triton kernels compiled for an H100 on a machine without a GPU: the output is what the compiler says.

``trap`` names something that a user's case may do and that would hide the ACF from the compiler.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import triton
import triton.language as tl
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.cache import FileCacheManager

from boosterrun import Case

TARGET = GPUTarget("cuda", 90, 32)


@triton.jit
def softmax(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    row = tl.program_id(0) * n
    x = tl.load(x_ptr + row + column, mask=column < n, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, 0))
    tl.store(y_ptr + row + column, e / tl.sum(e, 0), mask=column < n)


@triton.jit
def double(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offset = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offset, tl.load(x_ptr + offset, mask=offset < n) * 2, mask=offset < n)


@triton.jit
def nothing(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    pass


KERNELS = {"softmax": softmax, "double": double, "nothing": nothing}
SHARED = {"softmax": 16, "double": 0, "nothing": 0}


class SharedCache(FileCacheManager):
    """A cache in one place for all processes, as a site may have it."""

    def __init__(self, key: str, override: bool = False, dump: bool = False) -> None:
        own, knobs.cache.dir = knobs.cache.dir, os.environ["SITE_CACHE"]
        super().__init__(key, override, dump)
        knobs.cache.dir = own


def _options(trap: str, kernel: str) -> dict[str, Any]:
    if trap == "ptx_options":
        return {"ptx_options": "--opt-level 3"}
    if trap == "ptx_options_on_double" and kernel == "double":
        return {"ptx_options": "--opt-level 3"}
    if trap == "adds_the_acf" and "BOOSTERRUN_ACF" in os.environ:
        return {"ptx_options": "--apply-controls=" + os.environ["BOOSTERRUN_ACF"]}
    return {}


def make(
    *, seed: int, kernels: tuple[str, ...] = ("softmax",), block: int = 8192, trap: str = "", place: str = ""
) -> Case:
    """Compile each kernel once; the output is the shared memory and the warps of each."""
    if trap == "other_ptxas":
        knobs.nvidia.ptxas = place
    elif trap == "unusable_ptxas":
        os.environ["TRITON_PTXAS_PATH"] = place
    elif trap == "other_cache":
        os.environ["TRITON_CACHE_DIR"] = place
    elif trap == "site_cache":
        os.environ["SITE_CACHE"] = place
        knobs.cache.manager_class = SharedCache
    elif trap == "baseline_with_controls":
        os.environ["BOOSTERRUN_ACF"] = place
        trap = "adds_the_acf"
    elif trap == "broken":
        raise ValueError("there is no such kernel")
    compiled: dict[str, Any] = {}
    said = np.zeros((len(kernels), 2))

    def run() -> None:
        if trap == "no_code":
            said[:] = expected
            return
        for name in kernels:
            if name not in compiled:
                source = ASTSource(
                    KERNELS[name],
                    {"x_ptr": "*fp16", "y_ptr": "*fp16", "n": "i32", "BLOCK": "constexpr"},
                    {
                        "BLOCK": block
                        if trap != "other_source" or "BOOSTERRUN_ACF" not in os.environ
                        else 2 * block
                    },
                )
                compiled[name] = triton.compile(source, target=TARGET, options=_options(trap, name))
        facts = [compiled[name].metadata for name in kernels]
        said[:] = [[fact.shared, fact.num_warps] for fact in facts]

    expected = np.array([[SHARED[name], 4.0] for name in kernels])
    return Case(run=run, reference=expected.copy, outputs=[said])
