"""The name under which an ACF is selected on the command line: ``acf=<id>``."""

from __future__ import annotations

import hashlib
import re
import unicodedata

from boosterrun.system.visible import visible

SUFFIX = ".acf"
MAX_LENGTH = 128
_SLUG_LENGTH = 64

_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
# Every spelling that Hydra or YAML could read as a number, and some that only people and spreadsheets would.
_NUMBER = re.compile(r"[0-9_.-]*|[0-9][0-9_.]*[eE][+-]?[0-9_]+|0[xX][0-9a-fA-F_]+|0[oO][0-7_]+|0[bB][01_]+")
_WORDS = frozenset({"null", "none", "true", "false", "on", "off", "yes", "no", "nan", "inf"})


def is_acf(name: str) -> bool:
    """Tell whether a member of a pack is an ACF; hidden files, such as macOS adds to archives, are not."""
    base = name.rpartition("/")[2]
    return base[-len(SUFFIX) :].lower() == SUFFIX and not base.startswith(".")


def is_one_line(name: str) -> bool:
    """Tell whether ``name`` has no control characters, line breaks or halves of characters in it.

    Those that reverse the text around them, so that a name is shown as another one, are control characters.
    """
    return visible(name) == name and not any(unicodedata.category(c) in ("Cc", "Zl", "Zp") for c in name)


def same_file(name: str) -> str:
    """Return what all names have in common that some disk takes for one file: it folds capitals and forms."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def printable(text: str, limit: int = 200) -> str:
    """Return ``text`` fit for one line of an error: escaped if not printable, cut at ``limit`` characters."""
    shown = text if text.isprintable() else ascii(text)[1:-1]
    return shown if len(shown) <= limit else shown[: limit - 3] + "..."


def option_id(filename: str) -> str:
    """Return the option of group ``acf`` for the ACF called ``filename``.

    A name that Hydra takes as it is stays as it is, without ``.acf``. Any other becomes a readable part,
    a dash and six hexadecimal digits of the SHA-256 of ``filename``. The result depends on ``filename``
    alone, so that adding a file to a pack renames none; two names may, rarely, get one id, which the
    reader of a pack refuses.
    """
    stem = filename[: -len(SUFFIX)] if filename[-len(SUFFIX) :].lower() == SUFFIX else filename
    if _is_safe(stem):
        return stem
    ascii_text = unicodedata.normalize("NFKD", stem).encode("ascii", "ignore").decode("ascii")
    slug = re.sub(r"[^A-Za-z0-9_.]+|\.{2,}", "-", ascii_text)[:_SLUG_LENGTH].strip("-._") or "acf"
    # surrogatepass: a file name that is no UTF-8 reaches Python with lone surrogates in it.
    digest = hashlib.sha256(filename.encode("utf-8", "surrogatepass")).hexdigest()[:6]
    found = f"{slug}-{digest}"
    # "1e" and six decimal digits would be the number 1e-123456 again.
    return found if _is_safe(found) else f"acf-{found}"


def _is_safe(name: str) -> bool:
    return (
        _PLAIN.fullmatch(name) is not None
        and len(name) <= MAX_LENGTH
        and not _NUMBER.fullmatch(name)
        and name.lower() not in _WORDS
        and not name.lower().endswith((".yaml", ".yml", "."))
        and ".." not in name
        # _self_, _global_, _here_ and the like are keywords of the defaults list.
        and not (name.startswith("_") and name.endswith("_"))
    )
