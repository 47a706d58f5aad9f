"""A pack, and the packs at hand, as text for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from boosterrun.packs.catalog import pack_name
from boosterrun.packs.library import Stored
from boosterrun.packs.names import printable
from boosterrun.packs.pack import Pack
from boosterrun.packs.release import Release
from boosterrun.system.digest import sha256_of

_LABEL = 12


def describe(pack: Pack) -> str:
    """The manifest at a glance, and every ACF with its option, size, stages and description."""
    manifest = pack.manifest
    lines = [f"{_line(pack.display_name)} ({_line(pack.pack_id)})"]
    facts: list[tuple[str, Iterable[str]]] = [
        ("about", _texts(manifest.description if manifest else "loose files without a manifest")),
        ("kind", [manifest.pack_type] if manifest else []),
        ("release", [f"{pack.release_tag} (catalog {pack.catalog_version})"] if manifest else []),
        ("made by", _texts(manifest.created_by if manifest else "")),
        ("CUDA", [pack.cuda_version or "unknown: give pack.cuda_version"]),
        ("GPUs", [", ".join(pack.supported_gpus) or "not stated"]),
        ("stages", [pack.controls_stage]),
        ("caveats", [text for caveat in pack.caveats for text in _texts(caveat)]),
        ("validation", _texts(manifest.validation_summary if manifest else "")),
        ("notice", _texts(pack.notice or "")),
        ("file", [str(pack.location)]),
        ("SHA-256", [sha256_of(pack.location)] if pack.location.is_file() else []),
    ]
    for label, texts in facts:
        for index, text in enumerate(texts):
            lines.append(f"  {'' if index else label:<{_LABEL}}{_line(text)}")
    rows = [
        (acf.id, f"{acf.size_bytes} B", "+".join(acf.compiler_stages), _line(acf.description))
        for acf in pack.acfs
    ]
    return "\n".join([*lines, "", f"{len(rows)} ACFs (acf=NAME):", *table(rows, indent="  ")])


def at_hand(shipped: Sequence[Pack], stored: Sequence[Stored]) -> str:
    """One line per pack on this machine."""
    rows = [("PACK", "RELEASE", "CUDA", "GPUS", "ACFS", "FILE")]
    rows += [
        (
            pack_name(pack.location.name),
            "shipped",
            pack.cuda_version or "",
            ", ".join(pack.supported_gpus),
            str(len(pack.acfs)),
            str(pack.location),
        )
        for pack in shipped
    ]
    rows += [
        (
            each.entry.name,
            each.tag,
            each.entry.cuda_version,
            ", ".join(each.entry.supported_gpus),
            str(len(each.entry.acfs)),
            str(each.path),
        )
        for each in reversed(stored)
    ]
    return "\n".join(table(rows))


def on_offer(releases: Sequence[Release]) -> str:
    """One line per release, the newest first, with the names of its packs."""
    rows = [("RELEASE", "PACKS")]
    for release in reversed(releases):
        zips = sorted(name for name in release.assets if name.endswith(".zip"))
        rows.append((release.tag, ", ".join(_line(pack_name(name)) for name in zips)))
    return "\n".join(table(rows))


def table(rows: Sequence[Sequence[str]], indent: str = "") -> Iterator[str]:
    """The rows with their columns aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield (indent + "  ".join(cells)).rstrip()


def _texts(value: Any, key: str = "") -> Iterator[str]:
    """Free text, or a JSON value, as lines."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _texts(inner, f"{key}{name}: ")
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner, key)
    else:
        for line in str(value).splitlines():
            if line.strip():
                yield f"{key}{line.strip()}"


def _line(text: str) -> str:
    """What came from elsewhere must not steer the terminal."""
    return printable(text, 1000)
