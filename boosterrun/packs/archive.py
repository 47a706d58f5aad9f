"""Zips from elsewhere: every member is checked before any is read, and no stated size is believed."""

from __future__ import annotations

import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from boosterrun.errors import PackError
from boosterrun.packs.names import printable, same_file
from boosterrun.packs.report import Report, stop

MAX_MEMBERS = 20_000
MAX_TOTAL = 256 << 20
# Of a zip within the limits above, the directory at its end is a few MiB: names, and 46 bytes a member.
_MAX_DIRECTORY = 16 << 20
_ENCRYPTED = 0x1 | 0x40 | 0x2000
_ADVICE = "Get the pack again, or unpack it by hand, look at it, and use the directory"
# All that zipfile raises over damaged input; OSError comes from seeking to a nonsensical place.
_BROKEN = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    OSError,
    ValueError,
    RuntimeError,  # and with it NotImplementedError
)


class Archive:
    """The files of a zip that passed the checks, by name; all paths are relative and stay inside."""

    def __init__(self, path: Path, file: zipfile.ZipFile, report: Report = stop) -> None:
        self.path = path
        self._file = file
        self._members = _checked(path, file.infolist(), report)

    @property
    def members(self) -> frozenset[str]:
        """Names of the files, without the directories."""
        return frozenset(self._members)

    def read(self, name: str, limit: int) -> bytes:
        """Return the content of file ``name``, at most ``limit`` bytes.

        Raises:
            PackError: no such member, damaged, or longer than ``limit``.
        """
        info = self._members.get(name)
        if info is None:
            raise _refusal(self.path, name, "is not in the archive")
        if info.file_size > limit:
            raise _refusal(self.path, name, f"is larger than {limit} bytes")
        try:
            with self._file.open(info) as stream:
                data = stream.read(limit + 1)
        except _BROKEN as error:
            raise _refusal(self.path, name, f"cannot be unpacked: {printable(str(error))}") from None
        if len(data) > limit:
            raise _refusal(self.path, name, f"is larger than {limit} bytes")
        return data


@contextmanager
def open_archive(path: Path, report: Report = stop) -> Iterator[Archive]:
    """Open the zip at ``path``, check its directory, and close it at the end; bad members go to ``report``.

    Raises:
        PackError: no zip, truncated, encrypted, too large, or with a member that is not read here: a path
            that is absolute or leads outside, a backslash, a drive letter, a link, a device, a name that
            appears twice.
        OSError: ``path`` cannot be opened.
    """
    with path.open("rb") as raw:
        _check_directory_size(path, raw)
        try:
            file = zipfile.ZipFile(raw)
        except _BROKEN as error:
            raise PackError(
                f"{printable(str(path))}: not a readable zip: {printable(str(error))}", _ADVICE
            ) from None
        with file:
            yield Archive(path, file, report)


def _check_directory_size(path: Path, raw: BinaryIO) -> None:
    """Refuse a zip whose directory would fill the memory, before ``zipfile`` loads all of it."""
    size = raw.seek(0, 2)
    raw.seek(max(0, size - (22 + 20 + 0xFFFF)))
    tail = raw.read()
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or len(tail) - at < 22:
        raise PackError(f"{printable(str(path))}: not a zip, or cut off", _ADVICE)
    count, directory = struct.unpack_from("<HI", tail, at + 10)
    zip64 = at >= 20 and tail[at - 20 : at - 16] == b"PK\x06\x07"
    if zip64 or count > MAX_MEMBERS or directory > _MAX_DIRECTORY:
        raise PackError(
            f"{printable(str(path))}: more than {MAX_MEMBERS} members, or of the zip64 kind", _ADVICE
        )
    raw.seek(0)


def _checked(path: Path, infos: list[zipfile.ZipInfo], report: Report) -> dict[str, zipfile.ZipInfo]:
    if len(infos) > MAX_MEMBERS:
        raise PackError(f"{printable(str(path))}: more than {MAX_MEMBERS} members", _ADVICE)
    if sum(info.file_size for info in infos) > MAX_TOTAL:
        raise PackError(f"{printable(str(path))}: more than {MAX_TOTAL >> 20} MiB when unpacked", _ADVICE)
    members: dict[str, zipfile.ZipInfo] = {}
    seen: set[str] = set()
    for info in infos:
        if problem := _problem(info):
            report(_refusal(path, info.orig_filename, problem))
            continue
        # Case and trailing slash do not make two names different: on some disks they are one file.
        folded = same_file(info.filename.rstrip("/"))
        if folded in seen:
            report(_refusal(path, info.orig_filename, "appears twice (capitals do not count)"))
            continue
        seen.add(folded)
        if not info.is_dir():
            members[info.filename] = info
    return members


def _problem(info: zipfile.ZipInfo) -> str | None:  # noqa: PLR0911 (one reason, one return)
    name = info.orig_filename
    parts = name.removesuffix("/").split("/")
    kind = stat.S_IFMT(info.external_attr >> 16)
    if "\0" in name or "\\" in name:
        return "has a NUL or a backslash in its name"
    if name.startswith("/") or (name[1:2] == ":" and name[0].isalpha()):
        return "has an absolute path"
    if any(part in ("", ".", "..") for part in parts):
        return "has a path that leads elsewhere"
    if kind == stat.S_IFLNK:
        return "is a link"
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        return "is neither a file nor a directory"
    if info.flag_bits & _ENCRYPTED:
        return "is encrypted"
    # The other methods unpack without a bound: a few bytes could fill the memory.
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return "is compressed in another way than by deflate"
    return None


def _refusal(path: Path, name: str, problem: str) -> PackError:
    return PackError(f"{printable(str(path))}: member '{printable(name)}' {problem}", _ADVICE)
