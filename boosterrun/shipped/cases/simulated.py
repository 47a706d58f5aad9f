"""The simulated workload as a Python case: a real softmax whose time follows a noise model."""

from __future__ import annotations

import functools
import json
import math
import time
from typing import Any

import numpy as np

from boosterrun import Case
from boosterrun.shipped.cases.simulation import Simulation, spin


@functools.lru_cache(maxsize=8)
def _simulation(settings: str) -> Simulation:
    """Return the one simulation of this process, its build done; the arguments as JSON, to be hashable."""
    simulation = Simulation(**json.loads(settings))
    simulation.build()
    return simulation


def make(
    *,
    seed: int,
    size: int = 32,
    base_ms: float = 0.2,
    clock: str = "virtual",
    machine_seed: int = 0,
    noise: dict[str, float] | None = None,
    behaviours: dict[str, dict[str, object]] | None = None,
) -> Case:
    """Return a softmax over ``size`` x ``size`` numbers that takes ``base_ms`` ms, more or less.

    Args: clock: ``real`` waits for the simulated time, and the timer measures it; ``virtual`` reports it at
    once. noise, behaviours, machine_seed: see `Simulation`.
    """
    if clock not in ("real", "virtual"):
        raise ValueError(f"clock: {clock} is unknown; use real or virtual")
    settings = {
        "base_ms": base_ms,
        "noise": noise or {},
        "behaviours": behaviours or {},
        "seed": machine_seed,
    }
    simulation = _simulation(json.dumps(settings))
    x = np.random.default_rng(seed).standard_normal((size, size), dtype=np.float32)
    y = np.empty_like(x)
    written = False

    def run() -> Any:
        nonlocal written
        began = time.perf_counter()
        fail = simulation.failing
        if not simulation.launch():
            raise RuntimeError("(simulated) this launch failed")
        if fail != "stale" or not written:
            np.exp(x - x.max(axis=1, keepdims=True), out=y)
            np.divide(y, y.sum(axis=1, keepdims=True), out=y)
            written = True
        if fail == "wrong":
            y[-1] *= 1.01
        if fail == "nan":
            y[0, 0] = np.nan
        if clock == "real":
            spin(simulation.milliseconds(), began)
        return y

    def reference() -> Any:
        wide = x.astype(np.float64)
        powers = np.exp(wide - wide.max(axis=1, keepdims=True))
        return powers / powers.sum(axis=1, keepdims=True)

    def sample(count: int) -> list[float]:
        return [simulation.milliseconds() if simulation.launch() else math.nan for _ in range(count)]

    return Case(run=run, reference=reference, outputs=[y], sample=sample if clock == "virtual" else None)
