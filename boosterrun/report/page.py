"""The report as one HTML file that needs no network: charts, table and details from embedded data."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from boosterrun.report import advice, charts, pair_charts, theme
from boosterrun.report.jobs import Job, Row
from boosterrun.report.model import ALL_SHAPES, Report, axis
from boosterrun.system.atomic import replacing

HERE = Path(__file__).parent
VENDORED = ("vega.min.js", "vega-lite.min.js", "vega-interpreter.js")
DETAILS_LIMIT = 2_400_000
"""Bytes of the compressed details; beyond it those of the worst candidates lose their largest parts."""
HEALTH_KEYS = ("time", "device", "clock", "power", "temperature", "throttled")
_DIGITS = 6


def write(report: Report, out: Path) -> Path:
    """Write the report as `out`, whole or not at all. Raises RunError: it cannot be written."""
    page = render(report, out.resolve().parent)
    with replacing(out) as stream:
        stream.write(page.encode())
    return out


def render(report: Report, folder: Path) -> str:
    """The report's HTML; links to results are relative to `folder`."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415 - a sweep may need none

    environment = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["percent"] = lambda value: f"{value:+.2%}".replace("-", "−")
    environment.filters["seconds"] = duration
    packed, lean = _details(report)
    # Jinja2 must not escape these: each is made for a <script> or <style>, and the policy pins its hash.
    scripts = [(HERE / "vendor" / name).read_text(encoding="utf-8") for name in VENDORED]
    scripts.append((HERE / "templates" / "report.js").read_text(encoding="utf-8"))
    return environment.get_template("report.html.j2").render(
        report=report,
        title=title(report),
        made=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        next_steps=advice.next_steps(report),
        all_facts=facts(report),
        canaries=canaries(report),
        decisions=report.decisions(),
        best=report.best(),
        health_missing=not any(job.health for job in report.jobs),
        lean=lean,
        span=_span(report.jobs),
        scripts=scripts,
        style=(HERE / "templates" / "report.css").read_text(encoding="utf-8"),
        policy=_policy(scripts),
        data=script_json(data(report, folder)),
        details=packed,
    )


def script_json(value: Any) -> str:
    """JSON that is safe inside a ``<script>`` element: no ``<``, ``>``, ``&`` and no non-ASCII."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def title(report: Report) -> str:
    """What was swept."""
    workloads = list(dict.fromkeys(job.workload for job in report.jobs))
    return ", ".join(workloads[:3]) + (" ..." if len(workloads) > 3 else "") or "no results"


def gain_title(report: Report) -> str:
    """What a gain is here."""
    if report.evidence == "static":
        metrics = {row.metric for _, row in report.rows() if row.metric}
        return f"reduction of {metrics.pop()}" if len(metrics) == 1 else "reduction of the deciding metric"
    return "gain: baseline / candidate − 1"


def facts(report: Report) -> list[tuple[str, list[str]]]:
    """Each fact about where the results were made, with all its values."""
    found: dict[str, dict[str, None]] = {}
    for job in report.jobs:
        for name, value in job.facts.items():
            found.setdefault(name, {})[value] = None
    return [(name, list(values)) for name, values in found.items()]


def canaries(report: Report) -> list[dict[str, Any]]:
    """What the canaries of the sweeps found, each once."""
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for job in report.jobs:
        if isinstance(job.canary, dict):
            key = tuple(str(job.canary.get(part)) for part in ("workload", "ptxas", "state", "why"))
            found[key] = dict(zip(("workload", "ptxas", "state", "why"), key, strict=True))
    return list(found.values())


def duration(seconds: float) -> str:
    """Seconds for people."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return (
        f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
    )


def data(report: Report, folder: Path) -> dict[str, Any]:
    """What the page's script draws from; ``row_fields`` and ``job_fields`` name what is in rows and jobs."""
    order = {job.candidate: None for job in report.jobs}
    kinds = {label: n for n, label in enumerate(charts.STATUS_LABELS)}
    numbers = {column: n for n, column in enumerate(report.columns)}
    overall = report.points()
    kin: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    for column, n in numbers.items():
        kin.setdefault((column.workload, column.variant), []).append(n)
    own = [kin.get((job.workload, report.variant(job)), []) for job in report.jobs]
    return {
        "columns": list(report.labels.values()),
        "axes": [axis(overall), *(axis(report.points(column)) for column in report.columns)],
        "statuses": list(charts.STATUS_LABELS.values()),
        "all_shapes": ALL_SHAPES,
        "min_gain": report.min_gain,
        "candidates": list(order),
        "job_fields": ["name", "candidate", "status", "decision", "gain", "low", "high", "link", "columns"],
        "jobs": [
            [
                point.candidate,
                job.candidate,
                kinds[job.status],
                job.decision,
                *map(_short, (point.gain, point.low, point.high)),
                quote(os.path.relpath(job.where, folder)),
                columns,
            ]
            for job, point, columns in zip(report.jobs, overall, own, strict=True)
        ],
        "row_fields": [
            "job",
            "column",
            "status",
            "decision",
            *("gain", "low", "high", "baseline", "candidate", "unit", "correctness"),
            *("registers0", "registers1", "spills0", "spills1", "seconds0", "seconds1"),
            *("pairs", "voided"),
        ],
        "rows": [
            _row(number, row, None if row.shape is None else numbers[report.column(job, row)], kinds)
            for number, job in enumerate(report.jobs)
            for row in job.rows
        ],
        "health": [
            [number, *(reading.get(key) for key in HEALTH_KEYS)]
            for number, job in enumerate(report.jobs)
            for reading in job.health
        ],
        "health_fields": ["job", *HEALTH_KEYS],
        "voids": [
            [number, job.finished, voided]
            for number, job in enumerate(report.jobs)
            if (voided := sum(row.voided or 0 for row in job.rows))
        ],
        "specs": {
            "s_curve": charts.s_curve(gain_title(report), report.min_gain),
            "heat_map": charts.heat_map(len(order)),
            "health": charts.health(),
            "pairs": pair_charts.pairs(),
            "histogram": pair_charts.histogram(),
            "evidence": pair_charts.evidence(),
        },
        "themes": {
            name: {kind: theme.config(name == "dark", kind == "sides") for kind in ("status", "sides")}
            for name in ("light", "dark")
        },
    }


def _row(number: int, row: Row, column: int | None, kinds: dict[str, int]) -> list[Any]:
    pair_values = (*row.registers, *row.spills, *row.seconds)
    return [
        number,
        column,
        kinds[row.status],
        row.decision,
        *map(_short, (row.gain, row.low, row.high, row.baseline, row.candidate)),
        row.unit,
        row.correctness,
        *map(_short, pair_values),
        row.pairs,
        row.voided,
    ]


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{_DIGITS}g}")


def _details(report: Report) -> tuple[str, int]:
    """The details of every row, compressed, and how many rows had to go without some of them."""
    details = [_detail(job, row) for job, row in report.rows()]
    packed = _pack(details)
    lean: set[int] = set()
    for part in ("trace", "outputs", "kernels"):
        while len(packed) > DETAILS_LIMIT and (having := [n for n, one in enumerate(details) if part in one]):
            # The worst candidates are last.
            for n in having[len(having) // 2 :]:
                del details[n][part]
                lean.add(n)
            packed = _pack(details)
    return packed, len(lean)


def _detail(job: Job, row: Row) -> dict[str, Any]:
    details = dict(row.details)
    again = details.pop("again", [])
    baseline = [f"acf={'none'}" if o.startswith("acf=") else o for o in again]
    details["again"] = {
        "candidate": shlex.join(["boosterrun", *again]),
        "baseline": shlex.join(["boosterrun", *baseline]),
    }
    details["commands"] = {side: shlex.join(argv) for side, argv in details.get("commands", {}).items()}
    if "benchmark" in details:
        details["benchmark"] = shlex.join(details["benchmark"])
    if job.advice:
        details["advice"] = job.advice
    return details


def _pack(details: Sequence[dict[str, Any]]) -> str:
    text = json.dumps(details, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def _policy(scripts: Sequence[str]) -> str:
    """A content security policy: these scripts and no other, nothing from anywhere."""
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
        for script in scripts
    )
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def _span(jobs: Sequence[Job]) -> float:
    return max((j.finished for j in jobs), default=0.0) - min((j.started for j in jobs), default=0.0)
