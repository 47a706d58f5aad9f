"""The S-curve as a PNG or SVG file, for a pull request."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from boosterrun.errors import UsageError
from boosterrun.report import charts, theme
from boosterrun.report.model import ALL_SHAPES, Report, axis
from boosterrun.report.page import gain_title, title

VEGA_LITE = "6.4"
SCALE = 2.0


def draw(report: Report, kind: str, shape: str | None = None) -> bytes:
    """The S-curve of one shape, or over all; ``kind`` is png or svg.

    Raises UsageError: the shape is not known, or vl-convert-python is not installed.
    """
    try:
        import vl_convert  # noqa: PLC0415 - large, and only pictures need it
    except ImportError as error:
        raise UsageError(
            f"a {kind} needs the package vl-convert-python", "pip install 'boosterrun[report]'"
        ) from error
    spec = specification(report, shape)
    if kind == "svg":
        svg: str = vl_convert.vegalite_to_svg(spec, vl_version=VEGA_LITE)
        return svg.encode()
    png: bytes = vl_convert.vegalite_to_png(spec, vl_version=VEGA_LITE, scale=SCALE)
    return png


def specification(report: Report, shape: str | None = None) -> dict[str, Any]:
    """The Vega-Lite specification with its data. Raises UsageError: the shape is not known."""
    columns = {label: column for column, label in report.labels.items()}
    if shape is not None and shape not in columns:
        raise UsageError(f"no shape '{shape}' in {report.root}", f"Shapes are: {', '.join(columns)}")
    label = shape or (next(iter(columns)) if len(columns) == 1 else ALL_SHAPES)
    points = report.points(columns.get(label))
    low, high = axis(points)
    spec = charts.s_curve(gain_title(report), report.min_gain)
    ends = {"low": low, "high": high}
    for param in spec["params"]:
        param["value"] = ends[param["name"]]
    several = label == ALL_SHAPES and any(len(job.rows) > 1 for job in report.jobs)
    bars = "dots: mean over shapes; bars: worst to best shape" if several else "bars: 19 of 20 repetitions"
    if all(point.low is None for point in points):
        bars = "no gain was timed" if report.evidence == "timed" else "a static screen, not timed"
    gpu = " + ".join(dict.fromkeys(job.facts["GPU"] for job in report.jobs if "GPU" in job.facts))
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "title": {
            "text": f"{title(report)}, {label}",
            "subtitle": ", ".join(filter(None, [gpu, f"{len(points)} candidates", bars])),
            "anchor": "start",
            "fontSize": 15,
            "limit": 760,
        },
        "width": 760,
        "height": 380,
        "padding": 12,
        **spec,
        "data": {"name": "points", "values": [_words(asdict(point)) for point in points]},
        "config": {**theme.config(), "background": "white"},
    }


def _words(point: dict[str, Any]) -> dict[str, Any]:
    return {**point, "status": charts.STATUS_LABELS[point["status"]]}
