"""Who else computes on a GPU: processes that belong to no run of boosterrun, and are at work now."""

from __future__ import annotations

import os
import time
from pathlib import Path

from boosterrun.gpus import cards
from boosterrun.system import locks, process

# Utilisation is sampled several times a second; what ended longer ago is no neighbour.
_RECENT = 1.5
_DEPTH = 64


def claim_prefix(device: str) -> str:
    """How the locks' names begin that runs hold while they use a GPU (:mod:`boosterrun.gpus.binding`)."""
    return f"{cards.lock_name(device)}.claim-"


def strangers(device: int | str) -> list[int]:
    """Ids of the processes at work on a GPU that no run of boosterrun has started; never raises.

    A process that has a context there but computes nothing (an idle notebook, an MPS server) is none, where
    the driver tells how busy each process is. Processes that cannot be seen from here are not believed: in a
    container the driver may tell the ids that they have outside.
    """
    pids = cards.compute_pids(device) or []
    foreign = [pid for pid in pids if not _has_owner(pid) and _has_cuda(pid)]
    if foreign:  # only now: the kernel takes a while to list its locks
        runs = {os.getpid(), *locks.holders(claim_prefix(str(device)))}
        foreign = [pid for pid in foreign if not _belongs(pid, runs)]
    working = cards.working_pids(device, time.time() - _RECENT) if foreign else set()
    return sorted(foreign if working is None else working.intersection(foreign))


def named(pids: list[int]) -> str:
    """Processes in words: ``process 12 (python), 13``."""
    words = []
    for pid in pids[:3]:
        try:
            words.append(f"{pid} ({Path(f'/proc/{pid}/comm').read_text().strip()})")
        except OSError:
            words.append(str(pid))
    more = f" and {len(pids) - 3} more" if len(pids) > 3 else ""
    return f"process {', '.join(words)}{more}"


def _has_cuda(pid: int) -> bool:
    """Whether a process can be one that NVML means: it is there, and has the driver's library."""
    try:
        return "libcuda" in Path(f"/proc/{pid}/maps").read_text(errors="replace")
    except PermissionError:  # another user's
        return True
    except OSError:
        return False


def _belongs(pid: int, runs: set[int]) -> bool:
    """Whether a process is one of these runs, or one that a run has started."""
    for _ in range(_DEPTH):
        if pid in runs:
            return True
        try:
            fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            return False
        pid = int(fields[1])
        if pid <= 1:
            return pid in runs
    return False


def ours(pid: int) -> bool:
    """Whether this very run has started a process, as far as can be seen; never raises."""
    mark = process.child_environment({})[process.OWNER]
    return f"{process.OWNER}={mark}".encode() in _variables(pid)


def _has_owner(pid: int) -> bool:
    """Whether a process bears the mark of a run's children, where its environment may be read."""
    return any(variable.startswith(f"{process.OWNER}=".encode()) for variable in _variables(pid))


def _variables(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []
