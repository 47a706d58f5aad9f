"""boosterrun.cuh as a worker: the real header, the real protocol, a CUDA runtime without a GPU."""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import nvcc_programs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boosterrun.config import TimeoutsConfig
from boosterrun.measure import arrays, compare
from boosterrun.measure.api import Built, SideFailed, SideSpec
from boosterrun.measure.nvcc import HarnessSide

Open = Callable[..., HarnessSide]
FAST = TimeoutsConfig(start=30.0, build=30.0, check=30.0, sample=2.0, grace=0.2)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = nvcc_programs.DATA / "harness_cases.cu"
    return nvcc_programs.host_object(source, tmp_path_factory.mktemp("harness"))


@pytest.fixture(scope="module")
def program(compiled: Path) -> Path:
    folder = compiled.parent
    runtime = [str(nvcc_programs.fake_runtime(folder)), f"-Wl,-rpath,{folder}"]
    return nvcc_programs.linked(compiled, runtime, folder / "program")


@pytest.fixture
def opened(program: Path, tmp_path: Path) -> Iterator[Open]:
    sides: list[HarnessSide] = []

    def make(case: str = "scale", env: dict[str, str] | None = None, **options: Any) -> HarnessSide:
        work = tmp_path / f"side-{len(sides)}"
        spec = SideSpec("candidate", None, None, work, env or {}, case, options, "nvcc")
        side = HarnessSide(spec, program, Built(seconds=1.5, detail={"command": ["nvcc"]}), FAST)
        sides.append(side)
        side.start()
        return side

    yield make
    for side in sides:
        side.close()


@pytest.fixture(scope="module")
def asked(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Any]]:
    """Asks a case that answers by an error; one process for all questions to a case."""
    sides: dict[str, HarnessSide] = {}

    def ask(case: str, seed: int | None = None, **params: Any) -> Any:
        if case not in sides:
            spec = SideSpec("baseline", None, None, tmp_path_factory.mktemp(case), {}, case, {}, "nvcc")
            sides[case] = HarnessSide(spec, program, Built(0.0), FAST)
            sides[case].start()
        side = sides[case]
        with pytest.raises(SideFailed) as caught:
            side.build("one", params) if seed is None else side.check("one", seed)
        assert caught.value.kind == "runtime_error" and caught.value.alive
        return caught.value.message

    yield ask
    for side in sides.values():
        side.close()


def test_a_case_is_built_checked_and_timed(opened: Open) -> None:
    side = opened()
    built = side.build("small", {"n": 64, "microseconds": 100})
    assert built.seconds == 1.5 and built.detail["command"] == ["nvcc"]
    assert built.detail["timer"] == "events" and built.detail["flops"] == 64
    assert built.versions["cuda_runtime"] == "13.3"
    for checked in (side.check("small", 5), side.check_timed("small")):
        assert checked.passed, checked.detail
        assert checked.detail["poisoned"] == 1
        assert checked.detail["outputs"][0]["relative_error"] == 0
    samples = side.sample("small", 7, "auto", warmup=3)
    assert (samples.timer, samples.unit, len(samples.values)) == ("events", "ms", 7)
    assert all(value is not None and value > 0.1 for value in samples.values)
    assert samples.detail == {"l2": "flushed", "flush_bytes": 256 << 20}
    batch = side.sample("small", 2, "batch")
    assert (batch.timer, batch.detail) == ("batch", {"l2": "warm", "launches_per_value": 100})


def test_the_parent_learns_which_gpu_it_is(opened: Open) -> None:
    side = opened()
    hello = side._request("start_error", 5.0, lambda result: result, op="hello", case="scale", options={})
    assert hello["device"]["name"] == "Emulated GPU" and hello["device"]["compute_capability"] == "9.0"
    assert hello["device"]["uuid"] == "GPU-00112233-4455-6677-8899-aabbccddeeff"


def test_options_are_parameters_too_and_a_shape_wins(opened: Open) -> None:
    side = opened(n=8, fault="wrong")
    assert side.build("a", {}).seconds
    assert side.check("a", 1).passed is False
    side.build("b", {"fault": "none"})
    assert side.check("b", 1).passed is True
    assert side.check("b", 1).detail["outputs"][0]["shape"] == [8]


def test_an_unknown_case_is_refused_with_those_that_are_there(opened: Open) -> None:
    with pytest.raises(
        SideFailed, match=r"workload\.case=scael is not one of this program's cases: compared"
    ) as caught:
        opened("scael")
    assert caught.value.kind == "start_error"


def test_a_missing_parameter_is_named(opened: Open) -> None:
    side = opened()
    with pytest.raises(SideFailed, match="the shape has no n: add it"):
        side.build("small", {})
    with pytest.raises(SideFailed, match="n is 0, not a multiple of 1 above 0"):
        side.build("small", {"n": 0})
    assert side.build("small", {"n": 4}).seconds


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("wrong", "relative error"),
        ("infinite", "1 elements are NaN or infinite"),
        ("skip", "16 elements are NaN or infinite"),
    ],
)
def test_wrong_results_never_pass(opened: Open, fault: str, words: str) -> None:
    side = opened()
    side.build("small", {"n": 16, "fault": fault})
    checked = side.check_timed("small")
    assert checked.passed is False and words in checked.detail["message"]
    assert checked.detail["outputs"][0]["name"] == "y"


def test_each_type_has_its_tolerance(opened: Open) -> None:
    side = opened("types")
    side.build("one", {})
    checked = side.check_timed("one")
    assert checked.passed, checked.detail
    found = {o["name"]: (o["dtype"], o["tolerance"]) for o in checked.detail["outputs"]}
    assert found == {
        "float": ("float32", 1e-5),
        "double": ("float64", 1e-10),
        "half": ("float16", 3e-3),
        "bfloat16": ("bfloat16", 1e-2),
        "int": ("int32", 0),
        "byte": ("uint8", 0),
    }


@pytest.mark.parametrize("name", ["float", "double", "half", "bfloat16", "int", "byte"])
def test_an_output_of_any_type_that_is_not_written_fails(opened: Open, name: str) -> None:
    side = opened("types")
    side.build("one", {"unwritten": name})
    checked = side.check_timed("one")
    assert checked.passed is False
    assert [o["name"] for o in checked.detail["outputs"] if o["message"]] == [name]


def test_a_case_without_outputs_passes_no_check(opened: Open) -> None:
    side = opened("nothing")
    side.build("one", {})
    assert side.check_timed("one").detail["message"] == "the case declares no output: nothing was compared"


def test_an_exception_leaves_the_worker_alive(opened: Open) -> None:
    side = opened()
    with pytest.raises(SideFailed, match="no kernel today") as caught:
        side.build("bad", {"n": 4, "fault": "throw"})
    assert (caught.value.kind, caught.value.alive) == ("runtime_error", True)
    side.build("good", {"n": 4})
    assert side.check_timed("good").passed


def test_a_lost_context_ends_the_worker(opened: Open) -> None:
    side = opened()
    with pytest.raises(
        SideFailed, match="cudaErrorEmulated: an emulated error, at cudaStreamSynchronize"
    ) as caught:
        side.build("bad", {"n": 4, "fault": "sticky"})
    assert (caught.value.kind, caught.value.alive) == ("runtime_error", False)


@pytest.mark.parametrize(("fault", "words"), [("crash", "killed by SIGSEGV"), ("exit", "exited with code 3")])
def test_a_crash_at_the_first_run_is_no_compile_error(opened: Open, fault: str, words: str) -> None:
    with pytest.raises(SideFailed, match=words) as caught:
        opened().build("bad", {"n": 4, "fault": fault})
    assert (caught.value.kind, caught.value.alive) == ("runtime_error", False)


def test_a_hang_is_ended_at_the_deadline(program: Path, tmp_path: Path) -> None:
    timeouts = TimeoutsConfig(start=30.0, build=0.3, check=1.0, sample=1.0, grace=0.1)
    spec = SideSpec("candidate", None, None, tmp_path, {}, "scale", {}, "nvcc")
    with HarnessSide(spec, program, Built(0.0), timeouts) as side:
        side.start()
        with pytest.raises(SideFailed, match=r"build took longer than 0.3 s") as caught:
            side.build("bad", {"n": 4, "fault": "hang"})
    assert caught.value.kind == "runtime_timeout"


def test_what_a_program_prints_does_not_disturb(opened: Open, tmp_path: Path) -> None:
    side = opened()
    side.build("loud", {"n": 4, "fault": "babble"})
    assert side.check_timed("loud").passed
    side.close()
    assert '{"id": 1}' in (tmp_path / "side-0" / "stdout.log").read_text()


def test_without_graphs_the_timer_says_what_to_use(opened: Open) -> None:
    side = opened(env={"FAKE_CUDA_NO_GRAPH": "1"})
    side.build("small", {"n": 4})
    with pytest.raises(SideFailed, match="this case fits no CUDA graph: use timer batch") as caught:
        side.sample("small", 3, "graph")
    assert caught.value.alive
    assert side.sample("small", 3, "batch").timer == "batch"


@pytest.mark.parametrize(
    ("launches", "timer", "words"),
    [
        (0, "auto", "a block needs"),
        (3, "own", "there is no timer own here; the timers are auto, events, graph, batch"),
    ],
)
def test_a_block_that_makes_no_sense_is_refused(opened: Open, launches: int, timer: str, words: str) -> None:
    side = opened()
    side.build("small", {"n": 4})
    with pytest.raises(SideFailed, match=words):
        side.sample("small", launches, timer)
    with pytest.raises(SideFailed, match="shape large has not been built"):
        side.check("large", 1)


def test_without_a_gpu_it_says_so_and_ends_well(compiled: Path, tmp_path: Path) -> None:
    (tmp_path / "own.c").write_text("int fake_error;\n")
    cuda = nvcc_programs.cuda_include().parent
    runtime = [str(tmp_path / "own.c"), str(cuda / "lib" / "libcudart_static.a"), "-ldl", "-lrt"]
    program = nvcc_programs.linked(compiled, runtime, tmp_path / "real")
    spec = SideSpec("baseline", None, None, tmp_path / "w", {"CUDA_VISIBLE_DEVICES": ""}, "scale", {}, "nvcc")
    with (
        HarnessSide(spec, program, Built(0.0), FAST) as side,
        pytest.raises(SideFailed, match="cudaGetDeviceCount") as caught,
    ):
        side.start()
    assert (caught.value.kind, caught.value.exit_code, caught.value.signal) == ("start_error", None, None)


def run(program: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **variables}
    return subprocess.run([program, *words], env=env, capture_output=True, text=True, timeout=60, check=False)


def test_by_hand_it_checks_once_and_times(program: Path) -> None:
    done = run(program, "case=scale", "seed=7", "n=1000", "microseconds=50")
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert json.loads(first.removeprefix("check: "))["passed"] is True
    assert second.startswith("time: 0.") and second.endswith("ms (median of 30, L2 flushed)")
    assert run(program, "case=scale", "n=8", "fault=wrong").returncode == 1


def test_by_hand_a_mistake_is_told_in_one_line(program: Path) -> None:
    for words, said in (
        (["n"], "usage: program [case=NAME]"),
        (["case=scale"], "the shape has no n"),
        ([], "workload.case= is not one of"),
    ):
        done = run(program, *words)
        assert done.returncode == 2 and done.stderr.startswith(f"boosterrun: error: {said}"), done.stderr
        assert done.stderr.count("\n") == 1


def test_a_request_that_is_not_json_ends_the_worker_with_its_reason(program: Path) -> None:
    requests, answers = os.pipe(), os.pipe()
    os.write(requests[1], b'{"id": 1, "op"\n')
    os.close(requests[1])
    env = {**os.environ, "BOOSTERRUN_DESCRIPTORS": f"{requests[0]},{answers[1]}"}
    done = subprocess.run(
        [program],
        env=env,
        pass_fds=(requests[0], answers[1]),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    os.close(requests[0]), os.close(answers[1])
    assert done.returncode == 2 and "not JSON at character 14: " in done.stderr
    assert os.read(answers[0], 10) == b""
    os.close(answers[0])


ascii_text = st.text(st.characters(codec="ascii"), max_size=8)
finite = st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64) | finite | ascii_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ascii_text, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(json_values, st.sampled_from([None, 1]))
def test_json_survives_the_header(asked: Callable[..., Any], value: Any, indent: int | None) -> None:
    text = json.dumps(value, indent=indent)
    assert json.loads(asked("echo", text=text)) == json.loads(text)


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=8))
def test_what_is_not_ascii_becomes_question_marks(asked: Callable[..., Any], text: str) -> None:
    text = text.encode(errors="ignore").decode()
    said = json.loads(asked("echo", text=json.dumps(text)))
    assert said == "".join("?" * len(c.encode()) if ord(c) > 127 else c for c in text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[1,]",
        "01x",
        "nul",
        '"a',
        '"\\q"',
        "1 2",
        "{1: 2}",
        "NaN",
        "1e999",
        "-",
        "[" * 100,
        '"\\u12g4"',
        '"\t"',
    ],
)
def test_json_that_is_broken_is_refused(asked: Callable[..., Any], text: str) -> None:
    assert "not JSON at character" in asked("echo", text=text)


numbers = st.sampled_from([0.0, 1.0, -1.0, math.nan, math.inf, -math.inf]) | st.floats(-1e6, 1e6)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(numbers, st.sampled_from([0, 0, 1e-9, 1e-5, 1e-3]), numbers, st.booleans()), max_size=6
    ),
    st.sampled_from([1e-6, 1e-3, 0.1]),
)
def test_it_judges_as_the_python_worker_does(
    asked: Callable[..., Any], rows: list[tuple[float, float, float, bool]], tolerance: float
) -> None:
    reference = [row[0] for row in rows]
    output = [row[2] if row[3] and row[1] == 0 else row[0] * (1 + row[1]) for row in rows]
    mine = json.loads(asked("compared", output=sent(output), reference=sent(reference), tolerance=tolerance))
    passed, theirs = compare.compare(
        *(arrays.keep(np.array(v)) for v in (output, reference)), tolerance=tolerance
    )
    assert (mine["message"] == "") == passed
    if rows:
        assert mine["elements_off"] == theirs["outputs"][0]["elements_off"]
        assert mine["nonfinite"] == theirs["outputs"][0]["nonfinite"]


def sent(values: list[float]) -> str:
    return json.dumps([v if math.isfinite(v) else str(v) for v in values])


def test_whole_numbers_must_be_equal(asked: Callable[..., Any]) -> None:
    said = json.loads(asked("compared", output="[1, 2, 4]", reference="[1, 2, 3]", tolerance=0, exact=True))
    assert said["message"] == "1 elements differ" and said["first_bad_index"] == [2]
    said = json.loads(asked("compared", output="[1, 2]", reference="[1, 2, 3]", tolerance=0, exact=True))
    assert said["message"] == "it has 2 elements, the reference has 3"


def test_random_inputs_come_from_the_seed_alone(program: Path, tmp_path: Path) -> None:
    drawn: list[list[float]] = []
    for seed in (1, 1, 2):
        done = run(program, "case=drawn", f"seed={seed}", "count=4000")
        drawn.append(json.loads(done.stderr.removeprefix("boosterrun: error: ")))
    assert drawn[0] == drawn[1] != drawn[2]
    normal, uniform = drawn[0][:4000], drawn[0][4000:]
    assert statistics.fmean(normal) == pytest.approx(1, abs=0.15)
    assert statistics.stdev(normal) == pytest.approx(2, abs=0.1)
    assert min(uniform) >= 3 and max(uniform) < 5
    assert statistics.fmean(uniform) == pytest.approx(4, abs=0.05)
    assert abs(np.corrcoef(normal[:-1], normal[1:])[0, 1]) < 0.06
