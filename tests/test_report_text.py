from __future__ import annotations

import json
from pathlib import Path

import made_sweeps
import pytest

from boosterrun.report import model, text
from boosterrun.results.collect import collect
from boosterrun.results.csvlog import read_log


def test_the_summary_names_what_was_kept(tmp_path: Path) -> None:
    made_sweeps.sweep(tmp_path, 40, 1)
    report = model.read(tmp_path)
    summary = text.markdown(report)
    kept = [job for job in report.jobs if job.status == "kept"]
    assert f"{len(kept)} KEPT" in summary
    assert summary.count("candidate-") == min(10, len(kept))
    assert "GPU NVIDIA H200" in summary


def test_the_summary_of_nothing_kept(tmp_path: Path) -> None:
    made_sweeps.write(tmp_path, made_sweeps.crash(1))
    assert text.markdown(model.read(tmp_path)).startswith("**ptxas**: 1 compiler\\_crash\n")


def test_names_cannot_break_the_table(tmp_path: Path) -> None:
    result = made_sweeps.static_result(1)
    result["acf"]["id"] = "a|b\n<script>`x`"
    made_sweeps.write(tmp_path, result)
    (line,) = [row for row in text.markdown(model.read(tmp_path)).splitlines() if "script" in row]
    assert line.startswith("| a\\|b \\<script\\>\\`x\\` | r128 |")


def test_json_lines_hold_the_values_of_the_log(tmp_path: Path) -> None:
    made_sweeps.sweep(tmp_path, 5, 2)
    log = read_log(collect([tmp_path]).csv)
    lines = [json.loads(line) for line in text.json_lines(tmp_path)]
    assert len(lines) == len(log) == 10
    for line, (_, row) in zip(lines, log.iterrows(), strict=True):
        assert list(line) == list(log.columns)
        for name, value in line.items():
            assert value == row[name] if value is not None else row.isna()[name], name


def test_json_lines_need_a_result(tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"no result\.json"):
        list(text.json_lines(tmp_path))
