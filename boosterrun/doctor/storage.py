"""Where a run writes: is there room, on a local disk, at a path that compilers can take?"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path

from boosterrun.doctor.finding import Finding, failure, passed, warning
from boosterrun.doctor.setup import Setup
from boosterrun.errors import BoosterrunError
from boosterrun.packs import materialise

_GIB = 1 << 30
_SCARCE_BYTES = 2 << 30
_FULL_BYTES = 200 << 20
_SCARCE_FILES = 10_000
_NETWORK = re.compile(
    r"(nfs|cifs|smb|9p|afs|ceph|lustre|gpfs|beegfs|glusterfs|orangefs|pvfs2|wekafs|panfs|fuse\.)\w*"
)
_MOUNTS = Path("/proc/self/mountinfo")


def results(setup: Setup) -> Iterator[Finding]:
    """Can results and what is built for them be written, and run from there?"""
    yield from _place("results", setup.folder, "hydra.sweep.dir=/LOCAL/FOLDER", setup.needs.runs_built)


def acf_store(setup: Setup) -> Iterator[Finding]:
    """Do ACFs get a copy at a path that compilers and build files can take?"""
    data = f"boosterrun doctor {secrets.token_hex(8)}".encode()
    try:
        path = materialise(data, hashlib.sha256(data).hexdigest())
    except BoosterrunError as error:
        yield failure("ACF store", error.message, error.advice)
        return
    path.unlink(missing_ok=True)
    yield from _place("ACF store", path.parent, "XDG_CACHE_HOME=/LOCAL/FOLDER", runs=False)


def temporary(setup: Setup) -> Iterator[Finding]:
    """Have compilers a folder for their own files?"""
    try:
        folder = Path(tempfile.gettempdir())
    except OSError as error:
        yield failure("temporary files", str(error.strerror or error), "Set TMPDIR to a folder with room")
        return
    yield from _place("temporary files", folder, "TMPDIR=/LOCAL/FOLDER", runs=False)


def file_system(path: Path, mounts: str) -> str:
    """The type of the file system at ``path`` by the text of ``/proc/self/mountinfo``, or ``unknown``."""
    best, kind = "", "unknown"
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        fields = left.split()
        if len(fields) < 5 or not right:
            continue
        point = re.sub(r"\\(\d{3})", lambda match: chr(int(match[1], 8)), fields[4])
        below = str(path) == point or str(path).startswith(point.rstrip("/") + "/")
        if below and len(point) >= len(best):  # a later mount hides an earlier one
            best, kind = point, right.split()[0]
    return kind


def is_network(kind: str) -> bool:
    """Whether a file system of this type is on another machine, or may be."""
    return _NETWORK.fullmatch(kind) is not None


def _place(subject: str, folder: Path, elsewhere: str, runs: bool) -> Iterator[Finding]:
    there = _nearest(folder.absolute())
    if there is None:
        yield failure(subject, f"there is no folder {folder}, nor one above it", f"Use {elsewhere}")
        return
    try:
        with tempfile.TemporaryFile(dir=there, prefix=".boosterrun-"):
            pass
    except OSError as error:
        yield failure(subject, f"cannot write to {there}: {error.strerror}", f"Use {elsewhere}")
        return
    state = os.statvfs(there)
    free = state.f_bavail * state.f_frsize
    files = state.f_favail if state.f_files else None  # some file systems do not count files
    kind = file_system(there.resolve(), _MOUNTS.read_text(errors="replace"))
    room = f"{folder}: {free / _GIB:.1f} GiB free ({kind})"
    findings = []
    if free < _FULL_BYTES:
        findings.append(failure(subject, f"{room}: too little", f"Free some space, or use {elsewhere}"))
    elif free < _SCARCE_BYTES:
        findings.append(warning(subject, f"{room}: little", f"Free some space, or use {elsewhere}"))
    if files is not None and files < _SCARCE_FILES:
        findings.append(
            warning(subject, f"{folder}: only {files} more files can be made there", f"Use {elsewhere}")
        )
    if runs and state.f_flag & os.ST_NOEXEC:
        findings.append(
            failure(
                subject, f"{folder} is mounted noexec: what is built there cannot run", f"Use {elsewhere}"
            )
        )
    if is_network(kind):
        findings.append(
            warning(
                subject,
                f"{room}: a network file system, slow for compilers' caches, and its locks may hang",
                f"Use {elsewhere}",
            )
        )
    yield from findings or [passed(subject, room)]


def _nearest(folder: Path) -> Path | None:
    return next((each for each in (folder, *folder.parents) if each.is_dir()), None)


CHECKS = (results, acf_store, temporary)
