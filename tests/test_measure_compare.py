"""What passes as the same output, and what never does."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from boosterrun.measure import compare as measure
from boosterrun.measure.arrays import keep, leaves, look, poison
from boosterrun.measure.compare import compare, default_tolerance

Array = NDArray[Any]
FLOATS = ["float64", "float32", "float16"]


def verdict(output: Any, reference: Any, **bounds: float) -> tuple[bool, dict[str, Any]]:
    passed, detail = compare(look(output), keep(reference), **bounds)
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


def test_an_empty_output_beside_others_is_right() -> None:
    full, empty = np.ones(3), np.ones(0)
    passed, detail = verdict([full, empty], [full, empty])
    assert passed, detail
    assert [entry["relative_error"] for entry in detail["outputs"]] == [0.0, 0.0]
    assert not verdict([full + 1, empty], [full, empty])[0]


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


@settings(max_examples=200, deadline=None)
@given(
    st.integers(0, 99),
    st.sampled_from(FLOATS),
    st.lists(st.tuples(st.integers(0, 152), st.sampled_from([1e-4, 0.05, 3.0, np.nan, np.inf])), max_size=3),
    st.sampled_from(
        [{}, {"tolerance": 0.1}, {"rtol": 0.01}, {"atol": 0.01}, {"tolerance": 1.0, "atol": 9.0}]
    ),
    st.sampled_from([1.0, 0.0, 1e200]),
)
def test_the_look_at_what_is_right_says_what_the_scan_says(
    seed: int, dtype: str, off: list[tuple[int, float]], bounds: dict[str, float], scale: float
) -> None:
    """It may leave anything to the scan, but not what is simply right."""
    reference = normal(seed) * scale
    with np.errstate(over="ignore", invalid="ignore"):
        output = reference.astype(dtype)
        for index, by in off:
            output.reshape(-1)[index] += by
    parts = measure._Parts(look(output)[0], keep(reference)[0])
    given_ = measure.Bounds(**{"tolerance": default_tolerance(dtype), **bounds})
    scan = measure._Scan(parts, given_, exact=False)
    for start in parts.starts:
        scan.add(start)
    expected, found = scan.result(), measure._all_right(parts, given_)
    if found is None:
        assert expected["message"] or scale == 1e200  # whose squares are infinite
        return
    assert not expected["message"]
    for key in ("relative_error", "largest_error"):
        assert found.pop(key) == pytest.approx(expected.pop(key), rel=1e-9)
    assert found == expected


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
        keep(value)


def test_arrays_of_objects_are_refused() -> None:
    with pytest.raises(TypeError, match="cannot be compared"):
        keep(np.array(["a"]))


def test_what_is_kept_shares_no_memory() -> None:
    array = np.ones(3)
    host = keep(array)
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


DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def require_torch(device: str) -> Any:
    torch = pytest.importorskip("torch")
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU")
    return torch


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    require_torch(request.param)
    return str(request.param)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int32"])
def test_torch_tensors_are_compared_and_poisoned(device: str, dtype: str) -> None:
    import torch

    reference = torch.arange(1, 9, dtype=torch.float64, device=device)
    output = reference.to(getattr(torch, dtype))
    expected = output.to(torch.int64) if dtype == "int32" else reference
    assert verdict(output, expected)[0]
    assert poison(output) == 1
    assert not verdict(output, expected)[0]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.integers(0, 99),
    st.sampled_from(["float64", "float32", "float16", "complex64", "int32", "bool"]),
    st.sampled_from(["float64", "float32"]),
    st.lists(st.tuples(st.integers(0, 305), st.sampled_from([0.0, 3.5, np.nan, np.inf])), max_size=3),
    st.sampled_from([{}, {"rtol": 0.01}, {"tolerance": 0.2}]),
)
def test_torch_and_numpy_agree(
    device: str,
    seed: int,
    dtype: str,
    reference_dtype: str,
    changes: list[tuple[int, float]],
    bounds: dict[str, float],
) -> None:
    import torch

    reference = normal(seed, (17, 18)).astype(dtype)
    output = reference.copy()
    for index, value in changes:
        output.reshape(-1)[index] = value if np.isfinite(value) or reference.dtype.kind in "fc" else 1
    if reference.dtype.kind == "f":
        reference = reference.astype(reference_dtype)
    tensors = torch.from_numpy(output).to(device), torch.from_numpy(reference).to(device)
    expected = verdict(output, reference, **bounds)
    assert_same(expected, verdict(*tensors, **bounds))
    assert_same(expected, verdict(tensors[0], reference, **bounds))
    assert_same(expected, verdict(output, tensors[1], **bounds))


def assert_same(one: tuple[bool, dict[str, Any]], other: tuple[bool, dict[str, Any]]) -> None:
    """Sums may be taken in another order; everything else is equal."""
    assert one[0] == other[0]
    a, b = ({k: v for k, v in d["outputs"][0].items() if k != "message"} for _, d in (one, other))
    for key in ("relative_error", "largest_error"):
        assert a.pop(key, 0) == pytest.approx(b.pop(key, 0), rel=1e-9)
    assert a == b


def test_a_tensor_is_compared_where_it_is_part_by_part(device: str) -> None:
    import torch

    reference = torch.zeros(5 << 20, dtype=torch.float64, device=device)
    output = reference.to(torch.bfloat16)
    output[(4 << 20) + 5] = 1
    kept = keep(reference)
    assert kept[0].data.device == output.device
    reference.fill_(7)  # the copy is private
    passed, detail = compare(look(output), kept)
    assert not passed
    assert detail["outputs"][0]["first_bad_index"] == [(4 << 20) + 5]
    assert detail["outputs"][0]["elements_off"] == 1
    assert (detail["outputs"][0]["actual"], detail["outputs"][0]["expected"]) == (1.0, 0.0)


def test_views_gradients_and_odd_references_are_compared_too(device: str) -> None:
    import torch

    base = torch.arange(12.0, device=device).reshape(3, 4)
    assert verdict(base.t(), base.t().contiguous().double())[0]
    assert verdict(base[:, :1].expand(3, 4), base[:, :1].repeat(1, 4))[0]
    assert verdict(base.clone().requires_grad_(), base)[0]
    assert verdict(
        torch.view_as_complex(base.reshape(6, 2)).conj(), base.reshape(6, 2).cpu().numpy() @ [1, -1j]
    )[0]
    assert verdict(base, base.cpu().numpy().astype(np.longdouble))[0]
    assert verdict(base.to(torch.int32), base.cpu().numpy().astype(np.uint64))[0]


@pytest.mark.gpu
def test_a_large_output_is_compared_with_little_memory() -> None:
    torch = require_torch("cuda")
    output = torch.randn(1 << 26, device="cuda").bfloat16()
    kept = keep(output.double())
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    assert compare(look(output), kept)[0]
    assert torch.cuda.max_memory_allocated() - before <= 256 << 20


@pytest.mark.gpu
def test_a_full_gpu_sends_the_comparison_to_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = require_torch("cuda")
    output = torch.randn(1 << 25, device="cuda")
    expected = verdict(output, output)
    torch.cuda.empty_cache()
    # No more than what is in use now: the first part that is made finds no room.
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(torch.cuda.memory_reserved() / total)
    try:
        kept = keep(output)
        assert kept[0].on_host
        assert_same(expected, compare(look(output), kept))
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
