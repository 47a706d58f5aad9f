"""The pairs of a job, reduced to what a chart needs, with the evidence after each of them."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from boosterrun.errors import UsageError
from boosterrun.system import reading

RESOLUTION = 1e-5
"""Block medians are kept as whole multiples of this fraction of the baseline's median."""


def read(folder: Path, result: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The trace of each shape that has pairs, by the shape's name.

    A trace has ``unit``, ``scale`` (the baseline's median, in that unit), and lists with one entry per pair:
    ``b`` and ``c`` (block medians of baseline and candidate in `RESOLUTION` of the scale, None: a launch
    failed), ``plus`` and ``minus`` (evidence that the candidate is faster, and that it is not: hundredths of
    a power of ten; only where the protocol is sequential). ``parts`` are [phase, session, pairs], in order;
    ``void`` says why a pair does not count, by its number. A line that is not complete ends the file.
    """
    names = {(s.get("pairs") or {}).get("file") for s in result["shapes"]} - {None}
    lines: dict[str, list[dict[str, Any]]] = {}
    for name in names:
        path = folder / str(name)
        # The name comes from the result: nothing outside the job's own folder is read.
        if path.parent == folder and path.is_file() and not path.is_symlink():
            for line in _lines(path):
                lines.setdefault(line["shape"], []).append(line)
    shapes = {shape["name"]: shape for shape in result["shapes"]}
    made = {
        name: _trace(shapes[name], pairs, result["config"]) for name, pairs in lines.items() if name in shapes
    }
    return {name: trace for name, trace in made.items() if trace}


def _lines(path: Path) -> list[dict[str, Any]]:
    found = []
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, OverflowError):
        for line in reading.content(path).splitlines():
            pair = reading.parsed(line)
            found.append({"shape": str(pair["shape"]), **_checked(pair)})
    return found


def _checked(pair: Mapping[str, Any]) -> dict[str, Any]:
    sides = {side: [_sample(v) for v in pair[side]] for side in ("baseline", "candidate")}
    void = pair.get("void")
    return {
        "phase": str(pair["phase"]),
        "session": int(pair["session"]),
        "order": str(pair["order"]),
        "void": None if void is None else str(void),
        "unit": str(pair.get("unit", "")),
        **sides,
    }


def _sample(value: Any) -> float | None:
    return None if value is None else float(value)


def _trace(
    shape: Mapping[str, Any], pairs: Sequence[dict[str, Any]], config: Mapping[str, Any]
) -> dict[str, Any] | None:
    sides = [(_block(pair["baseline"]), _block(pair["candidate"])) for pair in pairs]
    known = [b for b, _ in sides if b is not None]
    if not known:
        return None
    scale = median(known)
    trace: dict[str, Any] = {
        "unit": pairs[0]["unit"],
        "scale": scale,
        "b": [_steps(b, scale) for b, _ in sides],
        "c": [_steps(c, scale) for _, c in sides],
        "parts": [],
        "void": {str(n): pair["void"] for n, pair in enumerate(pairs) if pair["void"] is not None},
    }
    for pair in pairs:
        part = [pair["phase"], pair["session"]]
        if trace["parts"] and trace["parts"][-1][:2] == part:
            trace["parts"][-1][2] += 1
        else:
            trace["parts"].append([*part, 1])
    trace.update(_evidence(shape.get("statistics") or {}, pairs, sides, config))
    return trace


def _block(samples: Sequence[float | None]) -> float | None:
    """The median of a block; None where it is a failed launch."""
    found = median(v if v is not None and v > 0 else math.inf for v in samples) if samples else math.inf
    return found if math.isfinite(found) else None


def _steps(value: float | None, scale: float) -> int | None:
    return None if value is None else round(value / scale / RESOLUTION)


def _evidence(
    statistics: Mapping[str, Any],
    pairs: Sequence[dict[str, Any]],
    sides: Sequence[tuple[float | None, float | None]],
    config: Mapping[str, Any],
) -> dict[str, Any]:
    """The bets of the decision once more; nothing where the protocol makes none, or never came so far."""
    from boosterrun.decision import evidence  # noqa: PLC0415 - imports numpy, which a static sweep needs not
    from boosterrun.decision.budget import hopeful_gain  # noqa: PLC0415
    from boosterrun.decision.pairs import FAILED_RATIO, Protocol  # noqa: PLC0415

    try:
        protocol = Protocol.from_mapping(config["protocol"])
        family, scale = int(statistics["family"]), float(statistics["scale"])
        hope = math.log1p(hopeful_gain(scale, family, protocol))
    except (UsageError, KeyError, TypeError, ValueError):
        return {}
    plus, minus = evidence.Wealth(), evidence.Wealth()
    trace: dict[str, Any] = {"plus": [], "minus": []}
    for pair, (baseline, candidate) in zip(pairs, sides, strict=True):
        # Launches that failed end a decision, so they are never bet on.
        if pair["phase"] != "calibrate" and pair["void"] is None and baseline and candidate:
            x = max(-FAILED_RATIO, min(FAILED_RATIO, math.log(baseline / candidate)))
            plus.add(evidence.bet(x, scale))
            minus.add(evidence.bet(hope - x, scale))
        trace["plus"].append(_hundredths(plus.log))
        trace["minus"].append(_hundredths(minus.log))
    trace["needed"] = _hundredths(math.log(family / protocol.alpha))
    trace["screen"] = _hundredths(math.log(protocol.screen_evidence))
    trace["futile"] = _hundredths(math.log(protocol.futility_evidence))
    return trace


def _hundredths(log: float) -> int:
    return round(100 * log / math.log(10))
