"""A sweep of many jobs: every job has its result and its row, and the runner holds no more at its end."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

JOBS = 150


@pytest.fixture(scope="module")
def overhead() -> ModuleType:
    path = Path(__file__).parents[1] / "benchmarks" / "sweep_overhead.py"
    spec = importlib.util.spec_from_file_location("sweep_overhead", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclass looks its own module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def figures(overhead: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    measured: dict[str, object] = overhead.measure(tmp_path_factory.mktemp("soak"), JOBS)
    return measured


def test_many_jobs_leave_a_result_and_a_row_each_and_nothing_open(
    overhead: ModuleType, figures: dict[str, object]
) -> None:
    assert overhead.problems(figures) == []
    complete = figures["complete"]
    assert isinstance(complete, dict)
    assert complete["results"] == complete["rows"] == JOBS
    assert sum(complete["decisions"].values()) == JOBS
    assert complete["decisions"]["KEPT"] >= 2
    assert complete["decisions"]["REJECTED:runtime_error"] >= 1
    assert "undecided" not in complete["decisions"]


@pytest.mark.parametrize("name", ["open_files", "threads", "children", "rss_bytes"])
def test_growth_would_be_told(overhead: ModuleType, figures: dict[str, object], name: str) -> None:
    held = figures["held"]
    assert isinstance(held, dict)
    grown = {**held[name], "last": held[name]["first"] + 1 + overhead.SLACK[name]}
    assert any(name in line for line in overhead.problems({**figures, "held": {**held, name: grown}}))


def test_what_is_missing_would_be_told(overhead: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "00000-bench").mkdir()
    (tmp_path / "00000-bench" / "result.json").write_text("{}")
    (tmp_path / overhead.LOG).write_text("acf_filename\n00001-bench.acf\n00001-bench.acf\n")
    found = overhead.completeness(tmp_path, 3)
    assert len(found["invalid"]) == 1
    assert found["missing_results"] == ["00000-bench", "00001-bench", "00002-bench"]
    assert found["missing_rows"] == ["00000-bench", "00002-bench"]
    assert found["surplus"] == ["00001-bench"]
