"""Sides with real workers that crash, hang, lie and leave others behind; nothing of them survives."""

from __future__ import annotations

import os
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from boosterrun.errors import RunError
from boosterrun.measure.api import Side, SideFailed, SideSpec
from boosterrun.measure.side import OUTPUT_LIMIT, WorkerSide

CASE = f"{Path(__file__).with_name('cases_of_sides.py')}:make"
# Long enough for a loaded machine; what must time out sleeps for a minute.
PATIENT = SimpleNamespace(start=60.0, build=60.0, check=60.0, sample=60.0, grace=0.3)
MakeSide = Callable[..., WorkerSide]


def survivors(mark: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if mark.encode() in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except (OSError, ValueError):
            continue
    return found


@pytest.fixture(params=["spawn", "fork"])
def start(request: pytest.FixtureRequest) -> str:
    """How workers start: every promise of a side holds for both ways."""
    return str(request.param)


@pytest.fixture
def make_side(tmp_path: Path, start: str) -> Iterator[MakeSide]:
    """Make sides that are closed at the end of the test; nothing with their mark may be left."""
    mark = uuid.uuid4().hex
    sides: list[WorkerSide] = []

    def make(
        timeouts: SimpleNamespace = PATIENT, env: dict[str, str | None] | None = None, **options: Any
    ) -> WorkerSide:
        spec = SideSpec(
            name="candidate",
            acf=tmp_path / "abc.acf",
            acf_id="01-abc",
            work=tmp_path / "side with space" / str(len(sides)),
            env={"BOOSTERRUN_TEST": mark, **(env or {})},
            case=options.pop("case", CASE),
            options=options,
            preload=() if start == "fork" else None,
        )
        sides.append(WorkerSide(spec, timeouts, seed=5))
        return sides[-1]

    yield make
    for side in sides:
        assert side._start.startswith(start) or side._child is None
        side.close()
        side.close()
    assert not survivors(f"BOOSTERRUN_TEST={mark}")
    # What a worker forks (and does not execute) shows the worker's own mark only.
    assert not any(survivors(side._child.mark) for side in sides if side._child is not None)


def failure(call: Callable[[], object]) -> SideFailed:
    start = time.monotonic()
    with pytest.raises(SideFailed) as caught:
        call()
    assert time.monotonic() - start < 30  # the sleepers sleep for a minute
    return caught.value


def started(side: WorkerSide) -> WorkerSide:
    side.start()
    return side


def built(side: WorkerSide) -> WorkerSide:
    side.start()
    side.build("s", {})
    return side


def test_a_good_case_goes_all_the_way(make_side: MakeSide, start: str) -> None:
    side: Side = make_side()
    with side:
        hello = side.start()
        assert hello.pid is not None
        assert hello.device is None
        assert {"python", "numpy"} <= set(hello.versions)
        assert hello.versions["worker_start"] == start
        result = side.build("s", {"rows": 12})
        assert result.seconds > 0
        assert result.detail["timer"] == "host"
        for seed in (1, 2):
            checked = side.check("s", seed)
            assert checked.passed, checked.detail
            assert checked.detail["outputs"][0]["shape"] == [12]
        samples = side.sample("s", 7, "auto", 2)
        assert (len(samples.values), samples.unit, samples.timer) == (7, "ms", "host")
        assert side.check_timed("s").passed
        os.kill(hello.pid, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(hello.pid, 0)


def test_what_slurm_sends_to_all_processes_of_a_job_ends_no_pair(make_side: MakeSide) -> None:
    side = built(make_side())
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        os.kill(cast(Any, side)._child.pid, number)
        assert len(side.sample("s", 7, "auto", 2).values) == 7


def test_shapes_are_kept_apart(make_side: MakeSide) -> None:
    side = started(make_side())
    for rows in (3, 5):
        side.build(f"r{rows}", {"rows": rows})
    for rows in (3, 5):
        assert side.check_timed(f"r{rows}").detail["outputs"][0]["shape"] == [rows]
        assert side.check(f"r{rows}", 9).detail["outputs"][0]["shape"] == [rows]


def test_the_environment_is_the_sides_own(make_side: MakeSide, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIDE_REMOVED", "1")
    monkeypatch.setenv("SIDE_KEPT", "2")
    env: dict[str, str | None] = {"SIDE_REMOVED": None, "SIDE_NEW": "3"}
    side = built(make_side(env=env, stage="make", action="environment"))
    side.close()
    text = (side.spec.work / "stdout.log").read_text()
    assert "SIDE_REMOVED" not in text
    assert "'SIDE_KEPT': '2'" in text
    assert "'SIDE_NEW': '3'" in text
    assert "'BOOSTERRUN_ACF_ID': '01-abc'" in text
    assert "BOOSTERRUN_ACF'" in text


def test_the_baseline_knows_no_acf(make_side: MakeSide, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOOSTERRUN_ACF_ID", "left over from outside")
    side = make_side(stage="make", action="environment")
    side.spec = replace(side.spec, name="baseline", acf=None, acf_id=None)
    built(side).close()
    assert "BOOSTERRUN_ACF" not in (side.spec.work / "stdout.log").read_text()


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("no/such/file.py:make", "there is no file"),
        (CASE.replace(":make", ":other"), "has no function other"),
        ("no_such_package.kernels:make", "there is no module"),
    ],
)
def test_a_missing_case_is_told(make_side: MakeSide, case: str, words: str) -> None:
    failed = failure(make_side(case=case).start)
    assert failed.kind == "start_error"
    assert words in failed.message


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [("fail", "the framework is broken"), ("exit", "exited with code 9"), ("hang", "hello took longer than")],
)
def test_a_case_that_cannot_be_imported_is_a_start_error(
    make_side: MakeSide, behaviour: str, words: str
) -> None:
    timeouts = PATIENT if behaviour != "hang" else SimpleNamespace(**{**vars(PATIENT), "start": 1.5})
    failed = failure(make_side(timeouts, env={"TEST_IMPORT": behaviour}).start)
    assert failed.kind == "start_error"
    assert words in failed.message
    assert not failed.alive


@pytest.mark.parametrize(
    ("stage", "action"),
    [
        ("make", "raise"),
        ("reference", "raise"),
        ("run", "raise"),
        ("sync", "raise"),
        ("run", "compiler_fails"),
        ("run", "chained"),
        ("run", "sys_exit"),
    ],
)
def test_an_exception_in_a_build_is_a_compile_error_and_the_worker_lives(
    make_side: MakeSide, stage: str, action: str
) -> None:
    side = started(make_side(stage=stage, action=action))
    words = {"raise": "ZeroDivisionError", "sys_exit": "SystemExit: leaving"}.get(
        action, "Invalid compiler controls file"
    )
    for _ in range(2):
        failed = failure(lambda: side.build("s", {}))
        assert failed.kind == "compile_error"
        assert words in failed.message
        assert failed.alive
        assert "cases_of_sides.py" in failed.traceback


def test_a_wrong_keyword_is_told(make_side: MakeSide) -> None:
    failed = failure(lambda: started(make_side()).build("s", {"columns": 3}))
    assert "columns" in failed.message


DEATHS = {
    "exit": ("exited with code 3", 3, None),
    "segfault": ("killed by SIGSEGV", None, signal.SIGSEGV),
    "kill": ("killed by SIGKILL", None, signal.SIGKILL),
    "daemon_then_exit": ("exited with code 0", 0, None),
    "orphan_then_exit": ("exited with code 4", 4, None),
}


@pytest.mark.parametrize("action", DEATHS)
@pytest.mark.parametrize("stage", ["run", "sample"])
def test_a_death_is_classified_and_leaves_nothing(make_side: MakeSide, stage: str, action: str) -> None:
    side = started(make_side(stage=stage, action=action))
    if stage == "run":
        failed = failure(lambda: side.build("s", {}))
    else:
        side.build("s", {})
        failed = failure(lambda: side.sample("s", 2, "auto"))
    words, code, number = DEATHS[action]
    assert words in failed.message
    assert (failed.kind, failed.exit_code, failed.signal) == (
        "compile_error" if stage == "run" else "runtime_error",
        code,
        number,
    )
    assert not failed.alive
    assert ("Segmentation fault" in failed.output_tail) == (action == "segfault")
    with pytest.raises(RuntimeError, match="not running"):
        side.check("s", 1)


@pytest.mark.parametrize("action", ["hang", "ignore_signals"])
@pytest.mark.parametrize(("stage", "kind"), [("run", "compile_timeout"), ("sample", "runtime_timeout")])
def test_a_hang_ends_at_its_deadline(make_side: MakeSide, stage: str, kind: str, action: str) -> None:
    timeouts = SimpleNamespace(**{**vars(PATIENT), "build": 1.0 if stage == "run" else 60.0, "sample": 1.0})
    side = started(make_side(timeouts, stage=stage, action=action))
    if stage == "run":
        failed = failure(lambda: side.build("s", {}))
    else:
        side.build("s", {})
        failed = failure(lambda: side.sample("s", 2, "auto"))
    assert failed.kind == kind
    assert "took longer than 1 s" in failed.message


def test_a_check_that_hangs_ends_at_its_deadline(make_side: MakeSide) -> None:
    side = built(make_side(SimpleNamespace(**{**vars(PATIENT), "check": 1.0}), stage="", action="hang"))
    assert side.check("s", 1).passed
    os.kill(cast(Any, side)._child.pid, signal.SIGSTOP)
    assert failure(lambda: side.check("s", 1)).kind == "runtime_timeout"


@pytest.mark.parametrize(
    ("action", "words"),
    [
        ("garbage", "not a message"),
        ("endless_line", "longer than"),
        ("forged_number", "an answer to 99"),
        ("forged_nan", "NaN is no JSON number"),
        ("close_pipes_and_hang", "closed its pipe"),
    ],
)
def test_a_worker_that_breaks_the_protocol_is_ended(make_side: MakeSide, action: str, words: str) -> None:
    failed = failure(lambda: started(make_side(stage="run", action=action)).build("s", {}))
    assert failed.kind == "protocol_error"
    assert words in failed.message
    assert not failed.alive


def test_a_worker_without_pipes_dies_as_a_failure(make_side: MakeSide) -> None:
    failed = failure(lambda: started(make_side(stage="run", action="close_pipes")).build("s", {}))
    assert failed.kind == "compile_error"
    assert failed.exit_code == 1


def test_a_lost_gpu_context_ends_the_worker_with_its_words(make_side: MakeSide) -> None:
    for stage in ("run", "sample"):
        side = started(make_side(stage=stage, action="cuda_error"))
        failed = failure(lambda side=side: (side.build("s", {}), side.sample("s", 1, "auto")))
        assert failed.kind == "runtime_error"
        assert "an illegal memory access was encountered" in failed.message
        assert not failed.alive


@pytest.mark.parametrize("action", ["daemon", "orphan"])
def test_what_a_good_worker_leaves_behind_is_ended_at_close(make_side: MakeSide, action: str) -> None:
    start = time.monotonic()
    side = built(make_side(stage="make", action=action))
    assert side.check("s", 1).passed
    side.close()
    assert time.monotonic() - start < 30


def test_what_user_code_registered_for_the_end_is_run(make_side: MakeSide) -> None:
    side = built(make_side(stage="make", action="at_exit"))
    side.close()
    assert (side.spec.work / "stdout.log").read_text() == "goodbye"


def test_a_flood_neither_blocks_nor_fills_the_disk(make_side: MakeSide) -> None:
    side = built(make_side(stage="run", action="flood"))
    assert side.sample("s", 2, "host").values
    side.close()
    size = (side.spec.work / "stdout.log").stat().st_size
    assert OUTPUT_LIMIT <= size < OUTPUT_LIMIT + 100
    assert "last words" in (side.spec.work / "stderr.log").read_text()


def test_prints_do_not_disturb(make_side: MakeSide) -> None:
    side = built(make_side(stage="run", action="print"))
    assert side.check("s", 3).passed
    side.close()
    assert "hello from user code" in (side.spec.work / "stdout.log").read_text()


@pytest.mark.parametrize("kind", ["wrong", "nan", "once"])
def test_wrong_and_stale_outputs_never_pass(make_side: MakeSide, kind: str) -> None:
    side = built(make_side(kind=kind))
    assert side.check("s", 1).passed is False
    checked = side.check_timed("s")
    assert checked.passed is False
    assert checked.detail["message"]


def test_outputs_that_go_wrong_while_timed_are_found_afterwards(make_side: MakeSide) -> None:
    side = built(make_side(kind="wrong_later"))
    assert side.check_timed("s").passed
    side.sample("s", 10, "auto")
    assert side.check_timed("s").passed is False


def test_a_folder_that_cannot_be_made_is_a_run_error(make_side: MakeSide, tmp_path: Path) -> None:
    side = make_side()
    (tmp_path / "file").touch()
    side.spec = replace(side.spec, work=tmp_path / "file" / "below")
    with pytest.raises(RunError, match="cannot write"):
        side.start()


def test_a_side_is_started_once(make_side: MakeSide) -> None:
    side = started(make_side())
    with pytest.raises(RuntimeError, match="once"):
        side.start()
