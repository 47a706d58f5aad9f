"""Signals, in processes of their own."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command import environment

HEAD = """
import signal, sys, time
from boosterrun.system import interrupt, process
def say(word):
    print(word, flush=True)
"""
SLEEPER = [sys.executable, "-c", "import time; time.sleep(60)"]


def script(tmp_path: Path, body: str) -> subprocess.Popen[str]:
    (tmp_path / "script.py").write_text(HEAD + body)
    process = subprocess.Popen(
        [sys.executable, tmp_path / "script.py"],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGUSR1, 143)],
)
def test_each_signal_unwinds_with_its_exit_code(tmp_path: Path, number: signal.Signals, code: int) -> None:
    body = """
try:
    with interrupt.handling():
        try:
            say("ready")
            time.sleep(60)
        finally:
            say("unwound")
except KeyboardInterrupt:
    sys.exit(130)
"""
    process = script(tmp_path, body)
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=20)
    assert (process.returncode, stdout, stderr) == (code, "unwound\n", "")


def test_what_is_shielded_comes_to_its_end(tmp_path: Path) -> None:
    body = """
with interrupt.handling():
    with interrupt.shielded():
        with interrupt.shielded():
            say("ready")
            time.sleep(0.4)
        say("finished")
    say("never")
"""
    process = script(tmp_path, body)
    process.send_signal(signal.SIGTERM)
    stdout, _ = process.communicate(timeout=20)
    assert (process.returncode, stdout) == (143, "finished\n")


def test_what_takes_too_long_is_killed_and_not_blamed(tmp_path: Path) -> None:
    """The error that our own kill has caused must not come out."""
    body = f"""
with interrupt.handling():
    with interrupt.shielded():
        say("ready")
        done = process.run({SLEEPER!r}, timeout=60)
        raise ValueError(f"it was killed by {{done.signal}}")
"""
    process = script(tmp_path, body)
    begun = time.monotonic()
    process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate(timeout=20)
    assert process.returncode == 143, stderr
    assert time.monotonic() - begun < 5


def test_threads_that_wait_for_children_are_freed(tmp_path: Path) -> None:
    body = f"""
from concurrent.futures import ThreadPoolExecutor
with interrupt.handling(), ThreadPoolExecutor(2) as pool:
    futures = [pool.submit(process.run, {SLEEPER!r}, timeout=60) for _ in range(2)]
    say("ready")
    [future.result() for future in futures]
"""
    process = script(tmp_path, body)
    time.sleep(0.5)
    begun = time.monotonic()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    assert process.returncode == 143
    assert time.monotonic() - begun < 5


@pytest.mark.parametrize("lost", ["pass", "raise ValueError('torn')"])
def test_a_signal_that_got_lost_still_ends_the_run(tmp_path: Path, lost: str) -> None:
    body = f"""
with interrupt.handling():
    try:
        say("ready")
        time.sleep(60)
    except BaseException:
        {lost}
    assert interrupt.stopping()
"""
    process = script(tmp_path, body)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    assert process.returncode == 143


def test_the_same_signal_twice_ends_at_once_and_another_one_does_not(tmp_path: Path) -> None:
    body = """
with interrupt.handling():
    try:
        say("ready")
        time.sleep(60)
    finally:
        say("unwinding")
        time.sleep(1)
        say("unwound")
"""
    for second, code, end in ((signal.SIGTERM, 143, ""), (signal.SIGUSR1, 143, "unwound\n")):
        process = script(tmp_path, body)
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        assert process.stdout.readline() == "unwinding\n"
        process.send_signal(second)
        stdout, stderr = process.communicate(timeout=20)
        assert (process.returncode, stdout) == (code, end)
        assert ("ended at once" in stderr) == (second == signal.SIGTERM)


def test_ignored_signals_stay_ignored_and_handlers_come_back(tmp_path: Path) -> None:
    body = """
signal.signal(signal.SIGHUP, signal.SIG_IGN)
with interrupt.handling(), interrupt.handling():
    say("ready")
    time.sleep(0.5)
assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
say("whole")
"""
    process = script(tmp_path, body)
    process.send_signal(signal.SIGHUP)
    stdout, stderr = process.communicate(timeout=20)
    assert (process.returncode, stdout) == (0, "whole\n"), stderr


STARTING = """
import os, signal, sys
from boosterrun.system import closer, interrupt

def kill_while_a_thread_starts(frame, event, _):
    if event == "call" and frame.f_code.co_name == "wait" and frame.f_back.f_code.co_name == "start":
        sys.setprofile(None)
        print("sent", flush=True)
        os.kill(os.getpid(), signal.SIGTERM)

with interrupt.handling():
    sys.setprofile(kill_while_a_thread_starts)
    closer.later(lambda: None)
"""


def test_a_signal_while_a_thread_starts_does_not_leave_it_for_ever() -> None:
    done = subprocess.run(
        [sys.executable, "-c", STARTING],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stdout) == (143, "sent\n"), done.stderr
