"""Jobs in processes of this machine that end when the process that started them ends, or says so."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from boosterrun.launchers.engine import PATIENCE
from boosterrun.launchers.task import Failure, Task, in_rounds, run
from boosterrun.system import interrupt, leftovers

_LOCK = "lock"
_BEGUN = ".begun"
_ENDED = ".ended"
_POLL = 0.1
# Set while this process runs jobs.
_busy = threading.Event()


class Leash:
    """A lock that the owner of the jobs holds: whoever gets it knows that the jobs are to end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._descriptor: int | None = os.open(folder / _LOCK, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)

    def release(self) -> None:
        """Tell the jobs to end, and those that have not begun not to begin."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def begun(self, task: Task) -> bool:
        """Whether a process has begun with a task."""
        return (self.folder / (task.name + _BEGUN)).exists()

    def ended(self, task: Task) -> bool:
        """Whether a task has ended in its process, and there is no failure to tell of."""
        return (self.folder / (task.name + _ENDED)).exists()


@contextlib.contextmanager
def leash() -> Iterator[Leash]:
    """A leash for as long as the block."""
    with leftovers.scratch("boosterrun-jobs-") as folder:
        held = Leash(folder)
        try:
            yield held
        finally:
            held.release()


def watch(folder: Path) -> None:
    """End this process once the leash in ``folder`` is released: a job that runs has its time to write."""
    threading.Thread(target=_watch, args=(folder,), daemon=True).start()


def run_on(folder: Path, tasks: Sequence[Task]) -> list[Failure | None]:
    """Run tasks one after the other, in rounds, on the leash in ``folder``.

    Returns for each task that has run what :func:`boosterrun.launchers.task.run` says of it.
    """
    said: list[Failure | None] = []
    _busy.set()
    try:
        if _released(folder):
            return said
        with contextlib.closing(in_rounds(tasks)) as due:
            for task in due:
                (folder / (task.name + _BEGUN)).touch()
                said.append(run(task))
                if said[-1] is None:
                    (folder / (task.name + _ENDED)).touch()
                if interrupt.stopping():
                    break
    except (KeyboardInterrupt, SystemExit, OSError):  # the owner has ended, and its folder is gone
        return said
    finally:
        _busy.clear()
    return said


def _watch(folder: Path) -> None:
    while not _released(folder):
        time.sleep(_POLL)
    if _busy.is_set():
        os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(PATIENCE)  # not sooner: loky ends all its processes when one of them ends
    os._exit(signal.SIGTERM)


def _released(folder: Path) -> bool:
    try:
        descriptor = os.open(folder / _LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:  # the owner has ended
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True
