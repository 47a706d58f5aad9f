from __future__ import annotations

from pathlib import Path

import made_results as made
import made_sweeps
import pytest
from hypothesis import given
from hypothesis import strategies as st

from boosterrun.errors import UsageError
from boosterrun.report import model
from boosterrun.report.model import Point

GAIN = st.floats(-20, 20, allow_nan=False)


def test_kept_jobs_come_first_then_by_gain_and_failures_last(tmp_path: Path) -> None:
    made_sweeps.write(tmp_path, made_sweeps.crash(1))
    made_sweeps.write(tmp_path, made_sweeps.static_result(2, "regression", gain=-0.2))
    made_sweeps.write(tmp_path, made_sweeps.static_result(3, gain=0.1))
    made_sweeps.write(tmp_path, made_sweeps.static_result(4, gain=0.3))
    made_sweeps.write(tmp_path, made_sweeps.static_result(5, "no_gain", gain=0.0))
    made_sweeps.write(
        tmp_path, made_sweeps.named(6, **{k: v for k, v in made.undecided().items() if k in _CHANGED})
    )
    report = model.read(tmp_path)
    assert [job.candidate[:3] for job in report.jobs] == ["004", "003", "005", "002", "001", "006"]
    assert report.decisions() == [
        ("KEPT", 2),
        ("REJECTED:compiler_crash", 1),
        ("REJECTED:no_gain", 1),
        ("REJECTED:regression", 1),
        ("undecided", 1),
    ]
    ((label, job, row),) = report.best()
    assert (label, job.candidate[:3], row.gain) == ("r128", "004", 0.3)


_CHANGED = ("status", "decision", "message", "error", "objective", "toolchain", "shapes")


def test_the_gain_over_all_shapes_is_the_geometric_mean_when_timed(tmp_path: Path) -> None:
    shapes = [made.timed("a") | {"gain": 1.0}, made.timed("b") | {"gain": -0.5}]
    made_sweeps.write(tmp_path, made_sweeps.named(1, shapes=shapes, evidence="timed"))
    (point,) = model.read(tmp_path).points()
    assert point.gain == pytest.approx(0.0, abs=1e-12)
    assert (point.low, point.high) == (-0.5, 1.0)


def test_the_gain_over_all_shapes_is_the_mean_of_reductions_when_static(tmp_path: Path) -> None:
    shapes = [
        made.shape("a") | {"gain": 0.5},
        made.shape("b") | {"gain": -3.5},
        made.shape("c") | {"gain": None},
    ]
    shapes[2]["decision"] = "REJECTED:no_gain"
    made_sweeps.write(tmp_path, made_sweeps.named(1, shapes=shapes))
    (point,) = model.read(tmp_path).points()
    assert point.gain == -1.5


def test_the_newest_result_of_a_job_counts(tmp_path: Path) -> None:
    made_sweeps.write(tmp_path / "1", made_sweeps.static_result(1, gain=0.1))
    later = made_sweeps.static_result(1, gain=0.2)
    later["job"]["finished_at"] = "2027-01-01T00:00:00Z"
    made_sweeps.write(tmp_path / "0", later)
    report = model.read(tmp_path)
    assert (report.older, report.jobs[0].rows[0].gain) == (1, 0.2)


def test_overrides_that_differ_make_columns_of_their_own(tmp_path: Path) -> None:
    for number, gpu in enumerate(["h100", "h200"]):
        result = made_sweeps.static_result(number)
        result["acf"] = made_sweeps.static_result(7)["acf"]
        result["job"]["overrides"] = ["acf=x", f"gpu={gpu}", "seed=1"]
        made_sweeps.write(tmp_path, result)
    report = model.read(tmp_path)
    assert list(report.labels.values()) == ["gpu=h100 r128", "gpu=h200 r128"]
    assert (report.candidates, len(report.jobs)) == (1, 2)


def test_the_workload_is_named_where_there_are_several(tmp_path: Path) -> None:
    for number, name in enumerate(["x", "y"]):
        result = made_sweeps.static_result(number)
        result["workload"] = result["workload"] | {"name": name}
        made_sweeps.write(tmp_path, result)
    assert list(model.read(tmp_path).labels.values()) == ["x r128", "y r128"]


def test_bad_results_are_listed_with_their_reason(tmp_path: Path) -> None:
    made_sweeps.write(tmp_path, made_sweeps.static_result(1))
    (tmp_path / "dead" / ".hydra").mkdir(parents=True)
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "result.json").write_text('{"schema_')
    report = model.read(tmp_path)
    assert [path for path, _ in report.rejects] == ["cut/result.json", "dead/result.json"]
    assert "not complete" in report.rejects[0][1]
    assert len(report.jobs) == 1


def test_no_folder_and_no_result_are_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such folder"):
        model.read(tmp_path / "nowhere")
    with pytest.raises(UsageError, match=r"no result\.json below"):
        model.read(tmp_path)


def test_the_self_test_is_no_candidate(tmp_path: Path) -> None:
    made_sweeps.write(tmp_path, made.self_test())
    report = model.read(tmp_path)
    assert (report.candidates, len(report.jobs), report.jobs[0].candidate) == (0, 1, "none")


@given(st.lists(st.tuples(GAIN, st.floats(0, 1), st.booleans())))
def test_the_axis_shows_zero_and_the_best_gain(drawn: list[tuple[float, float, bool]]) -> None:
    points = [
        Point("c", "s", "kept", "KEPT", gain, gain - half if bars else None, gain + half if bars else None)
        for gain, half, bars in drawn
    ]
    low, high = model.axis(points)
    assert low < 0 < high
    assert all(gain < high for gain, _, _ in drawn)
    assert low >= -max(1.6 * high, 0.3) - 0.04 * (high - low)
