"""The charts as Vega-Lite specifications; the data comes by name (see `page` and `picture`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

STATUS_LABELS = {
    "kept": "kept",
    "slower": "worse",
    "neutral": "no clear gain",
    "failed": "failed",
    "undecided": "undecided",
}
# Shapes tell apart what colours do, for eyes and printers that see none.
STATUS_MARKS = ["circle", "triangle-down", "diamond", "cross", "square"]

Spec = dict[str, Any]


def _status(legend: bool = True) -> Spec:
    domain = list(STATUS_LABELS.values())
    shown = {"title": None, "orient": "top", "symbolSize": 90, "symbolOpacity": 1} if legend else None
    return {
        "color": {"field": "status", "type": "nominal", "scale": {"domain": domain}, "legend": shown},
        "shape": {
            "field": "status",
            "type": "nominal",
            "scale": {"domain": domain, "range": STATUS_MARKS},
            "legend": shown,
        },
    }


def _gain_axis(title: str) -> Spec:
    return {
        "field": "gain",
        "type": "quantitative",
        "title": title,
        "axis": {"format": "+.1~%", "tickCount": 7},
        "scale": {"domainMin": {"expr": "low"}, "domainMax": {"expr": "high"}, "nice": False, "clamp": True},
    }


def s_curve(gain_title: str, min_gain: float | None = None) -> Spec:
    """Candidates sorted by gain. Data ``points``: candidate, column, status, decision, gain, low, high.

    Parameters ``low`` and ``high`` are the ends of the axis; what has no gain lies at its lower edge.
    """
    rank: Spec = {
        "field": "rank",
        "type": "quantitative",
        "title": "candidates, by gain",
        "axis": {"labelExpr": "datum.value % 1 ? '' : format(datum.value, 'd')", "grid": False},
        "scale": {"zero": False, "nice": False, "padding": 14},
    }
    y = _gain_axis(gain_title)
    tip = [
        {"field": "candidate", "title": "candidate"},
        {"field": "column", "title": "shape"},
        {"field": "decision", "title": "decision"},
        {"field": "gain", "title": "gain", "format": "+.2%"},
        {"field": "low", "title": "from", "format": "+.2%"},
        {"field": "high", "title": "to", "format": "+.2%"},
    ]
    lines: list[Spec] = [_line(0.0, "baseline", 10)]
    if min_gain is not None:
        lines.append(_line(min_gain, "least gain that counts", -5, [4, 4]))
    # The size follows the number of candidates: 500 bars must not become one black band.
    size = "clamp(9000 / (length(data('points')) + 1), 14, 110)"
    faint = "clamp(60 / (length(data('points')) + 1), 0.15, 0.55)"
    dot = {"type": "point", "filled": True, "opacity": 1}
    return {
        "data": {"name": "points"},
        "params": [{"name": "low", "value": -0.1}, {"name": "high", "value": 0.1}],
        "transform": [
            {"calculate": "isValid(datum.gain) ? datum.gain : -1e9", "as": "place"},
            {"window": [{"op": "row_number", "as": "rank"}], "sort": [{"field": "place"}]},
        ],
        "layer": [
            *lines,
            {
                "transform": [{"filter": "isValid(datum.low) && isValid(datum.high)"}],
                "mark": {
                    "type": "rule",
                    "strokeWidth": 1.2,
                    "opacity": {"expr": faint},
                    "clip": True,
                    "aria": False,
                },
                "encoding": {
                    "x": rank,
                    "y": y | {"field": "low"},
                    "y2": {"field": "high"},
                    "color": _status()["color"],
                },
            },
            {
                "transform": [{"filter": "isValid(datum.gain)"}],
                "mark": {**dot, "size": {"expr": size}},
                "encoding": {"x": rank, "y": y, "tooltip": tip, **_status()},
            },
            {
                "transform": [
                    {"filter": f"isValid(datum.gain) && datum.status == '{STATUS_LABELS['kept']}'"}
                ],
                "mark": {**dot, "size": {"expr": f"1.5 * {size}"}},
                "encoding": {"x": rank, "y": y, "tooltip": tip, **_status()},
            },
            {
                "transform": [{"filter": "!isValid(datum.gain)"}],
                "mark": {**dot, "size": {"expr": size}, "y": {"expr": "height - 7"}},
                "encoding": {"x": rank, "tooltip": tip[:3], **_status()},
            },
        ],
    }


def _line(at: float, text: str, dy: int, dash: Sequence[int] = (1, 0)) -> Spec:
    return {
        "layer": [
            {"mark": {"type": "rule", "style": "reference", "strokeDash": list(dash)}},
            {
                "mark": {"type": "text", "style": "reference-text", "align": "left", "dx": 3, "dy": dy},
                "encoding": {"text": {"value": text}, "x": {"value": 0}},
            },
        ],
        "data": {"values": [{"at": at}]},
        "encoding": {"y": {"field": "at", "type": "quantitative"}},
    }


def heat_map(candidates: int) -> Spec:
    """Candidates x shapes. Data ``cells``: candidate, column, order, status, decision, gain, sign."""
    named = candidates <= 40
    x = {
        "field": "candidate",
        "type": "nominal",
        "sort": {"field": "order"},
        "title": None if named else f"{candidates} candidates, best first",
        "axis": {"labelAngle": -60, "labelLimit": 200, "labels": named, "ticks": named, "domain": False},
    }
    y = {
        "field": "column",
        "type": "nominal",
        "sort": None,
        "title": None,
        "axis": {"labelLimit": 170, "ticks": False, "domain": False},
    }
    tip = [
        {"field": "candidate", "title": "candidate"},
        {"field": "column", "title": "shape"},
        {"field": "decision", "title": "decision"},
        {"field": "gain", "title": "gain", "format": "+.2%"},
    ]
    color = {
        "field": "gain",
        "type": "quantitative",
        "scale": {
            "domain": [{"expr": "-reach"}, 0, {"expr": "reach"}],
            "clamp": True,
            "range": "diverging",
            "interpolate": "rgb",
        },
        "legend": {"title": "gain", "orient": "top", "format": "+.0~%", "gradientLength": 180},
    }
    return {
        "data": {"name": "cells"},
        "params": [{"name": "reach", "value": 0.1}],
        "encoding": {"x": x, "y": y, "tooltip": tip},
        "layer": [
            {
                "transform": [{"filter": "isValid(datum.gain)"}],
                "mark": {"type": "rect"},
                "encoding": {"color": color},
            },
            {
                "transform": [{"filter": "!isValid(datum.gain)"}],
                "mark": {"type": "rect", "style": "no-gain"},
            },
            {
                "transform": [{"filter": "datum.sign != ''"}],
                "mark": {"type": "text", "style": "sign", "fontSize": 10 if candidates > 120 else 13},
                "encoding": {"text": {"field": "sign"}},
            },
        ],
    }


def health() -> Spec:
    """The machine over the sweep. A panel per ``what``.

    Data ``health``: time (ms since 1970), what, value, device, candidate.
    """
    return {
        "data": {"name": "health"},
        "facet": {"row": {"field": "what", "type": "nominal", "sort": None, "title": None}},
        "spec": {
            "height": 70,
            "layer": [
                {"mark": {"type": "line", "strokeWidth": 1.2, "interpolate": "linear"}},
                {"mark": {"type": "point", "filled": True, "size": 14, "opacity": 1}},
            ],
            "encoding": {
                "x": {"field": "time", "type": "temporal", "title": None},
                "y": {
                    "field": "value",
                    "type": "quantitative",
                    "title": None,
                    "axis": {"tickCount": 3},
                    "scale": {"zero": False, "nice": True},
                },
                "detail": {"field": "device"},
                "tooltip": [
                    {"field": "what", "title": "what"},
                    {"field": "value", "title": "value"},
                    {"field": "candidate", "title": "candidate"},
                    {"field": "device", "title": "GPU"},
                ],
            },
        },
        "resolve": {"scale": {"y": "independent"}},
    }
