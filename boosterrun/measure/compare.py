"""Compare outputs with their reference, and poison outputs so that what is not written again cannot pass.

Arrays are duck-typed: NumPy, torch (any device), and whatever NumPy can convert.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

# Relative norm of the rounding alone is about a third to a tenth of these.
TOLERANCES = {"float64": 1e-10, "float32": 1e-5, "float16": 3e-3, "bfloat16": 1e-2}
_FLOAT8 = 0.1
_ELEMENT_FACTOR = 10.0
_CHUNK = 1 << 22


@dataclass(frozen=True)
class HostArray:
    """One output on the host: ``data`` has the exact values in a type that NumPy knows."""

    name: str
    dtype: str
    data: np.ndarray[Any, Any]

    @property
    def kind(self) -> str:
        """``float``, ``int``, ``bool`` or ``complex``."""
        return {"f": "float", "i": "int", "u": "int", "b": "bool", "c": "complex"}[self.data.dtype.kind]


def leaves(value: Any, name: str = "output") -> list[tuple[str, Any]]:
    """Return the arrays and numbers in nested lists, tuples and dicts, with names like ``output[0]['lse']``.

    Raises TypeError for anything else.
    """
    if isinstance(value, Mapping):
        return [leaf for key, item in value.items() for leaf in leaves(item, f"{name}[{key!r}]")]
    if isinstance(value, list | tuple):
        return [leaf for index, item in enumerate(value) for leaf in leaves(item, f"{name}[{index}]")]
    if isinstance(value, bool | int | float | complex) or (
        hasattr(value, "dtype") and hasattr(value, "shape")
    ):
        return [(name, value)]
    raise TypeError(f"{name} is {type(value).__name__}: neither an array nor a number")


def to_host(value: Any) -> list[HostArray]:
    """Copy every array to the host; waits for the GPU. Raises TypeError for types that cannot be compared."""
    return [_to_host(name, leaf) for name, leaf in leaves(value)]


def _to_host(name: str, array: Any) -> HostArray:
    dtype = str(getattr(array, "dtype", type(array).__name__)).removeprefix("torch.")
    if hasattr(array, "detach") and hasattr(array, "cpu"):  # torch
        array = array.detach().cpu()
        if dtype.startswith(
            ("bfloat", "float8")
        ):  # NumPy has no such type; float32 holds every value of theirs
            array = array.float()
        data = np.array(array.resolve_conj().resolve_neg().numpy(), copy=True)
    elif hasattr(array, "get") and not isinstance(array, np.ndarray):  # CuPy
        data = np.asarray(array.get())
    else:
        data = np.array(array, copy=True)
    if data.dtype.kind == "V" and dtype.startswith(("bfloat", "float8")):
        data = data.astype(np.float32)
    if data.dtype.kind not in "fiubc":
        raise TypeError(f"{name} has the type {dtype}, which cannot be compared")
    return HostArray(name, dtype, data)


def poison(value: Any) -> int:
    """Fill the arrays in ``value`` with NaN, the largest integer, or True; return how many were filled.

    Numbers, read-only arrays and arrays whose elements share memory stay as they are.
    """
    return sum(_poison(array) for _, array in leaves(value))


def _poison(array: Any) -> bool:
    dtype = str(getattr(array, "dtype", "")).removeprefix("torch.")
    try:
        if isinstance(array, np.ndarray):
            array.fill(_worst(dtype, np.iinfo))
        elif hasattr(array, "detach"):
            torch = sys.modules["torch"]
            flat = array.detach()
            if dtype.startswith("float8"):  # all ones is NaN, or the largest value where NaN is elsewhere
                flat.view(torch.uint8).fill_(0xFF)
            else:
                flat.fill_(_worst(dtype, lambda _: torch.iinfo(array.dtype)))
        else:
            return False
    except (ValueError, RuntimeError, TypeError) as error:
        if "CUDA" in str(error):
            raise
        return False
    return True


def _worst(dtype: str, iinfo: Any) -> Any:
    if dtype == "bool":
        return True
    return int(iinfo(dtype).max) if "int" in dtype else math.nan


def default_tolerance(dtype: str) -> float:
    """Return the largest relative norm allowed for outputs of a type; 0 for integers and truth values."""
    if dtype.startswith("float8"):
        return _FLOAT8
    if dtype.startswith("complex"):
        return TOLERANCES["float32" if dtype == "complex64" else "float64"]
    if dtype in ("float", "longdouble", "float128"):
        return TOLERANCES["float64"]
    return TOLERANCES.get(dtype, 0.0)


def compare(
    outputs: list[HostArray],
    reference: list[HostArray],
    *,
    tolerance: float | None = None,
    rtol: float | None = None,
    atol: float | None = None,
) -> tuple[bool, dict[str, Any]]:
    """Compare outputs with their reference; the bounds are those of :class:`boosterrun.Case`.

    Returns whether all pass, and a JSON-ready detail: a message, each output's errors and first bad index.
    """
    if len(outputs) != len(reference):
        return False, {
            "message": f"{len(outputs)} outputs, but the reference has {len(reference)}",
            "outputs": [],
        }
    if not any(array.data.size for array in reference):
        return False, {"message": "the reference is empty: nothing was compared", "outputs": []}
    found = [_compare(o, r, tolerance, rtol, atol) for o, r in zip(outputs, reference, strict=True)]
    bad = [f"{entry['name']}: {entry['message']}" for entry in found if entry["message"]]
    return not bad, {"message": "; ".join(bad), "outputs": found}


def _compare(
    output: HostArray, reference: HostArray, tolerance: float | None, rtol: float | None, atol: float | None
) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": output.name,
        "dtype": output.dtype,
        "reference_dtype": reference.dtype,
        "shape": list(output.data.shape),
        "message": "",
    }
    if output.data.shape != reference.data.shape:
        entry["message"] = f"shape {output.data.shape}, the reference has {reference.data.shape}"
        return entry
    if output.kind != reference.kind:
        entry["message"] = f"type {output.dtype}, the reference has {reference.dtype}"
        return entry
    exact = output.kind in ("int", "bool") and tolerance is None and rtol is None and atol is None
    bound = tolerance if tolerance is not None else default_tolerance(output.dtype)
    scan = _Scan(
        rms=0.0 if exact else _rms(reference.data), tolerance=bound, rtol=rtol, atol=atol, exact=exact
    )
    flat_output, flat_reference = output.data.reshape(-1), reference.data.reshape(-1)
    for start in range(0, flat_output.size, _CHUNK):
        scan.add(flat_output[start : start + _CHUNK], flat_reference[start : start + _CHUNK], start)
    entry.update(scan.result())
    if scan.first_bad is not None:
        entry["first_bad_index"] = [int(i) for i in np.unravel_index(scan.first_bad, output.data.shape)]
        entry["expected"] = _number(flat_reference[scan.first_bad])
        entry["actual"] = _number(flat_output[scan.first_bad])
    return entry


class _Scan:
    """Collects the errors of two arrays, chunk by chunk, so that large outputs need little memory."""

    def __init__(
        self, *, rms: float, tolerance: float, rtol: float | None, atol: float | None, exact: bool
    ) -> None:
        self.tolerance = tolerance
        self.exact = exact
        if rtol is None and atol is None:
            rtol = _ELEMENT_FACTOR * tolerance
            atol = rtol * rms
        self.rtol, self.atol = rtol or 0.0, atol or 0.0
        self.error_squares = self.reference_squares = self.largest = 0.0
        self.nonfinite = self.undefined = self.off = 0
        self.first_bad: int | None = None

    def add(self, output: np.ndarray[Any, Any], reference: np.ndarray[Any, Any], start: int) -> None:
        if self.exact:
            bad = output != reference
        else:
            wide = np.complex128 if output.dtype.kind == "c" else np.float64
            out, ref = output.astype(wide), reference.astype(wide)
            finite = np.isfinite(ref)
            # An infinity passes only where the reference has the same one; a NaN never does.
            lost = np.where(finite, ~np.isfinite(out), out != ref)
            both = finite & ~lost
            with np.errstate(over="ignore"):
                error = np.abs(np.where(both, out, 0) - np.where(both, ref, 0))
                size = np.abs(np.where(both, ref, 0))
                wrong = error > self.atol + self.rtol * size
                self.error_squares += float(np.sum(error * error))
                self.reference_squares += float(np.sum(size * size))
            self.largest = max(self.largest, float(error.max(initial=0.0)))
            self.nonfinite += int(np.count_nonzero(lost))
            self.undefined += int(np.count_nonzero(np.isnan(ref)))
            bad = lost | wrong
        self.off += int(np.count_nonzero(bad))
        if self.first_bad is None and bad.any():
            self.first_bad = start + int(np.argmax(bad))

    def result(self) -> dict[str, Any]:
        if self.exact:
            return {"elements_off": self.off, "message": f"{self.off} elements differ" if self.off else ""}
        if self.reference_squares > 0:
            relative = math.sqrt(self.error_squares / self.reference_squares)
        else:
            relative = 0.0 if self.error_squares == 0 else math.inf
        message = ""
        if self.undefined:
            message = f"the reference itself has {self.undefined} NaN"
        elif self.nonfinite:
            message = f"{self.nonfinite} elements are NaN or infinite where the reference is not"
        elif not relative <= self.tolerance:
            message = f"relative error {relative:.3g} is above {self.tolerance:.3g}"
        elif self.off:
            message = (
                f"{self.off} elements are off by more than {self.atol:.3g} + {self.rtol:.3g} * |reference|"
            )
        return {
            "relative_error": _number(relative),
            "tolerance": self.tolerance,
            "largest_error": _number(self.largest),
            "elements_off": self.off,
            "nonfinite": self.nonfinite,
            "message": message,
        }


def _rms(data: np.ndarray[Any, Any]) -> float:
    total, count = 0.0, 0
    flat = data.reshape(-1)
    for start in range(0, flat.size, _CHUNK):
        part = flat[start : start + _CHUNK]
        part = np.abs(part[np.isfinite(part)]).astype(np.float64)
        with np.errstate(over="ignore"):
            total += float(np.sum(part * part))
        count += part.size
    return math.sqrt(total / count) if count else 0.0


def _number(value: Any) -> float | int | bool | str:
    """Return a number as JSON can hold it: NaN, infinities and complex numbers as text."""
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, complex) or (isinstance(value, float) and not math.isfinite(value)):
        return str(value)
    return value  # type: ignore[no-any-return]
