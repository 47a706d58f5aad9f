"""A pack that was opened: its ACFs, and their bytes on demand."""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from boosterrun.errors import PackError
from boosterrun.packs.archive import Archive, open_archive
from boosterrun.packs.folder import Folder
from boosterrun.packs.manifest import MANIFEST_NAME, Manifest
from boosterrun.packs.names import printable
from boosterrun.packs.report import Report, stop

MAX_ACF = 16 << 20


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
    manifest_member: str | None = None

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
        with container(self.location) as opened:
            data = opened.read(acf.member, MAX_ACF)
        if hashlib.sha256(data).hexdigest() != acf.sha256:
            raise PackError(
                f"{printable(str(self.location))}: '{printable(acf.filename)}' is no longer what it was",
                "Leave a pack alone while a sweep runs, and start the sweep again",
            )
        return data


@contextmanager
def container(path: Path, report: Report = stop) -> Iterator[Folder | Archive]:
    """Open the directory or zip at ``path``; whatever the system says against it becomes a PackError."""
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            yield Folder(path, MANIFEST_NAME)
        elif stat.S_ISREG(mode):
            with open_archive(path, report) as archive:
                yield archive
        else:
            raise PackError(
                f"{printable(str(path))}: neither a directory nor a zip", "Give the path of a pack"
            )
    except OSError as error:
        raise unreadable(path, error) from None


def unreadable(path: Path, error: Exception) -> PackError:
    """Return the error to raise when nothing at ``path`` can be opened because of ``error``."""
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return PackError(
        f"{printable(str(path))}: cannot be read as a pack: {printable(reason)}", "Check the path"
    )
