"""Colours and fonts of the charts, light and dark; they can be told apart with any colour vision."""

from __future__ import annotations

from typing import Any

FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', Arial, sans-serif"


def config(dark: bool = False, sides: bool = False) -> dict[str, Any]:
    """A Vega-Lite configuration; the colours are those of decisions, in the order of `charts.STATUS_LABELS`.

    ``sides``: they are those of baseline and candidate instead.
    """
    text, faint, rule = ("#e6e6e6", "#b3b3b3", "#3d3d3d") if dark else ("#1b1b1b", "#595959", "#e0e0e0")
    middle, empty = ("#2b2f36", "#4a4a4a") if dark else ("#f3f3f3", "#bdbdbd")
    good, bad = ("#56b4e9", "#ff8a3d") if dark else ("#0072b2", "#d55e00")
    third, fourth, fifth = ("#a8a8a8", "#ff8fc0", "#e0c34c") if dark else ("#6b6b6b", "#a3195b", "#8a6d00")
    return {
        "background": "transparent",
        "font": FONT,
        "view": {"stroke": None},
        "axis": {
            "labelColor": faint,
            "titleColor": text,
            "gridColor": rule,
            "domainColor": faint,
            "tickColor": faint,
            "labelFontSize": 11,
            "titleFontSize": 12,
            "titleFontWeight": "normal",
        },
        "legend": {"labelColor": text, "titleColor": text, "labelFontSize": 12, "titleFontWeight": "normal"},
        "header": {"labelColor": text, "labelFontSize": 12},
        "title": {"color": text, "subtitleColor": faint},
        "range": {
            "category": [third, good] if sides else [good, bad, third, fourth, fifth],
            "diverging": [bad, middle, good],
        },
        "mark": {"color": good},
        "style": {
            "reference": {"color": faint},
            "reference-text": {"color": faint, "fontSize": 11},
            "part": {"color": rule},
            "part-text": {"color": faint, "fontSize": 11},
            "no-gain": {"color": empty},
            "sign": {"color": text},
        },
    }
