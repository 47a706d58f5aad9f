"""The tags of releases of Booster Packs, ``booster-packs-2026.05.27`` or ``...-rev1``, and their order."""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass
from typing import Any

_TAG = re.compile(r"booster-packs-([0-9]{4})\.([0-9]{2})\.([0-9]{2})(?:[-.]([A-Za-z0-9][A-Za-z0-9._-]*))?")
Order = tuple[datetime.date, tuple[tuple[int, str], ...]]


@dataclass(frozen=True)
class Asset:
    """A file of a release; ``size`` in bytes as the server states it."""

    id: int
    name: str
    size: int


@dataclass(frozen=True)
class Release:
    """A published release of Booster Packs and its files by name."""

    tag: str
    assets: dict[str, Asset]

    @property
    def order(self) -> Order:
        """Sorts releases from old to new."""
        found = tag_order(self.tag)
        assert found is not None  # noqa: S101 (no Release is made without)
        return found


def tag_order(tag: str) -> Order | None:
    """What sorts tags from old to new, by their date and then their suffix; None if it is no such tag.

    A tag with a suffix is newer than the same without, and ``rev10`` is newer than ``rev9``.
    """
    match = _TAG.fullmatch(tag) if len(tag) <= 100 else None
    if match is None:
        return None
    try:
        day = datetime.date(int(match[1]), int(match[2]), int(match[3]))
    except ValueError:
        return None
    parts = re.findall(r"[0-9]+|[^0-9]+", match[4] or "")
    return day, tuple((int(part), "") if part.isdecimal() else (-1, part) for part in parts)


def parse_release(document: Any) -> Release | None:
    """The release that an element of GitHub's answer describes; None for drafts and what is none of packs."""
    if not isinstance(document, dict) or document.get("draft") or document.get("prerelease"):
        return None
    tag, listed = document.get("tag_name"), document.get("assets")
    if not isinstance(tag, str) or tag_order(tag) is None or not isinstance(listed, list):
        return None
    assets = [_asset(each) for each in listed]
    return Release(tag, {asset.name: asset for asset in assets if asset is not None})


def _asset(document: Any) -> Asset | None:
    if not isinstance(document, dict) or document.get("state", "uploaded") != "uploaded":
        return None
    id, name, size = (document.get(key) for key in ("id", "name", "size"))
    # True is an int: a server that answers so is not to be believed.
    if type(id) is not int or not isinstance(name, str) or type(size) is not int or size < 0:
        return None
    return Asset(id, name, size)
