"""A case that misbehaves as its options say: real crashes, hangs and lies for the tests of sides."""

import atexit
import ctypes
import os
import signal
import subprocess
import sys
import time
from stat import S_ISFIFO

import numpy as np

from boosterrun import Case

if os.environ.get("TEST_IMPORT") == "hang":
    time.sleep(60)
if os.environ.get("TEST_IMPORT") == "fail":
    raise ImportError("the framework is broken")
if os.environ.get("TEST_IMPORT") == "exit":
    os._exit(9)


def pipes():
    """Return the descriptors of our own pipes, the protocol's among them."""
    return [fd for fd in range(3, 64) if _is_pipe(fd)]


def _is_pipe(fd):
    try:
        return S_ISFIFO(os.fstat(fd).st_mode)
    except OSError:
        return False


def write_everywhere(data):
    for fd in pipes():
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(fd, rest) :]
        except OSError:
            continue


def daemonise():
    """Leave a daemon that keeps every descriptor open, in its own session, as children of nobody."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            time.sleep(60)
        os._exit(0)


def ignore_signals():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while True:
        time.sleep(60)


def flood():
    for _ in range(200):
        sys.stdout.write("x" * 65535 + "\n")
    os.write(2, b"last words\n")


def compiler_fails():
    subprocess.run(
        [sys.executable, "-c", "print('ptxas fatal : Invalid compiler controls file'); exit(255)"],
        check=True,
        capture_output=True,
    )


def chained():
    try:
        compiler_fails()
    except subprocess.CalledProcessError as error:
        raise RuntimeError("Internal PTX codegen error") from error


LOST = "CUDA error: an illegal memory access was encountered"

ACTIONS = {
    "raise": lambda: 1 / 0,
    "compiler_fails": compiler_fails,
    "chained": chained,
    "cuda_error": lambda: (_ for _ in ()).throw(RuntimeError(LOST)),
    "exit": lambda: os._exit(3),
    "sys_exit": lambda: sys.exit("leaving"),
    "segfault": lambda: ctypes.string_at(0),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "hang": lambda: time.sleep(60),
    "ignore_signals": ignore_signals,
    "close_pipes_and_hang": lambda: (os.closerange(3, 64), time.sleep(60)),
    "close_pipes": lambda: os.closerange(3, 64),
    "garbage": lambda: write_everywhere(b"\x00garbage\n"),
    "endless_line": lambda: write_everywhere(b"x" * (9 << 20)),
    "forged_number": lambda: write_everywhere(b'{"id": 99, "ok": true, "result": {}}\n'),
    "forged_nan": lambda: write_everywhere(b'{"id": 2, "ok": true, "result": {"seconds": NaN}}\n'),
    "daemon_then_exit": lambda: (daemonise(), os._exit(0)),
    "daemon": daemonise,
    "orphan": lambda: subprocess.Popen(["setsid", "sleep", "60"]),
    "orphan_then_exit": lambda: (subprocess.Popen(["sleep", "60"]), os._exit(4)),
    "flood": flood,
    "at_exit": lambda: atexit.register(print, "goodbye", end=""),
    "print": lambda: print("hello from user code"),
    "environment": lambda: print(
        {k: v for k, v in os.environ.items() if k.startswith(("BOOSTERRUN_ACF", "SIDE_"))}
    ),
}


def make(*, seed, stage="", action="", kind="right", rows=8):
    """Return the sum of rows; ``action`` happens in ``stage`` (make, reference, run, sample or sync)."""
    x = np.random.default_rng(seed).standard_normal((rows, 16))
    y = np.empty(rows, np.float32)
    state = {"runs": 0}

    def act(here):
        if here == stage:
            ACTIONS[action]()

    act("make")

    def reference():
        act("reference")
        return x.sum(1)

    def run():
        act("run")
        state["runs"] += 1
        if kind == "once" and state["runs"] > 1:
            return y
        y[:] = x.sum(1)
        if kind == "wrong":
            y[3] += 1
        if kind == "nan":
            y[3] = np.nan
        if kind == "wrong_later" and state["runs"] > 10:
            y[:] = y[::-1].copy()
        return y

    def sample(count):
        act("sample")
        for _ in range(count):
            run()
        return [0.5] * count

    return Case(run=run, reference=reference, outputs=[y], sample=sample if stage == "sample" else None,
                sync=lambda: act("sync"))  # fmt: skip
