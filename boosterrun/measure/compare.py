"""Compare outputs with their reference, in float64 and in parts, on the device where the outputs are."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from boosterrun.measure.arrays import Array, out_of_memory

# Relative norm of the rounding alone is about a third to a tenth of these.
TOLERANCES = {"float64": 1e-10, "float32": 1e-5, "float16": 3e-3, "bfloat16": 1e-2}
_FLOAT8 = 0.1
_ELEMENT_FACTOR = 10.0
# Of a part in float64: some ten arrays of this size exist at a time.
_PART_BYTES = 16 << 20
# What torch makes of a NumPy array and compares with its own types.
_SHARED = {"bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"}


def default_tolerance(dtype: str) -> float:
    """Return the largest relative norm allowed for outputs of a type; 0 for integers and truth values."""
    if dtype.startswith("float8"):
        return _FLOAT8
    if dtype.startswith("complex"):
        return TOLERANCES["float32" if dtype == "complex64" else "float64"]
    if dtype in ("float", "longdouble", "float128"):
        return TOLERANCES["float64"]
    return TOLERANCES.get(dtype, 0.0)


@dataclass(frozen=True)
class Bounds:
    """What a case allows; see :class:`boosterrun.Case`. None: the default."""

    tolerance: float | None = None
    rtol: float | None = None
    atol: float | None = None

    @property
    def given(self) -> bool:
        """Whether the case names any."""
        return (self.tolerance, self.rtol, self.atol) != (None, None, None)


def compare(
    outputs: list[Array],
    reference: list[Array],
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
    if not any(array.size for array in reference):
        return False, {"message": "the reference is empty: nothing was compared", "outputs": []}
    bounds = Bounds(tolerance, rtol, atol)
    found = [_compare(o, r, bounds) for o, r in zip(outputs, reference, strict=True)]
    bad = [f"{entry['name']}: {entry['message']}" for entry in found if entry["message"]]
    return not bad, {"message": "; ".join(bad), "outputs": found}


def _compare(output: Array, reference: Array, bounds: Bounds) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": output.name,
        "dtype": output.dtype,
        "reference_dtype": reference.dtype,
        "shape": list(output.shape),
        "message": "",
    }
    if output.shape != reference.shape:
        entry["message"] = f"shape {output.shape}, the reference has {reference.shape}"
        return entry
    if output.kind != reference.kind:
        entry["message"] = f"type {output.dtype}, the reference has {reference.dtype}"
        return entry
    try:
        found = _scan(_Parts(output, reference), bounds)
    except RuntimeError as error:
        if not out_of_memory(error):
            raise
        found = _scan(_Parts(output.host(), reference.host()), bounds)
    return {**entry, **found}


class _Parts:
    """Both arrays, flat, part by part, in NumPy, or in torch on the device of the output."""

    def __init__(self, output: Array, reference: Array) -> None:
        if reference.on_host and not output.on_host and str(reference.data.dtype) not in _SHARED:
            output = output.host()
        self.output = output
        self.reference = reference.host() if output.on_host else reference
        self.xp: Any = np if output.on_host else sys.modules["torch"]
        self._wide = self.xp.complex128 if output.kind == "complex" else self.xp.float64
        self._length = _PART_BYTES // (16 if output.kind == "complex" else 8)
        self._flat = [a.data.reshape(-1) for a in (self.output, self.reference)]

    @property
    def starts(self) -> range:
        """Where the parts begin."""
        return range(0, self.output.size, self._length)

    def raw(self, which: int, start: int) -> Any:
        """Return a part in its own type: of the output (0) or of the reference (1)."""
        part = self._flat[which][start : start + self._length]
        if self.xp is np:
            return part
        return self.xp.as_tensor(part, device=self.output.data.device)

    def wide(self, which: int, start: int) -> Any:
        """Return a part in float64, or complex128."""
        part = self.raw(which, start)
        if self.xp is np:
            with np.errstate(over="ignore"):
                return part.astype(self._wide)
        if part.element_size() == 1 and self.output.kind == "float":
            part = part.float()  # not every torch converts float8 at once
        return part.to(self._wide)

    def item(self, which: int, index: int) -> float | int | bool | str:
        """Return one element as JSON can hold it."""
        part = self.raw if self.output.kind in ("int", "bool") else self.wide
        return _number(part(which, index)[0])


def _scan(parts: _Parts, bounds: Bounds) -> dict[str, Any]:
    output = parts.output
    exact = output.kind in ("int", "bool") and not bounds.given
    if bounds.tolerance is None:
        bounds = replace(bounds, tolerance=default_tolerance(output.dtype))
    if not exact and (right := _all_right(parts, bounds)) is not None:
        return right
    scan = _Scan(parts, bounds, exact)
    for start in parts.starts:
        scan.add(start)
    found = scan.result()
    if scan.first_bad is not None:
        found["first_bad_index"] = [int(i) for i in np.unravel_index(scan.first_bad, output.shape)]
        found["expected"] = parts.item(1, scan.first_bad)
        found["actual"] = parts.item(0, scan.first_bad)
    return found


def _all_right(parts: _Parts, bounds: Bounds) -> dict[str, Any] | None:
    """Say of arrays with nothing wrong what :class:`_Scan` says of them; None: something may be wrong.

    Outputs mostly are right. This asks a GPU once, where a scan asks it six times a part, and it needs a
    third of its kernels: each is loaded by each process, a few milliseconds under the driver's lock.
    """
    if not parts.output.size:
        return None
    tolerance, rtol, atol = bounds.tolerance or 0.0, bounds.rtol, bounds.atol
    slope = _ELEMENT_FACTOR * tolerance if rtol is None and atol is None else rtol or 0.0
    found = []
    with np.errstate(over="ignore", invalid="ignore"):
        for start in parts.starts:
            reference = parts.wide(1, start)
            error, size = abs(parts.wide(0, start) - reference), abs(reference)
            norm = parts.xp.linalg.norm
            found += [norm(error), norm(size), error.max(), (error - slope * size).max()]
        errors, sizes, largest, excess = parts.xp.stack(found).reshape(-1, 4).T.tolist()
    error_squares, reference_squares = (sum(n * n for n in norms) for norms in (errors, sizes))
    relative = _relative(error_squares, reference_squares)
    if rtol is None and atol is None:
        atol = slope * math.sqrt(reference_squares / parts.output.size)
    # A norm is finite only if every element is. What is not, or is a NaN, is no less than any bound.
    finite = math.isfinite(error_squares) and math.isfinite(reference_squares)
    if not (finite and relative <= tolerance and all(e <= (atol or 0.0) for e in excess)):
        return None
    return _detail(relative, tolerance, max(largest))


def _relative(error_squares: float, reference_squares: float) -> float:
    if reference_squares > 0:
        return math.sqrt(error_squares / reference_squares)
    return 0.0 if error_squares == 0 else math.inf


def _detail(
    relative: float, tolerance: float, largest: float, *, off: int = 0, nonfinite: int = 0, message: str = ""
) -> dict[str, Any]:
    return {
        "relative_error": _number(relative),
        "tolerance": tolerance,
        "largest_error": _number(largest),
        "elements_off": off,
        "nonfinite": nonfinite,
        "message": message,
    }


class _Scan:
    """Collects the errors of two arrays, part by part, so that large outputs need little memory."""

    def __init__(self, parts: _Parts, bounds: Bounds, exact: bool) -> None:
        self.parts = parts
        self.exact = exact
        self.tolerance = bounds.tolerance or 0.0
        rtol, atol = bounds.rtol, bounds.atol
        if rtol is None and atol is None:
            rtol = _ELEMENT_FACTOR * self.tolerance
            atol = 0.0 if exact else rtol * _rms(parts)
        self.rtol, self.atol = rtol or 0.0, atol or 0.0
        self.error_squares = self.reference_squares = self.largest = 0.0
        self.nonfinite = self.undefined = self.off = 0
        self.first_bad: int | None = None

    def add(self, start: int) -> None:
        """Take the part that begins at ``start``."""
        xp = self.parts.xp
        if self.exact:
            bad = self.parts.raw(0, start) != self.parts.raw(1, start)
        else:
            out, ref = self.parts.wide(0, start), self.parts.wide(1, start)
            finite = xp.isfinite(ref)
            # An infinity passes only where the reference has the same one; a NaN never does.
            lost = xp.where(finite, ~xp.isfinite(out), out != ref)
            both = finite & ~lost
            with np.errstate(over="ignore"):
                error = abs(xp.where(both, out, 0) - xp.where(both, ref, 0))
                size = abs(xp.where(both, ref, 0))
                wrong = error > self.atol + self.rtol * size
                self.error_squares += float((error * error).sum())
                self.reference_squares += float((size * size).sum())
            self.largest = max(self.largest, float(error.max()))
            self.nonfinite += int(lost.sum())
            self.undefined += int(xp.isnan(ref).sum())
            bad = lost | wrong
        off = int(bad.sum())
        if off and self.first_bad is None:
            # torch has no argmax of truth values
            self.first_bad = start + int(xp.argmax(xp.where(bad, 1, 0)))
        self.off += off

    def result(self) -> dict[str, Any]:
        """Return the errors and what is wrong with them."""
        if self.exact:
            return {"elements_off": self.off, "message": f"{self.off} elements differ" if self.off else ""}
        relative = _relative(self.error_squares, self.reference_squares)
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
        return _detail(
            relative,
            self.tolerance,
            self.largest,
            off=self.off,
            nonfinite=self.nonfinite,
            message=message,
        )


def _rms(parts: _Parts) -> float:
    total, count = 0.0, 0
    for start in parts.starts:
        part = parts.wide(1, start)
        part = abs(part[parts.xp.isfinite(part)])
        with np.errstate(over="ignore"):
            total += float((part * part).sum())
        count += math.prod(part.shape)
    return math.sqrt(total / count) if count else 0.0


def _number(value: Any) -> float | int | bool | str:
    """Return a number as JSON can hold it: NaN, infinities and complex numbers as text."""
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, complex) or (isinstance(value, float) and not math.isfinite(value)):
        return str(value)
    return value  # type: ignore[no-any-return]
