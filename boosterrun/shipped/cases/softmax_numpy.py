"""A row softmax on the CPU: shows the case contract without a GPU, a compiler or an ACF."""

from typing import Any

import numpy as np

from boosterrun import Case


def make(*, seed: int, rows: int, columns: int) -> Case:
    """Return the softmax of each row of a random float32 matrix, written into a preallocated output."""
    x = np.random.default_rng(seed).standard_normal((rows, columns), dtype=np.float32)
    y = np.empty_like(x)

    def run() -> None:
        np.subtract(x, x.max(axis=1, keepdims=True), out=y)
        np.exp(y, out=y)
        np.divide(y, y.sum(axis=1, keepdims=True), out=y)

    def reference() -> Any:
        wide = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
        return wide / wide.sum(axis=1, keepdims=True)

    return Case(run=run, reference=reference, outputs=[y], flops=5.0 * x.size, bytes=2.0 * x.nbytes)
