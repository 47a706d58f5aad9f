"""Opening a pack: a directory or a zip with a manifest, or a folder of loose ``.acf`` files."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from boosterrun.errors import PackError
from boosterrun.packs.archive import MAX_MEMBERS, MAX_TOTAL, Archive
from boosterrun.packs.folder import Folder
from boosterrun.packs.manifest import MANIFEST_NAME, STAGES, Manifest, ManifestAcf, check
from boosterrun.packs.names import is_acf, is_one_line, option_id, printable
from boosterrun.packs.pack import MAX_ACF, Acf, Pack, container, unreadable
from boosterrun.packs.report import Report, stop

MAX_MANIFEST = 4 << 20
_CUDA_VERSION = re.compile(r"[0-9]+\.[0-9]+(\.[0-9]+)?")
_opened: dict[tuple[object, ...], Pack] = {}


def open_pack(
    path: Path, *, cuda_version: str | None = None, stage: str | None = None, name: str | None = None
) -> Pack:
    """Return the pack at ``path``, with the size and SHA-256 of every ACF verified.

    ``cuda_version`` (``13.3`` or ``13.3.0``) and ``stage`` (nvcc, ptxas or both; ptxas when None) describe a
    folder without a manifest, and ``name`` is what to call it; a manifest must not contradict the first two.
    A pack that has not changed is opened once per process.

    Raises:
        PackError: nothing there, unreadable, not a pack, or not what its manifest says; names the pack and
            the member.
    """
    try:
        path = path.expanduser().absolute()
        key = (path, *_signature(path), cuda_version, stage, name)
    except (OSError, ValueError, RuntimeError) as error:  # ValueError: a NUL in it; RuntimeError: no ~user
        raise unreadable(path, error) from None
    if key not in _opened:
        _opened[key] = _open(path, cuda_version, stage, name)
    return _opened[key]


def _signature(path: Path) -> Iterator[object]:
    """Give what changes when the pack is replaced; Pack.read finds files that are rewritten in place."""
    status = path.stat()
    yield from (os.path.realpath(path), status.st_ino, status.st_mtime_ns, status.st_size)
    if stat.S_ISDIR(status.st_mode):
        for manifest in (path / MANIFEST_NAME, *sorted(path.glob(f"*/{MANIFEST_NAME}"))):
            if manifest.exists():
                inner = manifest.stat()
                yield from (str(manifest), inner.st_ino, inner.st_mtime_ns, inner.st_size)
                yield manifest.parent.stat().st_mtime_ns


def _open(path: Path, cuda_version: str | None, stage: str | None, name: str | None) -> Pack:
    shown = printable(str(path))
    if stage is not None and stage not in STAGES:
        raise PackError(f"{shown}: stage '{printable(stage)}' is unknown", "Use nvcc, ptxas or both")
    if cuda_version is not None and not _CUDA_VERSION.fullmatch(cuda_version):
        raise PackError(
            f"{shown}: cuda_version '{printable(cuda_version)}' is no version", "Write it like 13.3"
        )
    with container(path) as box:
        pack = _read(box, cuda_version, stage, name, stop)
    assert pack is not None  # noqa: S101 (for the type checker: a problem has been raised)
    return pack


def inspect(path: Path, report: Report) -> Pack | None:
    """Do what opening a pack does, but hand every problem to ``report``; None if nothing is left of it."""
    try:
        path = path.expanduser().absolute()
        with container(path, report) as box:
            return _read(box, None, None, None, report)
    except (ValueError, RuntimeError) as error:
        report(unreadable(path, error))
    except PackError as problem:
        report(problem)
    return None


def _read(
    box: Folder | Archive, cuda_version: str | None, stage: str | None, name: str | None, report: Report
) -> Pack | None:
    shown = printable(str(box.path))
    manifests = sorted(m for m in box.members if m.rpartition("/")[2] == MANIFEST_NAME)
    if len(manifests) > 1:
        some = ", ".join(map(printable, manifests[:4]))
        raise PackError(f"{shown}: holds {len(manifests)} packs: {some}", "Give the path of one pack")
    if manifests:
        return _with_manifest(box, manifests[0], cuda_version, stage, report)
    return _loose(box, cuda_version, stage or "ptxas", name, report)


def _with_manifest(
    box: Folder | Archive, member: str, cuda_version: str | None, stage: str | None, report: Report
) -> Pack | None:
    shown = printable(str(box.path))
    manifest = check(box.read(member, MAX_MANIFEST), f"{shown}: {printable(member)}", report)
    if manifest is None:
        return None
    _check_agreement(shown, manifest, cuda_version, stage)
    prefix = member.removesuffix(MANIFEST_NAME)
    unlisted = {m for m in box.members if is_acf(m)} - {prefix + entry.filename for entry in manifest.acfs}
    for each in sorted(unlisted):
        problem = f"'{printable(each)}' is an ACF that the manifest does not list"
        report(PackError(f"{shown}: {problem}", "Remove it, or move it to a folder of its own"))
    return Pack(
        location=box.path,
        pack_id=manifest.pack_id,
        display_name=manifest.display_name,
        release_tag=manifest.release_tag,
        catalog_version=manifest.catalog_version,
        cuda_version=manifest.cuda_version,
        controls_stage=manifest.controls_stage,
        supported_gpus=manifest.supported_gpus,
        caveats=manifest.caveats,
        notice=manifest.notice,
        manifest_sha256=manifest.sha256,
        acfs=_read_all(box, [(prefix + entry.filename, entry) for entry in manifest.acfs], (), report),
        manifest=manifest,
        manifest_member=member,
    )


def _loose(
    box: Folder | Archive, cuda_version: str | None, stage: str, name: str | None, report: Report
) -> Pack:
    shown = printable(str(box.path))
    if isinstance(box, Archive):
        raise PackError(
            f"{shown}: no {MANIFEST_NAME} in it", "Unpack loose ACFs to a directory and give that"
        )
    members = sorted(m for m in box.members if is_acf(m))
    if not members:
        zips = sorted(m for m in box.members if m.endswith(".zip"))
        advice = (
            f"Give one of the zips in it: {printable(', '.join(zips))}" if zips else "Give the path of a pack"
        )
        raise PackError(f"{shown}: neither a {MANIFEST_NAME} nor an .acf file in it", advice)
    if len(members) > MAX_MEMBERS:
        raise PackError(f"{shown}: more than {MAX_MEMBERS} ACFs", "Split the folder")
    for member in members:
        if not is_one_line(member):
            problem = f"'{printable(member)}' has control characters in its name"
            report(PackError(f"{shown}: {problem}", "Rename it"))
    pack_id = printable(Path(os.path.normpath(box.path)).name) or "acfs"
    return Pack(
        location=box.path,
        pack_id=pack_id,
        display_name=name or pack_id,
        release_tag=None,
        catalog_version=None,
        cuda_version=cuda_version,
        controls_stage=stage,
        supported_gpus=(),
        caveats=(),
        notice=None,
        manifest_sha256=None,
        acfs=_read_all(box, [(member, None) for member in members], STAGES[stage], report),
        manifest=None,
    )


def _check_agreement(shown: str, manifest: Manifest, cuda_version: str | None, stage: str | None) -> None:
    """Refuse a configured stage or CUDA minor version that the manifest contradicts."""
    minor = [v and ".".join(v.split(".")[:2]) for v in (cuda_version, manifest.cuda_version)]
    for key, given, stated in (
        ("stage", stage, manifest.controls_stage),
        ("cuda_version", *minor),
    ):
        if given is not None and given != stated:
            raise PackError(
                f"{shown}: pack.{key} is {given}, but the manifest says {stated}", f"Leave pack.{key} out"
            )


def _read_all(
    box: Folder | Archive,
    members: list[tuple[str, ManifestAcf | None]],
    stages: tuple[str, ...],
    report: Report,
) -> tuple[Acf, ...]:
    """Read and verify the ACFs; ``stages`` are those of the ones without an entry in a manifest."""
    shown = printable(str(box.path))
    acfs: dict[str, Acf] = {}
    total = 0
    for member, entry in members:
        try:
            data = box.read(member, MAX_ACF)
        except PackError as unread:
            report(unread)
            continue
        total += len(data)
        if total > MAX_TOTAL:
            raise PackError(f"{shown}: more than {MAX_TOTAL >> 20} MiB of ACFs", "Split the pack")
        sha256 = hashlib.sha256(data).hexdigest()
        if entry is not None and (len(data), sha256) != (entry.size_bytes, entry.sha256):
            what = "size" if len(data) != entry.size_bytes else "SHA-256"
            problem = f"'{printable(member)}' has another {what} than the manifest says"
            report(PackError(f"{shown}: {problem}", "It is damaged or was replaced: get the pack again"))
        filename = entry.filename if entry else member
        acf = Acf(
            id=option_id(filename),
            filename=filename,
            sha256=sha256,
            size_bytes=len(data),
            compiler_stages=entry.compiler_stages if entry else stages,
            description=entry.description if entry else "",
            member=member,
        )
        other = acfs.setdefault(acf.id.casefold(), acf)
        if other is not acf:
            both = f"'{printable(other.filename)}' and '{printable(filename)}' would both be acf={acf.id}"
            report(PackError(f"{shown}: {both} (capitals do not count)", "Rename one of them"))
    return tuple(acfs.values())
