"""Opening a pack: a directory or a zip with a manifest, or a folder of loose ``.acf`` files."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from boosterrun.errors import PackError
from boosterrun.packs.archive import MAX_MEMBERS, MAX_TOTAL, Archive, open_archive
from boosterrun.packs.folder import Folder
from boosterrun.packs.manifest import MANIFEST_NAME, STAGES, Manifest, parse
from boosterrun.packs.names import is_acf, option_id, printable

MAX_ACF = 16 << 20
MAX_MANIFEST = 4 << 20
_CUDA_VERSION = re.compile(r"[0-9]+\.[0-9]+(\.[0-9]+)?")


@dataclass(frozen=True)
class Acf:
    """One compiler-controls file of a pack; ``id`` is its option (``acf=<id>``), ``member`` its place."""

    id: str
    filename: str
    sha256: str
    size_bytes: int
    compiler_stages: tuple[str, ...]
    description: str
    member: str


@dataclass(frozen=True, eq=False)
class Pack:
    """A pack whose files were all found to be what its manifest says.

    ``manifest`` and all that comes from it is None for a folder of loose files. ``acfs`` are in the
    manifest's order, else by name. ``cuda_version`` is as written there: ``13.3.0``, or ``13.3``.
    """

    location: Path
    pack_id: str
    display_name: str
    release_tag: str | None
    catalog_version: str | None
    cuda_version: str | None
    controls_stage: str
    supported_gpus: tuple[str, ...]
    caveats: tuple[str, ...]
    notice: str | None
    manifest_sha256: str | None
    acfs: tuple[Acf, ...]
    manifest: Manifest | None = field(repr=False)

    @cached_property
    def _by_id(self) -> Mapping[str, Acf]:
        return {acf.id: acf for acf in self.acfs}

    def get(self, id: str) -> Acf:
        """Return the ACF whose option is ``id``; PackError, with some of the names, when there is none."""
        if id in self._by_id:
            return self._by_id[id]
        some = ", ".join(acf.id for acf in self.acfs[:5]) + (", ..." if len(self.acfs) > 5 else "")
        raise PackError(
            f"{printable(str(self.location))}: no ACF '{printable(id)}' among its {len(self.acfs)}",
            f"There are: {some}",
        )

    def read(self, acf: Acf) -> bytes:
        """Return the bytes of ``acf``; PackError when they have changed since the pack was opened."""
        with _container(self.location) as container:
            data = container.read(acf.member, MAX_ACF)
        if hashlib.sha256(data).hexdigest() != acf.sha256:
            raise PackError(
                f"{printable(str(self.location))}: '{printable(acf.filename)}' is no longer what it was",
                "Leave a pack alone while a sweep runs, and start the sweep again",
            )
        return data


_opened: dict[tuple[object, ...], Pack] = {}


def open_pack(
    path: Path, *, cuda_version: str | None = None, stage: str | None = None, name: str | None = None
) -> Pack:
    """Return the pack at ``path``, with the size and SHA-256 of every ACF verified.

    ``cuda_version`` (``13.3`` or ``13.3.0``) and ``stage`` (nvcc, ptxas or both; ptxas when None)
    describe a folder without a manifest, and ``name`` is what to call it; a manifest must not contradict
    the first two. A pack that has not changed is opened once per process.

    Raises:
        PackError: nothing there, unreadable, not a pack, or not what its manifest says; names pack and
            member.
    """
    try:
        path = path.expanduser().absolute()
        key = (path, *_signature(path), cuda_version, stage, name)
    except (
        OSError,
        ValueError,
        RuntimeError,
    ) as error:  # ValueError: a NUL in it; RuntimeError: no such ~user
        raise _unreadable(path, error) from None
    if key not in _opened:
        try:
            _opened[key] = _open(path, cuda_version, stage, name)
        except OSError as error:
            raise _unreadable(path, error) from None
    return _opened[key]


def _unreadable(path: Path, error: Exception) -> PackError:
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return PackError(
        f"{printable(str(path))}: cannot be read as a pack: {printable(reason)}", "Check the path"
    )


def _signature(path: Path) -> Iterator[object]:
    """Give what changes when the pack is replaced; Pack.read finds files that are rewritten in place."""
    status = path.stat()
    yield from (os.path.realpath(path), status.st_mtime_ns, status.st_size)
    if stat.S_ISDIR(status.st_mode):
        for manifest in (path / MANIFEST_NAME, *sorted(path.glob(f"*/{MANIFEST_NAME}"))):
            if manifest.exists():
                inner = manifest.stat()
                yield from (
                    str(manifest),
                    inner.st_mtime_ns,
                    inner.st_size,
                    manifest.parent.stat().st_mtime_ns,
                )


@contextmanager
def _container(path: Path) -> Iterator[Folder | Archive]:
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        yield Folder(path, MANIFEST_NAME)
    elif stat.S_ISREG(mode):
        with open_archive(path) as archive:
            yield archive
    else:
        raise PackError(f"{printable(str(path))}: neither a directory nor a zip", "Give the path of a pack")


def _open(path: Path, cuda_version: str | None, stage: str | None, name: str | None) -> Pack:
    shown = printable(str(path))
    if stage is not None and stage not in STAGES:
        raise PackError(f"{shown}: stage '{printable(stage)}' is unknown", "Use nvcc, ptxas or both")
    if cuda_version is not None and not _CUDA_VERSION.fullmatch(cuda_version):
        raise PackError(
            f"{shown}: cuda_version '{printable(cuda_version)}' is no version", "Write it like 13.3"
        )
    with _container(path) as container:
        manifests = sorted(m for m in container.members if m.rpartition("/")[2] == MANIFEST_NAME)
        if len(manifests) > 1:
            raise PackError(
                f"{shown}: holds {len(manifests)} packs: {', '.join(map(printable, manifests[:4]))}",
                "Give one",
            )
        if manifests:
            return _with_manifest(container, manifests[0], cuda_version, stage)
        return _loose(container, cuda_version, stage or "ptxas", name or path.name)


def _with_manifest(
    container: Folder | Archive, member: str, cuda_version: str | None, stage: str | None
) -> Pack:
    shown = printable(str(container.path))
    manifest = parse(container.read(member, MAX_MANIFEST), f"{shown}: {printable(member)}")
    for key, given, stated in (
        ("stage", stage, manifest.controls_stage),
        ("cuda_version", cuda_version and _minor(cuda_version), _minor(manifest.cuda_version)),
    ):
        if given is not None and given != stated:
            raise PackError(
                f"{shown}: pack.{key} is {given}, but the manifest says {stated}", f"Leave pack.{key} out"
            )
    prefix = member.removesuffix(MANIFEST_NAME)
    unlisted = {m for m in container.members if is_acf(m)} - {
        prefix + entry.filename for entry in manifest.acfs
    }
    if unlisted:
        raise PackError(
            f"{shown}: '{printable(min(unlisted))}' is an ACF that the manifest does not list", "Remove it"
        )
    acfs = []
    total = 0
    for entry in manifest.acfs:
        data = container.read(prefix + entry.filename, MAX_ACF)
        total = _add(total, data, container)
        found = hashlib.sha256(data).hexdigest()
        if (len(data), found) != (entry.size_bytes, entry.sha256):
            what = "size" if len(data) != entry.size_bytes else "SHA-256"
            raise PackError(
                f"{shown}: '{printable(prefix + entry.filename)}' has another {what} than the manifest says",
                "The file is damaged or was replaced: get the pack again",
            )
        acfs.append(
            Acf(
                id=option_id(entry.filename),
                filename=entry.filename,
                sha256=found,
                size_bytes=len(data),
                compiler_stages=entry.compiler_stages,
                description=entry.description,
                member=prefix + entry.filename,
            )
        )
    return Pack(
        location=container.path,
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
        acfs=_distinct(acfs, shown),
        manifest=manifest,
    )


def _loose(container: Folder | Archive, cuda_version: str | None, stage: str, name: str) -> Pack:
    shown = printable(str(container.path))
    if isinstance(container, Archive):
        raise PackError(
            f"{shown}: no {MANIFEST_NAME} in it", "Unpack loose ACFs to a directory and give that"
        )
    members = sorted(m for m in container.members if is_acf(m))
    if not members:
        zips = sorted(m for m in container.members if m.endswith(".zip"))
        advice = (
            f"Give one of the zips in it: {printable(', '.join(zips))}" if zips else "Give the path of a pack"
        )
        raise PackError(f"{shown}: neither a {MANIFEST_NAME} nor an .acf file in it", advice)
    if len(members) > MAX_MEMBERS:
        raise PackError(f"{shown}: more than {MAX_MEMBERS} ACFs", "Split the folder")
    acfs = []
    total = 0
    for member in members:
        data = container.read(member, MAX_ACF)
        total = _add(total, data, container)
        digest = hashlib.sha256(data).hexdigest()
        acfs.append(Acf(option_id(member), member, digest, len(data), STAGES[stage], "", member))
    return Pack(
        location=container.path,
        pack_id=container.path.name,
        display_name=name,
        release_tag=None,
        catalog_version=None,
        cuda_version=cuda_version,
        controls_stage=stage,
        supported_gpus=(),
        caveats=(),
        notice=None,
        manifest_sha256=None,
        acfs=_distinct(acfs, shown),
        manifest=None,
    )


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _add(total: int, data: bytes, container: Folder | Archive) -> int:
    if total + len(data) > MAX_TOTAL:
        raise PackError(
            f"{printable(str(container.path))}: more than {MAX_TOTAL >> 20} MiB of ACFs", "Split the pack"
        )
    return total + len(data)


def _distinct(acfs: list[Acf], shown: str) -> tuple[Acf, ...]:
    first: dict[str, Acf] = {}
    for acf in acfs:
        other = first.setdefault(acf.id.casefold(), acf)
        if other is not acf:
            raise PackError(
                f"{shown}: '{printable(other.filename)}' and '{printable(acf.filename)}' would both be "
                f"acf={acf.id} (capitals do not count)",
                "Rename one of them",
            )
    return tuple(acfs)
