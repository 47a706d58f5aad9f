"""Foreign words made fit to be shown: they could reorder or hide what is around them, or steer a terminal."""

from __future__ import annotations

import re

_BIDI = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def visible(text: str) -> str:
    """Text with the characters that would reorder or hide its surroundings as ``\\u`` escapes."""
    text = _CONTROL.sub(_escape, text.replace("\r\n", "\n").replace("\r", "\n"))
    return _BIDI.sub(_escape, text)


def one_line(text: str) -> str:
    """The same on one line, for a terminal: words with one space between them."""
    return visible(" ".join(text.split()))


def _escape(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"
