"""A Triton kernel that the baseline runs on a few per cent more rows: a candidate with a known gain.

Without ``slow`` both sides run the same code on the same rows: a candidate without any gain.
"""

from __future__ import annotations

import os
from pathlib import Path

import torch

from boosterrun import Case
from boosterrun import case as cases

SHIPPED = Path(cases.__file__).parent / "shipped" / "cases" / "triton_kernels.py"
kernels = cases.load(f"{SHIPPED}:make_rmsnorm").__globals__["KERNELS"]


def make_rmsnorm(*, seed: int, M: int = 8192, N: int = 4096, slow: float = 0.0) -> Case:
    """rmsnorm of M rows; the baseline (no ``BOOSTERRUN_ACF``) works on ``slow`` (a fraction) more of them."""
    generator = torch.Generator(device="cuda")
    generator.manual_seed(seed)
    rows = M + round(M * slow)
    launched = M if "BOOSTERRUN_ACF" in os.environ else rows

    def normal(*size: int) -> torch.Tensor:
        return torch.randn(*size, generator=generator, device="cuda")

    x, r, w = normal(rows, N).bfloat16(), normal(rows, N).bfloat16(), normal(N)
    y, z = torch.empty_like(x), torch.empty_like(x)

    def run() -> list[torch.Tensor]:
        kernels.rmsnorm[(launched,)](x, r, w, y, z, N, 1e-6, BLOCK=1024, num_warps=4)
        return [y[:M], z[:M]]

    def reference() -> list[torch.Tensor]:
        s = x[:M].float() + r[:M].float()
        return [s * torch.rsqrt((s * s).mean(1, keepdim=True) + 1e-6) * w, s]

    return Case(run=run, reference=reference, outputs=[y, z], tolerance=5e-3)
