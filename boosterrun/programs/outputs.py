"""Compare a program's output with a reference: numbers within a tolerance, everything else exactly."""

from __future__ import annotations

import math
import re

_SEPARATORS = re.compile(r"[\s,;:=|()\[\]{}]+")


def _number(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None


def _words(data: bytes) -> list[str] | None:
    """Return the words of a text; None for binary data."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else [word for word in _SEPARATORS.split(text) if word]


def difference(found: bytes, expected: bytes, tolerance: float) -> str | None:
    """Return what is wrong with ``found``, in words, or None.

    Text is compared word by word: numbers may differ by ``tolerance`` times the reference's magnitude (times
    1 where that is zero) and must be finite, other words must be equal. Binary data must be equal byte by
    byte.
    """
    words, right = _words(found), _words(expected)
    if not expected:
        return "the reference is empty"
    if words is None or right is None:
        return _binary(found, expected)
    for index, (word, wanted) in enumerate(zip(words, right, strict=False), start=1):
        if wrong := _word(word, wanted, tolerance):
            return f"word {index} of the output is {wrong}"
    if len(words) != len(right):
        return f"the output has {len(words)} words, the reference {len(right)}"
    return None


def _word(word: str, wanted: str, tolerance: float) -> str | None:
    value, target = _number(word), _number(wanted)
    if value is None or target is None:
        return None if word == wanted else f"{word[:40]!r}, the reference has {wanted[:40]!r}"
    if math.isfinite(value) and abs(value - target) <= tolerance * (abs(target) or 1.0):
        return None
    return f"{word[:40]}, the reference has {wanted[:40]} (tolerance {tolerance:g})"


def _binary(found: bytes, expected: bytes) -> str | None:
    if found == expected:
        return None
    first = next((i for i, (a, b) in enumerate(zip(found, expected, strict=False)) if a != b), None)
    where = f"at byte {first}" if first is not None else f"in size: {len(found)} bytes, not {len(expected)}"
    return f"the output differs from the reference {where}"
