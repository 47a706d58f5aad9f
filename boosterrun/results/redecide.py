"""Decide a finished job again, from its pairs, among more candidates than it was decided among."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from boosterrun.decision.decide import decide
from boosterrun.decision.pairs import FILENAME, Pair, Protocol
from boosterrun.errors import UsageError
from boosterrun.results.record import KEPT
from boosterrun.system import reading

# Decisions that were made from pairs; the others hold among any number of candidates.
_FROM_PAIRS = {KEPT, *(f"REJECTED:{why}" for why in ("no_gain", "regression", "inconclusive", "fat_tail"))}


class NotAgain(Exception):  # noqa: N818 - an answer
    """The pairs do not give the same decision among more candidates; the message says where and why."""


def redecide(result: Mapping[str, Any], folder: Path, candidates: int) -> dict[str, Any]:
    """Return ``result`` as it would be in a sweep of ``candidates``, if its decisions stay the same.

    ``folder`` has its pairs. Raises NotAgain when more pairs are needed, another decision comes out, or the
    pairs cannot be read: the job must run again.
    """
    new = copy.deepcopy(dict(result))
    shapes = new["shapes"]
    if result["evidence"] == "timed" and any(shape["decision"] in _FROM_PAIRS for shape in shapes):
        pairs = _read(folder / FILENAME)
        try:
            protocol = Protocol.from_mapping(result["config"]["protocol"])
            for shape in shapes:
                if shape["decision"] in _FROM_PAIRS:
                    _replay(shape, pairs.get(shape["name"], []), protocol, candidates, len(shapes))
        except (UsageError, KeyError, TypeError) as error:
            raise NotAgain(f"and its pairs cannot be decided again: {error}") from error
    new["job"]["sweep_candidates"] = candidates
    if isinstance(new["config"].get("sweep"), dict):
        new["config"]["sweep"]["candidates"] = candidates
    return new


def _replay(
    shape: dict[str, Any], pairs: list[Pair], protocol: Protocol, candidates: int, shapes: int
) -> None:
    again = decide(pairs, protocol, candidates, shapes)
    word = again.reason if again.reason in (None, KEPT) else f"REJECTED:{again.reason}"
    if again.state != "final" or word != shape["decision"]:
        now = word if again.state == "final" else "open"
        raise NotAgain(f"among which shape {shape['name']} is {now}, not {shape['decision']}")
    shape["statistics"] = dict(again.statistics)


def _read(path: Path) -> dict[str, list[Pair]]:
    found: dict[str, list[Pair]] = {}
    try:
        for line in reading.content(path).splitlines():
            entry = reading.parsed(line)
            found.setdefault(entry["shape"], []).append(Pair.from_entry(entry))
    except (OSError, ValueError, KeyError, TypeError, OverflowError, UsageError) as error:
        raise NotAgain(f"and its pairs cannot be read: {error}") from error
    return found
