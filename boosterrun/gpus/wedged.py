"""GPUs that are out of a sweep: one note each in its folder, so that every process of the sweep knows."""

from __future__ import annotations

import contextlib
import json
import socket
import sys
from pathlib import Path

from boosterrun.errors import RunError
from boosterrun.gpus import alive, cards
from boosterrun.gpus.devices import Device
from boosterrun.results import draft
from boosterrun.system import reading
from boosterrun.system.atomic import replacing

# A folder of its own: that of a sweep may have thousands of jobs, and each job looks here.
FOLDER = "wedged"


def take_out(folder: Path, device: Device, reason: str, job: str) -> None:
    """Note that a GPU is out of the sweep, and tell. Raises RunError when it cannot be written."""
    note = {
        "uuid": device.uuid,
        "index": device.index,
        "name": device.name,
        "host": socket.gethostname(),
        "at": draft.now(),
        "job": job,
        "reason": reason,
    }
    place = folder / FOLDER
    try:
        place.mkdir(exist_ok=True)
    except OSError as error:
        raise RunError(f"cannot make {place}: {error.strerror}", "Free some space") from error
    with replacing(place / f"{cards.lock_name(device.uuid)}.json") as stream:
        stream.write(json.dumps(note, indent=1).encode())
    sys.stderr.write(f"boosterrun: warning: GPU {device.index} is out of this sweep: {reason}\n")
    sys.stderr.flush()


def reasons(folder: Path) -> dict[str, str]:
    """The GPUs that are out of a sweep: why, by UUID. Never raises."""
    return {uuid: reason for uuid, reason, _ in _notes(folder)}


def readmit(folder: Path) -> None:
    """Before a sweep goes on: take back those that are here and answer again, after a reset. Never raises."""
    notes = _notes(folder)
    here = {device["uuid"] for device in cards.listed()[0]} if notes else set()
    for uuid, _, path in notes:
        if uuid not in here:
            continue
        with contextlib.suppress(RunError, OSError):
            alive.require({"uuid": uuid})
            path.rename(path.with_name(f"{path.name}.old"))
            sys.stdout.write(f"GPU {uuid} answers again, and is back in this sweep\n")
            sys.stdout.flush()


def _notes(folder: Path) -> list[tuple[str, str, Path]]:
    found = []
    for path in sorted((folder / FOLDER).glob("*.json")):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            note = reading.document(path)
            found.append((str(note["uuid"]), str(note["reason"]), path))
    return found
