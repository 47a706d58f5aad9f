"""What a run says of itself: lines, the view on a terminal, the table at its end."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from pathlib import Path

import pytest
from command import QUICK, environment, executable, run
from made_results import result, shape, timed

from boosterrun.decision.decide import decide
from boosterrun.decision.pairs import Pair, Protocol
from boosterrun.measure import progress
from boosterrun.measure.progress import Level
from boosterrun.sweeps import summary
from boosterrun.sweeps.live import LiveView
from boosterrun.sweeps.resume import Earlier

SIMULATED = ["-m", "acf=glob([01*,02*,03*])", "experiment=simulated", "hydra.sweep.dir=out"]


def terminal(args: list[str], cwd: Path, stop: str | None = None) -> tuple[int, str]:
    """Run the command on a terminal of its own; Ctrl-C once ``stop`` has been seen."""
    pytest.importorskip("rich")
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    variables = {"TERM": "xterm", "COLUMNS": "100", "LINES": "40"}
    process = subprocess.Popen(
        [executable(cwd / ".bin"), *args],
        cwd=cwd,
        env=environment(**variables),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    said = b""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if select.select([ours], [], [], 0.1)[0]:
            try:
                data = os.read(ours, 65536)
            except OSError:  # the last one has closed it
                break
            said += data
            if not data:
                break
        if stop is not None and stop.encode() in said:
            process.send_signal(signal.SIGINT)
            stop = None
    os.close(ours)
    return process.wait(timeout=30), said.decode()


def test_a_terminal_sees_the_job_that_runs_and_keeps_the_lines(tmp_path: Path) -> None:
    code, said = terminal(SIMULATED, tmp_path)
    assert code == 0, said
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", said)
    assert "0/3" in plain
    assert re.search(r"1/3, about \d+ s left", plain)
    assert re.search(r"kept \+\d\.\d\d% 01-\S+  simulated/", plain)
    assert "small: screen, " in plain or "small: confirm, " in plain or "  start" in plain
    assert len(re.findall(r"^\[\d/3\] ", plain.replace("\r", "\n"), re.MULTILINE)) == 3
    assert said.rindex("\x1b[?25h") > said.rindex("\x1b[?25l"), "the cursor is back"


def test_ctrl_c_on_a_terminal_leaves_it_in_order(tmp_path: Path) -> None:
    code, said = terminal(SIMULATED, tmp_path, stop="[1/3]")
    assert code == 130
    assert "go on with: boosterrun resume out" in said
    assert said.rindex("\x1b[?25h") > said.rindex("\x1b[?25l")


def test_a_pipe_gets_plain_lines_and_flags_say_more_or_less(tmp_path: Path) -> None:
    sweep = ["-m", "acf=glob([01*,02*])", QUICK]
    normal, quiet, verbose = (run(*sweep, *flag, cwd=tmp_path) for flag in ([], ["-q"], ["-v"]))
    for done in (normal, quiet, verbose):
        assert (done.returncode, done.stderr) == (0, "")
        assert "\x1b" not in done.stdout
        assert done.stdout.count("\nnext: ") == 1
    assert normal.stdout.count("\n[") == 2
    assert "\n[" not in quiet.stdout
    assert len(re.findall(r"\(\d\.\d\d s: build \d\.\d\d s\)$", verbose.stdout, re.MULTILINE)) == 2
    both = run(*sweep, "-q", "-v", cwd=tmp_path)
    assert both.returncode == 2
    assert "cannot be combined" in both.stderr


def test_the_table_is_sorted_and_says_what_to_do_next() -> None:
    kept = summary.rows(result(timed("a"), timed("b") | {"gain": 0.2, "interval": None}, evidence="timed"))
    lines = summary.table(kept, 5, Path("out it"))
    assert lines[0] == "kept, by gain:"
    assert lines[1].split()[0] == "+20.00%"
    assert "repeated" not in lines[1]
    assert "repeated: +7.10% to +7.48%" in lines[2]
    assert lines[-1].endswith("once more, on every shape: boosterrun ship 'out it' -o kept")
    assert summary.table([], 3, Path("out")) == [
        "next: no ACF of this sweep helps this workload; search for one made for it with CompileIQ"
    ]
    assert summary.table([], 0, Path("out")) == []
    static = summary.rows(result(shape(), evidence="static"))
    assert "nothing was timed" in summary.table(static, 1, Path("out"))[-1]
    many = summary.table(kept * 15, 30, Path("out"))
    assert many[-2] == "  and 10 more, see the log"


def test_the_view_tells_pairs_interval_and_time_left() -> None:
    view = LiveView(4)
    view.begun -= 30
    done = result(timed())
    view.finished(Earlier(done))
    assert view.lines()[0].endswith(" 1/4"), "what was done before says nothing about the time"
    view.finished(done)
    assert view.lines()[0].endswith(" 2/4, about 60 s left") or view.lines()[0].endswith(
        " 2/4, about 61 s left"
    )
    assert view.lines()[1].startswith("  kept +7.29% ")
    with progress.heard_by(view):
        progress.job("02-x")
        progress.phase("build")
        assert view.lines()[-1] == "  02-x  build"
        pair = [Pair("calibrate", 0, "bc", (1.0,), (1.0 + i / 100,)) for i in range(10)]
        pair += [Pair("screen", 0, "bc", (1.1,), (1.0,)), Pair("screen", 0, "cb", (1.11,), (1.0,))]
        progress.pair("small", decide(pair, Protocol()))
    assert re.fullmatch(
        r"  02-x  small: screen, 12 pairs, \+10\.50% \[[+-]\d+\.\d\d%, \+\d+\.\d\d%\]", view.lines()[-1]
    )
    progress.phase("nobody listens")
    assert "nobody" not in view.lines()[-1]
    assert progress.level() is Level.NORMAL
