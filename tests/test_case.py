"""The case contract: what is accepted, and what users are told about what is not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import boosterrun
from boosterrun import case
from boosterrun.case import Case
from boosterrun.errors import UsageError


def nothing() -> None:
    return None


@pytest.fixture
def clean_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))


def test_case_is_exported() -> None:
    assert boosterrun.Case is Case


def test_one_output_needs_no_list() -> None:
    array = object()
    assert Case(run=nothing, reference=nothing, outputs=array).outputs == (array,)  # type: ignore[arg-type]


@pytest.mark.parametrize("field", ["run", "reference", "post", "sample", "sync"])
def test_functions_must_be_callable(field: str) -> None:
    fields = {"run": nothing, "reference": nothing, field: 3}
    with pytest.raises(TypeError, match=f"Case.{field} must be a function, not int"):
        Case(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
@pytest.mark.parametrize("field", ["tolerance", "rtol", "atol", "flops", "bytes"])
def test_numbers_must_make_sense(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"Case.{field} must be"):
        Case(run=nothing, reference=nothing, **{field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("kernel.py", "names no function"),
        (":make", "names no function"),
        ("kernel.py:", "names no function"),
        ("kernel.py:a b", "names no function"),
        ("no/such/kernel.py:make", "there is no file"),
        ("some module:make", "is no module name"),
    ],
)
def test_a_source_that_cannot_be_is_refused_before_anything_runs(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        case.parse_source(text)


def test_source_is_a_file_or_a_module(tmp_path: Path) -> None:
    file = tmp_path / "kernel.py"
    file.touch()
    assert case.parse_source(f"{file}:make") == case.CaseSource(file, None, "make")
    assert case.parse_source("package.kernel:make") == case.CaseSource(None, "package.kernel", "make")


@pytest.mark.usefixtures("clean_imports")
def test_file_is_loaded_with_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "helper_of_kernel.py").write_text("VALUE = 5\n")
    (tmp_path / "kernel.py").write_text("from helper_of_kernel import VALUE\ndef make(): return VALUE\n")
    assert case.load(f"{tmp_path / 'kernel.py'}:make")() == 5  # type: ignore[comparison-overlap]


@pytest.mark.usefixtures("clean_imports")
def test_file_named_like_a_package_does_not_take_its_place(tmp_path: Path) -> None:
    (tmp_path / "numpy.py").write_text("def make(): return 1\n")
    import numpy as before

    case.load(f"{tmp_path / 'numpy.py'}:make")
    assert sys.modules["numpy"] is before


@pytest.mark.usefixtures("clean_imports")
def test_module_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "installed_kernels.py").write_text("def make(): return 7\n")
    sys.path.insert(0, str(tmp_path))
    assert case.load("installed_kernels:make")() == 7  # type: ignore[comparison-overlap]
    with pytest.raises(UsageError, match="has no function other"):
        case.load("installed_kernels:other")


@pytest.mark.usefixtures("clean_imports")
def test_missing_module_is_told_from_a_missing_import_of_it(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no module no_such_package"):
        case.load("no_such_package.kernels:make")
    (tmp_path / "lacking.py").write_text("import no_such_dependency\n")
    sys.path.insert(0, str(tmp_path))
    with pytest.raises(ModuleNotFoundError, match="no_such_dependency"):
        case.load("lacking:make")


def test_make_passes_options_shape_and_seed_and_the_shape_wins() -> None:
    seen = {}

    def function(**arguments: int) -> Case:
        seen.update(arguments)
        return Case(run=nothing, reference=nothing)

    case.make(function, 3, {"dtype": 1, "rows": 10}, {"rows": 20})
    assert seen == {"seed": 3, "dtype": 1, "rows": 20}


def test_make_wants_a_case() -> None:
    with pytest.raises(TypeError, match=r"must return a boosterrun\.Case, not int"):
        case.make(lambda seed: seed, 3, {}, {})  # type: ignore[arg-type,return-value]
