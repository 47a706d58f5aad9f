# mypy: ignore-errors
"""Batch decode attention on a paged cache by FlashInfer, with an oracle in plain torch.

``plan()``, which builds the kernels at its first call, is not part of a launch.
"""

from __future__ import annotations

import math

import flashinfer
import torch

from boosterrun import Case

DEVICE = "cuda"
_WORKSPACE_BYTES = 128 << 20


def make_batch_decode(
    *,
    seed: int,
    batch: int = 1,
    kv: int = 512,
    qo_heads: int = 64,
    kv_heads: int = 8,
    head_dim: int = 128,
    page_size: int = 16,
    dtype: str = "bfloat16",
) -> Case:
    """One query token for each of ``batch`` requests, each with ``kv`` keys and values in scattered pages."""
    kind = getattr(torch, dtype)
    generator = torch.Generator(device=DEVICE)
    generator.manual_seed(seed)

    def normal(*size: int) -> torch.Tensor:
        return torch.randn(*size, generator=generator, device=DEVICE, dtype=torch.float32).to(kind)

    pages = math.ceil(kv / page_size)
    q = normal(batch, qo_heads, head_dim)
    cache = normal(batch * pages, 2, page_size, kv_heads, head_dim)
    indices = torch.randperm(batch * pages, generator=generator, device=DEVICE).to(torch.int32)
    indptr = torch.arange(batch + 1, device=DEVICE, dtype=torch.int32) * pages
    last = torch.full((batch,), kv - (pages - 1) * page_size, device=DEVICE, dtype=torch.int32)
    out = torch.empty_like(q)

    workspace = torch.zeros(_WORKSPACE_BYTES, device=DEVICE, dtype=torch.uint8)
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace, "NHD")
    wrapper.plan(
        indptr,
        indices,
        last,
        qo_heads,
        kv_heads,
        head_dim,
        page_size,
        q_data_type=kind,
        kv_data_type=kind,
    )

    def run() -> torch.Tensor:
        return wrapper.run(q, cache, out=out)

    def reference() -> torch.Tensor:
        answer = torch.empty(batch, qo_heads, head_dim, device=DEVICE)
        group = qo_heads // kv_heads
        for i in range(batch):
            mine = indices[i * pages : (i + 1) * pages].long()
            keys, values = (
                cache[mine, half].reshape(-1, kv_heads, head_dim)[:kv].float().repeat_interleave(group, 1)
                for half in (0, 1)
            )
            scores = torch.einsum("hd,nhd->hn", q[i].float(), keys) / math.sqrt(head_dim)
            answer[i] = torch.einsum("hn,nhd->hd", torch.softmax(scores, -1), values)
        return answer

    return Case(
        run=run,
        reference=reference,
        outputs=[out],
        tolerance=5e-3 if kind is torch.bfloat16 else 2e-3,
        flops=4 * batch * qo_heads * kv * head_dim,
        bytes=2 * q.element_size() * batch * (kv_heads * kv + qo_heads) * head_dim,
    )
