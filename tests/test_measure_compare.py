"""What passes as the same output, and what never does."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from boosterrun.measure.compare import compare, default_tolerance, leaves, poison, to_host

Array = NDArray[Any]
FLOATS = ["float64", "float32", "float16"]


def verdict(output: Any, reference: Any, **bounds: float) -> tuple[bool, dict[str, Any]]:
    passed, detail = compare(to_host(output), to_host(reference), **bounds)
    json.dumps(detail, allow_nan=False)  # every detail must go through the pipe
    return passed, detail


def normal(seed: int, shape: tuple[int, ...] = (17, 9)) -> Array:
    return np.random.default_rng(seed).standard_normal(shape)


@pytest.mark.parametrize("dtype", FLOATS)
def test_rounding_passes_in_every_type(dtype: str) -> None:
    reference = normal(0, (300, 40))
    passed, detail = verdict(reference.astype(dtype), reference)
    assert passed, detail
    assert detail["outputs"][0]["relative_error"] < default_tolerance(dtype) / 3


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 99), st.floats(1e-3, 0.5), st.floats(0.01, 0.99), st.floats(1.01, 50))
def test_the_norm_decides(seed: int, tolerance: float, below: float, above: float) -> None:
    reference = normal(seed)
    noise = normal(seed + 100)
    noise *= np.linalg.norm(reference) / np.linalg.norm(noise)
    assert verdict(reference + noise * tolerance * below, reference, tolerance=tolerance)[0]
    passed, detail = verdict(reference + noise * tolerance * above, reference, tolerance=tolerance)
    assert not passed
    assert detail["message"]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 16),
    st.integers(0, 8),
    st.sampled_from([np.nan, np.inf, -np.inf]),
    st.sampled_from(FLOATS),
)
def test_nan_and_infinity_never_pass(row: int, column: int, value: float, dtype: str) -> None:
    reference = normal(1)
    output = reference.astype(dtype)
    output[row, column] = value
    passed, detail = verdict(output, reference, tolerance=1e9, rtol=1e9, atol=1e9)
    assert not passed
    assert detail["outputs"][0]["first_bad_index"] == [row, column]
    assert "NaN or infinite" in detail["message"]


def test_an_infinity_passes_where_the_reference_has_the_same() -> None:
    reference = np.array([1.0, -np.inf, 2.0])
    assert verdict(reference.astype(np.float32), reference)[0]
    assert not verdict(np.array([1.0, np.inf, 2.0]), reference)[0]
    assert not verdict(np.array([1.0, -3e38, 2.0]), reference)[0]


def test_nan_in_the_reference_never_passes() -> None:
    array = np.array([1.0, np.nan])
    passed, detail = verdict(array, array)
    assert not passed
    assert "the reference itself" in detail["message"]


def test_one_wrong_element_among_many_is_found_though_the_norm_is_small() -> None:
    reference = np.random.default_rng(2).standard_normal((3000, 2000))
    output = reference.astype(np.float16)
    output[2500, 7] += 3.0
    passed, detail = verdict(output, reference)
    assert not passed
    found = detail["outputs"][0]
    assert found["relative_error"] < found["tolerance"]
    assert found["first_bad_index"] == [2500, 7]
    assert found["elements_off"] == 1


def test_first_bad_index_is_right_beyond_the_first_chunk() -> None:
    reference = np.zeros((5, 1 << 20))
    output = reference.copy()
    output[4, 5] = 1.0
    assert verdict(output, reference)[1]["outputs"][0]["first_bad_index"] == [4, 5]


def test_element_bounds_are_used_when_given() -> None:
    reference = np.array([100.0, 1.0])
    output = np.array([100.5, 1.005])
    assert verdict(output, reference, tolerance=0.1, rtol=0.01)[0]
    assert not verdict(output, reference, tolerance=0.1, rtol=0.004)[0]
    assert verdict(output, reference, tolerance=0.1, atol=0.6)[0]
    assert not verdict(output, reference, tolerance=0.1, atol=0.4)[0]


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint64", "bool"])
def test_integers_and_truth_values_must_be_equal(dtype: str) -> None:
    reference = np.arange(10).astype(dtype)
    output = reference.copy()
    assert verdict(output, reference)[0]
    output[3] = 0
    passed, detail = verdict(output, reference)
    assert not passed
    assert detail["outputs"][0]["first_bad_index"] == [3]


def test_large_integers_are_not_rounded_before_they_are_compared() -> None:
    reference = np.array([2**62])
    assert not verdict(reference + 1, reference)[0]


def test_integers_may_have_a_declared_tolerance() -> None:
    assert verdict(np.array([100, 201]), np.array([100, 200]), tolerance=0.01)[0]


def test_complex_numbers() -> None:
    reference = np.array([1 + 2j, 3 - 4j])
    assert verdict(reference.astype(np.complex64), reference)[0]
    assert not verdict(reference.conj(), reference)[0]


@pytest.mark.parametrize(
    ("output", "reference", "words"),
    [
        (np.zeros((2, 3)), np.zeros((3, 2)), "shape"),
        (np.zeros(3, int), np.zeros(3), "type int64"),
        (np.zeros(3, bool), np.zeros(3, int), "type bool"),
        ([np.zeros(3)], [np.zeros(3), np.zeros(3)], "1 outputs"),
        (np.zeros((0, 3)), np.zeros((0, 3)), "empty"),
        ((), (), "empty"),
        (np.ones(3), np.zeros(3), "relative error inf"),
    ],
)
def test_what_differs_is_named(output: Any, reference: Any, words: str) -> None:
    passed, detail = verdict(output, reference)
    assert not passed
    assert words in detail["message"]


def test_zero_equals_zero() -> None:
    assert verdict(np.zeros(3, np.float32), np.zeros(3))[0]


def test_outputs_may_nest_and_be_numbers() -> None:
    value = {"out": [np.ones(2), (3.5, 2)], "flag": True}
    assert [name for name, _ in leaves(value)] == [
        "output['out'][0]",
        "output['out'][1][0]",
        "output['out'][1][1]",
        "output['flag']",
    ]
    assert verdict(value, value)[0]


@pytest.mark.parametrize("value", [None, "text", object(), [np.ones(2), None]])
def test_other_outputs_are_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="neither an array nor a number"):
        to_host(value)


def test_arrays_of_objects_are_refused() -> None:
    with pytest.raises(TypeError, match="cannot be compared"):
        to_host(np.array(["a"]))


def test_host_copies_do_not_share_memory() -> None:
    array = np.ones(3)
    host = to_host(array)
    array[:] = 2
    assert host[0].data.tolist() == [1, 1, 1]


def test_poison_fills_what_it_can() -> None:
    frozen = np.ones(2)
    frozen.flags.writeable = False
    arrays = [np.ones(2), np.ones(2, np.int16), np.zeros(2, bool), np.ones(2, np.complex64), frozen, 1.5]
    assert poison(arrays) == 4
    assert np.isnan(arrays[0]).all()
    assert (arrays[1] == 32767).all()  # type: ignore[union-attr]
    assert arrays[2].all()  # type: ignore[union-attr]
    assert np.isnan(arrays[3]).all()
    assert frozen.tolist() == [1, 1]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int32"])
def test_torch_tensors_are_compared_and_poisoned(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    reference = torch.arange(1, 9, dtype=torch.float64, device="cuda")
    output = reference.to(getattr(torch, dtype))
    expected = output.to(torch.int64) if dtype == "int32" else reference
    assert verdict(output, expected)[0]
    assert poison(output) == 1
    assert not verdict(output, expected)[0]
