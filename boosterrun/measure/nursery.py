"""A process that has imported what workers need, and becomes one of them by a fork.

Started as ``python -m boosterrun.measure.nursery <socket> <module>...`` by :mod:`boosterrun.measure.warm`. It
never touches a GPU and runs no user code, so a fork is like a fresh process that has just imported the
modules: it leads its own session and has its own environment, descriptors and mark before anything else runs.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import mmap
import os
import secrets
import select
import signal
import socket
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

from boosterrun.measure import imported, protocol, worker

# A framework that reads its environment when it is imported must be imported by the fork.
FORBIDDEN = ("triton", "helion", "flashinfer")
_HANDSHAKE = 20.0
_MAX_DISPLACEMENT = 1 << 22
_keep: list[mmap.mmap] = []


class Refused(Exception):  # noqa: N818 - an answer
    """This process must not be forked; the message says why."""


class _Nursery:
    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._imported: dict[str, tuple[str | None, str | None]] = {}

    def prepare(self, modules: list[str]) -> None:
        """Import the modules. Raises Refused, and whatever the imports raise."""
        before = dict(os.environ)
        for name in modules:
            importlib.import_module(name)
        imported.note()
        after = dict(os.environ)
        # What an import puts into the environment, it would have put into that of a fresh worker too.
        names = before.keys() | after.keys()
        self._imported = {n: (before.get(n), after.get(n)) for n in names if before.get(n) != after.get(n)}
        gc.collect()
        gc.freeze()
        # Libraries that know of forks (OpenBLAS) end their threads before one: only others are left after it.
        pid = _fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        self._require_stillness()

    def serve(self) -> bool:
        """Fork and reap on request until the other end closes (False); True in a new worker."""
        while True:
            data, descriptors, _, _ = socket.recv_fds(
                self._control, protocol.MAX_PACKET, 4, socket.MSG_CMSG_CLOEXEC
            )
            if not data:
                return False
            request = json.loads(data)
            if request["op"] == "reap":
                _, status = os.waitpid(request["pid"], 0)
                self.answer({"code": os.waitstatus_to_exitcode(status)})
                continue
            try:
                if self._worker(request, descriptors):
                    return True
            except (Refused, OSError) as error:
                self.answer({"error": f"{error}"})

    def answer(self, message: dict[str, Any], *descriptors: int) -> None:
        """Send a message, with descriptors. The other end may be gone: then so are we, soon."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            socket.send_fds(self._control, [json.dumps(message).encode()], list(descriptors))

    def _worker(self, request: dict[str, Any], descriptors: list[int]) -> bool:
        """Fork; True in the child. Raises Refused and OSError."""
        try:
            self._require_stillness()
            read, write = os.pipe()
            pid = _fork()
        except BaseException:
            _close(*descriptors)
            raise
        if pid == 0:
            self._control.close()
            os.close(read)
            self._become(request, descriptors, write)
            return True
        _close(write, *descriptors)
        try:
            handle = os.pidfd_open(pid)
            try:
                words = _read(read)
                if words != b"ready":
                    raise Refused(words.decode(errors="replace") or "the new worker ended at once")
                self.answer({"pid": pid}, handle)
            finally:
                os.close(handle)
        except (Refused, OSError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise
        finally:
            os.close(read)
        return False

    def _become(self, request: dict[str, Any], descriptors: list[int], ready: int) -> None:
        """Turn this fork into what a fresh worker is; says so on ``ready``, or why not and ends."""
        try:
            os.setsid()
            read, write, out, err = descriptors
            for source, target in ((out, 1), (err, 2)):
                os.dup2(source, target)
                os.close(source)
            environment: dict[str, str] = request["env"]
            for name, (before, after) in self._imported.items():
                if environment.get(name) == before:
                    environment.pop(name, None)
                    if after is not None:
                        environment[name] = after
            os.environ.clear()
            os.environ.update(environment)
            os.environ[protocol.DESCRIPTORS] = f"{read},{write}"
            _rename(request["old_mark"].encode(), request["mark"].encode())
            _displace()
            if "numpy" in sys.modules:
                sys.modules["numpy"].random.seed()
            sys.argv = [str(worker.__file__)]
            os.write(ready, b"ready")
            os.close(ready)
        except BaseException as error:
            os.write(ready, f"{type(error).__name__}: {error}".encode())
            os._exit(1)

    def _require_stillness(self) -> None:
        loaded = [name for name in FORBIDDEN if name in sys.modules]
        if loaded:
            raise Refused(f"{', '.join(loaded)} is loaded already and has read the wrong environment")
        tasks = len(os.listdir("/proc/self/task"))  # noqa: PTH208 - names alone are wanted
        if tasks > 1 or threading.active_count() > 1:
            raise Refused(f"an import has started {tasks - 1} threads, which a fork would lose")
        for link in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):
                if str(link.readlink()).startswith("/dev/nvidia"):
                    raise Refused("an import has opened the GPU, which a fork cannot use")


def _fork() -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads that do end before the fork
        return os.fork()


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _read(descriptor: int) -> bytes:
    """Read to the end, within some seconds."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    parts: list[bytes] = []
    while poll.poll(_HANDSHAKE * 1e3):
        part = os.read(descriptor, 4096)
        if not part:
            return b"".join(parts)
        parts.append(part)
    return b"the new worker did not come up"


def _rename(old: bytes, new: bytes) -> None:
    """Replace the mark in the environment that others see in /proc: it is this process's own memory.

    The forks of a worker inherit it, so whatever leaves its session can be told from other workers'. Raises
    Refused when it does not show.
    """
    fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
    start, end = int(fields[47]), int(fields[48])
    at = ctypes.string_at(start, end - start).find(old)
    if at < 0 or len(old) != len(new):
        raise Refused("the mark of this process is not in its environment")
    ctypes.memmove(start + at, new, len(new))
    if new not in Path("/proc/self/environ").read_bytes().split(b"\0"):
        raise Refused("the mark of this process does not show in /proc")


def _displace() -> None:
    """Move what is mapped from now on by a random distance, as a fresh process's layout is random."""
    with contextlib.suppress(OSError, ValueError):
        size = (1 + secrets.randbelow(_MAX_DISPLACEMENT)) * mmap.PAGESIZE
        _keep.append(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ))


def main() -> bool:
    """Import the modules, say so, and serve; True in a fork that is to be a worker."""
    worker.ignore_notices()
    nursery = _Nursery(socket.socket(fileno=int(sys.argv[1])))
    try:
        nursery.prepare(sys.argv[2:])
    except Exception as error:
        words = str(error) if isinstance(error, Refused) else f"{type(error).__name__}: {error}"
        nursery.answer({"error": words})
        return False
    nursery.answer({"ready": True})
    return nursery.serve()


if __name__ == "__main__" and main():
    worker.run()
