"""Replace a file as a whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from boosterrun.errors import RunError


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Give a new file beside `path`; it takes the place of `path` when the block ends without an error.

    Readers see the old content or the new, never a part; after a power failure too (file and folder are
    synchronised). Several processes may do this at once: the last one wins, whole.

    Raises:
        RunError: the file cannot be written (full disk, no permission); the old file is untouched.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        try:
            with partial.open("xb") as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            partial.replace(path)
        except BaseException:
            with suppress(OSError):
                partial.unlink()
            raise
        _sync_folder(path.parent)
    except OSError as error:
        raise RunError(
            f"cannot write {path}: {error.strerror or error}", "Free some space or choose another folder"
        ) from error


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        # Some network file systems refuse to synchronise a folder; the rename itself has happened.
        with suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
