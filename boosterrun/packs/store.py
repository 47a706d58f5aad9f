"""Copies of ACFs for the compilers: named by content, at a path that no compiler or shell can misread."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from boosterrun.errors import PackError, RunError
from boosterrun.packs.names import printable

# nvcc splits -Xptxas on commas and spaces, ninja expands $, Triton splits on spaces.
_PLAIN_PATH = re.compile(r"/[A-Za-z0-9_./@+-]*")


def materialise(data: bytes, sha256: str, root: Path | None = None) -> Path:
    """Return the path ``<root>/<sha256>.acf`` of a copy of ``data``, written if it is not there or not equal.

    Safe with several processes at once. ``root`` defaults to ``acf`` in the user's cache directory for
    boosterrun, or, where that path has special characters or cannot be written, to a private temporary
    directory.

    Raises:
        PackError: ``data`` has another SHA-256, or ``root`` has a character that a compiler could misread.
        RunError: the copy cannot be written.
    """
    if hashlib.sha256(data).hexdigest() != sha256:
        raise PackError(f"an ACF is not the one with SHA-256 {sha256[:64]!r}", "Get the pack again")
    if root is None:
        root = _default_root()
    elif not _is_plain(root := root.absolute()):
        raise PackError(
            f"{printable(str(root))}: compilers cannot take a file from this directory",
            "Use letters, digits and _.@+-",
        )
    path = root / f"{sha256}.acf"
    try:
        root.mkdir(parents=True, exist_ok=True)
        if not _holds(path, data):
            _write(path, data)
            if not _holds(path, data):
                raise RunError(f"{path}: reads back other bytes than were written", "Check the disk")
    except OSError as error:
        raise RunError(
            f"{path}: cannot be written: {error.strerror}", "Free some space or set XDG_CACHE_HOME"
        ) from None
    return path


def _is_plain(path: Path) -> bool:
    return _PLAIN_PATH.fullmatch(str(path)) is not None


def _default_root() -> Path:
    import platformdirs  # noqa: PLC0415 (not needed by most commands)

    cache = platformdirs.user_cache_path("boosterrun") / "acf"
    if _is_plain(cache):
        with suppress(OSError):
            cache.mkdir(parents=True, exist_ok=True)
            if os.access(cache, os.W_OK | os.X_OK):
                return cache
    return _private_root()


def _private_root() -> Path:
    root = Path(tempfile.gettempdir()).absolute() / f"boosterrun-{os.geteuid()}"
    if not _is_plain(root):
        raise RunError(
            f"{printable(str(root))}: compilers cannot take a file from this directory",
            "Set TMPDIR or XDG_CACHE_HOME",
        )
    try:
        with suppress(FileExistsError):
            root.mkdir(mode=0o700)
        status = root.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            raise RunError(
                f"{root}: is not a directory of this user", "Remove it, or set TMPDIR or XDG_CACHE_HOME"
            )
        if status.st_mode & 0o077:
            root.chmod(0o700)
    except OSError as error:
        raise RunError(f"{root}: cannot be used: {error.strerror}", "Set TMPDIR or XDG_CACHE_HOME") from None
    return root / "acf"


def _holds(path: Path, data: bytes) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return False
        with open(descriptor, "rb", closefd=False) as stream:
            return stream.read(len(data) + 1) == data
    finally:
        os.close(descriptor)


def _write(path: Path, data: bytes) -> None:
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with open(descriptor, "wb") as stream:  # noqa: PTH123 (a descriptor)
            stream.write(data)
            stream.flush()
            os.fchmod(descriptor, 0o444)
            os.fsync(descriptor)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
