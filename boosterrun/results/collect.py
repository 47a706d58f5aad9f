"""Merge the results below some folders into one ``booster-pack-log.csv``."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from boosterrun.errors import RunError, UsageError
from boosterrun.results import csvlog, record
from boosterrun.results.cells import cell
from boosterrun.system import locks
from boosterrun.system.atomic import replacing

REJECTS_FILENAME = "booster-pack-rejects.csv"
# 100,000 results merge in less.
_PATIENCE, _PAUSE = 60.0, 0.05


@dataclass
class Merged:
    """What a merge wrote.

    Attributes:
        csv: the log. rejects: the list of results that are not in it, None if there are none.
        rows: rows of the log, one per ACF and shape. invalid: results that are missing or not valid.
        decisions: jobs by decision, over all shapes. undecided: jobs that could not be judged.
    """

    csv: Path
    rejects: Path | None = None
    rows: int = 0
    invalid: int = 0
    decisions: Counter[str] = field(default_factory=Counter)
    undecided: int = 0


def collect(
    roots: Sequence[Path], out: Path | None = None, *, allow_empty: bool = False, expected: Sequence[str] = ()
) -> Merged:
    """Read and check every ``result.json`` below `roots`, and write the log.

    A bad result stops none of the others. A folder with ``.hydra/`` or ``result.json`` is a job's, and is not
    searched further. Links are not followed. Rows are in the order of the paths. Merges into one folder wait
    for each other, so that a log is never replaced by an older one.

    Args:
        roots: folders of sweeps or jobs, or what holds them.
        out: folder for the log, made if needed; default: the only root, else the working directory.
        allow_empty: write a log without rows, instead of raising, if there is not a single job.
        expected: names of job folders in the only root that have a result, or are listed as without one.

    Raises:
        UsageError: a root does not exist, or there is no job below.
        RunError: the log cannot be written; the old one is untouched.
    """
    for root in roots:
        if not root.is_dir():
            raise UsageError(f"no such folder: {root}", "Name the output folder of a sweep")
    target = _target(roots, out)
    merged = Merged(csv=target / csvlog.FILENAME)
    rejects = target / REJECTS_FILENAME
    with _turn(target):
        rejected: list[tuple[str, str]] = []
        with replacing(merged.csv) as log:
            log.write(f"{csvlog.header()}\n".encode())
            for where, found in results(roots, target):
                if isinstance(found, str):
                    rejected.append((where, found))
                    continue
                for line in csvlog.lines(found, where):
                    log.write(f"{line}\n".encode())
                    merged.rows += 1
                if found["status"] == "decided":
                    merged.decisions[found["decision"]] += 1
                else:
                    merged.undecided += 1
            rejected += _gone(roots[0], target, expected)
            if not merged.rows and not rejected and not allow_empty:
                places = ", ".join(map(str, roots))
                raise UsageError(f"no {record.FILENAME} below {places}", "Name the output folder of a sweep")
            merged.invalid = len(rejected)
            merged.rejects = _write_rejects(rejects, rejected)
    return merged


def _target(roots: Sequence[Path], out: Path | None) -> Path:
    target = out if out is not None else roots[0] if len(roots) == 1 else Path.cwd()
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(
            f"cannot make the folder {target}: {error.strerror}", "Choose another folder for the log"
        ) from error
    return target.resolve()


@contextmanager
def _turn(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _wait(descriptor, folder)
        yield
    finally:
        os.close(descriptor)


def _wait(descriptor: int, folder: Path) -> None:
    """Take the lock of a folder. Raises RunError when its holder seems to be stuck."""
    deadline = time.monotonic() + _PATIENCE
    with suppress(OSError):  # where locks do not work (some network file systems), the last to finish wins
        while not locks.try_lock(descriptor):
            if time.monotonic() > deadline:
                raise RunError(
                    f"another process has kept {folder} locked for {_PATIENCE:.0f} s",
                    f"End it, then run boosterrun collect {folder}",
                )
            time.sleep(_PAUSE)


def results(roots: Sequence[Path], target: Path) -> Iterator[tuple[str, dict[str, Any] | str]]:
    """Each job's path, and its result or the reason why there is none."""
    seen: set[Path] = set()
    for root in sorted({root.resolve() for root in roots}):
        for path, problem in _jobs(root):
            if path in seen:
                continue
            seen.add(path)
            where = os.path.relpath(path, target)
            if problem:
                yield where, problem
                continue
            try:
                yield where, record.load(path)
            except record.InvalidResult as invalid:
                yield where, invalid.message


def _gone(root: Path, target: Path, expected: Sequence[str]) -> list[tuple[str, str]]:
    """Jobs of which there is not even a folder: nothing else would tell that they were run."""
    missing = (root.resolve() / name for name in expected if not (root / name).is_dir())
    return [
        (os.path.relpath(folder / record.FILENAME, target), "missing: the job's folder has been removed")
        for folder in missing
    ]


def _jobs(root: Path) -> Iterator[tuple[Path, str]]:
    """Paths of results in order, each with what is wrong already (else empty)."""
    waiting = [root]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(folder) as listing:
                inside = {entry.name: entry.is_dir(follow_symlinks=False) for entry in listing}
        except OSError as error:
            yield folder, f"cannot be read: {error.strerror}"
            continue
        if record.FILENAME in inside:
            yield folder / record.FILENAME, ""
        elif ".hydra" in inside:
            yield folder / record.FILENAME, "missing: the job has not finished, or was killed"
        else:
            waiting.extend(folder / name for name in sorted(inside, reverse=True) if inside[name])


def _write_rejects(path: Path, rejected: list[tuple[str, str]]) -> Path | None:
    if not rejected:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise RunError(
                f"cannot remove {path}: {error.strerror}", "It lists what is in order now"
            ) from error
        return None
    with replacing(path) as stream:
        stream.write(b"path,reason\n")
        for where, reason in rejected:
            stream.write(f"{cell(where)},{cell(reason)}\n".encode())
    return path
