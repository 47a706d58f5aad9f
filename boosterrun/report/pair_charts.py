"""The charts of one row's pairs, as Vega-Lite specifications; the data comes by name."""

from __future__ import annotations

from boosterrun.report.charts import Spec


def pairs() -> Spec:
    """Both sides over the pairs. Data ``pairs``: n, side, value, phase, void; ``parts``: n, label."""
    side = {"field": "side", "type": "nominal", "scale": {"domain": ["baseline", "candidate"]}}
    return {
        "layer": [
            {
                "data": {"name": "parts"},
                "mark": {"type": "rule", "style": "part"},
                "encoding": {"x": {"field": "n", "type": "quantitative"}},
            },
            {
                "data": {"name": "parts"},
                "mark": {"type": "text", "style": "part-text", "align": "left", "dx": 3, "y": -6},
                "encoding": {"x": {"field": "n", "type": "quantitative"}, "text": {"field": "label"}},
            },
            {
                "data": {"name": "pairs"},
                "mark": {"type": "point", "size": 32, "opacity": 0.9},
                "encoding": {
                    "x": {
                        "field": "n",
                        "type": "quantitative",
                        "title": "pair",
                        "scale": {"nice": False},
                        "axis": {"grid": False, "tickMinStep": 1, "format": "d"},
                    },
                    "y": {
                        "field": "value",
                        "type": "quantitative",
                        "title": "block median",
                        "scale": {"zero": False},
                    },
                    "color": side
                    | {
                        "scale": {"domain": ["baseline", "candidate"]},
                        "legend": {"title": None, "orient": "top"},
                    },
                    "shape": side
                    | {
                        "scale": {"domain": ["baseline", "candidate"], "range": ["square", "circle"]},
                        "legend": {"title": None, "orient": "top"},
                    },
                    "opacity": {
                        "condition": {"test": "datum.void != null", "value": 0.35},
                        "value": 1,
                    },
                    "tooltip": [
                        {"field": "n", "title": "pair"},
                        {"field": "side", "title": "side"},
                        {"field": "value", "title": "median", "format": ".5~g"},
                        {"field": "phase", "title": "phase"},
                        {"field": "void", "title": "void"},
                    ],
                },
            },
        ],
    }


def histogram() -> Spec:
    """Log ratios of the pairs that count. Data ``ratios``: ratio (fraction), kind."""
    kind = {"field": "kind", "type": "nominal"}
    domain = ["baseline against itself", "baseline against candidate"]
    return {
        "data": {"name": "ratios"},
        "mark": {"type": "bar", "opacity": 0.75, "binSpacing": 1},
        "encoding": {
            "x": {
                "field": "ratio",
                "bin": {"maxbins": 24},
                "type": "quantitative",
                "title": "ln(baseline / candidate)",
                "axis": {"format": "+.1~%", "grid": False},
            },
            "y": {"aggregate": "count", "type": "quantitative", "title": "pairs", "axis": {"tickMinStep": 1}},
            "row": {
                **kind,
                "title": None,
                "sort": domain,
                "header": {"labelAngle": 0, "labelOrient": "top", "labelAnchor": "start"},
                "spacing": 6,
            },
            "color": {**kind, "scale": {"domain": domain}, "legend": None},
            "tooltip": [
                {"field": "ratio", "bin": {"maxbins": 24}, "title": "ratio", "format": "+.2%"},
                {"aggregate": "count", "title": "pairs"},
            ],
        },
    }


def evidence() -> Spec:
    """Evidence after each pair. Data ``evidence``: n, what, value; ``limits``: value, label, at (pixels)."""
    what = {
        "field": "what",
        "type": "nominal",
        "scale": {"domain": ["not worth it", "faster"]},
    }
    n = {
        "field": "n",
        "type": "quantitative",
        "title": "pair",
        "axis": {"grid": False, "tickMinStep": 1, "format": "d"},
        "scale": {"nice": False, "zero": False},
    }
    y = {
        "field": "value",
        "type": "quantitative",
        "title": "evidence (powers of ten)",
        "axis": {"tickCount": 5},
    }
    return {
        "layer": [
            {
                "data": {"name": "limits"},
                "mark": {"type": "rule", "style": "reference", "strokeDash": [4, 4]},
                "encoding": {"y": {"field": "value", "type": "quantitative"}},
            },
            {
                "data": {"name": "limits"},
                "mark": {"type": "text", "style": "reference-text", "align": "left", "dx": 3, "dy": -5},
                "encoding": {
                    "y": {"field": "value", "type": "quantitative"},
                    "x": {"field": "at", "type": "quantitative", "scale": None},
                    "text": {"field": "label"},
                },
            },
            {
                "data": {"name": "evidence"},
                "mark": {"type": "line", "strokeWidth": 1.6, "point": {"size": 18}},
                "encoding": {
                    "x": n,
                    "y": y,
                    "color": what | {"legend": {"title": None, "orient": "top"}},
                    "strokeDash": {
                        "field": "what",
                        "type": "nominal",
                        "scale": {"domain": ["not worth it", "faster"], "range": [[3, 3], [1, 0]]},
                        "legend": {"title": None, "orient": "top"},
                    },
                    "tooltip": [
                        {"field": "n", "title": "pair"},
                        {"field": "what", "title": "evidence for"},
                        {"field": "value", "title": "power of ten", "format": "+.2f"},
                    ],
                },
            },
        ],
    }
