"""What two builds of a shape say to each other, and the shape's part of the result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from boosterrun.compilers.assembly import Build, Shape
from boosterrun.compilers.cubin import applied_controls
from boosterrun.compilers.resources import METRICS, OBJECTIVES


def totals(build: Build) -> dict[str, float]:
    """Return the sums over all kernels of a build of each metric that may decide."""
    return {metric: build.total(metric) for metric in OBJECTIVES}


def same_code(one: Build, other: Build) -> bool:
    """Return whether two builds would run the same: equal code of each kernel, in equal resources."""
    if one.cubin is None or other.cubin is None or one.cubin.code_sha256 != other.cubin.code_sha256:
        return False
    return all(
        kernel[metric] == other.kernels[name][metric]
        for name, kernel in one.kernels.items()
        for metric in OBJECTIVES
    )


def proof(build: Build, controls: Path | None) -> tuple[str, str]:
    """Return whether a build's cubin shows that exactly the file ``controls`` was applied, and what it says.

    The first is ``proven``, ``not_applied``, or ``not_applicable`` when there is no ACF.
    """
    if controls is None:
        return "not_applicable", "no ACF"
    found = applied_controls(build.cubin) if build.cubin is not None else []
    if build.cubin is not None and found == [str(controls)]:
        return "proven", f"ptxas options in the cubin: {build.cubin.options}"
    held = ", ".join(found) or "none"
    return "not_applied", f"the cubin should name the controls {controls} once, but names {held}"


def shape_record(
    shape: Shape,
    decision: str,
    message: str,
    metric: str,
    *,
    baseline: Build | None = None,
    candidate: Build | None = None,
    application: tuple[str, str] = ("unproven", "not built"),
    identical: bool | None = None,
) -> dict[str, Any]:
    """Return a shape's part of the result (schema/result-v1.json).

    ``application`` is as :func:`proof` says. Builds are None when none was made.
    """
    before = _value(baseline, metric)
    after = _value(candidate, metric)
    applied, detail = application
    return {
        "name": shape.name,
        "params": shape.params,
        "decision": decision,
        "message": message,
        "correctness": "not_checked",
        "correctness_detail": None,
        "metric": metric,
        "unit": METRICS[metric],
        "baseline": _summary(before),
        "candidate": _summary(after),
        "gain": (before - after) / before if before and after is not None else None,
        "interval": None,
        "timer": None,
        "application": {"applied": applied, "code_identical": identical, "detail": detail},
        "kernels": _kernels(shape, baseline, candidate),
        "compile": {"baseline": _compile(baseline), "candidate": _compile(candidate)},
        "statistics": None,
        "pairs": None,
    }


def _value(build: Build | None, metric: str) -> float | None:
    return None if build is None or build.cubin is None else build.total(metric)


def _summary(value: float | None) -> dict[str, float] | None:
    return None if value is None else {"mean": float(value), "std": 0.0, "n": 1}


def _kernels(shape: Shape, baseline: Build | None, candidate: Build | None) -> list[dict[str, Any]]:
    sides = {"baseline": baseline, "candidate": candidate}
    codes = {
        side: {kernel.name: kernel.code_sha256 for kernel in build.cubin.kernels}
        if build and build.cubin
        else {}
        for side, build in sides.items()
    }
    return [
        {
            "name": name,
            "arch": shape.arch,
            "code_sha256": {side: code.get(name) for side, code in codes.items()},
            **{
                side: dict(build.kernels[name]) if build and name in build.kernels else None
                for side, build in sides.items()
            },
        }
        for name in sorted({name for code in codes.values() for name in code})
    ]


def _compile(build: Build | None) -> dict[str, Any] | None:
    if build is None:
        return None
    return {
        "command": list(build.command),
        "returncode": build.returncode,
        "signal": build.signal,
        "timed_out": build.timed_out,
        "seconds": build.seconds,
        "output": build.output,
    }
