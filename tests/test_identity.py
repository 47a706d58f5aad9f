"""What counts as the same measurement."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boosterrun.results.identity import differences, identify
from boosterrun.sweeps.ingredients import Ingredients

CONFIG: dict[str, Any] = {
    "acf": {"id": "a", "filename": "a.acf", "sha256": "1" * 64},
    "pack": {"name": "sample", "path": "/somewhere"},
    "gpu": {"name": "auto", "arch": None, "supported_names": []},
    "workload": {"name": "w", "adapter": "python", "shapes": {"s": {"size": 16}}, "options": {}},
    "protocol": {"name": "screen", "min_gain": 0.01, "max_baseline_failures": 3},
    "toolchain": {"ptxas": "/usr/bin/ptxas", "nvcc": None},
    "timeouts": {"build": 120.0, "grace": 2.0},
    "canary": {"required": True},
    "sweep": {"candidates": 24},
    "seed": 0,
    "keep_work": False,
}


def identity(config: dict[str, Any] = CONFIG, **changes: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "acf": "1" * 64,
        "files": {"case.py": "2" * 64},
        "compilers": {"ptxas": "13.3.73", "nvcc": None},
        "packages": {"torch": "2.11"},
        "gpu": "NVIDIA H200",
    }
    return identify(config, **(given | changes))


def changed(key: str, value: Any) -> dict[str, Any]:
    config = copy.deepcopy(CONFIG)
    node = config
    *path, last = key.split(".")
    for part in path:
        node = node[part]
    node[last] = value
    return config


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("keep_work", True),
        ("canary.required", False),
        ("sweep.candidates", 99),
        ("pack.path", "/elsewhere"),
        ("acf.id", "another name"),
        ("gpu.name", "h200"),
        ("workload.name", "x"),
        ("protocol.name", "mine"),
        ("protocol.max_baseline_failures", 0),
        ("toolchain.ptxas", "/opt/ptxas"),
        ("timeouts.grace", 9.0),
    ],
)
def test_settings_that_change_no_measurement_do_not_count(key: str, value: Any) -> None:
    assert differences(identity(), identity(changed(key, value))) == []


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("workload.shapes.s.size", 17, "workload.shapes.s.size: 16 -> 17"),
        ("workload.shapes.t", {}, "workload.shapes.t: (none) -> {}"),
        ("workload.options", {"x": 1}, "workload.options.x: (none) -> 1"),
        ("protocol.min_gain", 0.02, "protocol.min_gain: 0.01 -> 0.02"),
        ("gpu.arch", "sm_90a", "gpu.arch: None -> sm_90a"),
        ("seed", 1, "seed: 0 -> 1"),
    ],
)
def test_settings_that_change_a_measurement_are_told(key: str, value: Any, told: str) -> None:
    assert told in differences(identity(), identity(changed(key, value)))


def test_content_and_versions_are_told() -> None:
    new = identity(
        acf="a" * 64,
        files={"case.py": "b" * 64},
        compilers={"ptxas": "13.3.80", "nvcc": None},
        packages={"torch": "2.12"},
        gpu=None,
    )
    assert differences(identity(), new) == [
        f"acf: {'1' * 12} -> {'a' * 12}",
        f"file.case.py: {'2' * 12} -> {'b' * 12}",
        "toolchain.ptxas: 13.3.73 -> 13.3.80",
        "package.torch: 2.11 -> 2.12",
        "gpu_model: NVIDIA H200 -> None",
    ]


def test_a_deadline_counts_where_one_was_missed() -> None:
    new = identity(changed("timeouts.build", 5.0))
    assert differences(identity(), new, "REJECTED:no_gain") == []
    assert differences(identity(), new, "REJECTED:compile_timeout") == ["timeouts.build: 120.0 -> 5.0"]


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(values, values)
def test_two_identities_differ_exactly_where_the_options_do(one: Any, two: Any) -> None:
    old, new = identity(changed("workload.options", one)), identity(changed("workload.options", two))
    assert (differences(old, new) == []) == (old == new)
    if one == two:
        assert old == new


# ---- the files of a workload ----


def names(workload: dict[str, Any], source: Path | None = None) -> list[str]:
    return sorted(Ingredients(workload, source).files)


def test_a_case_is_its_file_and_what_it_imports_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "case.py").write_text("import numpy, helper\nfrom deep import (part)\nfrom . import other\n")
    (tmp_path / "helper.py").write_text("import case, json\n")
    (tmp_path / "other.py").write_text("def broken(:\n")
    (tmp_path / "json.txt").write_text("")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "__init__.py").write_text("")
    (tmp_path / "deep" / "part.py").write_text("x = 1\n")
    monkeypatch.chdir(tmp_path)
    case = f"{tmp_path}/case.py:make"
    found = Ingredients({"case": case}, tmp_path / "case.py")
    assert sorted(found.files) == ["__init__.py", "case.py", "helper.py", "other.py", "part.py"]
    assert found.config == {"case": "case.py:make"}
    assert Ingredients({"case": "./case.py:make"}, None).files == found.files
    (tmp_path / "deep" / "part.py").write_text("x = 2\n")
    assert Ingredients({"case": case}, None).files != found.files


def test_a_module_is_found_without_importing_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("raise SystemExit('imported')\n")
    (tmp_path / "package" / "inner.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    found = Ingredients({"case": "package.inner:make"}, None)
    assert list(found.files) == ["inner.py"]
    assert found.config == {"case": "package.inner:make"}
    assert Ingredients({"case": "nowhere.inner:make"}, None).files == {}


def test_sources_and_headers_count_and_outputs_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "far.cuh").write_text("")
    (tmp_path / "a.cu").write_text('#include "near.h"\n#  include "far.cuh"\n#include <cuda.h>\n')
    (tmp_path / "near.h").write_text("")
    (tmp_path / "out.json").write_text("{}")
    (tmp_path / "softmax").write_text("a file that a bare word names by chance")
    workload: dict[str, Any] = {
        "sources": ["a.cu", "softmax", "no\0file", "x" * 5000],
        "include_dirs": ["include"],
        "output": "out.json",
        "score": {"file": "out.json"},
        "reference_output": "./gone",
    }
    assert names(workload) == ["a.cu", "far.cuh", "near.h"]


def test_files_of_one_name_are_kept_apart(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "k.cu").write_text(folder)
    assert names({"sources": [f"{tmp_path}/a/k.cu", f"{tmp_path}/b/k.cu"]}) == ["k.cu", "k.cu#2"]
