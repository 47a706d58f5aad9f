"""Replace a file as a whole or not at all."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from boosterrun.errors import RunError
from boosterrun.system import locks


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Give a new file beside `path`; it takes the place of `path` when the block ends without an error.

    Readers see the old content or the new, never a part; after a power failure too (file and folder are
    synchronised). Several processes may do this at once: the last one wins, whole. What a process that was
    killed has left of such a file is removed by the next one.

    Raises:
        RunError: the file cannot be written (full disk, no permission); the old file is untouched.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        _clear(path)
        try:
            with _locked(partial) as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
                partial.replace(path)  # before the lock ends: one that can be had is a dead process's
        except BaseException:
            with suppress(OSError):
                partial.unlink()
            raise
        _sync_folder(path.parent)
    except OSError as error:
        raise RunError(
            f"cannot write {path}: {error.strerror or error}", "Free some space or choose another folder"
        ) from error


def _locked(partial: Path) -> BinaryIO:
    """Make a file that others can tell from one whose process is dead: it is locked."""
    while True:
        stream = partial.open("xb")
        with suppress(OSError):  # where locks do not work, nobody else can have this one either
            locks.try_lock(stream.fileno())
        if partial.exists():
            return stream
        stream.close()  # it was cleared away before it was locked


def _clear(path: Path) -> None:
    """Remove the parts of this file whose processes were killed."""
    ours = re.compile(rf"\.{re.escape(path.name)}\.\d+\.[0-9a-f]{{8}}\.tmp")
    with suppress(OSError):
        for name in os.listdir(path.parent):  # noqa: PTH208 - plain strings are several times faster
            if ours.fullmatch(name):
                _clear_one(path.with_name(name))


def _clear_one(partial: Path) -> None:
    with suppress(OSError):
        descriptor = os.open(partial, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if locks.try_lock(descriptor):
                partial.unlink()
        finally:
            os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        # Some network file systems refuse to synchronise a folder; the rename itself has happened.
        with suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
