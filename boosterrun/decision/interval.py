"""The gain's estimate and its interval, from log-ratios grouped by process pair."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

CONFIDENCE = 0.95
MAD_TO_SD = 1.4826
_T_975 = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281)


def t_quantile(df: int) -> float:
    """97.5 % quantile of Student's t with ``df`` >= 1 degrees of freedom (error below 1e-3)."""
    if df <= len(_T_975):
        return _T_975[df - 1]
    z = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / df + second / df**2 + third / df**3


def hodges_lehmann(x: Sequence[float] | Array) -> float:
    """Median of the means of all pairs of values, each with itself too: robust, about as sharp as a mean."""
    values = np.asarray(x, dtype=np.float64)
    i, j = np.triu_indices(values.size)
    return float(np.median((values[i] + values[j]) / 2))


def prediction_interval(
    sessions: Sequence[Sequence[float] | Array], scale: float, freedom: int, process_spread: float
) -> tuple[float, float]:
    """Where a repetition of the measurement in new processes falls 19 times of 20: (low, high) log-ratio.

    ``sessions``: log-ratios by process pair, two in all at least. ``scale``: the noise of one pair as known
    before, with that many degrees of ``freedom`` (0: not known). The spread between sessions carries both the
    noise within and the differences between fresh processes; the interval is never narrower than the noise
    within explains. One session alone says nothing about other processes: ``process_spread`` (a standard
    deviation) stands in for what was not measured.
    """
    arrays = [np.asarray(s, dtype=np.float64) for s in sessions if len(s)]
    pooled = np.concatenate(arrays)
    m, n = len(arrays), pooled.size
    own = max(1, n - m)
    deviations = np.abs(np.concatenate([a - np.median(a) for a in arrays]))
    variance = (MAD_TO_SD * float(np.median(deviations))) ** 2 * n / own
    variance = (own * variance + freedom * scale**2) / (own + freedom)
    within, sure = math.sqrt(variance * m / n), t_quantile(own + freedom)
    if m == 1:
        half = sure * math.hypot(within, process_spread)
    else:
        between = float(np.std([hodges_lehmann(a) for a in arrays], ddof=1))
        half = max(sure * within, t_quantile(m - 1) * between)
    half *= math.sqrt(2.0 / m)
    centre = hodges_lehmann(pooled)
    return centre - half, centre + half
