"""Releases of packs, made of the real ones: in a folder, or as files to be published."""

from __future__ import annotations

import hashlib
import json
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

from boosterrun.config import SHIPPED
from boosterrun.packs.catalog import CATALOG_NAME, SUMS_NAME
from boosterrun.packs.manifest import MANIFEST_NAME

SAMPLE = SHIPPED / "packs/booster-pack-sample.zip"
DATA = Path(__file__).parent / "data/release"
TAG = "booster-packs-2026.11.30"


def real() -> dict[str, bytes]:
    """The files of the real release; one of its packs is shipped and not kept twice."""
    return {path.name: path.read_bytes() for path in (*sorted(DATA.iterdir()), SAMPLE)}


def folder(path: Path, files: dict[str, bytes] | None = None) -> Path:
    """The files of a release in a folder."""
    path.mkdir(parents=True)
    for name, data in (real() if files is None else files).items():
        (path / name).write_bytes(data)
    return path


def retagged(tag: str, cuda_version: str = "13.3.0", **packs: str) -> dict[str, bytes]:
    """A release with another tag; ``packs`` are names and the artifact that each is a copy of."""
    files: dict[str, bytes] = {}
    entries = []
    for name, artifact in (packs or {"helion": SAMPLE.name}).items():
        data, entry = _pack(name, real()[artifact], tag, cuda_version)
        files[entry["artifact_name"]] = data
        entries.append(entry)
    catalog = {
        "schema_version": 1,
        "catalog_version": tag.removeprefix("booster-packs-"),
        "release_tag": tag,
        "generated_at": "2026-01-01T00:00:00Z",
        "packs": entries,
    }
    files[CATALOG_NAME] = json.dumps(catalog, indent=2).encode()
    return summed(files)


def summed(files: dict[str, bytes]) -> dict[str, bytes]:
    """The files with checksums that are right."""
    lines = [
        f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in files.items() if name != SUMS_NAME
    ]
    return {**files, SUMS_NAME: "".join(lines).encode()}


def _pack(name: str, data: bytes, tag: str, cuda_version: str) -> tuple[bytes, dict[str, Any]]:
    stem = f"booster-pack-{name}"
    out = BytesIO()
    with zipfile.ZipFile(BytesIO(data)) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        member = next(each for each in old.namelist() if each.endswith(MANIFEST_NAME))
        manifest = json.loads(old.read(member))
        manifest.update(
            release_tag=tag,
            catalog_version=tag.removeprefix("booster-packs-"),
            pack_id=f"{name}-pack",
            cuda_version=cuda_version,
        )
        text = json.dumps(manifest, indent=2).encode()
        new.writestr(zipfile.ZipInfo(f"{stem}/{MANIFEST_NAME}"), text)
        for acf in manifest["acfs"]:
            source = f"{member.rpartition('/')[0]}/{acf['filename']}"
            new.writestr(zipfile.ZipInfo(f"{stem}/{acf['filename']}"), old.read(source))
    packed = out.getvalue()
    return packed, {
        **{key: manifest[key] for key in ("pack_id", "pack_type", "display_name", "cuda_version")},
        **{key: manifest[key] for key in ("controls_stage", "supported_gpus", "validation_summary")},
        "artifact_name": f"{stem}.zip",
        "artifact_sha256": hashlib.sha256(packed).hexdigest(),
        "artifact_size_bytes": len(packed),
        "manifest_path": f"{stem}/{MANIFEST_NAME}",
        "manifest_sha256": hashlib.sha256(text).hexdigest(),
        "acf_count": len(manifest["acfs"]),
        "acfs": [{key: acf[key] for key in ("filename", "sha256", "size_bytes")} for acf in manifest["acfs"]],
    }
