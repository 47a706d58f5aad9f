"""How a folder of results was made: ``command.json``, for going on with it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from boosterrun.errors import RunError, UsageError
from boosterrun.hydra_ext import arguments
from boosterrun.results import record
from boosterrun.system import reading, redact
from boosterrun.system.atomic import replacing

COMMAND = "command.json"
_PLACE = "hydra.sweep.dir="
_SAYING = {"-q", "--quiet", "-v", "--verbose"}  # how much is said is for each run to choose


def remember(folder: Path, argv: Sequence[str]) -> None:
    """Note in the sweep's ``folder`` how it was made, but no secret. Raises RunError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"cannot make {folder}: {error.strerror}", "Give hydra.sweep.dir=FOLDER") from error
    words = [word for word in argv if not _is_place(word) and word not in _SAYING]
    note = {"argv": redact.argv(words), "cwd": str(Path.cwd())}
    with replacing(folder / COMMAND) as stream:
        stream.write(json.dumps(note, indent=1).encode("utf-8", "backslashreplace"))


def command(folder: str, more: Sequence[str]) -> list[str]:
    """The arguments of the run that made ``folder`` and ``more``, to be run into it; goes where it was run.

    Raises UsageError.
    """
    place = arguments.absolute(folder)
    if folder.startswith("-") or not place.is_dir():
        raise UsageError(f"resume: no such folder: {folder}", "Name the output folder of a sweep")
    words, cwd = _remembered(place)
    if any(redact.HIDDEN in word for word in words):
        secret = next(word for word in words if redact.HIDDEN in word)
        raise UsageError(
            f"resume: the command had a secret, which is not kept: {secret}",
            f"Repeat the command with {_PLACE}{place}; what the shell exports need not be in a command",
        )
    if cwd.is_dir():
        os.chdir(cwd)  # relative paths of the command begin there
    else:
        sys.stderr.write(f"boosterrun: warning: {cwd} is gone: relative paths begin here\n")
    return [*words, *more, f"{_PLACE}{arguments.quoted(str(place))}"]


def _remembered(place: Path) -> tuple[list[str], Path]:
    path = place / COMMAND
    try:
        if path.stat().st_uid != os.geteuid():  # it says what to run
            raise UsageError(
                f"resume: {path} belongs to another user",
                f"Look at it, and repeat the command with {_PLACE}{place}",
            )
        note = reading.document(path)
        words, cwd = [str(word) for word in note["argv"]], Path(str(note["cwd"]))
    except FileNotFoundError:
        raise UsageError(f"resume: no run was started in {place}", _advice(place)) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"resume: cannot read {path}: {error}", f"Repeat the command with {_PLACE}{place}"
        ) from error
    return words, cwd


def _advice(place: Path) -> str:
    """Where the folder that is meant may be: a level up from a job, a level or two down from ``outputs``."""
    if (place / record.FILENAME).exists() or (place / ".hydra").is_dir():
        return f"This is the folder of a job: resume {place.parent}"
    found = sorted(path.parent for path in (*place.glob(f"*/{COMMAND}"), *place.glob(f"*/*/{COMMAND}")))
    newest = max(found, key=lambda path: path.stat().st_mtime, default=None)
    return f"The newest below it is {newest}" if newest is not None else "Name the output folder of a sweep"


def _is_place(word: str) -> bool:
    return word.lstrip("+").startswith(_PLACE)
