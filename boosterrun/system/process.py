"""Run other programs so that none can hang, flood, or outlive this one.

Every child leads its own session and carries two marks in its environment: whose child it is
(``BOOSTERRUN_OWNER``) and which start it belongs to (``BOOSTERRUN_SPAWN``). What leaves the session is found
by the mark.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from boosterrun.errors import RunError
from boosterrun.system import guardian
from boosterrun.system.capture import Capture, Drain

OWNER = "BOOSTERRUN_OWNER"
SPAWN = "BOOSTERRUN_SPAWN"

# A process in an uninterruptible wait (a hung driver) does not die of SIGKILL: we go on without it.
_UNKILLABLE = 5.0
_PIPE_PATIENCE = 0.5


@dataclass(frozen=True)
class Completed:
    """How a program ended. One of ``returncode`` and ``signal`` is set, unless it could not even be killed.

    Attributes:
        seconds: from the start to the end of the main process.
        timed_out: the deadline passed; ``returncode`` or ``signal`` say how it ended after that.
        truncated: output beyond the limit was dropped from the middle, or a descendant kept the pipe open.
    """

    argv: tuple[str, ...]
    returncode: int | None
    signal: int | None
    stdout: str
    stderr: str
    seconds: float
    timed_out: bool
    truncated: bool


class Child:
    """A started program that leads its own session. Use :func:`spawn` to make one."""

    def __init__(self, popen: subprocess.Popen[bytes], mark: str) -> None:
        self.popen = popen
        self.pid = popen.pid
        self.mark = mark
        self.returncode: int | None = None
        self.started = time.monotonic()
        try:
            self._handle: int | None = os.pidfd_open(self.pid)
        except OSError:  # the sandbox forbids it: wait() polls
            self._handle = None

    def ended(self) -> bool:
        """Return whether the main process has ended; it is not reaped, so its group id stays ours."""
        if self.returncode is not None:
            return True
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True

    def wait_readable(self, seconds: float, *descriptors: int) -> None:
        """Wait until the main process ends or one of the descriptors has data; may return early."""
        poll = select.poll()
        for descriptor in descriptors:
            poll.register(descriptor, select.POLLIN)
        if self._handle is None:
            seconds = min(seconds, 0.01)
        else:
            poll.register(self._handle, select.POLLIN)
        poll.poll(seconds * 1e3)

    def wait(self, timeout: float) -> bool:
        """Wait up to ``timeout`` seconds for the main process to end; return whether it has."""
        deadline = time.monotonic() + timeout
        while not self.ended():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self.wait_readable(left)
        return True

    def signal_group(self, number: int) -> None:
        """Send a signal to the whole group; nothing happens when the child has been reaped."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def reap(self) -> int | None:
        """Kill what is left of the group and everything with the mark, then return the child's return code.

        Negative numbers are signals; None means that even SIGKILL did not end it within a few seconds.
        """
        self.signal_group(signal.SIGKILL)
        if self.wait(_UNKILLABLE):
            self._collect()
            if self._handle is not None:
                os.close(self._handle)
                self._handle = None
        kill_mark(self.mark)
        return self.returncode

    def _collect(self) -> None:
        """Reap the main process, which has ended."""
        self.returncode = self.popen.wait()


def kill_mark(mark: str) -> None:
    """SIGKILL every process with a mark (``NAME=value``) in its environment, until none is left."""
    guardian.kill_marked(mark.encode(), patience=_UNKILLABLE)


def kill_all() -> None:
    """SIGKILL everything that this process has started by :func:`spawn` and :func:`run`, and its descendants.

    Whoever waits for it learns that it has ended. May be called from any thread.
    """
    if _guard.pipe is not None:
        kill_mark(f"{OWNER}={_guard.token}")


def kill_group(child: Child, *, grace: float) -> int | None:
    """End a child's whole group: SIGINT, after ``grace`` seconds SIGTERM, after as many SIGKILL; then reap.

    Returns as :meth:`Child.reap`. Takes no longer than twice ``grace`` when SIGKILL works.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        if child.ended():
            break
        child.signal_group(number)
        child.wait(grace)
    return child.reap()


class _Guard:
    """The guardian of this process: its pipe's write end lives exactly as long as we do."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.forget()

    def forget(self) -> None:
        """Begin anew: in a forked copy neither the pipe nor the token is ours."""
        pipe = getattr(self, "pipe", None)
        if pipe is not None:
            os.close(pipe)
        self.lock = threading.Lock()
        self.pipe: int | None = None
        self.token = secrets.token_hex(12)
        self.count = itertools.count(1)

    def start(self) -> None:
        with self.lock:
            if self.pipe is not None:
                return
            read_end, write_end = os.pipe()
            try:
                null = os.open(os.devnull, os.O_WRONLY)
                try:
                    argv = [sys.executable, "-I", "-S", guardian.__file__, f"{OWNER}={self.token}"]
                    # An empty environment: the guardian of a nested run must not fall to the outer one.
                    os.posix_spawn(
                        sys.executable,
                        argv,
                        {},
                        file_actions=[
                            (os.POSIX_SPAWN_DUP2, read_end, 0),
                            (os.POSIX_SPAWN_DUP2, null, 1),
                            (os.POSIX_SPAWN_DUP2, null, 2),
                        ],
                        setsid=True,
                    )
                finally:
                    os.close(null)
            except OSError as error:
                os.close(write_end)
                raise RunError(
                    f"cannot start the guardian process: {error}", "Check process limits"
                ) from error
            finally:
                os.close(read_end)
            self.pipe = write_end


_guard = _Guard()
os.register_at_fork(after_in_child=_guard.forget)


def guard() -> None:
    """Start the guardian of this process unless it is there: it kills our children when we die, however.

    Called by :func:`spawn`. Raises RunError when it cannot be started.
    """
    _guard.start()


def child_environment(base: Mapping[str, str]) -> dict[str, str]:
    """Return ``base`` with the mark by which the guardian knows our children."""
    return {**base, OWNER: _guard.token}


def new_name() -> str:
    """Return a name for the ``BOOSTERRUN_SPAWN`` mark of a new child; all have the same length."""
    return f"{_guard.token}.{next(_guard.count):08d}"


def spawn(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdout: int = subprocess.PIPE,
    stderr: int = subprocess.PIPE,
    pass_fds: Sequence[int] = (),
) -> Child:
    """Start a program as the leader of its own session, marked, with an empty standard input.

    ``env`` None means this process's own environment. Raises RunError when the program cannot be executed.
    """
    guard()
    name = new_name()
    environment = child_environment(os.environ if env is None else env)
    environment[SPAWN] = name
    try:
        popen = subprocess.Popen(  # an argument list, never a shell's line # nosec B603
            list(argv),
            env=environment,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            pass_fds=pass_fds,
            start_new_session=True,
        )
    except (OSError, ValueError, IndexError) as error:
        program = argv[0] if argv else "(an empty command)"
        where = f" in {cwd}" if cwd is not None and not cwd.is_dir() else ""
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        advice = "Check that the file exists, is executable and is for this machine"
        raise RunError(f"cannot run {program}{where}: {reason}", advice) from error
    return Child(popen, f"{SPAWN}={name}")


def run(
    argv: Sequence[str],
    *,
    timeout: float,
    grace: float = 2.0,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdout_limit: int = 1 << 20,
) -> Completed:
    """Run a program to its end, or until ``timeout`` seconds have passed; nothing of it is left afterwards.

    ``stdout_limit`` is in bytes, for each of the two streams; the middle of longer output is dropped. Returns
    within about ``timeout + 2 * grace``. Raises RunError when the program cannot be executed.
    """
    child = spawn(argv, env=env, cwd=cwd)
    out, err = Capture(stdout_limit), Capture(stdout_limit)
    drain = Drain({cast(IO[bytes], child.popen.stdout): out, cast(IO[bytes], child.popen.stderr): err})
    try:
        timed_out = not child.wait(timeout)
        if timed_out:
            code = kill_group(child, grace=grace)
            seconds = time.monotonic() - child.started
        else:
            seconds = time.monotonic() - child.started
            code = child.reap()
    except BaseException:
        child.reap()
        raise
    finally:
        complete = drain.finish(_PIPE_PATIENCE)
    return Completed(
        argv=tuple(argv),
        returncode=code if code is not None and code >= 0 else None,
        signal=-code if code is not None and code < 0 else None,
        stdout=out.text(),
        stderr=err.text(),
        seconds=seconds,
        timed_out=timed_out,
        truncated=out.dropped > 0 or err.dropped > 0 or not complete,
    )
