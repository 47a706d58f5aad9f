# mypy: ignore-errors
"""Helion kernels with pinned configs, each with an oracle in plain torch.

``make_<kernel>(*, seed, **shape)``: inputs are drawn on the GPU from the seed; the oracle computes in
float32. The configs were chosen by hand for Hopper; ``workload.configs.<kernel>`` replaces one.
"""

from __future__ import annotations

import helion
import helion.language as hl
import torch
import torch.nn.functional as F

from boosterrun import Case

DEVICE = "cuda"


class _Normal:
    """Seeded normal numbers on the GPU: ``normal(*size)`` in float32, rounded to ``dtype``."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator(device=DEVICE)
        self.generator.manual_seed(seed)

    def __call__(self, *size: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.randn(*size, generator=self.generator, device=DEVICE, dtype=torch.float32).to(dtype)


@helion.kernel(config=helion.Config(block_sizes=[1], reduction_loops=[None], num_warps=8, num_stages=1))
def softmax(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Softmax of each row."""
    rows, _ = x.size()
    for row in hl.tile(rows):
        values = x[row, :].to(torch.float32)
        powers = torch.exp(values - torch.amax(values, dim=1, keepdim=True))
        y[row, :] = (powers / torch.sum(powers, dim=1, keepdim=True)).to(y.dtype)
    return y


@helion.kernel(config=helion.Config(block_sizes=[1], reduction_loops=[None], num_warps=8, num_stages=1))
def fp8_quant(x: torch.Tensor, y: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Quantise each row to float8 (e4m3) with a scale of its own."""
    rows, _ = x.size()
    for row in hl.tile(rows):
        values = x[row, :].to(torch.float32)
        scale = torch.clamp(torch.amax(torch.abs(values), dim=1), min=1e-10) / 448.0
        scales[row] = scale
        y[row, :] = torch.clamp(values / scale[:, None], -448.0, 448.0).to(y.dtype)
    return y


@helion.kernel(config=helion.Config(block_sizes=[1, 32, 128], num_warps=4, num_stages=2))
def conv1d_causal(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Convolve each channel with its own filter over the current and the earlier steps, then SiLU."""
    batches, steps, channels = x.size()
    width = hl.specialize(w.size(1))
    for batch, step, channel in hl.tile([batches, steps, channels]):
        total = hl.zeros([batch, step, channel], dtype=torch.float32)
        total = total + b[channel].to(torch.float32)[None, None, :]
        for j in hl.static_range(width):
            at = step.index + (j - width + 1)
            values = hl.load(x, [batch, at, channel], extra_mask=(at >= 0)[None, :, None])
            total = total + values.to(torch.float32) * w[channel, j].to(torch.float32)[None, None, :]
        y[batch, step, channel] = (total * torch.sigmoid(total)).to(y.dtype)
    return y


@helion.kernel(config=helion.Config(block_sizes=[32], num_warps=2, num_stages=1))
def gated_delta(  # noqa: PLR0917 - Helion takes positional arguments only
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    y: torch.Tensor,
    scale: float,
) -> torch.Tensor:
    """The gated delta rule, step by step; the state of a head and some of its values stays in registers."""
    heads, steps, keys = q.size()
    keys = hl.specialize(keys)
    values = v.size(2)
    for head, value in hl.tile([heads, values], block_size=[1, None]):
        at = head.begin
        state = hl.zeros([keys, value], dtype=torch.float32)
        for step in hl.grid(steps):
            key = k[at, step, :].to(torch.float32)
            query = q[at, step, :].to(torch.float32) * scale
            state = state * torch.exp(g[at, step])
            seen = torch.sum(state * key[:, None], dim=0)
            change = (v[at, step, value].to(torch.float32) - seen) * beta[at, step]
            state = state + key[:, None] * change[None, :]
            y[at, step, value] = torch.sum(state * query[:, None], dim=0).to(y.dtype)
    return y


def make_softmax(*, seed: int, M: int = 8192, N: int = 4096) -> Case:
    """Row softmax of an M x N float16 matrix."""
    x = _Normal(seed)(M, N, dtype=torch.float16)
    y = torch.empty_like(x)
    return Case(
        run=lambda: softmax(x, y),
        reference=lambda: torch.softmax(x.float(), 1),
        outputs=[y],
        tolerance=2e-3,
        bytes=4 * M * N,
    )


def make_fp8_quant(*, seed: int, M: int = 8192, N: int = 4096) -> Case:
    """Quantise M rows of N bfloat16 values to float8 (e4m3) with one scale a row."""
    x = _Normal(seed)(M, N, dtype=torch.bfloat16)
    y = torch.empty(M, N, device=DEVICE, dtype=torch.float8_e4m3fn)
    scales = torch.empty(M, device=DEVICE)

    def run() -> list[torch.Tensor]:
        fp8_quant(x, y, scales)
        return [y, scales]

    def reference() -> list[torch.Tensor]:
        scale = x.float().abs().amax(1).clamp(min=1e-10) / 448.0
        return [(x.float() / scale[:, None]).to(torch.float8_e4m3fn).float(), scale]

    # A value in the middle between two float8 may go to either: these are at most an eighth apart.
    return Case(
        run=run,
        reference=reference,
        outputs=[y, scales],
        tolerance=5e-3,
        rtol=0.13,
        atol=0.01,
        bytes=3 * M * N,
    )


def make_conv1d_causal(*, seed: int, B: int = 8, T: int = 4096, D: int = 2048) -> Case:
    """Depthwise causal convolution of width 4 and SiLU, B x T x D bfloat16."""
    normal = _Normal(seed)
    x = normal(B, T, D, dtype=torch.bfloat16)
    w, b = normal(D, 4, dtype=torch.bfloat16), normal(D, dtype=torch.bfloat16)
    y = torch.empty_like(x)

    def reference() -> torch.Tensor:
        out = torch.empty(B, T, D, device=DEVICE)
        for i in range(B):
            padded = F.pad(x[i].float(), (0, 0, 3, 0))
            total = b.float()[None] + sum(padded[j : j + T] * w[:, j].float()[None] for j in range(4))
            out[i] = total * torch.sigmoid(total)
        return out

    return Case(
        run=lambda: conv1d_causal(x, w, b, y),
        reference=reference,
        outputs=[y],
        tolerance=5e-3,
        bytes=4 * B * T * D,
    )


def make_gated_delta(*, seed: int, H: int = 256, T: int = 192) -> Case:
    """Gated DeltaNet forward, H heads, T steps, key and value size 64, bfloat16."""
    normal = _Normal(seed)
    q, k = (F.normalize(normal(H, T, 64), dim=-1).bfloat16() for _ in range(2))
    v = normal(H, T, 64, dtype=torch.bfloat16)
    g, beta = -F.softplus(normal(H, T)) * 0.1, torch.sigmoid(normal(H, T))
    y = torch.empty_like(v)
    scale = 64**-0.5

    def reference() -> torch.Tensor:
        state = torch.zeros(H, 64, 64, device=DEVICE)
        out = torch.empty(H, T, 64, device=DEVICE)
        for t in range(T):
            key = k[:, t].float()
            state = state * torch.exp(g[:, t])[:, None, None]
            change = (v[:, t].float() - (state * key[:, :, None]).sum(1)) * beta[:, t][:, None]
            state = state + key[:, :, None] * change[:, None, :]
            out[:, t] = (state * (q[:, t].float() * scale)[:, :, None]).sum(1)
        return out

    return Case(
        run=lambda: gated_delta(q, k, v, g, beta, y, scale), reference=reference, outputs=[y], tolerance=6e-3
    )
