"""What comes of jobs that an engine runs: their results as they arrive, and those that it has lost."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from boosterrun.launchers.engine import Ended, Engine
from boosterrun.launchers.task import Task
from boosterrun.results import record
from boosterrun.sweeps import resume
from boosterrun.system import redact

_BEGUN = ".hydra"


def results(engine: Engine, tasks: Sequence[Task], sweep: Path) -> Generator[Mapping[str, Any], None, None]:
    """Run tasks of the sweep in the folder ``sweep``; yields each result, read from the job's folder.

    A job without one is told of on stderr and left for the merge to list. Raises what the engine raises.
    """
    before = {task.name: _stamp(sweep / task.name) for task in tasks}
    lost = 0
    with closing(engine.run(tasks)) as ended:
        for each in ended:
            folder = sweep / each.name
            try:
                result = None if _untouched(each, folder, before) else record.load(folder / record.FILENAME)
            except record.InvalidResult:
                result = None
            if result is not None:
                yield result
                continue
            lost += 1
            _miss(each, folder)
    if lost:
        again = shlex.join(["boosterrun", "resume", str(sweep)])
        sys.stderr.write(f"boosterrun: {lost} jobs without a result; run them again with: {again}\n")


def _stamp(folder: Path) -> tuple[int, int] | None:
    """What tells one result from the next; None: there is none."""
    try:
        found = (folder / record.FILENAME).stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def _untouched(ended: Ended, folder: Path, before: Mapping[str, tuple[int, int] | None]) -> bool:
    """Whether the job was lost before it could take away what an earlier run has left."""
    stamp = before[ended.name]
    return ended.failure is not None and stamp is not None and stamp == _stamp(folder)


def _miss(ended: Ended, folder: Path) -> None:
    """Say that a job is lost, and have the merge find it missing, even if it never began."""
    why = "it ended without a result"
    if ended.failure is not None:
        why = ". ".join(part for part in (ended.failure.message, ended.failure.advice) if part)
    sys.stderr.write(f"boosterrun: lost: {ended.name}: {redact.text(' '.join(why.split()))}\n")
    sys.stderr.flush()
    (folder / _BEGUN).mkdir(parents=True, exist_ok=True)
    if _stamp(folder) is not None:
        resume.discard(folder)
