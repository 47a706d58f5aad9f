"""Pairs that an interrupted run of a job has left: found, proven to be of the same sides, and used.

Whether a pair counts depends on those before it, never on what it says itself: from the first on, pairs are
taken for as long as the rule asks for them. So the evidence is that of one measurement which paused, and its
error rates hold. To leave pairs out would not do: who interrupts what goes badly would get another try.
"""

from __future__ import annotations

import copy
import hashlib
import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from boosterrun.decision.decide import Decider
from boosterrun.decision.pairs import FILENAME, Pair
from boosterrun.errors import UsageError
from boosterrun.gpus import gpu
from boosterrun.measure.api import Hello
from boosterrun.measure.blocks import TAKEN_OVER, Timing, toss
from boosterrun.measure.trial import Application, Trial
from boosterrun.results import identity
from boosterrun.system import reading

_BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Left:
    """The pairs of a shape that count, in order, each with its line in the log, and how they were timed."""

    timing: Timing
    pairs: list[tuple[dict[str, Any], Pair]]


def fingerprint(folder: Path, hello: Hello, application: Application) -> str | None:
    """The digest of all that makes a job's sides what they are; None: that is not known well enough.

    It covers the job's identity (deadlines aside: none was missed by a pair), the very GPU and its driver, or
    this boot of this machine where there is none, the versions that the worker tells, and the code of both
    sides, kernel by kernel, where the adapter can read it. ``folder``: the job's.
    """
    try:
        content = reading.document(folder / identity.FILENAME)
        where = _place(hello.device)
    except (OSError, ValueError):
        return None
    codes = [kernel["code_sha256"] for kernel in application.kernels]
    if not isinstance(content, dict) or where is None or any(None in code.values() for code in codes):
        return None
    parts = {
        "identity": {k: v for k, v in content.items() if not k.startswith(identity.TIMEOUTS)},
        "place": where,
        "versions": dict(hello.versions),
        "applied": application.applied,
        "code": [[k["name"], k["arch"], k["code_sha256"]] for k in application.kernels],
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _place(device: Mapping[str, Any] | None) -> list[str] | None:
    if device is None:
        return [_BOOT.read_text().strip()]
    if not device.get("uuid"):
        return None
    return [str(device["uuid"]), str(gpu.snapshot([])["driver_version"])]


def find(folder: Path, trial: Trial, seed: str, sides: str | None, warmup: int) -> Left | None:
    """What was measured of a shape on these sides before, as far as it counts; None: nothing.

    Args:
        folder: the job's. trial: the shape, without any pair yet; it is left alone.
        seed: of the coin. sides: see :func:`fingerprint`. warmup: launches that are dropped.
    """
    for path in _files(folder) if sides is not None else ():
        lines = [line for line in _lines(path) if line["shape"] == trial.name and line["sides"] == sides]
        # The last run that measured any had taken over all before it; else it may have ended on the way.
        if any(_new(line) for line in lines):
            coin = random.Random(seed)  # noqa: S311 - the coin that drew their order # nosec B311
            taken = _due(lines, copy.deepcopy(trial.decider), coin)
            timing = Timing(lines[0]["timer"], lines[0]["launches"], warmup)
            return Left(timing, taken) if taken else None
    return None


def _due(
    lines: list[dict[str, Any]], decider: Decider, coin: random.Random
) -> list[tuple[dict[str, Any], Pair]]:
    """The pairs that the rule asks for and whose order its coin has drawn, from the first on.

    None if they end without a verdict, because the baseline failed: that has been mended since.
    """
    taken: list[tuple[dict[str, Any], Pair]] = []
    for line in lines:
        pair = Pair.from_entry(line)
        timed = all(line[key] == lines[0][key] for key in ("timer", "launches"))
        if pair.phase == "guard":
            wanted = decider.guards(pair.session)
        else:
            wanted = pair.phase == decider.phase and pair.session >= decider.session and not decider.final
        if not (timed and wanted) or (not line.get("reused") and toss(coin) != pair.order):
            break
        decider.add(pair)
        taken.append((line, pair))
    return [] if decider.final and decider.reason is None else taken


def _new(line: Mapping[str, Any]) -> bool:
    return not line.get("reused") and not line.get(TAKEN_OVER)


def _files(folder: Path) -> list[Path]:
    """Logs that earlier runs have left, the latest first: ``.old``, ``.old-2``, ..."""
    found = [p for p in folder.glob(f"{FILENAME}.old*") if p.is_file() and not p.is_symlink()]
    return sorted(found, key=lambda path: (len(path.name), path.name), reverse=True)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a log up to the first that is none: a run that was killed may have torn its last."""
    try:
        for text in reading.content(path).splitlines(keepends=True):
            line = reading.parsed(text)
            Pair.from_entry(line)
            if not (isinstance(line["shape"], str) and text.endswith(b"\n")):
                return
            if not (isinstance(line["timer"], str) and isinstance(line["launches"], int)):
                return
            line.setdefault("sides", None)
            yield line
    except (OSError, ValueError, KeyError, TypeError, OverflowError, UsageError):
        return
