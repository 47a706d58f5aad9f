"""Find and kill processes by a marker in their environment; as a script: do so once the owner has died.

Run as ``python -I -S guardian.py BOOSTERRUN_OWNER=<token>`` with the read end of the owner's pipe as standard
input. It imports nothing of ours: it starts in milliseconds and nothing the owner works with can break it.
"""

from __future__ import annotations

import os
import signal
import sys
import time


def marked(marker: bytes) -> list[int]:
    """Return the ids of the living processes that have ``marker`` (``NAME=value``), this one excepted.

    Members of a session whose leader has the marker count too: a daemon may have emptied its environment.
    """
    environment: set[int] = set()
    session_of: dict[int, int] = {}
    own = os.getpid()
    for entry in os.listdir("/proc"):  # noqa: PTH208 - a scan of all processes; plain strings are several times faster
        if not entry.isdigit():
            continue
        pid = int(entry)
        session = _session(pid)
        if pid == own or session is None:
            continue
        session_of[pid] = session
        if _has(pid, marker):
            environment.add(pid)
    return [pid for pid, session in session_of.items() if pid in environment or session in environment]


def _session(pid: int) -> int | None:
    """Return the session id of a process; None if it is a zombie, gone, or not ours to read."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:  # noqa: PTH123 - see above
            # The command's name may hold spaces and parentheses: fields count from the last one.
            fields = stream.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if len(fields) < 4 or fields[0] in (b"Z", b"X") else int(fields[3])


def _has(pid: int, marker: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as stream:  # noqa: PTH123 - see above
            return marker in stream.read().split(b"\0")
    except OSError:
        return False


def kill_marked(marker: bytes, *, patience: float, clean_scans: int = 2, pause: float = 0.001) -> list[int]:
    """SIGKILL every process with ``marker`` until ``clean_scans`` scans in a row, ``pause`` apart, find none.

    One scan is not enough: a process that forks and exits while /proc is read is not seen, nor is its child.
    ``patience`` bounds the whole in seconds. Returns the ids that were still found in the last scan.
    """
    deadline = time.monotonic() + patience
    clean = 0
    while True:
        found = marked(marker)
        for pid in found:
            _kill(pid, marker)
        clean = 0 if found else clean + 1
        if clean >= clean_scans or time.monotonic() >= deadline:
            return found
        time.sleep(pause)


def _kill(pid: int, marker: bytes) -> None:
    # A process found by its environment is held by a descriptor while it is looked at again: ids are reused.
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    except OSError:  # the sandbox forbids pidfd_open
        handle = -1
    try:
        session = _session(pid)
        if session is None or not (_has(pid, marker) or _has(session, marker)):
            return
        if handle >= 0:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        else:
            os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    finally:
        if handle >= 0:
            os.close(handle)


def main() -> None:
    """Wait for the end of standard input, then kill what is left of its owner."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.chdir("/")
    os.closerange(3, 1024)  # nothing inherited may be kept open by us
    while os.read(0, 4096):
        pass
    kill_marked(sys.argv[1].encode(), patience=60.0, clean_scans=4, pause=0.03)


if __name__ == "__main__":
    main()
