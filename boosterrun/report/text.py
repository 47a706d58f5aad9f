"""The report as a short Markdown summary, and as JSON Lines."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from boosterrun.report.advice import next_steps
from boosterrun.report.load import results
from boosterrun.report.model import Report
from boosterrun.report.page import facts, title
from boosterrun.results.columns import COLUMNS, Entry
from boosterrun.system.visible import one_line

_KEPT_SHOWN = 10
_ABOUT = ("GPU", "driver", "CUDA toolkit", "ptxas", "nvcc", "pack", "pack release", "protocol")


def markdown(report: Report) -> str:
    """A summary for a commit message or a pull request: counts, what was kept, where it was measured."""
    counts = ", ".join(f"{n} {plain(d.replace('REJECTED:', ''))}" for d, n in report.decisions())
    lines = [f"**{plain(title(report))}**: {counts or 'no valid result'}"]
    if report.rejects:
        lines[0] += f", {len(report.rejects)} without a valid result"
    kept = [(one, row) for one, row in report.rows() if one.status == row.status == "kept"]
    if kept:
        static = report.evidence == "static"
        lines += ["", f"| candidate | shape | {'reduction' if static else 'gain'} | interval | baseline |"]
        lines += ["|---|---|---:|---|---:|"]
        for one, row in kept[:_KEPT_SHOWN]:
            interval = "" if row.low is None else f"{row.low:+.2%} to {row.high:+.2%}"
            gain = "" if row.gain is None else f"{row.gain:+.2%}"
            mean = "" if row.baseline is None else f"{row.baseline:.4g} {row.unit or ''}".strip()
            label = report.labels[report.column(one, row)]
            lines.append(f"| {plain(one.candidate)} | {plain(label)} | {gain} | {interval} | {plain(mean)} |")
        if len(kept) > _KEPT_SHOWN:
            lines += ["", f"{len(kept) - _KEPT_SHOWN} more were kept."]
    about = [f"{name} {plain(' / '.join(values))}" for name, values in facts(report) if name in _ABOUT]
    lines += ["", "; ".join(about)] if about else []
    if report.evidence == "static":
        lines += ["", *(sentence for sentence, _ in next_steps(report) if "screen" in sentence)]
    return "\n".join(lines) + "\n"


def plain(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    return re.sub(r"([\\`*_{}\[\]<>|#~&$])", r"\\\1", one_line(text))


def json_lines(root: Path) -> Iterator[str]:
    """One JSON object per row of the log, with the log's columns and exact values; no line has its end.

    Results that are missing or not valid are left out. Raises UsageError: there is no job.
    """
    for path, content in results(root):
        if isinstance(content, str):
            continue
        where = path.relative_to(root.resolve()).as_posix()
        for shape in content["shapes"] or [{}]:
            entry = Entry(content, shape, where)
            yield json.dumps({column.name: column.value(entry) for column in COLUMNS}, allow_nan=False)
