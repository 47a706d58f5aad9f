"""Evidence from pairs in random order: bets, exact p-values; the noise's scale and the timer's step.

Under "no difference" the coin makes the log-ratio of a pair as likely to be ``+v`` as ``-v``, whatever the
machine does meanwhile. The tests rest on that symmetry alone: no normal distribution, no independence in
time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

STAKES = (0.1, 0.2, 0.35, 0.5, 0.7, 0.95)
CLIP_SCALES = 2.0
SCALE_FLOOR = 1e-4
QUANTILE = 0.7
QUANTILE_OF_NORMAL = 1.0364
TIE_TOLERANCE = 1e-6
MIN_SAMPLES_FOR_STEP = 8
MAX_LOG = 690.0


def bet(x: float, scale: float) -> float:
    """Odd bounded score of a log-ratio ``x`` whose noise is ``scale``: -1 to 1."""
    return max(-1.0, min(1.0, x / (CLIP_SCALES * scale)))


class Wealth:
    """What bets of several stakes have won; its mean over the stakes is an e-value.

    Each stake's wealth is multiplied by 1 + stake * score. When scores have mean <= 0 whatever came before,
    the mean wealth is a non-negative supermartingale from 1: it ever reaches 1/p with probability p at most
    (Ville).
    """

    def __init__(self) -> None:
        self._logs = [0.0] * len(STAKES)

    def add(self, score: float) -> None:
        """Multiply one score in [-1, 1] onto the wealth."""
        self._logs = [w + math.log1p(stake * score) for w, stake in zip(self._logs, STAKES, strict=True)]

    @property
    def log(self) -> float:
        """Natural logarithm of the e-value."""
        return _log_mean(self._logs)

    def soonest(self, log: float) -> int:
        """How many more scores it takes at least, each being 1, until the e-value's logarithm is ``log``."""
        logs, count = list(self._logs), 0
        while count == 0 or _log_mean(logs) < log:
            logs = [w + math.log1p(stake) for w, stake in zip(logs, STAKES, strict=True)]
            count += 1
        return count


def most_log_evidence(pairs: int) -> float:
    """Logarithm of the largest e-value that ``pairs`` pairs can give, every score being 1."""
    return _log_mean([pairs * math.log1p(stake) for stake in STAKES])


def _log_mean(logs: Sequence[float]) -> float:
    top = max(logs)
    return top + math.log(sum(math.exp(w - top) for w in logs) / len(logs))


def from_log(log_value: float) -> float:
    """``exp`` that stays finite, for JSON."""
    return math.exp(min(log_value, MAX_LOG))


def noise_scale(x: Sequence[float], step: float = 0.0) -> float:
    """Standard deviation of baseline-against-baseline log-ratios, at least the timer's relative step.

    From the 70 % quantile of their sizes, about the known centre 0: up to 3 outliers of 10 do little, and it
    varies less from one calibration to the next than the median does.
    """
    size = float(np.quantile(np.abs(x), QUANTILE)) if len(x) else 0.0
    return max(size / QUANTILE_OF_NORMAL, step if math.isfinite(step) else 0.0, SCALE_FLOOR)


def signed_rank_p(x: Sequence[float]) -> float:
    """Exact one-sided p-value of Wilcoxon's signed-rank test for "greater".

    Exact under the coin alone: given the sizes, all 2^n sign patterns are equally likely. Ties get midranks;
    zeros count as losses of the lowest rank, which can only raise the p-value.
    """
    values = np.asarray(x, dtype=np.float64)
    if not values.size:
        return 1.0
    sizes = np.abs(values)
    _, inverse, counts = np.unique(sizes, return_inverse=True, return_counts=True)
    doubled = 2 * np.cumsum(counts) - counts + 1  # twice the midrank: whole numbers
    ranks = doubled[inverse]
    observed = int(ranks[values > 0].sum())
    ways = np.zeros(int(ranks.sum()) + 1)
    ways[0] = 1.0
    for rank in ranks:
        shifted = np.zeros_like(ways)
        shifted[rank:] = ways[:-rank]
        ways = (ways + shifted) / 2.0
    return float(min(1.0, ways[observed:].sum()))


def sign_p(wins: int, losses: int) -> float:
    """Exact one-sided sign test: P(at least ``wins`` heads in ``wins + losses`` fair coins)."""
    n = wins + losses
    return sum(math.comb(n, k) for k in range(wins, n + 1)) / 2.0**n


def timer_step(samples: Iterable[float]) -> float | None:
    """Relative step of the timer, or None when the samples do not look quantised.

    Quantised means ties: 8 samples or more that fall on at most half as many distinct values. The step is the
    smallest spacing of those values over their median; ``inf`` when there is one value only.
    """
    values = np.sort(np.fromiter(samples, dtype=np.float64))
    if values.size < MIN_SAMPLES_FOR_STEP:
        return None
    median = float(np.median(values))
    gaps = np.diff(values)
    apart = gaps[gaps > TIE_TOLERANCE * median]
    if 2 * (apart.size + 1) > values.size:
        return None
    return float(apart.min() / median) if apart.size else math.inf
