"""How a value becomes a cell of the log, and back: safe in a spreadsheet, without loss where it can be."""

from __future__ import annotations

import re
from functools import lru_cache

TEXT_LIMIT = 16_000
"""Characters of one cell; spreadsheets hold 32,767 UTF-16 units, and a guard can add half as many again."""

# What a spreadsheet takes for the start of a formula, with the full-width and small forms that some fold.
_TRIGGERS = "=+\\-@＝＋－＠﹦﹢﹣﹫−"
# What it skips before one: white space, invisible characters, quotation marks.
_SKIPPED = "\\s\"'\u00ad\u200b-\u200f\u2060\ufeff"
# After a semicolon too: where it separates cells (many European locales), a new cell begins there.
_FORMULA = re.compile(f"(^|;)(?=[{_SKIPPED}]*[{_TRIGGERS}])")
_GUARDED_FORMULA = re.compile(f"(^|;)'(?=[{_SKIPPED}]*[{_TRIGGERS}])")
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
# What pandas and others read as "no value".
_MISSING = r"(#N/A( N/A)?|#NA|-?1\.#(IND|QNAN)|-?(NaN|nan)|<NA>|N/A|n/a|NA|NULL|null|None)"
_LIKE_MISSING = re.compile(f"'*{_MISSING}")
_GUARDED_MISSING = re.compile(f"'+{_MISSING}")
_NOT_PRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
# Needs neither guard nor quotes, words that are like a missing value apart.
_PLAIN = re.compile(r"[A-Za-z0-9_./(]([A-Za-z0-9_.:/%()=+ -]*[A-Za-z0-9_.:/%()=+-])?")


def cell(value: str | float | bool | None) -> str:
    """One CSV cell (RFC 4180): nothing for None, the shortest exact decimal of a number, quotes if needed."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    return _text_cell(value)


@lru_cache(maxsize=1024)
def _text_cell(text: str) -> str:
    if not _PLAIN.fullmatch(text) or len(text) > TEXT_LIMIT:
        text = clean(text)
    elif not _LIKE_MISSING.fullmatch(text):
        return text
    text = guard(text)
    return '"' + text.replace('"', '""') + '"' if text else ""


def clean(text: str) -> str:
    """Text for one line: line ends become " | ", control characters and lone surrogates ``\\xNN`` escapes."""
    lines = text.splitlines()
    if len(lines) > 1 or lines != [text]:
        text = " | ".join(part for part in lines if part.strip())
    text = _NOT_PRINTABLE.sub(_escape, text)
    return text if len(text) <= TEXT_LIMIT else text[: TEXT_LIMIT - 3] + "..."


def guard(text: str) -> str:
    """Put an apostrophe before whatever a spreadsheet would run, or a program would take for a missing value.

    Numbers stay as they are. `unguard` undoes it exactly.
    """
    if _NUMBER.fullmatch(text):
        return text
    return f"'{text}" if _LIKE_MISSING.fullmatch(text) else _FORMULA.sub(r"\1'", text)


def unguard(text: str) -> str:
    """The text that `guard` was given."""
    return text[1:] if _GUARDED_MISSING.fullmatch(text) else _GUARDED_FORMULA.sub(r"\1", text)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
