"""Reading what NVBench programs leave."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boosterrun.compilers import nvbench
from boosterrun.programs.score import ScoreError

COLD = "nv/json/bin:nv/cold/sample_times"


def state(
    tag: str = COLD, filename: str = "r.json-bin/0.bin", size: Any = "3", **more: Any
) -> dict[str, Any]:
    data = [
        {"name": "filename", "type": "string", "value": filename},
        {"name": "size", "type": "int64", "value": size},
    ]
    other = {"tag": "nv/cold/time/gpu/mean", "data": [{"name": "value", "type": "float64", "value": "0.001"}]}
    return {"name": "Device=0", "summaries": [other, {"tag": tag, "data": data}], "is_skipped": False, **more}


def left(folder: Path, *states: dict[str, Any], times: tuple[float, ...] = (1e-3, 2e-3, 3e-3)) -> Path:
    (folder / "r.json-bin").mkdir(parents=True, exist_ok=True)
    (folder / "r.json-bin" / "0.bin").write_bytes(struct.pack(f"<{len(times)}f", *times))
    path = folder / "r.json"
    path.write_text(json.dumps({"benchmarks": [{"name": "copy", "states": list(states) or [state()]}]}))
    return path


@given(st.lists(st.floats(2**-30, 2**10, width=32), min_size=1, max_size=50))
def test_the_samples_are_milliseconds_in_order(
    tmp_path_factory: pytest.TempPathFactory, times: list[float]
) -> None:
    folder = tmp_path_factory.mktemp("n")
    path = left(folder, state(size=str(len(times))), times=tuple(times))
    assert nvbench.samples(path, folder) == pytest.approx([t * 1e3 for t in times], rel=1e-12)


def test_a_file_named_from_where_the_program_ran(tmp_path: Path) -> None:
    path = left(tmp_path / "out", state(filename="out/r.json-bin/0.bin"))
    assert nvbench.samples(path, tmp_path) == pytest.approx([1, 2, 3], rel=1e-6)
    path = left(tmp_path / "out", state(filename=str(tmp_path / "out/r.json-bin/0.bin")))
    assert len(nvbench.samples(path, Path("/"))) == 3


def test_benchmarks_on_the_cpu_have_samples_too(tmp_path: Path) -> None:
    assert len(nvbench.samples(left(tmp_path, state("nv/json/bin:nv/cpu_only/sample_times")), tmp_path)) == 3


@pytest.mark.parametrize(
    ("states", "words"),
    [
        (
            [state(), state()],
            r"NVBench measured 2 states \(copy Device=0, copy Device=0, ...\), not one. Choose one",
        ),
        ([state(is_skipped=True, skip_reason="too large")], "NVBench skipped the measurement: too large"),
        ([state(tag="nv/cold/time")], "names no file with sample times. Use an NVBench that has --jsonbin"),
        ([state(size="4")], "are 3, not 4"),
        ([state(size=None)], "could not write its sample times"),
        ([state(filename="r.json-bin/1.bin")], r"cannot read NVBench's samples .*1\.bin: No such file"),
        ([{"name": "x", "summaries": None}], "names no file with sample times"),
    ],
)
def test_what_is_not_one_measurement_is_refused(
    tmp_path: Path, states: list[dict[str, Any]], words: str
) -> None:
    with pytest.raises(ScoreError, match=words):
        nvbench.samples(left(tmp_path, *states), tmp_path)


@pytest.mark.parametrize("times", [(1.0, 0.0, 1.0), (1.0, float("nan"), 1.0), (1.0, -1.0, 1.0)])
def test_times_that_are_none_are_refused(tmp_path: Path, times: tuple[float, ...]) -> None:
    with pytest.raises(ScoreError, match="not all above zero"):
        nvbench.samples(left(tmp_path, times=times), tmp_path)


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    path = left(tmp_path)
    (tmp_path / "r.json-bin" / "0.bin").write_bytes(b"12345")
    with pytest.raises(ScoreError, match="cut off"):
        nvbench.samples(path, tmp_path)
    for text, words in (
        ("{", "is not JSON"),
        ("[]", "is not NVBench's"),
        ("{}", "measured 0 states"),
        ('{"benchmarks": [1]}', "the JSON is not NVBench's"),
    ):
        path.write_text(text)
        with pytest.raises(ScoreError, match=words):
            nvbench.samples(path, tmp_path)
    path.unlink()
    with pytest.raises(ScoreError, match=r"left no .*r\.json: No such file"):
        nvbench.samples(path, tmp_path)
