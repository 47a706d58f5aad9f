"""Scratch folders that a killed owner does not leave for ever: who makes the next such folder removes it.

Each is locked by its owner. A lock ends with its process, so one that can be had proves that nobody needs the
folder: a process number would not, which another container or machine may have as well.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from boosterrun.errors import RunError
from boosterrun.system import locks

# Until it is locked and has its own name, a new folder must not be taken for a leftover.
_NEW = ".new-"

_held: dict[Path, int] = {}
_one_at_a_time = threading.Lock()


def make(prefix: str, parent: Path | None = None) -> Path:
    """Make a folder below ``parent`` (None: where temporary files go), for this process alone.

    Before that, what dead owners have left there under the same ``prefix`` is removed. Whoever made the
    folder removes it. Raises RunError when it cannot be made.
    """
    place = Path(tempfile.gettempdir()) if parent is None else parent
    with _one_at_a_time:  # another thread would take a folder that has no name yet for one that is gone
        _let_go()
        try:
            _clear(place, prefix)
            return _make(prefix, place)
        except OSError as error:
            advice = "Free some space there, or set TMPDIR"
            raise RunError(f"cannot write to {place}: {error.strerror}", advice) from error


def _make(prefix: str, place: Path) -> Path:
    new = Path(tempfile.mkdtemp(prefix=f"{_NEW}{prefix}", dir=place))
    path = new.with_name(new.name.removeprefix(_NEW))
    descriptor = os.open(new, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    _held[path] = descriptor
    with contextlib.suppress(OSError):  # where locks do not work it keeps the name that nobody looks for
        locks.try_lock(descriptor)
        new.rename(path)
    if not path.exists():
        _held[new] = _held.pop(path)
        path = new
    return path


@contextlib.contextmanager
def scratch(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """A folder as :func:`make` makes it, for as long as the block."""
    path = make(prefix, parent)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        with _one_at_a_time:
            _let_go()


def _clear(place: Path, prefix: str) -> None:
    """Remove this user's folders with the prefix whose owners are dead."""
    with os.scandir(place) as listing:
        names = [entry.name for entry in listing if entry.name.startswith(prefix)]
    for name in names:
        with contextlib.suppress(OSError):
            _clear_one(place / name)


def _clear_one(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if status.st_uid == os.geteuid() and stat.S_ISDIR(status.st_mode) and locks.try_lock(descriptor):
            shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(descriptor)


def _let_go() -> None:
    """Close what belongs to folders that are gone."""
    for path in [path for path in _held if not path.exists()]:
        os.close(_held.pop(path))


def _forget() -> None:
    """In a fork of this process the folders are not ours: their owner's end must end the locks."""
    global _one_at_a_time  # noqa: PLW0603 - another thread may have held it
    _one_at_a_time = threading.Lock()
    while _held:
        os.close(_held.popitem()[1])


os.register_at_fork(after_in_child=_forget)
