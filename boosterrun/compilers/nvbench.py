"""Read the raw samples that an NVBench program leaves with ``--jsonbin``.

Its JSON names, for each state, a file beside it with the time of every launch: 32-bit floats in seconds,
little-endian. Older versions name that file relative to where the program ran.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator
from pathlib import Path
from sys import byteorder
from typing import Any

from boosterrun.programs.score import ScoreError
from boosterrun.system import reading

# By events around single launches, else (benchmarks without a GPU) by the CPU's clock.
_TAGS = ("nv/json/bin:nv/cold/sample_times", "nv/json/bin:nv/cpu_only/sample_times")
_CHOOSE = "Choose one in args, e.g. [-b, '0', -a, 'Elements=1024']"


def samples(path: Path, cwd: Path) -> list[float]:
    """Return the times of all launches in milliseconds, in order.

    ``cwd`` is where the program ran. Raises ScoreError unless there is exactly one state with samples.
    """
    state = _state(_load(path))
    if state.get("is_skipped"):
        raise ScoreError(f"NVBench skipped the measurement: {state.get('skip_reason') or 'no reason given'}")
    for tag in _TAGS:
        for summary in state.get("summaries") or []:
            if summary.get("tag") == tag:
                return _read(summary, path, cwd)
    raise ScoreError(
        f"{path} names no file with sample times",
        "Use an NVBench that has --jsonbin, and a benchmark that measures single (cold) launches",
    )


def _load(path: Path) -> dict[str, Any]:
    try:
        document = reading.document(path)
    except OSError as error:
        raise ScoreError(
            f"NVBench left no {path}: {error.strerror}", "Check that it is an NVBench program"
        ) from error
    except ValueError as error:
        raise ScoreError(f"{path} is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise ScoreError(f"{path} is not NVBench's")
    return document


def _state(document: dict[str, Any]) -> dict[str, Any]:
    try:
        found = list(_states(document))
    except (AttributeError, TypeError) as error:
        raise ScoreError(f"the JSON is not NVBench's: {error}") from error
    if len(found) != 1:
        names = ", ".join(name for name, _ in found[:5])
        raise ScoreError(
            f"NVBench measured {len(found)} states{f' ({names}, ...)' if found else ''}, not one", _CHOOSE
        )
    return found[0][1]


def _states(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for benchmark in document.get("benchmarks") or []:
        for state in benchmark.get("states") or []:
            yield f"{benchmark.get('name')} {state.get('name')}".strip(), state


def _read(summary: dict[str, Any], path: Path, cwd: Path) -> list[float]:
    values = {item.get("name"): item.get("value") for item in summary.get("data") or []}
    name, size = values.get("filename"), values.get("size")
    if not isinstance(name, str) or size is None:
        raise ScoreError("NVBench could not write its sample times", "Check that the disk is not full")
    file = next((base / name for base in (path.parent, cwd) if (base / name).is_file()), path.parent / name)
    times = array("f")
    try:
        times.frombytes(reading.content(file))
    except OSError as error:
        raise ScoreError(f"cannot read NVBench's samples {file}: {error.strerror}") from error
    except ValueError as error:
        raise ScoreError(f"NVBench's samples {file} are cut off: {error}") from error
    if byteorder == "big":
        times.byteswap()
    if str(len(times)) != str(size) or not times:
        raise ScoreError(f"NVBench's samples {file} are {len(times)}, not {size}")
    if not all(math.isfinite(time) and time > 0 for time in times):
        raise ScoreError(f"NVBench's samples {file} are not all above zero")
    return [time * 1e3 for time in times]
