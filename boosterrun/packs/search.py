"""The results of a CompileIQ search (``dump_results``, or ``SearchResult.save``): its best ACFs.

A row has ``score_1`` (older ones: ``score``), more scores if there are several objectives, and ``params``:
the ACF as hexadecimal text, or, for a mixed search space, a JSON list of the user's own parameters and that.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from boosterrun.errors import UsageError
from boosterrun.packs.gathered import Candidate, Gathered
from boosterrun.packs.names import printable

_SCORE = re.compile(r"(?:norm_)?score(?:_[0-9]+)?")
_HEX = re.compile(r"(?:[0-9a-fA-F]{2})+")
# CompileIQ marks a failure by "*"; the scripts around it also by a score beyond this.
_INVALID = 1e10


def read(
    path: Path,
    columns: Sequence[str],
    rows: Iterator[dict[str, str]],
    found: Gathered,
    *,
    top: int,
    maximise: bool,
) -> None:
    """Add the ``top`` ACFs by the first score, best first. Raises UsageError if no row has a valid one."""
    column = next((name for name in ("score_1", "score") if name in columns), None)
    if column is None:
        raise UsageError(f"{printable(str(path))}: has no column score_1 or score", "Name a results CSV")
    scores = [name for name in columns if _SCORE.fullmatch(name)]
    ranked: list[tuple[float, bytes, Any, str]] = []
    for row in rows:
        values = [_score(row[name]) for name in scores if row[name].strip() or not name.startswith("norm")]
        score = _score(row[column])
        if score is None or None in values:
            found.leave_out("an invalid score")
            continue
        acf, user_space = _params(row["params"], row.get("user_space", ""))
        if acf is None:
            found.leave_out("no single ACF in params")
            continue
        generation = row.get("generation", "").strip()
        ranked.append((-score if maximise else score, acf, user_space, generation))
    ranked.sort(key=lambda each: each[0])
    seen: set[bytes] = set()
    best = []
    for each in ranked:
        if each[1] in seen:
            found.leave_out("the same as a better one")
        else:
            seen.add(each[1])
            best.append(each)
    if not best:
        raise UsageError(f"{printable(str(path))}: no row has a valid score and an ACF", "Name another CSV")
    for rank, (key, acf, user_space, generation) in enumerate(best, 1):
        if rank > top:
            found.leave_out(f"worse than the best {top}")
            continue
        score = -key if maximise else key
        said = f"{column} {score:.6g}, rank {rank} of {len(best)}" + (
            f", generation {generation}" if generation else ""
        )
        found.candidates.append(_candidate(path, rank, acf, user_space, said))


def _candidate(path: Path, rank: int, acf: bytes, user_space: Any, said: str) -> Candidate:
    stem = re.sub(r"[^A-Za-z0-9_]+", "_", path.stem).strip("_")[:40] or "search"
    candidate = Candidate(f"{rank:02}-{stem}.acf", acf, f"CompileIQ search {printable(path.name)}: {said}")
    name = f"{rank:02}-{stem}-{candidate.sha256[:12]}.acf"
    beside = {}
    if user_space is not None:
        text = json.dumps(user_space, indent=2, sort_keys=True) + "\n"
        beside = {f"{name}.user_space.json": text.encode()}
    return Candidate(name, acf, candidate.description, beside=beside)


def _score(text: str) -> float | None:
    try:
        score = float(text)
    except ValueError:
        return None
    return score if math.isfinite(score) and abs(score) < _INVALID else None


def _params(text: str, user_space: str) -> tuple[bytes | None, Any]:
    """The ACF in ``params``, if there is exactly one, and what else the search chose for it."""
    value, own = _json(text), _json(user_space) if user_space.strip() else None
    if isinstance(value, list):
        texts = [part for part in value if isinstance(part, str)]
        others = [part for part in value if not isinstance(part, str)]
        own = own if own is not None else (others[0] if len(others) == 1 else others or None)
        value = texts[0] if len(texts) == 1 else None
    if not isinstance(value, str) or not _HEX.fullmatch(value.strip()):
        return None, None
    return bytes.fromhex(value.strip()), own


def _json(text: str) -> Any:
    """JSON, or the text itself: ``params`` of older results, which may also look like a number."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, str | list | dict) else text
