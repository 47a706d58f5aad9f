"""Programs that end, fail, hang, ignore signals, flood, and leave others behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from boosterrun.errors import RunError
from boosterrun.system import guardian, process
from boosterrun.system.process import Completed, run

SILENT = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


def living(mark: str) -> list[int]:
    """Return the processes whose environment has ``mark``, zombies excepted."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if mark.encode() in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except (OSError, ValueError):
            continue
    return found


def eventually(condition: Callable[[], bool], seconds: float = 5.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def shell(script: str, **options: object) -> tuple[Completed, str]:
    """Run a shell script with a mark of its own in its environment."""
    mark = f"BOOSTERRUN_TEST={uuid.uuid4().hex}"
    name, _, value = mark.partition("=")
    options = {"timeout": 20.0, **options}
    return run(["sh", "-c", script], env={**os.environ, name: value}, **options), mark  # type: ignore[arg-type]


def test_reports_output_and_return_code() -> None:
    done, _ = shell("echo out; echo err >&2; exit 3")
    assert (done.returncode, done.signal, done.stdout, done.stderr) == (3, None, "out\n", "err\n")
    assert not done.timed_out
    assert not done.truncated


def test_reports_the_signal_that_killed_it() -> None:
    done, _ = shell("kill -SEGV $$")
    assert (done.returncode, done.signal) == (None, signal.SIGSEGV)


def test_standard_input_is_empty() -> None:
    done, _ = shell("cat; echo end")
    assert done.stdout == "end\n"


def test_environment_and_folder_are_as_given(tmp_path: Path) -> None:
    done = run(["/bin/sh", "-c", "pwd; echo $ONLY $HOME"], timeout=5, env={"ONLY": "this"}, cwd=tmp_path)
    assert done.stdout == f"{tmp_path}\nthis\n"


@pytest.mark.parametrize("argv", [["no-such-program-anywhere"], ["/"], [], ["a\0b"]])
def test_a_program_that_cannot_run_is_a_clear_error(argv: list[str]) -> None:
    with pytest.raises(RunError, match="cannot run"):
        run(argv, timeout=5)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=str(tmp_path / "gone")):
        run(["true"], timeout=5, cwd=tmp_path / "gone")


def test_output_that_is_no_text_is_kept_readable() -> None:
    done, _ = shell(r"printf '\377\376ok'")
    assert done.stdout.endswith("ok")


def test_a_flood_keeps_both_ends_and_says_what_was_dropped() -> None:
    done, _ = shell("echo first; head -c 30000000 /dev/zero; echo last", stdout_limit=1000)
    assert done.returncode == 0
    assert done.truncated
    assert done.stdout.startswith("first\n")
    assert done.stdout.endswith("last\n")
    assert "bytes dropped" in done.stdout
    assert len(done.stdout) < 1100


def test_timeout_interrupts_first() -> None:
    done, mark = shell("trap 'echo interrupted; exit 7' INT; sleep 60 & wait", timeout=0.4)
    assert done.timed_out
    assert (done.returncode, done.stdout) == (7, "interrupted\n")
    assert not living(mark)


def test_timeout_terminates_what_ignores_an_interrupt() -> None:
    done, _ = shell("trap '' INT; trap 'echo terminated; exit 8' TERM; while :; do sleep 0.05; done",
                    timeout=0.4, grace=0.4)  # fmt: skip
    assert done.timed_out
    assert (done.returncode, done.stdout) == (8, "terminated\n")


def test_timeout_kills_what_ignores_both_and_everything_below_it() -> None:
    start = time.monotonic()
    done, mark = shell("trap '' INT TERM; sh -c 'sleep 60; :' & setsid sleep 61 & while :; do :; done",
                       timeout=0.4, grace=0.3)  # fmt: skip
    assert done.timed_out
    assert done.signal == signal.SIGKILL
    assert time.monotonic() - start < 5
    assert not living(mark)


def test_a_grandchild_that_keeps_the_pipe_does_not_hang_us() -> None:
    start = time.monotonic()
    done, mark = shell("sleep 60 & setsid sleep 61 & echo parent done")
    assert done.stdout == "parent done\n"
    assert time.monotonic() - start < 5
    assert not living(mark)


def test_a_double_forked_daemon_is_found_by_its_mark() -> None:
    done, mark = shell("(setsid sh -c 'setsid sleep 60 & exit 0' </dev/null >/dev/null 2>&1 &) ; sleep 0.2")
    assert done.returncode == 0
    assert not living(mark)


def test_a_daemon_that_forks_while_it_is_looked_for_is_found_too() -> None:
    program = """
        import os, time
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(60)
        os._exit(0)
    """
    mark = uuid.uuid4().hex
    for _ in range(30):
        argv = [sys.executable, "-I", "-S", "-c", textwrap.dedent(program)]
        assert run(argv, timeout=20, env={**os.environ, "BOOSTERRUN_TEST": mark}).returncode == 0
        assert not living(f"BOOSTERRUN_TEST={mark}")


def test_a_daemon_without_environment_is_found_by_its_session() -> None:
    child = process.spawn(["sh", "-c", "env -i sleep 73 & sleep 74"], **SILENT)
    owner = process.child_environment({})[process.OWNER]
    mark = f"{process.OWNER}={owner}".encode()
    try:
        assert eventually(lambda: len([p for p in guardian.marked(mark) if _session(p) == child.pid]) == 3)
    finally:
        process.kill_group(child, grace=0.1)
    assert not [p for p in guardian.marked(mark) if _session(p) == child.pid]


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return -1


def test_other_children_are_left_alone() -> None:
    with subprocess.Popen(["sleep", "60"]) as other:
        child = process.spawn(["sleep", "60"], **SILENT)
        shell("setsid sleep 60 & exit 0")
        assert not child.ended()
        process.kill_group(child, grace=0.1)
        assert other.poll() is None
        other.kill()


def test_runs_in_several_threads_do_not_mix() -> None:
    results: dict[int, str] = {}

    def work(number: int) -> None:
        results[number] = run(["sh", "-c", f"sleep 0.1; echo {number}"], timeout=10).stdout

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {n: f"{n}\n" for n in range(6)}


def test_no_descriptors_leak() -> None:
    run(["true"], timeout=5)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        shell("setsid sleep 60 & exit 1")
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def runner(tmp_path: Path, script: str, mark: str) -> subprocess.Popen[str]:
    """Start a program that uses boosterrun, whose children (not itself) carry ``mark``."""
    file = tmp_path / f"runner-{uuid.uuid4().hex}.py"
    head = (
        "import os, sys, time\nfrom boosterrun.system import process\n"
        + f"MARKED = {{**os.environ, {mark!r}: '1'}}\n"
    )
    file.write_text(head + textwrap.dedent(script))
    return subprocess.Popen([sys.executable, file], stdout=subprocess.PIPE, text=True)


def _guardians(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(fields[1]) == pid and b"guardian.py" in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except (OSError, ValueError, IndexError):
            continue
    return found


def test_guardian_kills_everything_when_the_runner_is_killed(tmp_path: Path) -> None:
    name = f"BOOSTERRUN_TEST_{uuid.uuid4().hex}"
    script = """
    process.spawn(["sh", "-c", "trap '' INT TERM HUP; setsid sleep 60 & sleep 60"], env=MARKED)
    process.run(["sh", "-c", "setsid sleep 60 & echo; sleep 60"], env=MARKED, timeout=60)
    """
    with runner(tmp_path, script, name) as program:
        assert eventually(lambda: len(living(f"{name}=1")) == 6, 10)
        guardians = _guardians(program.pid)
        assert len(guardians) == 1
        program.kill()
    assert eventually(lambda: not living(f"{name}=1"))
    assert eventually(lambda: not Path(f"/proc/{guardians[0]}").exists())


def test_guardian_is_not_held_up_by_a_forked_copy_of_the_runner(tmp_path: Path) -> None:
    name = f"BOOSTERRUN_TEST_{uuid.uuid4().hex}"
    script = """
    process.spawn(["sleep", "60"], env=MARKED)
    copy = os.fork()
    if copy:
        print(copy, flush=True)
    time.sleep(60)
    """
    with runner(tmp_path, script, name) as program:
        assert program.stdout is not None
        copy = int(program.stdout.readline())
        program.kill()
        try:
            assert eventually(lambda: not living(f"{name}=1"))
        finally:
            os.kill(copy, signal.SIGKILL)


def test_nothing_is_left_when_the_runner_ends_without_cleaning_up(tmp_path: Path) -> None:
    name = f"BOOSTERRUN_TEST_{uuid.uuid4().hex}"
    with runner(tmp_path, "process.spawn(['sleep', '60'], env=MARKED)\n", name) as program:
        assert program.wait(10) == 0
    assert eventually(lambda: not living(f"{name}=1"))
