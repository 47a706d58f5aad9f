"""How long a job may take: as long as those before it did, else a guess."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from boosterrun.results.record import FILENAME
from boosterrun.system import reading

# Seconds for one shape where nothing is known.
_GUESS = {"static": 0.5, "timed": 5.0}
_MOST = 200


@dataclass(frozen=True)
class Estimate:
    """``seconds`` of one job, and what the figure is based on, in words."""

    seconds: float
    basis: str


def estimate(tree: Path, workload: str, evidence: str, shapes: int) -> Estimate:
    """Estimate a job of ``shapes`` shapes from the newest results of the same workload below ``tree``."""
    seconds = []
    for path in _newest(tree):
        try:
            result = reading.document(path)
            if result["workload"]["name"] == workload and result["status"] == "decided":
                seconds.append(float(result["job"]["seconds"]))
        except (OSError, ValueError, KeyError, TypeError):
            continue
    if seconds:
        basis = f"the mean of {len(seconds)} earlier results below {tree}"
        return Estimate(sum(seconds) / len(seconds), basis)
    return Estimate(_GUESS[evidence] * max(1, shapes), f"a guess: no results of {workload} below {tree}")


def duration(seconds: float) -> str:
    """A time in words, with as many digits as an estimate deserves."""
    if seconds < 100:
        return f"{max(1, round(seconds))} s"
    if seconds < 100 * 60:
        return f"{round(seconds / 60)} min"
    return f"{seconds / 3600:.1f} h"


def _newest(tree: Path) -> list[Path]:
    found: list[tuple[float, Path]] = []
    for place, folders, names in os.walk(tree):
        if FILENAME in names:
            folders.clear()
            path = Path(place, FILENAME)
            found.append((path.stat().st_mtime, path))
    return [path for _, path in sorted(found, reverse=True)[:_MOST]]
