"""The doctor as a command: what it says of a machine, of a config, and of its own mishaps."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from command import QUICK, ROOT, environment, executable, run
from compilers import ptxas
from doctors import doctor, nothing_installed, setup
from hypothesis import given
from hypothesis import strategies as st

from boosterrun import doctor as doctor_package
from boosterrun.doctor import screen
from boosterrun.doctor.finding import Finding, Status, failure, passed, warning, worst
from boosterrun.doctor.setup import Setup


def test_a_static_screen_is_ready_without_a_gpu(tmp_path: Path) -> None:
    found = doctor(tmp_path, QUICK, code=0)
    assert found["ptxas"]["detail"].startswith(f"{ptxas().version}, {ptxas().path}")
    assert "CUDA 13.3" in found["ptxas, ACFs"]["detail"]
    assert {found[name]["status"] for name in ("config", "GPU", "results", "ACF store", "first check")} == {
        "PASS"
    }
    assert not {"nvcc", "torch", "triton", "driver"} & set(found), "only what the workload needs"
    assert not (tmp_path / "outputs").exists(), "nothing is made"


def test_a_machine_with_nothing_installed_gets_a_fix_for_each_thing(tmp_path: Path) -> None:
    bare = nothing_installed(tmp_path)
    path = f"{bare.pop('HIDDEN')}:{ROOT}"
    for workload, missing in (("ptxas", ["ptxas"]), ("nvcc", ["nvcc", "host compiler"])):
        found = doctor(tmp_path, f"workload={workload}", code=1, PYTHONPATH=path, **bare)
        assert [name for name in missing if found[name]["status"] != "FAIL"] == []
        assert "pip install 'boosterrun[cuda13]'" in found[workload]["fix"]
        assert "first check" not in found, "what was said is not said again"


def test_a_broken_config_is_a_finding_and_the_workload_is_examined_all_the_same(tmp_path: Path) -> None:
    found = doctor(tmp_path, "workload=triton", "pack=smaple", "protocol.trails=5", code=1)
    assert found["config"]["status"] == "FAIL"
    assert "smaple" in found["config"]["detail"]
    assert "sample" in found["config"]["fix"]
    assert "Triton and ACFs" in found
    assert "compiler stages" not in found, "nothing is known of the pack"
    found = doctor(tmp_path, "workload=trito", code=1)
    assert "'trito'" in found["config"]["detail"]
    assert found["ptxas"]["status"] == "PASS"


def test_the_config_is_that_of_a_run(tmp_path: Path) -> None:
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "mine.yaml").write_text(
        f"defaults:\n  - override /{QUICK.replace('=', ': ')}\n  - _self_\nworkload: {{ptx: nowhere.ptx}}\n"
    )
    found = doctor(tmp_path, "experiment=mine", code=1)
    assert found["config"]["status"] == "PASS"
    assert "nowhere.ptx" in found["first check"]["detail"]


def test_several_workloads_are_examined_and_the_same_is_said_once(tmp_path: Path) -> None:
    done = run("doctor", "-m", "workload=ptxas/softmax,ptxas/rmsnorm", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert "softmax" in done.stdout
    assert "rmsnorm" in done.stdout
    assert done.stdout.count("\nPASS  ACF store") == 1


@pytest.mark.parametrize(
    ("args", "words"), [(["foo"], "'foo'"), (["--jsn"], "--jsn"), (["--json=1"], "--json")]
)
def test_bad_usage_is_no_finding(tmp_path: Path, args: list[str], words: str) -> None:
    done = run("doctor", *args, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_help_says_what_the_exit_code_means(tmp_path: Path) -> None:
    done = run("doctor", "--help", cwd=tmp_path)
    assert done.returncode == 0
    assert "Exit code" in done.stdout


def test_colour_is_for_terminals_only(tmp_path: Path) -> None:
    assert "\x1b" not in run("doctor", QUICK, cwd=tmp_path).stdout
    script = executable(tmp_path / ".bin")
    for variables, expected in (({"TERM": "xterm"}, True), ({"TERM": "xterm", "NO_COLOR": "1"}, False)):
        ours, theirs = pty.openpty()
        env = {**environment(**variables)}
        with subprocess.Popen([script, "doctor", QUICK], cwd=tmp_path, env=env, stdout=theirs) as process:
            os.close(theirs)
            shown = _all(ours)
            process.wait(60)
        assert "PASS" in shown
        assert ("\x1b[32mPASS" in shown) is expected


def _all(descriptor: int) -> str:
    parts = []
    try:
        while part := os.read(descriptor, 1 << 16):
            parts.append(part)
    except OSError:  # how a terminal ends
        pass
    os.close(descriptor)
    return b"".join(parts).decode()


def test_a_check_that_breaks_or_hangs_hides_no_other() -> None:
    release = threading.Event()

    def breaks(setup: Setup) -> Iterator[Finding]:
        yield passed("before", "found")
        raise ZeroDivisionError("oh")

    def hangs_here(setup: Setup) -> Iterator[Finding]:
        yield passed("earlier", "found")
        release.wait(60)
        yield passed("later", "never seen")

    def works(setup: Setup) -> Iterator[Finding]:
        yield passed("last", "found")

    found = doctor_package.examine(setup("python"), (breaks, hangs_here, works), seconds=0.5)
    release.set()
    assert [(f.status, f.subject) for f in found] == [
        (Status.PASS, "before"),
        (Status.WARN, "breaks"),
        (Status.PASS, "earlier"),
        (Status.FAIL, "hangs here"),
        (Status.PASS, "last"),
    ]
    assert "ZeroDivisionError: oh" in found[1].detail


def test_a_question_is_asked_once_and_keeps_no_other_waiting() -> None:
    wanted, release, asked = setup("python"), threading.Event(), []

    def slow() -> str:
        asked.append("slow")
        release.wait(60)
        return "late"

    waiting = [threading.Thread(target=wanted.once, args=("slow", slow), daemon=True) for _ in range(3)]
    for thread in waiting:
        thread.start()
    assert wanted.once("quick", lambda: "now") == "now"
    release.set()
    for thread in waiting:
        thread.join(60)
    assert (wanted.once("slow", slow), asked) == ("late", ["slow"])


def test_the_worst_finding_counts() -> None:
    good, odd, bad = passed("a", "b"), warning("a", "b", "c"), failure("a", "b", "c")
    assert worst([]) is Status.PASS
    assert worst([odd, good]) is Status.WARN
    assert worst([good, bad, odd]) is Status.FAIL


TEXT = st.text(max_size=300) | st.lists(st.text("abc/-", max_size=30), max_size=30).map(" ".join)
FINDINGS = st.lists(st.builds(Finding, st.sampled_from(Status), TEXT, TEXT, TEXT), max_size=5)


@given(FINDINGS)
def test_the_screen_is_aligned_and_harmless_whatever_is_said(findings: list[Finding]) -> None:
    shown = screen.text(findings, colour=False)
    lines = shown.splitlines()
    assert shown == "".join(line + "\n" for line in lines)
    assert all(character.isprintable() or character == "\n" for character in shown)
    margin = screen._STATUS + screen._SUBJECT
    starts = [line for line in lines[:-1] if not line.startswith(" " * margin)]
    assert [line[:4] for line in starts] == [str(finding.status) for finding in findings]
    for line in lines[:-1]:
        assert (
            len(line) <= screen.COLUMNS
            or " " not in line[margin:].removeprefix("-> ").strip()
            or (len(line[screen._STATUS :].rstrip()) == len(line) - screen._STATUS and line in starts)
        )
    assert json.loads(screen.document(findings, "x"))["worst"] == worst(findings)
