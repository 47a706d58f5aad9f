"""Slow launches: does the candidate have more of them?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import Any

from boosterrun.decision.evidence import sign_p
from boosterrun.decision.pairs import Pair

SLOW_LAUNCH = 1.10


def slow_tail(pairs: Sequence[Pair]) -> dict[str, Any]:
    """Whether the candidate's blocks hold more slow launches than the baseline's blocks beside them.

    A launch is slow when it takes over 1.1 times its own side's median in that session. Pairs are the unit,
    by an exact sign test on those that differ: slow launches come in bursts, so counting them one by one
    would mistake a single disturbed block for many independent ones.
    """
    groups: dict[tuple[str, int], list[Pair]] = {}
    for pair in pairs:
        if pair.phase != "calibrate":
            groups.setdefault((pair.phase, pair.session), []).append(pair)
    worse = better = 0
    slow = {"baseline": 0, "candidate": 0}
    for group in groups.values():
        counts = {}
        for side in slow:
            blocks = [[math.inf if v is None else v for v in getattr(p, side)] for p in group]
            limit = SLOW_LAUNCH * median(v for block in blocks for v in block)
            counts[side] = [sum(v > limit for v in block) for block in blocks]
            slow[side] += sum(counts[side])
        worse += sum(c > b for b, c in zip(counts["baseline"], counts["candidate"], strict=True))
        better += sum(c < b for b, c in zip(counts["baseline"], counts["candidate"], strict=True))
    return {
        "p": sign_p(worse, better),
        "slow_baseline": slow["baseline"],
        "slow_candidate": slow["candidate"],
    }
