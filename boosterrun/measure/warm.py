"""Start workers from a process that has their imports already: tenths of a second instead of seconds.

One nursery (:mod:`boosterrun.measure.nursery`) per list of modules and environment. Whoever cannot have a
worker from it gets the reason (:class:`Unavailable`) and starts one the ordinary way.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from boosterrun.errors import RunError
from boosterrun.measure import protocol
from boosterrun.system import process

# Read when a process or a library starts, so the nursery itself must have them; a fork is given all others.
_EARLY = re.compile(
    r"LD_|PYTHON|MALLOC_|GLIBC_|OMP_|GOMP_|KMP_|MKL_|OPENBLAS_|BLIS_|NUMEXPR_|NPY_|NUMPY_|TORCH_|PYTORCH_|ATEN_"
)
_LIMIT = 2
_ANSWER = 30.0


class Unavailable(Exception):  # noqa: N818 - an answer
    """No worker can be had from a nursery; the message says why."""


class ForkedChild(process.Child):
    """A worker that a nursery has forked: the nursery's child, not ours, and looked after all the same."""

    def __init__(self, nursery: _Nursery, pid: int, handle: int, mark: str) -> None:
        self.pid = pid
        self.mark = mark
        self.started = time.monotonic()
        self.returncode: int | None = None
        self._handle: int | None = handle
        self._nursery = nursery
        self._reaped = False

    def ended(self) -> bool:
        """Return whether the worker has ended; the nursery does not reap it before we say so."""
        if self._handle is None:
            return True
        poll = select.poll()
        poll.register(self._handle, select.POLLIN)
        return bool(poll.poll(0))

    def signal_group(self, number: int) -> None:
        """Send a signal to the whole group, unless its id may be another's by now."""
        if not self._reaped and (self._nursery.alive() or not self.ended()):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def _collect(self) -> None:
        self.returncode = self._nursery.reap(self.pid)
        self._reaped = True


class _Nursery:
    def __init__(self, modules: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start it; it imports everything from now on. Raises RunError."""
        self._lock = threading.RLock()
        self._imported = False
        self._refused: str | None = None
        self._closed = False
        self._control, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        argv = [sys.executable, "-m", "boosterrun.measure.nursery", str(other.fileno()), *modules]
        null = subprocess.DEVNULL
        try:
            self._child = process.spawn(
                argv, env=environment, stdout=null, stderr=null, pass_fds=[other.fileno()]
            )
        except BaseException:
            self._control.close()
            raise
        finally:
            other.close()

    def wait(self, timeout: float) -> None:
        """Wait until it has imported everything. Raises Unavailable, always the same."""
        with self._lock:
            if self._refused is not None:
                raise Unavailable(self._refused)
            if not self._imported:
                try:
                    self._answer(timeout)
                except Unavailable as error:
                    self._refused = str(error)
                    raise
                self._imported = True

    def alive(self) -> bool:
        """Return whether it runs."""
        return not self._child.ended()

    def fork(self, environment: Mapping[str, str], descriptors: Sequence[int]) -> ForkedChild:
        """Return a new worker; ``descriptors``: its requests, answers, output, errors. Raises Unavailable."""
        name = process.new_name()
        mark = f"{process.SPAWN}={name}"
        request = {
            "op": "fork",
            "env": {**process.child_environment(environment), process.SPAWN: name},
            "old_mark": self._child.mark,
            "mark": mark,
        }
        with self._lock:
            try:
                answer, handles = self._request(request, descriptors)
            except BaseException:
                # It may have forked before it died, or before we were interrupted.
                process.kill_mark(mark)
                raise
        return ForkedChild(self, answer["pid"], handles[0], mark)

    def reap(self, pid: int) -> int | None:
        """Return the return code of a worker that has ended; None when the nursery has died before it."""
        with self._lock:
            try:
                code: int = self._request({"op": "reap", "pid": pid}, ())[0]["code"]
            except Unavailable:
                return None
        return code

    def close(self) -> None:
        """End it; its workers go on. May be called twice, and while another thread waits for an answer."""
        self._child.signal_group(signal.SIGKILL)
        with self._lock:
            if not self._closed:
                self._closed = True
                process.kill_group(self._child, grace=0.0)
                self._control.close()

    def forget(self) -> None:
        """Let go of it in a fork of this process, without ending it."""
        self._control.close()

    def _request(
        self, message: dict[str, Any], descriptors: Sequence[int]
    ) -> tuple[dict[str, Any], list[int]]:
        try:
            socket.send_fds(self._control, [json.dumps(message).encode()], list(descriptors))
        except OSError as error:
            raise Unavailable(f"the warm process cannot be asked: {error.strerror}") from error
        return self._answer(_ANSWER)

    def _answer(self, timeout: float) -> tuple[dict[str, Any], list[int]]:
        """Wait for an answer. Raises Unavailable, also for a refusal."""
        self._control.settimeout(timeout)
        try:
            data, handles, _, _ = socket.recv_fds(
                self._control, protocol.MAX_PACKET, 1, socket.MSG_CMSG_CLOEXEC
            )
        except OSError as error:
            self.close()  # an answer that comes later must not be taken for another's
            raise Unavailable(f"the warm process does not answer: {error}") from error
        except BaseException:
            self.close()
            raise
        if not data:
            raise Unavailable("the warm process has ended")
        answer: dict[str, Any] = json.loads(data)
        if "error" in answer:
            raise Unavailable(answer["error"])
        return answer, handles


class _Registry:
    """The nurseries of this process, and why there is none where one could not be had."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.known: OrderedDict[Any, _Nursery | str] = OrderedDict()

    def begin(self, modules: Sequence[str], environment: Mapping[str, str]) -> tuple[Any, _Nursery | str]:
        """Return the nursery for these, with its key; it is started if it is the first of its kind."""
        key = (tuple(modules), os.getcwd(), tuple(sorted(environment.items())))  # noqa: PTH109 - a key
        with self.lock:
            if key not in self.known:
                while len(self.known) >= _LIMIT:
                    _close(self.known.popitem(last=False)[1])
                try:
                    self.known[key] = _Nursery(modules, environment)
                except RunError as error:
                    self.known[key] = str(error)
            self.known.move_to_end(key)
            return key, self.known[key]

    def get(self, modules: Sequence[str], environment: Mapping[str, str], timeout: float) -> _Nursery:
        """Return a nursery that has imported everything. Raises Unavailable."""
        key, found = self.begin(modules, environment)
        reason = found
        if isinstance(found, _Nursery):
            try:
                found.wait(timeout)
                if found.alive():
                    return found
                reason = "the warm process has ended"
            except Unavailable as error:
                reason = str(error)
            with self.lock:
                _close(found)
                if self.known.get(key) is found:
                    self.known[key] = reason
        raise Unavailable(reason)

    def close(self) -> None:
        with self.lock:
            while self.known:
                _close(self.known.popitem()[1])

    def forget(self) -> None:
        known, self.known, self.lock = self.known, OrderedDict(), threading.Lock()
        for nursery in known.values():
            if isinstance(nursery, _Nursery):
                nursery.forget()


def _close(nursery: _Nursery | str) -> None:
    if isinstance(nursery, _Nursery):
        nursery.close()


_registry = _Registry()
os.register_at_fork(after_in_child=_registry.forget)
atexit.register(_registry.close)


def begin(modules: Sequence[str], environment: Mapping[str, str], own: Iterable[str]) -> None:
    """Begin to import ``modules`` for workers to come; the arguments are those of :func:`fork`.

    Whatever is wrong is told by the first worker that is asked for.
    """
    _registry.begin(modules, _shared(environment, own))


def fork(
    modules: Sequence[str],
    environment: Mapping[str, str],
    own: Iterable[str],
    descriptors: Sequence[int],
    timeout: float,
) -> ForkedChild:
    """Return a worker with ``environment`` that has imported ``modules``.

    ``own`` names the variables that one side has for itself; ``descriptors`` are for its requests, answers,
    output and errors; ``timeout`` in seconds bounds the imports, once. Raises Unavailable.
    """
    return _registry.get(modules, _shared(environment, own), timeout).fork(environment, descriptors)


def _shared(environment: Mapping[str, str], own: Iterable[str]) -> dict[str, str]:
    """The environment that a nursery itself has."""
    late = {name for name in own if not _EARLY.match(name)}
    return {name: value for name, value in environment.items() if name not in late}


def close() -> None:
    """End all nurseries of this process; the next fork starts one again."""
    _registry.close()
