"""Packs unpacked to a directory: only regular files inside it are read, whatever links say."""

from __future__ import annotations

import errno
import os
import stat
from functools import cached_property
from pathlib import Path

from boosterrun.errors import PackError
from boosterrun.packs.names import printable


class Folder:
    """A directory, and the directories directly in it that hold a file called ``marker``."""

    def __init__(self, path: Path, marker: str) -> None:
        self.path = path
        self._marker = marker
        self._root = os.path.realpath(path)

    @cached_property
    def members(self) -> frozenset[str]:
        """Names of the files, relative, with ``/``: those of the directory and of the marked ones in it.

        Raises:
            PackError: a marked directory is a link that leads outside.
            OSError: a directory cannot be listed.
        """
        found: set[str] = set()
        with os.scandir(self._root) as entries:
            for entry in entries:
                if not _is_directory(entry):
                    found.add(entry.name)
                elif os.path.lexists(os.path.join(entry.path, self._marker)):  # noqa: PTH118 (thousands of entries)
                    if not self._is_inside(entry.path):
                        raise self._refusal(entry.name, "is a link that leads outside")
                    with os.scandir(entry.path) as inner:
                        found.update(f"{entry.name}/{each.name}" for each in inner if not _is_directory(each))
        return frozenset(found)

    def read(self, name: str, limit: int) -> bytes:
        """Return the content of file ``name``, at most ``limit`` bytes.

        Raises:
            PackError: not a regular file, a link that leads outside, longer than ``limit``, or unreadable.
        """
        try:
            descriptor = self._open(name)
            try:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise self._refusal(name, "is not a regular file")
                with open(descriptor, "rb", closefd=False) as stream:
                    data = stream.read(limit + 1)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise self._refusal(name, f"cannot be read: {error.strerror}") from None
        if len(data) > limit:
            raise self._refusal(name, f"is larger than {limit} bytes")
        return data

    def _open(self, name: str) -> int:
        # O_NONBLOCK: opening a FIFO must not wait for a writer.
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
        path = f"{self._root}/{name}"
        try:
            return os.open(path, flags)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
        if not self._is_inside(path):
            raise self._refusal(name, "is a link that leads outside")
        return os.open(os.path.realpath(path), flags)

    def _is_inside(self, path: str) -> bool:
        return os.path.realpath(path).startswith(self._root.rstrip("/") + "/")

    def _refusal(self, name: str, problem: str) -> PackError:
        return PackError(
            f"{printable(str(self.path))}: '{printable(name)}' {problem}",
            "Copy the pack's own files into the directory",
        )


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself; reading it tells
        return False
