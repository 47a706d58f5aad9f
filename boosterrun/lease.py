"""A GPU for oneself while pairs are timed: one lock per GPU, shared by all users of this machine.

The lock is an flock on a file that nobody ever writes to: it ends with its process, however that ends, and
nothing in the folder can be used against anybody but by holding a lock.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from boosterrun import gpu, interrupt
from boosterrun.errors import RunError

FOLDER = Path("/tmp/boosterrun-locks")  # noqa: S108 - shared on purpose, and opened with care
FOLDER_VARIABLE = "BOOSTERRUN_LOCKS"
WAIT = 3600.0
"""Seconds for which a GPU that is in use is waited for, unless ``gpu.wait`` says otherwise."""

_POLL = 0.05
_TELL_AFTER = 2.0
_ATTEMPTS = 100


class GpuBusy(RunError):  # noqa: N818 - says what it is
    """Another process has timed on the GPU for longer than we may wait."""


class GpuLost(RunError):  # noqa: N818 - says what it is
    """The GPU does not answer any more."""


@contextlib.contextmanager
def held(device: Mapping[str, Any] | None, wait: float = WAIT) -> Iterator[None]:
    """Have a GPU alone for as long as the block; waits for others, and says so on stderr.

    Args:
        device: what a side has said of its GPU (``uuid``, else ``index``); None: no GPU, nothing is locked.
        wait: seconds; 0 does not wait.

    Raises GpuBusy when the time is over. Where the lock's folder cannot be used a warning is all: a GPU that
    nobody else uses needs no lock.
    """
    name = _name(device)
    if name is None:
        yield
        return
    try:
        descriptor = _locked(name, device or {}, wait)
    except OSError as error:
        _warn(f"no lock for {name} in {_folder()}: {error.strerror}; others may time on it meanwhile")
        yield
        return
    try:
        yield
    finally:
        os.close(descriptor)


def require_alive(device: Mapping[str, Any] | None) -> None:
    """After a crash or a hang: ask the driver whether the GPU still answers. Raises GpuLost if it does not.

    Without a GPU, or without NVML, nothing is asked.
    """
    name = None if device is None else device.get("uuid", device.get("index"))
    if name is None:
        return
    found = gpu.snapshot([name])
    if found["driver_version"] is None:
        return
    if not found["devices"] or found["devices"][0]["name"] is None:
        why = found["error"] or "it does not even tell its name"
        raise GpuLost(f"GPU {name} does not answer: {why}", "See dmesg for Xid errors, and reset the GPU")


def _name(device: Mapping[str, Any] | None) -> str | None:
    """The name of a GPU's lock: its UUID (MIG instances have their own), with the prefix torch leaves out."""
    if device is None:
        return None
    uuid = device.get("uuid")
    if uuid is None:
        return None if device.get("index") is None else f"index-{device['index']}"
    plain = re.sub(r"[^A-Za-z0-9-]", "-", str(uuid))
    return plain if plain.startswith(("GPU-", "MIG-")) else f"GPU-{plain}"


def _locked(name: str, device: Mapping[str, Any], wait: float) -> int:
    """Return a descriptor that holds the lock. Raises GpuBusy, and OSError where there can be no lock."""
    begun = time.monotonic()
    told = False
    folder = _open_folder(_folder())
    try:
        while True:
            descriptor = _open_file(folder, f"{name}.lock")
            try:
                told = _wait(descriptor, name, device=device, begun=begun, wait=wait, told=told)
                if _is_there(folder, f"{name}.lock", descriptor):
                    return descriptor
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)  # somebody has cleared /tmp: a lock on a file without a name is none
    finally:
        os.close(folder)


def _wait(
    descriptor: int, name: str, *, device: Mapping[str, Any], begun: float, wait: float, told: bool
) -> bool:
    """Take the lock, or raise GpuBusy when the time is over. Returns whether anything was said about it."""
    while not _try(descriptor):
        waited = time.monotonic() - begun
        if waited >= wait:
            raise GpuBusy(
                f"GPU {name} has been in use{_by(descriptor)} for {waited:.0f} s",
                "Wait for the other run, choose another GPU, or raise gpu.wait",
            )
        if waited >= _TELL_AFTER and not told:
            told = True
            _warn(f"waiting for {device.get('name') or 'GPU'} ({name}), in use{_by(descriptor)}")
        interrupt.check()
        time.sleep(_POLL)
    return told


def _folder() -> Path:
    return Path(os.environ.get(FOLDER_VARIABLE) or FOLDER)


def _open_folder(path: Path) -> int:
    """Open the folder of the locks, made for everybody like /tmp; never through a link."""
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
        path.chmod(0o1777)
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _open_file(folder: int, name: str) -> int:
    """Open a lock's file for reading: that is enough for a lock, and works on other users' files."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    for _ in range(_ATTEMPTS):
        try:
            descriptor = os.open(name, flags, dir_fd=folder)
        except FileNotFoundError:
            try:
                descriptor = os.open(name, flags | os.O_CREAT | os.O_EXCL, 0o444, dir_fd=folder)
            except FileExistsError:
                continue
            os.fchmod(descriptor, 0o444)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return descriptor
        os.close(descriptor)
        raise OSError(errno.EINVAL, f"{name} is not a regular file")
    raise OSError(errno.EAGAIN, f"{name} comes and goes")


def _try(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_there(folder: int, name: str, descriptor: int) -> bool:
    try:
        named = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(named, os.fstat(descriptor))


def _by(descriptor: int) -> str:
    """Who has the lock, where the kernel tells."""
    inode = os.fstat(descriptor).st_ino
    try:
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return ""
    for line in lines:
        words = line.split()
        if len(words) == 8 and words[1] == "FLOCK" and words[5].rpartition(":")[2] == str(inode):
            return f" by process {words[4]}"
    return ""


def _warn(words: str) -> None:
    sys.stderr.write(f"boosterrun: {words}\n")
    sys.stderr.flush()
