"""Write a pack: a zip with a manifest, the same bytes for the same ACFs on every machine."""

from __future__ import annotations

import contextlib
import json
import re
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from boosterrun.errors import PackError, UsageError
from boosterrun.packs.catalog import pack_name
from boosterrun.packs.gathered import Candidate
from boosterrun.packs.manifest import MANIFEST_NAME, SCHEMA_VERSION, STAGES, filename_problem
from boosterrun.packs.names import printable
from boosterrun.packs.reader import open_pack
from boosterrun.system.atomic import replacing

NOTICE = "© NVIDIA Corporation, 2026."
_UNRELEASED = "unreleased"


@dataclass(frozen=True)
class Label:
    """What the manifest says of the pack as a whole; None: as the ACFs' origin says, else a plain default."""

    display_name: str | None = None
    description: str | None = None
    cuda_version: str | None = None
    stage: str | None = None
    gpus: tuple[str, ...] = ()
    notice: str = NOTICE


def write(out: Path, candidates: Sequence[Candidate], label: Label, *, replace: bool = False) -> Path:
    """Write the pack ``out`` and read it back as any other pack is read.

    Raises:
        UsageError: ``out`` is there already or no zip's name, or something has to be stated and is not.
        PackError: an ACF cannot be part of a pack.  RunError: the disk does not take it.
    """
    if out.suffix != ".zip" or not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", out.name):
        raise UsageError(
            f"'{printable(out.name)}' is no name for a pack", "Write it like booster-pack-mine.zip"
        )
    if out.exists() and not replace:
        raise UsageError(f"{out} is there already", "Use another name, or --force")
    for candidate in candidates:
        if problem := filename_problem(candidate.filename):
            raise PackError(f"'{printable(candidate.filename)}' {problem}", "Rename it")
    text = json.dumps(_manifest(out.stem, candidates, label), indent=2, ensure_ascii=False) + "\n"
    with contextlib.suppress(OSError):  # if it is not there then, writing tells
        out.parent.mkdir(parents=True, exist_ok=True)
    with replacing(out) as stream:
        # Stored, not deflated: ACFs hardly shrink, and libraries differ in how they deflate.
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as file:
            _put(file, f"{out.stem}/{MANIFEST_NAME}", text.encode())
            for candidate in candidates:
                _put(file, f"{out.stem}/{candidate.filename}", candidate.data)
                for name, data in sorted(candidate.beside.items()):
                    _put(file, f"{out.stem}/{name}", data)
        stream.flush()
        # Whatever could not be read back must not take the place of what was there.
        open_pack(Path(stream.name))
    return out


def _manifest(stem: str, candidates: Sequence[Candidate], label: Label) -> dict[str, Any]:
    stages = [
        candidate.stages if label.stage is None and candidate.stages else STAGES[label.stage or "ptxas"]
        for candidate in candidates
    ]
    used = {stage for each in stages for stage in each}
    name = pack_name(stem)
    gpus = label.gpus or tuple(dict.fromkeys(each.gpu for each in candidates if each.gpu is not None))
    return {
        "schema_version": SCHEMA_VERSION,
        "pack_id": name,
        "pack_type": "performance",
        "display_name": label.display_name or name,
        "description": label.description or f"{len(candidates)} ACFs, put together by boosterrun pack make.",
        "created_by": "boosterrun pack make; not an NVIDIA release",
        "release_tag": _UNRELEASED,
        "catalog_version": _UNRELEASED,
        "controls_stage": "both" if len(used) > 1 else used.pop(),
        "cuda_version": _cuda_version(candidates, label),
        "supported_gpus": list(gpus),
        "caveats": ["Candidates, not guaranteed speed-ups: validate each on your own workload and machine."],
        "validation_summary": {"status": "none", "evidence": "See the descriptions of the ACFs, if any."},
        "notice": label.notice,
        "acfs": [
            {
                "filename": candidate.filename,
                "sha256": candidate.sha256,
                "size_bytes": len(candidate.data),
                "compiler_stages": list(stage),
                "description": candidate.description,
            }
            for candidate, stage in zip(candidates, stages, strict=True)
        ],
    }


def _cuda_version(candidates: Sequence[Candidate], label: Label) -> str:
    if label.cuda_version is not None:
        if not re.fullmatch(r"[0-9]{1,4}\.[0-9]{1,4}(\.[0-9]{1,4})?", label.cuda_version):
            raise UsageError(f"'{printable(label.cuda_version)}' is no CUDA version", "Write it like 13.3")
        return label.cuda_version
    found = sorted({candidate.cuda_version for candidate in candidates if candidate.cuda_version is not None})
    if len(found) != 1:
        said = (
            f"they are for CUDA {' and '.join(found)}"
            if found
            else "nothing says for which CUDA the ACFs are"
        )
        raise UsageError(
            f"the pack needs one CUDA version, and {said}", "Give --cuda-version 13.3, or the like"
        )
    return found[0]


def _put(file: zipfile.ZipFile, name: str, data: bytes) -> None:
    info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    info.external_attr = 0o100644 << 16
    info.create_system = 3
    file.writestr(info, data)
