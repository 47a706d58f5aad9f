"""What this machine lets a process have: files, processes, memory, CPU time."""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Iterator
from pathlib import Path

from boosterrun.doctor.finding import Finding, passed, warning
from boosterrun.doctor.setup import Setup

_GIB = 1 << 30
_FILES = 256
_PROCESSES = 128
# CUDA reserves as many addresses as there is memory of all kinds, and then some.
_ADDRESSES = 256 * _GIB
# Baseline, candidate, and the next candidate being built: each with torch and a CUDA context.
_MEMORY = 8 * _GIB
_CGROUP = Path("/sys/fs/cgroup")


def processes(setup: Setup) -> Iterator[Finding]:
    """Are there enough open files, processes, addresses and CPU seconds?"""
    few = []
    for limit, needed, words, flag in (
        (resource.RLIMIT_NOFILE, _FILES, "open files", "n"),
        (resource.RLIMIT_NPROC, _PROCESSES, "processes", "u"),
    ):
        soft = resource.getrlimit(limit)[0]
        if soft != resource.RLIM_INFINITY and soft < needed:
            few.append((f"only {soft} {words}", f"ulimit -{flag} {needed * 4}"))
    left = _pids_left()
    if left is not None and left < _PROCESSES:
        few.append((f"only {left} more processes in this container", "Raise its pids limit"))
    addresses = resource.getrlimit(resource.RLIMIT_AS)[0]
    if setup.needs.gpu is not False and addresses != resource.RLIM_INFINITY and addresses < _ADDRESSES:
        few.append((f"only {addresses / _GIB:.0f} GiB of addresses: CUDA needs more", "ulimit -v unlimited"))
    seconds = resource.getrlimit(resource.RLIMIT_CPU)[0]
    if seconds != resource.RLIM_INFINITY:
        few.append((f"each process is killed after {seconds} s of CPU time", "ulimit -t unlimited"))
    for detail, fix in few:
        yield warning("limits", detail, fix)
    if not few:
        yield passed("limits", "enough files, processes and addresses")


def memory(setup: Setup) -> Iterator[Finding]:
    """Is there memory for three workers with a GPU framework?"""
    if not setup.needs.modules:
        return
    free = available_memory()
    if free is not None and free < _MEMORY:
        yield warning(
            "memory",
            f"{free / _GIB:.1f} GiB free; three workers with torch want {_MEMORY / _GIB:.0f} GiB",
            "End other programs, or give the container more",
        )


def load(setup: Setup) -> Iterator[Finding]:
    """Is a CPU free for each side's launches?"""
    cpus = len(os.sched_getaffinity(0))
    busy = os.getloadavg()[0]
    if setup.needs.gpu is False:
        return
    if cpus < 2:
        yield warning("CPU", "one for all: builds disturb launches", "Allow at least two")
    elif busy > cpus:
        yield warning(
            "CPU",
            f"{busy:.0f} programs want the {cpus} CPUs: launches wait, short kernels are timed badly",
            "Wait until the machine is quiet",
        )
    else:
        yield passed("CPU", f"{cpus} usable, load {busy:.1f}")


def available_memory() -> int | None:
    """Bytes that programs may still take, by the kernel and by this container's limit; None if unknown."""
    text = _read(Path("/proc/meminfo"))
    match = re.search(r"^MemAvailable:\s+(\d+) kB", text or "", re.MULTILINE)
    found = [int(match[1]) * 1024] if match else []
    most, used = _read(_CGROUP / "memory.max"), _read(_CGROUP / "memory.current")
    if most and used and most.isdigit():
        found.append(max(0, int(most) - int(used)))
    return min(found, default=None)


def _pids_left() -> int | None:
    most, used = _read(_CGROUP / "pids.max"), _read(_CGROUP / "pids.current")
    return int(most) - int(used) if most and used and most.isdigit() else None


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None


CHECKS = (processes, memory, load)
