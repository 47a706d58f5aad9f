"""What goes wrong, for the case, the program and the compiler of the fault matrix. Standard library only.

``FAULT_PLAN`` names a JSON file: ``state`` (a folder), ``out`` (the sweep's), ``disk`` (a file to fill), and
``faults``, a list of ``{"who", "phase", "fault", "times"}``: who is the id of an ACF, or "baseline".
"""

import ctypes
import json
import os
import resource
import shutil
import signal
import struct
import sys
import time
from pathlib import Path

SLEEP = 600
GIB = 1 << 30
SAMPLES = {"nan": float("nan"), "negative": -1.0, "zero": 0.0, "huge": 1e308}


def plan():
    return json.loads(Path(os.environ["FAULT_PLAN"]).read_text())


def claim(name, times):
    """True for the first ``times`` who ask, in whatever process."""
    for number in range(times):
        try:
            os.close(os.open(Path(plan()["state"]) / f"{name}-{number}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            continue
        return True
    return False


def due(who, phase):
    """The fault of ``who`` that is due in a phase, or None; the baseline's come one after the other."""
    for number, entry in enumerate(plan()["faults"]):
        mine = entry["who"] == who and entry["phase"] == phase
        if mine and claim(f"fired-{number}", entry.get("times", 1)):
            return entry["fault"]
    return None


def folder_of(who):
    """The folder of a job; of the baseline that is kept from job to job, its own."""
    if who == "baseline":
        return next(Path(os.environ["TMPDIR"]).glob("boosterrun-baseline-*"), None)
    return Path(plan()["out"]) / who


def act(fault, folder):
    """Do it; returns for what a process survives. ``folder``: of the job."""
    if fault is not None and fault not in SAMPLES:
        ACTIONS[fault](Path(folder) if folder else None)


def runner():
    return int((Path(plan()["state"]) / "runner.pid").read_text())


def ignore_signals(_):
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while True:
        time.sleep(SLEEP)


def daemon(_):
    """A grandchild in a session of its own, which keeps every descriptor open."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            time.sleep(SLEEP)
        os._exit(0)


def flood(_):
    part = b"x" * ((1 << 20) - 1) + b"\n"
    for _ in range(GIB // len(part)):
        rest = memoryview(part)
        while rest:
            rest = rest[os.write(1, rest) :]


def memory(_):
    """Allocate until there is no more, then die as the kernel has a process die: by SIGKILL."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + GIB // 2
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    hold = []
    try:
        while True:
            hold.append(b"x" * (16 << 20))
    except MemoryError:
        os.kill(os.getpid(), signal.SIGKILL)


def fill(_):
    """Fill the disk to its last byte."""
    size = 1 << 20
    with Path(plan()["disk"]).open("ab", buffering=0) as stream:
        while size:
            try:
                stream.write(b"x" * size)
            except OSError:
                size //= 2


def elsewhere(folder):
    """Write into the folder of every other job: results that are none, pairs, work."""
    out = Path(plan()["out"])
    for other in plan()["others"]:
        place = out / other
        place.mkdir(parents=True, exist_ok=True)
        (place / "result.json").write_text('{"schema_version": 1, "decision": "KEPT"}')
        (place / "pairs.jsonl").write_text('{"not": "a pair"}\n')
        (place / "work").mkdir(exist_ok=True)
        (place / "work" / "candidate.cubin").write_bytes(b"\x7fELF nothing")


def fake(_):
    """Say on both streams what a worker would say on its own descriptors."""
    for text in (
        {"id": 1, "ok": True, "result": {}},
        {"id": 3, "ok": True, "result": {"values": [1e-9] * 10, "timer": "own", "detail": {}}},
        {"id": 4, "ok": True, "result": {"passed": True, "detail": {}}},
        {"id": 5, "ok": False, "error": {"kind": "x", "message": "", "traceback": "", "fatal": True}},
    ):
        for descriptor in (1, 2):
            os.write(descriptor, json.dumps(text).encode() + b"\n")


def jump(_):
    """Set the clock of the machine: a day forward, then two days back, and so on."""
    path = Path(os.environ["FAULT_CLOCK"])
    (now,) = struct.unpack("q", path.read_bytes())
    with path.open("r+b") as stream:
        stream.write(struct.pack("q", 86_400 if now <= 0 else -172_800))


ACTIONS = {
    "exit": lambda _: os._exit(3),
    "crash": lambda _: ctypes.string_at(0),
    "hang": lambda _: time.sleep(SLEEP),
    "ignore_sigterm": ignore_signals,
    "daemon": daemon,
    "flood": flood,
    "memory": memory,
    "disk_full": fill,
    "folder_deleted": lambda folder: shutil.rmtree(folder, ignore_errors=True),
    "writes_elsewhere": elsewhere,
    "fake_messages": fake,
    "clock": jump,
    "runner_killed": lambda _: (os.kill(runner(), signal.SIGKILL), time.sleep(SLEEP)),
}

if __name__ == "__main__":  # what the library in the runner has us do
    act(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None)
