"""The local store of fetched packs: ``<store>/<owner>+<repository>/<tag>/booster-pack-<name>.zip``.

A folder of a tag also has the catalog and the checksums of that release. A file is there whole and verified,
or not at all.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from boosterrun.errors import PackError, RunError
from boosterrun.packs.catalog import (
    CATALOG_NAME,
    MAX_CATALOG,
    SUMS_NAME,
    Catalog,
    CatalogEntry,
    check_artifact,
    check_pack,
    parse_catalog,
)
from boosterrun.packs.names import printable
from boosterrun.packs.pack import Pack
from boosterrun.packs.reader import open_pack
from boosterrun.packs.release import Order, tag_order
from boosterrun.system.atomic import replacing

REPOSITORY = "NVIDIA/CompileIQ"
ORIGIN = ".fetched.json"


@dataclass(frozen=True)
class Stored:
    """A pack of the store, by its catalog; the zip itself is not looked at before it is asked for."""

    path: Path
    catalog: Catalog
    entry: CatalogEntry

    @property
    def tag(self) -> str:
        """The release that it is from."""
        return self.catalog.release_tag

    @property
    def order(self) -> Order:
        """Sorts the releases in the store from old to new."""
        found = tag_order(self.tag)
        assert found is not None  # noqa: S101 (Library.stored gives no other)
        return found

    def verify(self) -> Pack:
        """Open the zip and compare it with its catalog; PackError when it is not what was fetched."""
        where = printable(str(self.path))
        try:
            check_artifact(self.entry, self.path.read_bytes(), where)
        except OSError as error:
            raise PackError(f"{where}: cannot be read: {error.strerror}", "Fetch it again") from None
        pack = open_pack(self.path)
        check_pack(self.catalog, self.entry, pack, where)
        return pack


def default_root(env: Mapping[str, str]) -> Path:
    """``BOOSTERRUN_PACK_STORE``, else ``packs`` in the user's cache directory for boosterrun."""
    if env.get("BOOSTERRUN_PACK_STORE"):
        return Path(env["BOOSTERRUN_PACK_STORE"]).expanduser().absolute()
    import platformdirs  # noqa: PLC0415 (not needed by most commands)

    return platformdirs.user_cache_path("boosterrun") / "packs"


class Library:
    """The packs that were fetched from one repository."""

    def __init__(self, root: Path, repository: str = REPOSITORY) -> None:
        self.root = root
        self.repository = repository
        self.folder = root / repository.replace("/", "+")

    def stored(self) -> list[Stored]:
        """All packs here, from old to new. Raises PackError if a catalog here is damaged."""
        found: list[Stored] = []
        for folder in self._folders():
            if (catalog := self.catalog(folder.name)) is None:
                continue
            for entry in catalog.packs:
                if (folder / entry.artifact_name).is_file():
                    found.append(Stored(folder / entry.artifact_name, catalog, entry))
        return sorted(found, key=lambda each: (each.order, each.entry.name))

    def find(self, name: str, tag: str | None = None) -> list[Stored]:
        """The stored packs called ``name``, from old to new; of release ``tag`` only, if given."""
        return [
            each
            for each in self.stored()
            if each.catalog.find(name) is each.entry and (tag is None or each.tag == tag)
        ]

    def catalog(self, tag: str) -> Catalog | None:
        """The catalog of release ``tag`` as it was when a pack of it was fetched, or None.

        Raises PackError when the file was changed.
        """
        path = self.folder / tag / CATALOG_NAME
        try:
            with path.open("rb") as stream:
                data = stream.read(MAX_CATALOG + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise PackError(f"{path}: cannot be read: {error.strerror}", "Give pack.store=FOLDER") from None
        try:
            catalog = parse_catalog(data, printable(str(path)))
        except PackError as error:
            raise PackError(error.message, f"Remove {path.parent} and fetch the pack again") from None
        if catalog.release_tag != tag:
            raise PackError(
                f"{path}: is of release {printable(catalog.release_tag)}", f"Remove {path.parent}"
            )
        return catalog

    def add(
        self, source: Path, entry: CatalogEntry, catalog: bytes, sums: bytes, origin: Mapping[str, str]
    ) -> Path:
        """Move the verified zip ``source`` in, with the files of its release; the zip comes last.

        Raises:
            PackError: another pack of the same tag was fetched from a release that was different then.
            RunError: the store cannot be written.
        """
        tag = parse_catalog(catalog, source.name).release_tag
        folder = self.folder / tag
        self.refuse_change(tag, catalog)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for name, data in (
                (CATALOG_NAME, catalog),
                (SUMS_NAME, sums),
                (ORIGIN, json.dumps(dict(origin), indent=2).encode() + b"\n"),
            ):
                with replacing(folder / name) as stream:
                    stream.write(data)
            source.chmod(0o644)
            source.replace(folder / entry.artifact_name)
        except OSError as error:
            raise self.unwritable(error) from error
        return folder / entry.artifact_name

    def refuse_change(self, tag: str, catalog: bytes) -> None:
        """Raise PackError when release ``tag`` is in the store with another catalog than this one."""
        path = self.folder / tag / CATALOG_NAME
        if path.exists() and path.read_bytes() != catalog:
            raise PackError(
                f"release {tag} of {self.repository} has changed since a pack of it was fetched: "
                f"its catalog had the SHA-256 {_sha256(path.read_bytes())}..., now {_sha256(catalog)}...",
                f"Ask its maker why; remove {path.parent} to take the new one",
            )

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Let one process at a time write here; tells so when it has to wait. Raises RunError."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise self.unwritable(error) from error
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                sys.stderr.write(f"waiting for another process that fetches into {self.folder}\n")
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            except OSError as error:  # a file system without locks
                raise self.unwritable(error) from error
            yield
        finally:
            os.close(descriptor)

    def unwritable(self, error: OSError) -> RunError:
        """The error to raise when the store cannot be written because of ``error``."""
        return RunError(
            f"cannot write to {self.folder}: {error.strerror or error}",
            "Free some space, or give another folder: pack.store or BOOSTERRUN_PACK_STORE",
        )

    def _folders(self) -> list[Path]:
        try:
            return [path for path in self.folder.iterdir() if tag_order(path.name) is not None]
        except FileNotFoundError:
            return []
        except OSError as error:
            problem = f"{self.folder}: cannot be read: {error.strerror}"
            raise PackError(problem, "Give pack.store=FOLDER") from None


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]
