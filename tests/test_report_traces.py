from __future__ import annotations

import json
import math
from pathlib import Path

import made_sweeps
import pytest

from boosterrun.report import traces


def test_the_evidence_ends_where_the_decision_ended(tmp_path: Path) -> None:
    for number in range(8):
        result, pairs = made_sweeps.timed_result(number, ["a", "b"])
        folder = made_sweeps.write(tmp_path, result, pairs)
        found = traces.read(folder, result)
        assert set(found) == {"a", "b"}
        for shape in result["shapes"]:
            trace, statistics = found[shape["name"]], shape["statistics"]
            for side in ("plus", "minus"):
                assert trace[side][-1] / 100 == pytest.approx(math.log10(statistics[f"e_{side}"]), abs=0.006)
            assert trace["needed"] / 100 == pytest.approx(math.log10(statistics["e_needed"]), abs=0.006)
            assert sum(count for _, _, count in trace["parts"]) == len(trace["b"]) == len(trace["plus"])


def test_medians_are_kept_to_a_hundred_thousandth(tmp_path: Path) -> None:
    result, pairs = made_sweeps.timed_result(0, ["a"])
    folder = made_sweeps.write(tmp_path, result, pairs)
    trace = traces.read(folder, result)["a"]
    lines = [json.loads(line) for line in pairs.splitlines()]
    for n, line in enumerate(lines):
        middle = sorted(line["baseline"])[4:6]
        shown = trace["b"][n] * traces.RESOLUTION * trace["scale"]
        assert shown == pytest.approx(sum(middle) / 2, rel=2e-5)


def test_a_line_that_is_cut_ends_the_trace_and_nothing_else(tmp_path: Path) -> None:
    result, pairs = made_sweeps.timed_result(0, ["a"])
    folder = made_sweeps.write(tmp_path, result, pairs[:-200])
    assert len(traces.read(folder, result)["a"]["b"]) == pairs.count("\n") - 1


def test_failed_launches_and_void_pairs_are_told(tmp_path: Path) -> None:
    result, pairs = made_sweeps.timed_result(0, ["a"])
    lines = [json.loads(line) for line in pairs.splitlines()]
    lines[-1] |= {"candidate": [None] * 10, "void": "thermal"}
    folder = made_sweeps.write(tmp_path, result, "".join(json.dumps(line) + "\n" for line in lines))
    trace = traces.read(folder, result)["a"]
    assert trace["c"][-1] is None
    assert trace["void"] == {str(len(lines) - 1): "thermal"}
    assert trace["plus"][-1] == trace["plus"][-2]


@pytest.mark.parametrize("name", ["../secret.jsonl", "/etc/passwd", "missing.jsonl", "a/b.jsonl"])
def test_no_file_outside_the_job_is_read(tmp_path: Path, name: str) -> None:
    result, pairs = made_sweeps.timed_result(0, ["a"])
    folder = made_sweeps.write(tmp_path, result, "")
    (tmp_path / "secret.jsonl").write_text(pairs)
    result["shapes"][0]["pairs"]["file"] = name
    assert traces.read(folder, result) == {}


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    result, pairs = made_sweeps.timed_result(0, ["a"])
    folder = made_sweeps.write(tmp_path, result, "")
    (tmp_path / "secret.jsonl").write_text(pairs)
    (folder / "pairs.jsonl").unlink()
    (folder / "pairs.jsonl").symlink_to(tmp_path / "secret.jsonl")
    assert traces.read(folder, result) == {}


@pytest.mark.parametrize("protocol", [None, {}, {"min_gain": 7}, {"method": "fixed"}, {"min_gain": "x"}])
def test_an_unknown_protocol_leaves_the_pairs(tmp_path: Path, protocol: object) -> None:
    result, pairs = made_sweeps.timed_result(0, ["a"])
    result["config"]["protocol"] = protocol
    if protocol is None or protocol == {"method": "fixed"}:
        result["shapes"][0]["statistics"] = None
    folder = made_sweeps.write(tmp_path, result, pairs)
    assert traces.read(folder, result)["a"]["b"]
