"""The scores in a program's output, as samples in milliseconds.

A score that cannot be read beyond doubt is refused: a number that the pattern cuts short (the 5 of
``5e-06``), a unit other than the declared one, anything that is not a finite positive number.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import signal
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from boosterrun.decision.pairs import is_time
from boosterrun.errors import BoosterrunError, UsageError
from boosterrun.system import reading

if TYPE_CHECKING:
    from pathlib import Path
    from types import FrameType

    from boosterrun.config import ScoreConfig

# Milliseconds per unit; a rate is turned into the time of one.
_UNITS = {"ns": 1e-6, "us": 1e-3, "µs": 1e-3, "μs": 1e-3, "ms": 1.0, "s": 1e3}
RATE = "1/s"
SELECT = ("all", "first", "last")

MAX_TEXT = 1 << 20
_DEADLINE = 5.0

_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|[+-]?(?:nan|inf|infinity)", re.IGNORECASE)
# What may stand before or after a captured number only if the pattern has cut it short.
_CUT_BEFORE = re.compile(r"(?:\d[._]?|\d[eE][+-]?|(?<![^\s=:(\[,;])[-.]|(?<![\d.])\d{1,3},)$")
_CUT_AFTER = re.compile(r"[eE][+-]?\d|[._]?\d")
_CUT_AFTER_INTEGER = re.compile(r",\d")
_UNIT_AFTER = re.compile(r"\s*(ns|us|µs|μs|ms|s)(?![\w/])")
_STEP = re.compile(r"""\.?([A-Za-z_][\w-]*)|\[(\*|-?\d+|"[^"]*"|'[^']*')\]""")


class ScoreError(BoosterrunError):
    """One launch left no readable score; the launch counts as failed."""


def check(config: ScoreConfig) -> None:
    """Refuse a ``score`` block that can never work; raises UsageError naming the key."""
    if (config.regex is None) == (config.json_path is None):
        raise UsageError(
            "workload.score needs either regex or json_path", r"For example score: {regex: 'time: (\S+) ms'}"
        )
    if config.unit not in _UNITS and config.unit != RATE:
        raise UsageError(
            f"workload.score.unit={config.unit} is unknown", f"Use one of {', '.join((*_UNITS, RATE))}"
        )
    if config.select not in SELECT:
        raise UsageError(
            f"workload.score.select={config.select} is unknown", f"Use one of {', '.join(SELECT)}"
        )
    if config.regex is not None:
        _pattern(config.regex)
    if config.json_path is not None:
        _steps(config.json_path)


def _pattern(regex: str) -> re.Pattern[str]:
    try:
        pattern = re.compile(regex, re.MULTILINE)
    except re.error as error:
        raise UsageError(f"workload.score.regex={regex!r} is not a regular expression: {error}") from error
    names = set(pattern.groupindex)
    if "value" in names and names <= {"value", "unit"}:
        return pattern
    if pattern.groups == 1 and not names:
        return pattern
    raise UsageError(
        f"workload.score.regex={regex!r} does not say which group is the score",
        "Use exactly one group, or name them (?P<value>...) and (?P<unit>...)",
    )


def _steps(path: str) -> list[str | int | None]:
    """Split ``a.b[0][*]["c.d"]`` into keys, indices and None for every element."""
    text = path.removeprefix("$")
    steps: list[str | int | None] = []
    position = 0
    while position < len(text):
        match = _STEP.match(text, position)
        if match is None:
            raise UsageError(
                f"workload.score.json_path={path!r} is malformed at {text[position:]!r}",
                "Write it like results[0].time, results[*].time or ['odd.key'].time",
            )
        key, bracket = match.groups()
        if key is not None:
            steps.append(key)
        elif bracket == "*":
            steps.append(None)
        elif bracket[0] in "\"'":
            steps.append(bracket[1:-1])
        else:
            steps.append(int(bracket))
        position = match.end()
    return steps


def parse(text: str, config: ScoreConfig, *, deadline: float = _DEADLINE) -> list[float]:
    """Return the scores in ``text`` in ms, in order of appearance; only its last MiB is looked at.

    Args:
        text: standard output, or the contents of ``score.file``.
        config: checked by `check`; ``select`` picks all, the first or the last score.
        deadline: seconds that the search may take (a regex can need for ever); kept in the main thread only.

    Raises:
        ScoreError: no score, an unreadable one, or one that is not finite and positive.
    """
    if len(text) > MAX_TEXT and config.select == "first":
        raise ScoreError(
            "the output is too long (over 1 MiB) to look for its first score", "Use select: last"
        )
    text = text[-MAX_TEXT:]
    with _limited(deadline):
        if config.regex is not None:
            return _by_regex(text, config)
        return _by_json(text, config)


def without(text: str, config: ScoreConfig, *, deadline: float = _DEADLINE) -> str:
    """Return the text without its scores, for comparing what else is printed. Raises ScoreError: too slow."""
    if config.regex is None:
        return text
    with _limited(deadline):
        return _pattern(config.regex).sub("", text)


def read(path: Path) -> str:
    """Return the part of a file that `parse` looks at. Raises ScoreError when it cannot be read."""
    try:
        return reading.tail(path, MAX_TEXT).decode(errors="replace")
    except OSError as error:
        raise ScoreError(f"the launch left no {path.name}: {error.strerror}") from error


@contextlib.contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Raise ScoreError in the block after ``seconds``; the regex engine looks for signals while it works."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def expire(number: int, frame: FrameType | None) -> None:
        raise ScoreError(f"no score was found within {seconds:g} s", "Simplify workload.score.regex")

    handler = signal.signal(signal.SIGALRM, expire)
    started = time.monotonic()
    left, interval = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if left:  # somebody else's alarm was pending
            signal.setitimer(signal.ITIMER_REAL, max(0.001, left - (time.monotonic() - started)), interval)


def _select(found: list[Any], select: str) -> list[Any]:
    return found if select == "all" else found[:1] if select == "first" else found[-1:]


def _by_regex(text: str, config: ScoreConfig) -> list[float]:
    pattern = _pattern(config.regex or "")
    group: str | int = "value" if "value" in pattern.groupindex else 1
    matches = [match for match in pattern.finditer(text) if match[group] is not None]
    if not matches:
        raise ScoreError(f"no score in the output: nothing matches {config.regex!r}")
    return [_number(match, group, config) for match in _select(matches, config.select)]


def _number(match: re.Match[str], group: str | int, config: ScoreConfig) -> float:
    raw = match[group].strip()
    if not _NUMBER.fullmatch(raw):
        raise ScoreError(
            f"the score {raw[:40]!r} is not a number",
            "Let the group take the number alone; thousands separators are refused",
        )
    text, start, end = match.string, match.start(group), match.end(group)
    after = text[end : end + 20]
    cut = _CUT_BEFORE.search(text[max(0, start - 8) : start]) or _CUT_AFTER.match(after)
    if cut or (raw.isdigit() and _CUT_AFTER_INTEGER.match(after)):
        whole = text[max(0, start - 8) : end + 8].strip()
        raise ScoreError(
            f"the pattern cuts a number short: {raw!r} of {whole!r}", r"Let its group be like (\S+)"
        )
    unit = match["unit"] if "unit" in match.re.groupindex else None
    if unit is None:
        printed = _UNIT_AFTER.match(after)
        if printed and config.unit != RATE and _UNITS[printed[1]] != _UNITS[config.unit]:
            raise ScoreError(
                f"the output says {raw} {printed[1]}, but workload.score.unit is {config.unit}",
                "Correct it, or add a group (?P<unit>...)",
            )
        unit = config.unit
    elif unit not in _UNITS:
        raise ScoreError(f"the unit {unit!r} of a score is unknown", f"Use one of {', '.join(_UNITS)}")
    return _milliseconds(float(raw), unit)


def _milliseconds(value: float, unit: str) -> float:
    if not math.isfinite(value) or value <= 0:
        raise ScoreError(f"the score {value:g} is not a finite positive number")
    result = 1e3 / value if unit == RATE else value * _UNITS[unit]
    if not is_time(result):
        raise ScoreError(f"the score {value:g} {unit} is out of range")
    return result


def _last_document(text: str) -> Any:
    """Return the last JSON object or array that begins a line and is complete."""
    decoder = json.JSONDecoder()
    document, position = None, 0
    opening = re.compile(r"^[ \t]*(?=[\[{])", re.MULTILINE)
    while match := opening.search(text, position):
        try:
            document, position = decoder.raw_decode(text, match.end())
        except (ValueError, RecursionError):
            position = match.end() + 1
    if document is None:
        raise ScoreError("no score in the output: it has no JSON object or array at the beginning of a line")
    return document


def _by_json(text: str, config: ScoreConfig) -> list[float]:
    path = config.json_path or ""
    values = [_last_document(text)]
    for step in _steps(path):
        try:
            if step is None:
                values = [item for value in values for item in _items(value)]
            else:
                values = [value[step] for value in values]
        except (KeyError, IndexError, TypeError) as error:
            where = "[*]" if step is None else repr(step)
            raise ScoreError(
                f"no score in the output: json_path {path!r} finds nothing at {where}"
            ) from error
    if not values:
        raise ScoreError(f"no score in the output: json_path {path!r} selects an empty list")
    return [_json_number(value, config) for value in _select(values, config.select)]


def _items(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, list):
        return value
    raise TypeError


def _json_number(value: Any, config: ScoreConfig) -> float:
    if isinstance(value, list):
        raise ScoreError(f"json_path {config.json_path!r} selects a list", "Append [*] to take its elements")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ScoreError(f"json_path {config.json_path!r} selects {json.dumps(value)[:40]}, not a number")
    try:
        return _milliseconds(float(value), config.unit)
    except OverflowError as error:
        raise ScoreError("the score is out of range") from error
