"""Locks that all users of this machine share: one flock per name, on files that nobody ever writes to.

A lock ends with the process that holds it, however that ends, and nothing in the folder can be used against
anybody but by holding a lock.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from pathlib import Path

FOLDER = Path("/tmp/boosterrun-locks")  # noqa: S108 - shared on purpose, and opened with care # nosec B108
FOLDER_VARIABLE = "BOOSTERRUN_LOCKS"

_ATTEMPTS = 100


def folder() -> Path:
    """Where the files are."""
    return Path(os.environ.get(FOLDER_VARIABLE) or FOLDER)


def take(name: str) -> int | None:
    """Take a lock without waiting; None when another holds it.

    Returns a descriptor: closing it, or the end of this process, gives the lock back. Raises OSError where
    there can be no lock.
    """
    within = _open_folder(folder())
    try:
        while True:
            descriptor = _open_file(within, name)
            try:
                if not try_lock(descriptor):
                    os.close(descriptor)
                    return None
                if _is_there(within, name, descriptor):
                    return descriptor
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)  # somebody has cleared /tmp: a lock on a file without a name is none
    finally:
        os.close(within)


def try_lock(descriptor: int) -> bool:
    """Lock an open file or folder for oneself; False when another has it. Raises OSError."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def holders(prefix: str) -> set[int]:
    """Ids of the processes that hold locks whose names begin so, where the kernel tells. Never raises."""
    inodes: set[str] = set()
    with contextlib.suppress(OSError), os.scandir(folder()) as listing:
        inodes = {str(entry.inode()) for entry in listing if entry.name.startswith(prefix)}
    if not inodes:
        return set()
    try:
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return set()
    found = set()
    for words in map(str.split, lines):
        if len(words) == 8 and words[1] == "FLOCK" and words[5].rpartition(":")[2] in inodes:
            found.add(int(words[4]))
    return found


def _open_folder(path: Path) -> int:
    """Open the folder of the locks, made for everybody like /tmp; never through a link."""
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
        path.chmod(0o1777)
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _open_file(within: int, name: str) -> int:
    """Open a lock's file for reading: that is enough for a lock, and works on other users' files."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    for _ in range(_ATTEMPTS):
        try:
            descriptor = os.open(name, flags, dir_fd=within)
        except FileNotFoundError:
            try:
                descriptor = os.open(name, flags | os.O_CREAT | os.O_EXCL, 0o444, dir_fd=within)
            except FileExistsError:
                continue
            os.fchmod(descriptor, 0o444)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return descriptor
        os.close(descriptor)
        raise OSError(errno.EINVAL, f"{name} is not a regular file")
    raise OSError(errno.EAGAIN, f"{name} comes and goes")


def _is_there(within: int, name: str, descriptor: int) -> bool:
    try:
        named = os.stat(name, dir_fd=within, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(named, os.fstat(descriptor))
