"""Kill the runner of two sides at random moments: nothing that it started may be left."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
import uuid
from pathlib import Path

import pytest

# Of each kind; make test-faults asks for 40.
KILLS = int(os.environ.get("BOOSTERRUN_TEST_KILLS", "5"))
CASE = f"{Path(__file__).with_name('cases_of_sides.py')}:make"

RUNNER = """
import sys
from pathlib import Path
from types import SimpleNamespace
from boosterrun.system import process
from boosterrun.measure.api import SideSpec
from boosterrun.measure.side import WorkerSide

work, case, start = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
timeouts = SimpleNamespace(start=60, build=60, check=60, sample=60, grace=1)
for job in range(1000):
    sides = [
        WorkerSide(
            SideSpec(name, None, None, work / name, {}, case,
                     {"stage": "make", "action": action},
                     preload={"spawn": None, "fork": ()}[start]),
            timeouts,
        )
        for name, action in (("baseline", "orphan"), ("candidate", "daemon"))
    ]
    for side in sides:
        side.start()
        side.build("s", {})
        print("built", flush=True)
    for pair in range(20):
        for side in sides:
            side.sample("s", 5, "auto")
    for side in sides:
        side.close()
"""


def survivors(mark: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if f"BOOSTERRUN_TEST={mark}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except (OSError, ValueError):
            continue
    return found


@pytest.mark.parametrize(
    ("start", "also"), [("spawn", ()), ("fork", ()), ("fork", ("nursery",)), ("fork", ("nursery", "later"))]
)
def test_kill_9_of_the_runner_leaves_nothing(tmp_path: Path, start: str, also: tuple[str, ...]) -> None:
    """``also``: the process that forks workers is killed too, just before the runner or somewhat earlier."""
    script = tmp_path / "runner.py"
    script.write_text(textwrap.dedent(RUNNER))
    moments = random.Random(f"{start} {also}")
    seen = 0
    for number in range(KILLS):
        mark = uuid.uuid4().hex
        # The first moments of all: import, start, build; later ones: timing, closing, the next job.
        with subprocess.Popen(
            [sys.executable, script, tmp_path / str(number), CASE, start],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # A forked worker shows the environment with which its parent was executed.
            env={**os.environ, "BOOSTERRUN_TEST": mark},
        ) as program:
            time.sleep(moments.uniform(0.05, 1.5))
            seen += len(set(survivors(mark)) - {program.pid})
            if "nursery" in also:
                for pid in nurseries(program.pid):
                    os.kill(pid, signal.SIGKILL)
            if "later" in also:
                time.sleep(moments.uniform(0.0, 0.5))
            program.kill()
            assert program.stderr is not None
            assert program.stderr.read() == b""
        deadline = time.monotonic() + 5
        while survivors(mark) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not survivors(mark)
    assert seen > 0  # there was something to kill


def nurseries(runner: int) -> list[int]:
    """The processes that fork workers; a worker has the same command line, but another parent."""
    found = []
    for pid in Path(f"/proc/{runner}/task/{runner}/children").read_text().split():
        with contextlib.suppress(OSError):
            if b"boosterrun.measure.nursery" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(int(pid))
    return found
