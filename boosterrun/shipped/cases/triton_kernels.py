"""Cases for the seven Triton kernels in ``../kernels/triton_kernels.py``, each with an oracle in plain torch.

``make_<kernel>(*, seed, **shape)``: inputs are drawn on the GPU from the seed; the oracle computes in float32
or better. Warps, stages and constants are those of ``../kernels/launches.json``: the PTX is the shipped one.
"""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from types import ModuleType

import torch
import torch.nn.functional as F

from boosterrun import Case

DEVICE = "cuda"


def _kernels() -> ModuleType:
    path = Path(__file__).parents[1] / "kernels" / "triton_kernels.py"
    spec = importlib.util.spec_from_file_location("boosterrun_shipped_triton_kernels", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


KERNELS = _kernels()


class _Normal:
    """Seeded normal numbers on the GPU: ``normal(*size)`` in float32, rounded to ``dtype``."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator(device=DEVICE)
        self.generator.manual_seed(seed)

    def __call__(self, *size: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.randn(*size, generator=self.generator, device=DEVICE, dtype=torch.float32).to(dtype)


def make_softmax(*, seed: int, M: int = 8192, N: int = 8192) -> Case:
    """Row softmax of an M x N float16 matrix."""
    x = _Normal(seed)(M, N, dtype=torch.float16)
    y = torch.empty_like(x)

    def run() -> torch.Tensor:
        KERNELS.softmax[(M,)](x, y, N, N, N, BLOCK=8192, num_warps=4)
        return y

    return Case(
        run=run, reference=lambda: torch.softmax(x.float(), 1), outputs=[y], tolerance=2e-3, bytes=4 * M * N
    )


def make_rmsnorm(*, seed: int, M: int = 8192, N: int = 4096) -> Case:
    """Residual add and RMS norm of M rows of N bfloat16 values."""
    normal = _Normal(seed)
    x, r, w = normal(M, N, dtype=torch.bfloat16), normal(M, N, dtype=torch.bfloat16), normal(N)
    y, z = torch.empty_like(x), torch.empty_like(x)

    def run() -> list[torch.Tensor]:
        KERNELS.rmsnorm[(M,)](x, r, w, y, z, N, 1e-6, BLOCK=1024, num_warps=4)
        return [y, z]

    def reference() -> list[torch.Tensor]:
        s = x.float() + r.float()
        return [s * torch.rsqrt((s * s).mean(1, keepdim=True) + 1e-6) * w, s]

    return Case(run=run, reference=reference, outputs=[y, z], tolerance=5e-3, bytes=8 * M * N)


def make_matmul64(*, seed: int, M: int = 2048, N: int = 2048, K: int = 2048) -> Case:
    """Float16 matrix product, (M, K) by (K, N)."""
    normal = _Normal(seed)
    a, b = normal(M, K, dtype=torch.float16), normal(K, N, dtype=torch.float16)
    c = torch.empty(M, N, device=DEVICE, dtype=torch.float16)

    def run() -> torch.Tensor:
        KERNELS.matmul64[((M // 64) * (N // 64),)](
            a, b, c, M, N, K, K, N, N, BM=64, BN=64, BK=32, num_warps=4
        )
        return c

    return Case(
        run=run, reference=lambda: a.double() @ b.double(), outputs=[c], tolerance=2e-3, flops=2 * M * N * K
    )


def make_attn_causal(*, seed: int, H: int = 64, S: int = 2048) -> Case:
    """Causal attention of H heads over S positions, head size 64, float16."""
    normal = _Normal(seed)
    q, k, v = (normal(H, S, 64, dtype=torch.float16) for _ in range(3))
    o = torch.empty_like(q)

    def run() -> torch.Tensor:
        grid = (S // 128, H)
        scale = math.log2(math.e) / math.sqrt(64)
        KERNELS.attn_causal[grid](q, k, v, o, S, scale, D=64, BM=128, BN=64, num_warps=4)
        return o

    def reference() -> torch.Tensor:
        visible = torch.ones(S, S, device=DEVICE, dtype=torch.bool).tril()
        out = torch.empty(H, S, 64, device=DEVICE)
        for h in range(H):
            score = q[h].float() @ k[h].float().T / math.sqrt(64)
            out[h] = torch.softmax(score.masked_fill(~visible, -math.inf), -1) @ v[h].float()
        return out

    return Case(run=run, reference=reference, outputs=[o], tolerance=3e-3, flops=2 * H * S * S * 64)


def make_fp8_rowquant(*, seed: int, M: int = 8192, N: int = 8192) -> Case:
    """Quantise rows of bfloat16 to float8 (e4m3) with one scale a row."""
    x = _Normal(seed)(M, N, dtype=torch.bfloat16)
    y = torch.empty(M, N, device=DEVICE, dtype=torch.float8_e4m3fn)
    s = torch.empty(M, device=DEVICE)

    def run() -> list[torch.Tensor]:
        KERNELS.fp8_rowquant[(M,)](x, y, s, N, BLOCK=8192, num_warps=8)
        return [y, s]

    def reference() -> list[torch.Tensor]:
        scale = x.float().abs().amax(1).clamp(min=1e-10) / 448.0
        return [(x.float() / scale[:, None]).to(torch.float8_e4m3fn).float(), scale]

    return Case(run=run, reference=reference, outputs=[y, s], tolerance=5e-3, bytes=3 * M * N)


def make_conv1d_causal(*, seed: int, B: int = 8, T: int = 4096, D: int = 2048) -> Case:
    """Depthwise causal convolution of width 4 and SiLU, B x T x D bfloat16."""
    normal = _Normal(seed)
    x = normal(B, T, D, dtype=torch.bfloat16)
    w, b = normal(D, 4, dtype=torch.bfloat16), normal(D, dtype=torch.bfloat16)
    y = torch.empty_like(x)

    def run() -> torch.Tensor:
        KERNELS.conv1d_causal[(T // 32, D // 128, B)](x, w, b, y, T, D, W=4, BT=32, BD=128, num_warps=4)
        return y

    def reference() -> torch.Tensor:
        out = torch.empty(B, T, D, device=DEVICE)
        for i in range(B):
            padded = F.pad(x[i].float(), (0, 0, 3, 0))
            acc = b.float()[None] + sum(padded[j : j + T] * w[:, j].float()[None] for j in range(4))
            out[i] = acc * torch.sigmoid(acc)
        return out

    return Case(run=run, reference=reference, outputs=[y], tolerance=5e-3, bytes=4 * B * T * D)


def make_gated_delta(*, seed: int, H: int = 256, T: int = 192) -> Case:
    """Recurrent gated delta rule, H heads, T steps, key and value size 64, bfloat16."""
    normal = _Normal(seed)
    q, k = (F.normalize(normal(H, T, 64), dim=-1).bfloat16() for _ in range(2))
    v = normal(H, T, 64, dtype=torch.bfloat16)
    g, b = -F.softplus(normal(H, T)) * 0.1, torch.sigmoid(normal(H, T))
    o = torch.empty_like(v)
    scale = 64**-0.5

    def run() -> torch.Tensor:
        grid = (64 // 32, H)
        KERNELS.gated_delta[grid](q, k, v, g, b, o, T, scale, K=64, V=64, BV=32, num_warps=2)
        return o

    def reference() -> torch.Tensor:
        state = torch.zeros(H, 64, 64, device=DEVICE)
        out = torch.empty(H, T, 64, device=DEVICE)
        for t in range(T):
            kt = k[:, t].float()
            state = state * torch.exp(g[:, t])[:, None, None]
            u = (v[:, t].float() - (state * kt[:, :, None]).sum(1)) * b[:, t][:, None]
            state = state + kt[:, :, None] * u[:, None, :]
            out[:, t] = (state * (q[:, t].float() * scale)[:, :, None]).sum(1)
        return out

    return Case(run=run, reference=reference, outputs=[o], tolerance=6e-3)
