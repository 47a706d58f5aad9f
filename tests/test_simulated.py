"""The simulated workload: its noise, its misbehaviour on both paths, and its verdicts."""

from __future__ import annotations

import itertools
import math
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boosterrun.adapters import base
from boosterrun.adapters.base import Job, Judgement, Toolchain
from boosterrun.config import (
    SHIPPED,
    AcfConfig,
    CommandWorkload,
    Config,
    ProtocolConfig,
    PythonWorkload,
    ScoreConfig,
    TimeoutsConfig,
)
from boosterrun.measure.api import SideFailed, SideName, SideSpec
from boosterrun.measure.side import WorkerSide
from boosterrun.packs import Acf
from boosterrun.shipped.cases.simulation import FAILURES, Machine, Noise, Simulation, behaviour

TIMEOUTS = TimeoutsConfig(start=60.0, build=60.0, check=60.0, sample=60.0, grace=0.3)
CASE = f"{SHIPPED}/cases/simulated.py:make"
PROGRAM = str(SHIPPED / "cases" / "simulated_program.py")


# ---- noise ----


def series(noise: Noise, seed: int, count: int = 4000, start: float = 1e5) -> list[float]:
    machine = Machine(noise, seed)
    return [machine.at(start + i * noise.tick_seconds) for i in range(count)]


def test_all_processes_meet_the_same_machine() -> None:
    noise = Noise(ramp=0.05, slow_share=0.3, ar=0.9, ar_sd=0.01)
    early = series(noise, 3, count=3000)
    late = Machine(noise, 3)  # a process that starts later, and looks now and then
    for index in range(2000, 3000, 37):
        assert late.at(1e5 + index * noise.tick_seconds) == pytest.approx(early[index], abs=1e-5)
    assert series(noise, 4) != early


def test_the_autoregression_has_its_spread_and_its_memory() -> None:
    values = series(Noise(ar=0.9, ar_sd=0.01), 1)
    assert statistics.stdev(values) == pytest.approx(0.01, rel=0.15)
    assert statistics.correlation(values[:-1], values[1:]) == pytest.approx(0.9, abs=0.04)


def test_the_sticky_clock_has_its_share_and_its_persistence() -> None:
    slow = [value > 0 for value in series(Noise(slow_share=0.3, slow_gap=0.05, slow_stay=0.97), 2, 20000)]
    assert statistics.fmean(slow) == pytest.approx(0.3, abs=0.06)
    after = [b for a, b in itertools.pairwise(slow) if a]
    assert statistics.fmean(after) == pytest.approx(0.97, abs=0.01)


@given(st.floats(-0.5, 0.5), st.floats(0, 1e6))
@settings(max_examples=50)
def test_the_ramp_stays_in_its_bounds(ramp: float, now: float) -> None:
    log = Machine(Noise(ramp=ramp), 0).at(now)
    low, high = sorted((0.0, math.log1p(ramp)))
    assert low <= log <= high


def test_the_gain_is_in_the_times(monkeypatch: pytest.MonkeyPatch) -> None:
    table: dict[str, dict[str, object]] = {"01-*": {"gain": 0.25}, "*": {"gain": -0.5}}
    for acf_id, expected in ((None, 2.0), ("01-x", 1.6), ("other", 4.0)):
        monkeypatch.delenv("BOOSTERRUN_ACF_ID", raising=False)
        if acf_id:
            monkeypatch.setenv("BOOSTERRUN_ACF_ID", acf_id)
        simulation = Simulation(2.0, {"sigma": 0.01}, table, seed=0)
        times = [simulation.milliseconds() for _ in range(400)]
        assert statistics.median(times) == pytest.approx(expected, rel=0.01)
        assert statistics.stdev(times) / expected == pytest.approx(0.01, rel=0.25)


@pytest.mark.parametrize(
    "make",
    [
        lambda: behaviour({"x": {"fial": "exit"}}, None),
        lambda: behaviour({"x": {"fail": "explode"}}, None),
        lambda: behaviour({"x": {"gain": -1.0}}, None),
        lambda: Simulation(1.0, {"sgima": 1.0}, {}, 0),
        lambda: Simulation(0.0, {}, {}, 0),
        lambda: Noise(ar=1.0),
        lambda: Noise(slow_share=0.9, slow_stay=0.5),
        lambda: Noise(tick_seconds=0.0),
    ],
)
def test_settings_that_make_no_sense_are_refused(make: Any) -> None:
    with pytest.raises(ValueError, match=r"unknown|must|needed"):
        make()


# ---- the worker path ----


def worker(tmp_path: Path, fail: dict[str, Any], name: SideName = "candidate", **options: Any) -> WorkerSide:
    candidate = name == "candidate"
    spec = SideSpec(
        name,
        tmp_path / "abc.acf" if candidate else None,
        "01-x" if candidate else None,
        tmp_path / name,
        case=CASE,
        options={"behaviours": {"01-*": fail}, **options},
    )
    limits = TimeoutsConfig(start=60.0, build=3.0, check=3.0, sample=3.0, grace=0.3)
    return WorkerSide(spec, limits)


def use(side: WorkerSide) -> list[float | None]:
    with side:
        side.start()
        side.build("s", {"size": 16})
        assert side.check("s", 1).passed
        values = side.sample("s", 10, "auto", 2).values
        assert side.check_timed("s").passed
    return values


def test_a_baseline_never_misbehaves(tmp_path: Path) -> None:
    assert len(use(worker(tmp_path, {"fail": "crash_run"}, "baseline"))) == 10


def test_a_real_clock_is_really_waited_for(tmp_path: Path) -> None:
    started = time.monotonic()
    values = use(worker(tmp_path, {"gain": 1.0}, clock="real", base_ms=40.0))
    assert time.monotonic() - started > 0.2
    assert min(v for v in values if v is not None) >= 19.9


@pytest.mark.parametrize(
    ("fail", "kind"),
    [
        ({"fail": "compile_error"}, "compile_error"),
        ({"fail": "crash_build"}, "compile_error"),
        ({"fail": "hang_build"}, "compile_timeout"),
        ({"fail": "slow_build", "seconds": 60.0}, "compile_timeout"),
        ({"fail": "crash_run", "after": 5}, "runtime_error"),
        ({"fail": "exit", "after": 5}, "runtime_error"),
        ({"fail": "error", "after": 5}, "runtime_error"),
        ({"fail": "hang_run", "after": 5}, "runtime_timeout"),
        ({"fail": "ignore_sigterm", "after": 5}, "runtime_timeout"),
    ],
)
def test_failures_of_a_worker(tmp_path: Path, fail: dict[str, Any], kind: str) -> None:
    side = worker(tmp_path, fail)
    with pytest.raises(SideFailed) as caught:
        use(side)
    assert caught.value.kind == kind
    assert caught.value.side == "candidate"
    assert not marked(tmp_path)


def marked(folder: Path) -> list[int]:
    """Return the processes whose environment names this test's folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                if str(folder).encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


@pytest.mark.parametrize("fail", ["garbage_stdout", "daemon"])
def test_noise_on_standard_output_and_daemons_harm_nobody(tmp_path: Path, fail: str) -> None:
    assert None not in use(worker(tmp_path, {"fail": fail}))
    assert not marked(tmp_path)


def test_flaky_launches_are_missing_values(tmp_path: Path) -> None:
    with worker(tmp_path, {"fail": "flaky", "after": 3}) as side:
        side.start()
        side.build("s", {"size": 16})
        values = side.sample("s", 12, "auto").values
    assert [i for i, value in enumerate(values) if value is None] == [4, 7, 10]


@pytest.mark.parametrize("fail", ["wrong", "stale", "nan"])
def test_wrong_outputs_are_found(tmp_path: Path, fail: str) -> None:
    with worker(tmp_path, {"fail": fail}) as side:
        side.start()
        side.build("s", {"size": 16})
        assert side.check("s", 1).passed is False


def test_an_output_that_turns_wrong_during_the_timing_is_found_afterwards(tmp_path: Path) -> None:
    with worker(tmp_path, {"fail": "wrong", "after": 10}) as side:
        side.start()
        side.build("s", {"size": 16})
        assert side.check("s", 1).passed
        side.sample("s", 20, "auto")
        assert side.check_timed("s").passed is False


# ---- the program ----


def run(*arguments: str, acf_id: str | None = "01-x") -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("BOOSTERRUN")}
    if acf_id:
        environment["BOOSTERRUN_ACF_ID"] = acf_id
    argv = [sys.executable, "-S", PROGRAM, *arguments]
    return subprocess.run(
        argv, env=environment, capture_output=True, text=True, errors="replace", check=False, timeout=60
    )


def test_the_program_needs_nothing_but_python(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-S", PROGRAM, "--base-ms=1", "--repeat=2"],
        env={},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert len(re.findall(r"^time: \S+ ms$", done.stdout, re.MULTILINE)) == 2


@pytest.mark.parametrize(
    ("fail", "code"),
    [("crash_run", -11), ("exit", 3), ("error", 1), ("flaky", 0), ("garbage_stdout", 0), ("daemon", 0)],
)
def test_failures_of_the_program(tmp_path: Path, fail: str, code: int) -> None:
    arguments = ("--clock=virtual", f"--state={tmp_path}/state", f"--behaviour=01-*:fail={fail},after=1")
    first = run(*arguments)
    assert (first.returncode, first.stdout.count("time: ")) == (0, 1)
    if fail == "daemon":  # it keeps our pipes open: only the runner copes with that
        return
    second = run(*arguments)
    assert second.returncode == code
    assert second.stdout.count("time: ") == (fail == "flaky")
    assert run(*arguments, acf_id=None).returncode == 0


@pytest.mark.parametrize(("fail", "code"), [("compile_error", 255), ("crash_build", -11)])
def test_builds_of_the_program(fail: str, code: int) -> None:
    assert run("--build", f"--behaviour=01-*:fail={fail}").returncode == code
    assert run("--build", f"--behaviour=02-*:fail={fail}").returncode == 0
    assert run("--build", "--behaviour=01-*:fail=explode").returncode == 255


def test_the_program_checks_outputs(tmp_path: Path) -> None:
    output, check = f"--output={tmp_path}/o", f"--check={tmp_path}/o"
    run("--clock=virtual", output, "--seed=7")
    assert run(check, "--seed=7").returncode == 0
    assert run(check, "--seed=8").returncode == 1
    for fail in ("wrong", "nan"):
        run("--clock=virtual", output, "--seed=7", f"--behaviour=*:fail={fail}")
        assert run(check, "--seed=7").returncode == 1
    assert run(f"--check={tmp_path}/none").returncode == 1


# ---- verdicts ----

ACF = Acf("01-x", "01-x.acf", "0" * 64, 1, ("ptxas",), "", "01-x.acf")


def judge(tmp_path: Path, workload: PythonWorkload | CommandWorkload, acf: Acf | None = ACF) -> Judgement:
    for name in ("folder", "work"):
        (tmp_path / name).mkdir()
    protocol = ProtocolConfig(name="screen", calibration_pairs=4, checks=1)
    config = Config(AcfConfig(id="01-x"), workload=workload, protocol=protocol, timeouts=TIMEOUTS)
    controls = tmp_path / "0.acf" if acf else None
    job = Job(config, acf, controls, tmp_path / "folder", tmp_path / "work", Toolchain(), None)
    adapter = base.load(workload.adapter)
    adapter.source(config)
    return adapter.judge(job)


def python_workload(behaviour: dict[str, Any]) -> PythonWorkload:
    options = {"noise": {"sigma": 0.005}, "behaviours": {"01-*": behaviour}}
    return PythonWorkload(name="simulated", case=CASE, shapes={"small": {"size": 16}}, options=options)


def command_workload(behaviour: str) -> CommandWorkload:
    program = [sys.executable, "-S", PROGRAM]
    return CommandWorkload(
        name="simulated_command",
        command=[
            *program,
            "--base-ms={base_ms}",
            "--clock=virtual",
            "--noise=sigma=0.005",
            "--state={work}/launches",
            "--output={work}/output",
            "--seed={seed}",
            f"--behaviour=01-*:{behaviour}",
        ],
        build=[*program, "--build", f"--behaviour=01-*:{behaviour}"],
        check=[*program, "--check={work}/output", "--seed={seed}"],
        score=ScoreConfig(regex=r"time: (\S+) ms"),
        shapes={"small": {"base_ms": 20}},
    )


VERDICTS = [
    ("gain=0.2", "KEPT"),
    ("gain=-0.2", "REJECTED:regression"),
    ("fail=wrong", "REJECTED:wrong_result"),
    ("fail=stale", "REJECTED:wrong_result"),
    ("fail=compile_error", "REJECTED:compile_error"),
    ("fail=crash_run,after=4", "REJECTED:runtime_error"),
]


@pytest.mark.parametrize(("text", "decision"), VERDICTS)
def test_verdicts_on_the_worker_path(tmp_path: Path, text: str, decision: str) -> None:
    keys: dict[str, Any] = {}
    for item in text.split(","):
        key, _, value = item.partition("=")
        keys[key] = value if key == "fail" else float(value) if key == "gain" else int(value)
    assert judge(tmp_path, python_workload(keys)).decision == decision


@pytest.mark.parametrize(("text", "decision"), VERDICTS)
def test_verdicts_on_the_command_path(tmp_path: Path, text: str, decision: str) -> None:
    judgement = judge(tmp_path, command_workload(text))
    assert judgement.decision == decision, judgement.message
    assert not marked(tmp_path)


def test_every_failure_is_tried_somewhere() -> None:
    text = Path(__file__).read_text()
    assert not [name for name in FAILURES if f'"{name}"' not in text and f"fail={name}" not in text]
