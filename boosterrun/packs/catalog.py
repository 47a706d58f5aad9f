"""The catalog and the checksums of a release of Booster Packs, and whether a zip is what they say."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from boosterrun.errors import PackError
from boosterrun.packs.manifest import known
from boosterrun.packs.names import printable
from boosterrun.packs.pack import Pack
from boosterrun.packs.report import Report, stop

CATALOG_NAME = "booster-pack-catalog.json"
SUMS_NAME = "SHA256SUMS.txt"
MAX_CATALOG = 16 << 20
MAX_SUMS = 1 << 20
_PREFIX = "booster-pack-"
_AGAIN = "Get the release again, or tell its maker"


@dataclass(frozen=True)
class CatalogEntry:
    """What a catalog says of one pack; ``acfs`` maps a file's name to its SHA-256 and size in bytes."""

    pack_id: str
    cuda_version: str
    supported_gpus: tuple[str, ...]
    artifact_name: str
    artifact_sha256: str
    artifact_size_bytes: int
    manifest_path: str
    manifest_sha256: str
    acfs: dict[str, tuple[str, int]]

    @property
    def name(self) -> str:
        """The name by which the pack is asked for: ``helion`` of ``booster-pack-helion.zip``."""
        return pack_name(self.artifact_name)


@dataclass(frozen=True)
class Catalog:
    """A catalog that passed every check which needs no file besides it."""

    release_tag: str
    catalog_version: str
    packs: tuple[CatalogEntry, ...]

    def find(self, name: str) -> CatalogEntry | None:
        """The pack called ``name``: its short name, its ``pack_id`` or the file's name."""
        wanted = pack_name(name)
        by_name = {entry.pack_id: entry for entry in self.packs} | {each.name: each for each in self.packs}
        return by_name.get(name) or by_name.get(wanted)


def pack_name(artifact: str) -> str:
    """``helion`` of ``booster-pack-helion.zip``; a short name stays as it is."""
    return artifact.removesuffix(".zip").removeprefix(_PREFIX)


def minor(cuda_version: str) -> str:
    """``13.3`` of ``13.3.0``: what ACFs are tied to."""
    return ".".join(cuda_version.split(".")[:2])


def parse_catalog(data: bytes, where: str) -> Catalog:
    """Return the catalog whose bytes are ``data``; ``where`` names it in errors. Raises PackError."""
    catalog = check_catalog(data, where, stop)
    assert catalog is not None  # noqa: S101 (for the type checker: a problem has been raised)
    return catalog


def check_catalog(data: bytes, where: str, report: Report) -> Catalog | None:
    """Return the catalog, after handing every problem of ``data`` to ``report``; None if it is of no use."""
    advice = "Use a newer boosterrun, or an older release"
    document = known(data, where, "pack-catalog.json", advice, report)
    if document is None:
        return None
    for key in ("pack_id", "artifact_name"):
        values = [entry[key] for entry in document["packs"]]
        for value in sorted({value for value in values if values.count(value) > 1}):
            report(PackError(f"{where}: two packs have the {key} '{printable(value)}'", _AGAIN))
    return Catalog(
        release_tag=document["release_tag"],
        catalog_version=document["catalog_version"],
        packs=tuple(
            _entry(entry, f"{where}: $.packs[{i}]", report) for i, entry in enumerate(document["packs"])
        ),
    )


def _entry(entry: dict[str, Any], at: str, report: Report) -> CatalogEntry:
    acfs = {acf["filename"]: (acf["sha256"], int(acf["size_bytes"])) for acf in entry["acfs"]}
    if len(acfs) != len(entry["acfs"]):
        report(PackError(f"{at}.acfs: a file name is listed twice", _AGAIN))
    if "acf_count" in entry and entry["acf_count"] != len(entry["acfs"]):
        count = f"{at}.acf_count is {printable(str(entry['acf_count']))}, but {len(entry['acfs'])} are listed"
        report(PackError(count, _AGAIN))
    return CatalogEntry(
        **{
            key: entry[key]
            for key in (
                "pack_id",
                "cuda_version",
                "artifact_name",
                "artifact_sha256",
                "manifest_path",
                "manifest_sha256",
            )
        },
        artifact_size_bytes=int(entry["artifact_size_bytes"]),
        supported_gpus=tuple(entry.get("supported_gpus", ())),
        acfs=acfs,
    )


def parse_sums(data: bytes, where: str, report: Report = stop) -> dict[str, str]:
    """File name -> SHA-256, of the lines ``<64 hexadecimal digits>  <name>``. Raises PackError."""
    sums: dict[str, str] = {}
    try:
        lines: Sequence[str] = data.decode().splitlines()
    except UnicodeDecodeError:
        report(PackError(f"{where}: is not UTF-8", _AGAIN))
        return sums
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        match = re.fullmatch(r"([0-9a-f]{64}) [ *](\S+)\s*", line)
        if match is None or "/" in match[2] or "\\" in match[2]:
            problem = f"{where}, line {number}: is not a SHA-256, two spaces and a file's name"
            report(PackError(problem, _AGAIN))
        elif match[2] in sums:
            report(PackError(f"{where}, line {number}: '{printable(match[2])}' appears twice", _AGAIN))
        else:
            sums[match[2]] = match[1]
    return sums


def check_sum(sums: dict[str, str], name: str, sha256: str, where: str, report: Report = stop) -> None:
    """Report it when ``sums`` has no, or another, SHA-256 for ``name``."""
    if name not in sums:
        report(PackError(f"{where}: {SUMS_NAME} does not list '{printable(name)}'", _AGAIN))
    elif sums[name] != sha256:
        problem = (
            f"'{printable(name)}' has the SHA-256 {sha256[:12]}..., but {SUMS_NAME} says {sums[name][:12]}..."
        )
        report(PackError(f"{where}: {problem}", _AGAIN))


def check_artifact(entry: CatalogEntry, data: bytes, where: str, report: Report = stop) -> None:
    """Report it when the zip whose bytes are ``data`` has not the size or SHA-256 of its catalog entry."""
    if len(data) != entry.artifact_size_bytes:
        problem = f"has {len(data)} bytes, but the catalog says {entry.artifact_size_bytes}"
        report(PackError(f"{where}: {problem}", _AGAIN))
    if hashlib.sha256(data).hexdigest() != entry.artifact_sha256:
        report(PackError(f"{where}: has another SHA-256 than the catalog says", _AGAIN))


def check_pack(catalog: Catalog, entry: CatalogEntry, pack: Pack, where: str, report: Report = stop) -> None:
    """Report each way in which an opened ``pack`` is not the one of its catalog ``entry``."""
    said = {
        "release_tag": (pack.release_tag, catalog.release_tag),
        "catalog_version": (pack.catalog_version, catalog.catalog_version),
        "pack_id": (pack.pack_id, entry.pack_id),
        "CUDA version": (minor(pack.cuda_version or "none"), minor(entry.cuda_version)),
        "SHA-256 of the manifest": (pack.manifest_sha256, entry.manifest_sha256),
        "place of the manifest": (pack.manifest_member, entry.manifest_path),
    }
    for what, (found, wanted) in said.items():
        if found != wanted:
            problem = f"the {what} is {printable(str(found))}, but the catalog says {printable(wanted)}"
            report(PackError(f"{where}: {problem}", _AGAIN))
    listed = {acf.filename: (acf.sha256, acf.size_bytes) for acf in pack.acfs}
    for name in sorted(listed.keys() | entry.acfs.keys()):
        if listed.get(name) != entry.acfs.get(name):
            only = (
                "is not in the pack"
                if name not in listed
                else "is not in the catalog"
                if name not in entry.acfs
                else "has another size or SHA-256 in the catalog"
            )
            report(PackError(f"{where}: the ACF '{printable(name)}' {only}", _AGAIN))
