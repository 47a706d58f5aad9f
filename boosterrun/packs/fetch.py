"""Fetch a pack into the store: from the releases of a repository, or from a copy of a release on disk."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from boosterrun.errors import PackError, UsageError
from boosterrun.packs.catalog import (
    CATALOG_NAME,
    MAX_CATALOG,
    MAX_SUMS,
    SUMS_NAME,
    Catalog,
    CatalogEntry,
    check_artifact,
    check_pack,
    check_sum,
    minor,
    pack_name,
    parse_catalog,
    parse_sums,
)
from boosterrun.packs.download import Download, Progress, bar
from boosterrun.packs.folder import Folder
from boosterrun.packs.github import BYTES, Releases, check_repository
from boosterrun.packs.http import Client, Patience, check_base_url
from boosterrun.packs.library import REPOSITORY, Library, Stored, default_root
from boosterrun.packs.names import printable
from boosterrun.packs.reader import open_pack
from boosterrun.packs.release import Release, tag_order

BASE_URL = "https://api.github.com"
_MAX_CATALOGS = 30
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Wish:
    """Which pack: its name, and what narrows it down. ``cuda_version`` is a minor version such as 13.3."""

    name: str
    tag: str | None = None
    sha256: str | None = None
    cuda_version: str | None = None

    def check(self) -> None:
        """Raise UsageError for what can be no pack's name, tag, SHA-256 or CUDA version."""
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}", self.name):
            raise UsageError(f"'{printable(self.name)}' is no name of a pack", "See boosterrun pack list")
        if self.tag is not None and tag_order(self.tag) is None:
            example = "Write it like booster-packs-2026.05.27"
            raise UsageError(f"'{printable(self.tag)}' is no tag of a release of packs", example)
        if self.sha256 is not None and not _SHA256.fullmatch(self.sha256):
            raise UsageError(
                f"'{printable(self.sha256)}' is no SHA-256", "Write 64 hexadecimal digits, in small"
            )
        if self.cuda_version is not None and not re.fullmatch(r"[0-9]+\.[0-9]+", self.cuda_version):
            raise UsageError(f"'{printable(self.cuda_version)}' is no CUDA version", "Write it like 13.3")


@dataclass(frozen=True)
class Source:
    """Where packs come from and where they are kept."""

    library: Library
    base_url: str
    token: str | None
    patience: Patience


@dataclass(frozen=True)
class Fetched:
    """A pack that is in the store now; ``new`` if it was not before."""

    stored: Stored
    new: bool


def source(
    env: Mapping[str, str],
    *,
    store: str | None = None,
    repository: str | None = None,
    base_url: str | None = None,
    patience: Patience | None = None,
) -> Source:
    """The source as configured, else as the environment says, else GitHub. Raises UsageError.

    Environment: BOOSTERRUN_PACK_STORE, BOOSTERRUN_PACK_REPOSITORY, BOOSTERRUN_PACK_BASE_URL, GITHUB_TOKEN.
    """
    token = env.get("GITHUB_TOKEN") or None
    if token is not None and not re.fullmatch(r"[!-~]+", token):
        raise UsageError("GITHUB_TOKEN has characters that no token has", "Set it again, or unset it")
    root = Path(store).expanduser().absolute() if store else default_root(env)
    owner = check_repository(repository or env.get("BOOSTERRUN_PACK_REPOSITORY") or REPOSITORY)
    url = check_base_url(base_url or env.get("BOOSTERRUN_PACK_BASE_URL") or BASE_URL, token)
    return Source(Library(root, owner), url, token, patience or Patience())


def fetch(wish: Wish, source: Source, progress: Progress | None = None) -> Fetched:
    """Make the pack be in the store. A pack of a given tag that is there already costs no request.

    Raises:
        PackError: there is no such pack, or it is not what its release says, or the release has changed.
        RunError: the network or the disk fails. UsageError: the wish makes no sense.
    """
    wish.check()
    with source.library.locked():
        known = _known(wish, source.library)
        if known is not None:
            return Fetched(known, new=False)
        releases = Releases(_client(source), source.library.repository, source.library.folder / ".pages")
        release, described = _choose(wish, releases)
        entry = _entry(wish, described)
        known = _known(Wish(wish.name, release.tag, wish.sha256), source.library)
        if known is not None:
            source.library.refuse_change(release.tag, described.raw)
            return Fetched(known, new=False)
        source.library.refuse_change(release.tag, described.raw)
        asset = releases.asset(release, entry.artifact_name)
        if asset.size != entry.artifact_size_bytes:
            problem = f"has {asset.size} bytes, but the catalog says {entry.artifact_size_bytes}"
            raise PackError(f"{entry.artifact_name} of {release.tag}: {problem}", "Tell its maker")
        with _partial(source.library, entry) as partial:
            download = Download(releases.client, releases.url(asset), BYTES, partial)
            download.run(
                f"{entry.artifact_name} of {release.tag}",
                entry.artifact_size_bytes,
                entry.artifact_sha256,
                progress or bar(entry.artifact_name),
            )
            return _install(source, described, entry, partial)


def copy(wish: Wish, source: Source, folder: Path) -> Fetched:
    """As :func:`fetch`, but from ``folder``, a copy of a release: for machines without a network."""
    wish.check()
    box = Folder(folder, CATALOG_NAME)
    if not folder.is_dir():
        raise UsageError(f"{printable(str(folder))} is no folder", "Give the folder with a release's files")
    described = _Described(
        box.read(CATALOG_NAME, MAX_CATALOG), box.read(SUMS_NAME, MAX_SUMS), printable(str(folder))
    )
    tag = described.catalog.release_tag
    if tag_order(tag) is None:
        raise PackError(
            f"{described.where}: '{printable(tag)}' is no tag of a release of packs", "Tell its maker"
        )
    if wish.tag not in {None, tag}:
        raise PackError(f"{described.where}: is release {tag}, not {wish.tag}", "Give the other folder")
    entry = _entry(wish, described)
    with source.library.locked():
        source.library.refuse_change(tag, described.raw)
        known = _known(Wish(wish.name, tag, wish.sha256), source.library)
        if known is not None:
            return Fetched(known, new=False)
        data = box.read(entry.artifact_name, entry.artifact_size_bytes)
        check_artifact(entry, data, printable(str(folder / entry.artifact_name)))
        with _partial(source.library, entry) as partial:
            partial.write_bytes(data)
            return _install(source, described, entry, partial)


def remote(source: Source) -> list[Release]:
    """All releases of the repository, from old to new. Raises PackError and RunError."""
    return Releases(_client(source), source.library.repository, source.library.folder / ".pages").all()


class _Described:
    """What a release says of itself; its catalog is that of its checksums, and of ``tag`` if given."""

    def __init__(self, catalog: bytes, sums: bytes, where: str, tag: str | None = None) -> None:
        self.raw = catalog
        self.raw_sums = sums
        self.where = where
        self.sums = parse_sums(sums, f"{where}: {SUMS_NAME}")
        check_sum(self.sums, CATALOG_NAME, hashlib.sha256(catalog).hexdigest(), where)
        self.catalog: Catalog = parse_catalog(catalog, f"{where}: {CATALOG_NAME}")
        if tag is not None and self.catalog.release_tag != tag:
            other = printable(self.catalog.release_tag)
            raise PackError(f"{where}: its catalog is of release {other}", "Tell its maker")


def _client(source: Source) -> Client:
    return Client(source.base_url, source.token, source.patience)


def _choose(wish: Wish, releases: Releases) -> tuple[Release, _Described]:
    """The release of the wished tag, else the newest, else the newest for the wished CUDA version."""
    if wish.tag is not None:
        release = releases.tagged(wish.tag)
        return release, _describe(releases, release)
    candidates = list(reversed(releases.all()))
    if wish.cuda_version is None:
        return candidates[0], _describe(releases, candidates[0])
    others: list[str] = []
    for release in candidates[:_MAX_CATALOGS]:
        described = _describe(releases, release)
        entry = described.catalog.find(wish.name)
        if entry is not None and minor(entry.cuda_version) == wish.cuda_version:
            return release, described
        others += [f"{entry.cuda_version} in {release.tag}"] if entry is not None else []
    there = f"There is: {', '.join(others[:6])}" if others else "See boosterrun pack list --remote"
    raise PackError(
        f"no release of {releases.repository} has pack '{wish.name}' for CUDA {wish.cuda_version}", there
    )


def _describe(releases: Releases, release: Release) -> _Described:
    catalog = releases.content(release, CATALOG_NAME, MAX_CATALOG)
    sums = releases.content(release, SUMS_NAME, MAX_SUMS)
    return _Described(catalog, sums, release.tag, release.tag)


def _entry(wish: Wish, described: _Described) -> CatalogEntry:
    entry = described.catalog.find(wish.name)
    if entry is None:
        names = ", ".join(each.name for each in described.catalog.packs[:8])
        raise PackError(f"{described.where}: has no pack '{wish.name}'", f"It has {names}")
    check_sum(described.sums, entry.artifact_name, entry.artifact_sha256, described.where)
    _check_pin(wish, entry.artifact_sha256, described.where)
    if wish.cuda_version is not None and minor(entry.cuda_version) != wish.cuda_version:
        problem = f"its '{entry.name}' is for CUDA {entry.cuda_version}, not {wish.cuda_version}"
        raise PackError(f"{described.where}: {problem}", "Leave the tag or the CUDA version out")
    return entry


def _known(wish: Wish, library: Library) -> Stored | None:
    """The stored pack of a given tag, if it is what it should be; a damaged one is to be fetched again."""
    if wish.tag is None:
        return None
    for stored in library.find(wish.name, wish.tag):
        try:
            stored.verify()
        except PackError:
            return None
        _check_pin(wish, stored.entry.artifact_sha256, printable(str(stored.path)))
        return stored
    return None


def _check_pin(wish: Wish, sha256: str, where: str) -> None:
    if wish.sha256 is not None and wish.sha256 != sha256:
        raise PackError(
            f"{where}: '{pack_name(wish.name)}' has the SHA-256 {sha256[:12]}..., "
            f"but {wish.sha256[:12]}... is pinned",
            "The release has changed, or the pin is of another one: do not use it before you know why",
        )


@contextmanager
def _partial(library: Library, entry: CatalogEntry) -> Iterator[Path]:
    """A place for the incomplete file, named by its content, so that a later process can go on with it."""
    folder = library.folder / ".partial"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder / f"{entry.artifact_sha256}.zip"
    except OSError as error:
        raise library.unwritable(error) from error


def _install(source: Source, described: _Described, entry: CatalogEntry, partial: Path) -> Fetched:
    where = f"{entry.artifact_name} of {described.catalog.release_tag}"
    try:
        check_pack(described.catalog, entry, open_pack(partial), where)
    except PackError:
        partial.unlink(missing_ok=True)
        raise
    origin = {
        "repository": source.library.repository,
        "base_url": source.base_url,
        "tag": described.catalog.release_tag,
    }
    path = source.library.add(partial, entry, described.raw, described.raw_sums, origin)
    partial.with_name(f"{partial.name}.etag").unlink(missing_ok=True)
    return Fetched(Stored(path, described.catalog, entry), new=True)
