"""FlashInfer's real kernels built by its real JIT on a machine without a GPU: launches alone are missing.

``trap`` names something that a user's case may do and that would hide the ACF from the compiler.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from boosterrun import Case


def make(*, seed: int, op: str = "silu", trap: str = "", place: str = "") -> Case:
    """Build one module; the output says that its library is there."""
    if trap == "other_workspace":
        os.environ["FLASHINFER_WORKSPACE_BASE"] = place
    elif trap == "own_options":
        os.environ["FLASHINFER_EXTRA_CUDAFLAGS"] = ""
    said = np.zeros(1)
    built: list[Path] = []

    def run() -> None:
        if trap == "prebuilt":
            cubin = Path(os.environ["FLASHINFER_CUBIN_DIR"]) / "fmha" / "fetched.cubin"
            cubin.parent.mkdir(parents=True, exist_ok=True)
            cubin.write_bytes(b"\x7fELF")
        if not built and trap != "prebuilt":
            built.append(_build(op))
        said[:] = [path.is_file() for path in built] or 1

    return Case(run=run, reference=lambda: np.ones(1), outputs=[said])


def _build(op: str) -> Path:
    import torch
    from flashinfer.jit.activation import gen_act_and_mul_module
    from flashinfer.jit.attention.modules import gen_batch_decode_module

    bf16, index = torch.bfloat16, torch.int32
    spec = (
        gen_batch_decode_module(bf16, bf16, bf16, index, 128, 128, 0, False, False)
        if op == "decode"
        else gen_act_and_mul_module("silu")
    )
    spec.build(False)
    return Path(spec.jit_library_path)
