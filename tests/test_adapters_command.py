"""The command adapter with real programs: what each launch is told, and what each failure becomes."""

from __future__ import annotations

import dataclasses
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from boosterrun.adapters import base
from boosterrun.config import CommandWorkload, Config, ScoreConfig, TimeoutsConfig
from boosterrun.errors import UsageError
from boosterrun.measure.api import SideFailed, SideName, SideSpec
from boosterrun.measure.command import CommandSide

TIMEOUTS = TimeoutsConfig(build=20.0, check=20.0, sample=20.0, grace=0.2)
SCORE = {"regex": r"time: (\S+)"}
Make = Callable[..., CommandSide]


@pytest.fixture
def side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Make a started side whose shape ``s`` (M=64) is known; ``script`` becomes the program run.sh."""
    monkeypatch.chdir(tmp_path)
    acf = tmp_path / "controls" / "abc.acf"

    def make(
        script: str | None = None,
        name: SideName = "candidate",
        timeouts: TimeoutsConfig = TIMEOUTS,
        **keys: Any,
    ) -> CommandSide:
        if script is not None:
            program(tmp_path / "run.sh", script)
            keys.setdefault("command", ["./run.sh"])
        keys["score"] = ScoreConfig(**keys.get("score", SCORE))
        extra = {key: keys.pop(key) for key in ("output", "tolerance") if key in keys}
        workload = CommandWorkload(name="w", **keys)
        for key, value in extra.items():
            setattr(workload, key, value)
        candidate = name == "candidate"
        spec = SideSpec(
            name, acf if candidate else None, "01-x" if candidate else None, tmp_path / f"work-{name}"
        )
        made = CommandSide(spec, workload, timeouts, seed=5)
        made.start()
        made._shapes["s"] = {"M": 64}
        return made

    return make


def alive(pid: int) -> bool:
    """Return whether a process still runs; an unreaped zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def program(path: Path, script: str) -> Path:
    path.write_text(f"#!/bin/bash\n{script}\n")
    path.chmod(0o755)
    return path


def test_what_a_launch_is_told_on_both_sides(
    side: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NVCC_APPEND_FLAGS", "-O0")
    monkeypatch.setenv("PTXAS_OPTIONS", "--opt-level 0")
    monkeypatch.setenv("BOOSTERRUN_ACF", "/left/over.acf")
    monkeypatch.setenv("TRITON_CACHE_DIR", "/shared/cache")
    script = 'env > seen.env; echo "$@" > seen.args; pwd > seen.cwd; echo "time: 2.5"'
    (tmp_path / "sub").mkdir()
    program(tmp_path / "sub" / "run.sh", script)
    found = {}
    for name in ("baseline", "candidate"):
        made = side(
            name=name,
            command=["./run.sh", "--acf={acf}", "{acf_flags}", "{M}", "{seed}"],
            cwd="sub",
            env={"NVCC_PREPEND_FLAGS": "-lineinfo {acf_flags}", "MY_ACF": "{acf}", "SIZE": "{M}"},
        )
        assert made.sample("s", 1, "launch").values == [2.5]
        lines = (tmp_path / "sub" / "seen.env").read_text().splitlines()
        seen = dict(line.split("=", 1) for line in lines if "=" in line)
        found[name] = seen
        assert (tmp_path / "sub" / "seen.cwd").read_text().strip() == str(tmp_path / "sub")
        assert "NVCC_APPEND_FLAGS" not in seen
        assert "PTXAS_OPTIONS" not in seen
        assert seen["SIZE"] == "64"
        assert Path(seen["TRITON_CACHE_DIR"]).is_relative_to(made.spec.work)
        assert not [n for n in seen if "SIDE" in n]
    acf = str(tmp_path / "controls" / "abc.acf")
    assert "MY_ACF" not in found["baseline"]
    assert not [name for name in found["baseline"] if name.startswith("BOOSTERRUN_ACF")]
    assert found["baseline"]["NVCC_PREPEND_FLAGS"].strip() == "-lineinfo"
    assert found["candidate"]["MY_ACF"] == found["candidate"]["BOOSTERRUN_ACF"] == acf
    assert found["candidate"]["BOOSTERRUN_ACF_ID"] == "01-x"
    assert found["candidate"]["NVCC_PREPEND_FLAGS"] == f"-lineinfo -Xptxas --apply-controls={acf}"
    assert found["candidate"]["TRITON_CACHE_DIR"] != found["baseline"]["TRITON_CACHE_DIR"]
    assert (tmp_path / "sub" / "seen.args").read_text().split() == [
        f"--acf={acf}",
        "-Xptxas",
        f"--apply-controls={acf}",
        "64",
        "5",
    ]


def test_one_launch_may_print_several_scores(side: Make) -> None:
    made = side('echo x >> launches; echo "time: 1e-3 "; echo "time: 2"')
    assert made.sample("s", 3, "launch", warmup=9).values == [1e-3, 2.0] * 3
    assert Path("launches").read_text().count("x") == 3
    assert made.sample("s", 10, "auto").values == [1e-3, 2.0]
    assert Path("launches").read_text().count("x") == 4


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo 'time: 1'; echo ouch >&2; exit 3", "exit code 3; ouch"),
        ("echo 'time: 1'; kill -SEGV $$", "killed by signal 11"),
        ("echo hello", "nothing matches.*hello"),
        ("echo time: nan", "not a finite positive"),
        ("head -c 3000000 /dev/zero | tr '\\0' x; echo; echo time: 1", "output was dropped"),
    ],
)
def test_a_failed_launch_is_a_none_with_its_reason(side: Make, script: str, words: str) -> None:
    made = side(script)
    samples = made.sample("s", 2, "launch")
    assert samples.values == [None, None]
    assert samples.timer == "launch"
    assert len(samples.detail["failures"]) == 2
    assert re.search(words, samples.detail["failures"][0], re.DOTALL)
    with pytest.raises(SideFailed) as caught:
        made.sample("s", 10, "auto")
    assert caught.value.kind == "runtime_error"


def test_scores_from_a_file_are_never_stale(side: Make) -> None:
    made = side(
        'if [ -e done ]; then exit 0; fi; touch done; echo \'{"t": [1.5, 2]}\' > "$1"',
        command=["./run.sh", "{work}/scores.json"],
        score={"json_path": "t[*]", "file": "{work}/scores.json", "unit": "us"},
    )
    assert made.sample("s", 2, "launch").values == [1.5e-3, 2e-3, None]


def test_a_hanging_launch_ends_at_the_deadline_with_all_its_children(side: Make, tmp_path: Path) -> None:
    script = "trap '' INT TERM; setsid sleep 977 & echo $! > child; sleep 978; sleep 979"
    made = side(script, timeouts=dataclasses.replace(TIMEOUTS, sample=0.5))
    started = time.monotonic()
    with pytest.raises(SideFailed) as caught:
        made.sample("s", 1, "launch")
    assert (caught.value.kind, caught.value.side) == ("runtime_timeout", "candidate")
    assert time.monotonic() - started < 15
    assert not alive(int((tmp_path / "child").read_text()))


@pytest.mark.parametrize(
    ("keys", "kind", "words"),
    [
        ({"build": "sh -c 'echo nope >&2; exit 1'"}, "compile_error", "exit code 1"),
        ({"build": "sh -c 'kill -9 $$'"}, "compile_error", "signal 9"),
        ({"build": "./nothing"}, "compile_error", "cannot run ./nothing"),
        ({"build": "sleep 60"}, "compile_timeout", "longer than"),
        ({"command": "sleep 60"}, "runtime_timeout", "longer than"),
        ({"command": "./nothing"}, "runtime_error", "cannot run ./nothing"),
        ({"command": "sh -c 'exit 7'"}, "runtime_error", "exit code 7"),
        (
            {"command": "sh -c 'echo ptxas fatal: Invalid compiler controls file >&2; exit 1'"},
            "compile_error",
            "exit code 1",
        ),
    ],
)
def test_builds_and_first_launches_that_fail(side: Make, keys: dict[str, Any], kind: str, words: str) -> None:
    made = side(**{"command": "true", **keys}, timeouts=dataclasses.replace(TIMEOUTS, build=0.5))
    with pytest.raises(SideFailed, match=words) as caught:
        made.build("s", {"M": 64})
    assert caught.value.kind == kind


def test_each_shape_has_a_folder_of_its_own_and_builds_into_it(side: Make) -> None:
    made = side(command="cat {work}/bench", build="cp {shape}.txt {work}/bench", score={"regex": r"(\d+)"})
    for shape, text in (("s", "1"), ("t", "2")):
        Path(f"{shape}.txt").write_text(text)
        built = made.build(shape, {})
        assert built.detail["command"][:2] == ["cp", f"{shape}.txt"]
    assert made.sample("s", 1, "launch").values == [1.0]
    assert made.sample("t", 1, "launch").values == [2.0]


def test_without_a_check_nothing_is_claimed(side: Make) -> None:
    checked = side("exit 1").check("s", 1)
    assert checked.passed is None


@pytest.mark.parametrize(
    ("script", "passed"), [('echo "$1" > out', True), ("echo 1 > out", False), ("true", False)]
)
def test_the_check_command_sees_the_launch_with_its_seed(side: Make, script: str, passed: bool) -> None:
    made = side(script, command=["./run.sh", "{seed}"], check='grep -qx "{seed}" out', output="out")
    assert made.check("s", 42).passed is passed
    assert made.check_timed("s").passed is passed
    if passed:
        assert Path("out").read_text() == "5\n"


def test_a_check_that_hangs_or_a_launch_that_fails_is_no_verdict_about_the_output(side: Make) -> None:
    made = side("true", check="sleep 60", timeouts=dataclasses.replace(TIMEOUTS, check=0.5))
    with pytest.raises(SideFailed) as caught:
        made.check("s", 1)
    assert caught.value.kind == "runtime_timeout"
    with pytest.raises(SideFailed) as caught:
        side("exit 4", check="true").check("s", 1)
    assert caught.value.kind == "runtime_error"


@pytest.mark.parametrize(
    ("script", "keys", "words"),
    [
        ("echo 1.000001 2 > out", {"output": "out"}, None),
        ("echo 1.1 2 > out", {"output": "out"}, "word 1"),
        ("echo 1.1 2 > out", {"output": "out", "tolerance": 0.2}, None),
        ("[ -e seen ] || echo 1 2 > out; touch seen", {"output": "out"}, "left no output"),
        ("echo 1 2; echo time: $RANDOM", {}, None),
        ("echo 1 3; echo time: $RANDOM", {}, "word 2"),
    ],
)
def test_reference_outputs(side: Make, script: str, keys: dict[str, Any], words: str | None) -> None:
    made = side(script, reference_output="right.txt", **keys)
    Path("right.txt").write_text("1 2\n")
    if "seen" in script:
        assert made.check("s", 1).passed
    checked = made.check("s", 1)
    assert checked.passed is (words is None)
    assert words is None or words in checked.detail["message"]


def test_a_missing_reference_is_the_workloads_fault(side: Make) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*right\.txt"):
        side("true", reference_output="right.txt").check("s", 1)


def config(**keys: Any) -> Config:
    made = CommandWorkload(name="w", shapes={"s": {"M": 64}}, **{"score": ScoreConfig(**SCORE), **keys})
    return Config(workload=made)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"command": ["./nothing"]}, "no program ./nothing"),
        ({"command": ["nothing-of-that-name"]}, "no program nothing-of-that-name"),
        ({"command": ["true", "{N}"]}, r"workload\.command: unknown placeholder \{N\}"),
        ({"command": "true", "build": "{N}"}, r"workload\.build: unknown"),
        ({"command": "true", "check": "{N}"}, r"workload\.check: unknown"),
        ({"command": "true", "env": {"X": "{N}"}}, r"workload\.env\.X: unknown"),
        ({"command": "true", "cwd": "{N}"}, r"workload\.cwd: unknown"),
        ({"command": "true", "score": ScoreConfig()}, "either regex or json_path"),
        ({"command": "true", "score": ScoreConfig(regex="(a)", file="{N}")}, r"score\.file: unknown"),
        ({"command": ["true"], "shell": True}, "must be a string"),
        ({"command": "true {seed}", "reference_output": "x"}, "cannot be right for all seeds"),
        (
            {"command": "true", "reference_output": "x", "score": ScoreConfig(json_path="a")},
            "workload.output",
        ),
    ],
)
def test_a_workload_that_cannot_work_is_refused_before_the_first_job(
    keys: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        base.load("command").source(config(**keys))


def test_the_program_is_the_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    script = program(tmp_path / "run.sh", "true")
    adapter = base.load("command")
    for command in (["./run.sh", "{M}"], ["bash", "run.sh"], ["/bin/bash", "run.sh"], "bash run.sh {acf}"):
        assert adapter.source(config(command=command)) == script
    assert adapter.source(config(command="./run.sh | tail -1", shell=True)) is None
    assert adapter.source(config(command=["./bench"], build="make bench")) is None
    assert str(adapter.source(config(command="true"))).endswith("/true")
    assert adapter.source(config(command=["./run.sh", "too long for a path" * 300])) == script
    assert adapter.benchmark_command(config(command="./run.sh {M} {acf_flags}")) == ["./run.sh", "64"]
    assert os.environ.get("BOOSTERRUN_ACF") is None
