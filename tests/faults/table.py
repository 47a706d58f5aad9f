"""Make the fault table from the lines that a run has left: ``python -m faults.table FOLDER``, in tests.

Writes ``benchmarks/results/faults.json`` and the table in ``docs/reliability.md``, between its two markers.
Exit code 1 if a cell is missing or is not as it should be; then nothing is written.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from faults import cells

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "faults.json"
PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- fault matrix: begin -->", "<!-- fault matrix: end -->"

Lines = Sequence[Mapping[str, Any]]


def read(folder: Path) -> list[dict[str, Any]]:
    """The lines of a run, one per cell and adapter, in the order of the table."""
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for path in sorted(folder.glob("*.jsonl")):
        for text in path.read_text().splitlines():
            line = json.loads(text)
            found[line["fault"], line["phase"], line["adapter"]] = line
    faults, phases = list(cells.FAULTS), list(cells.PHASES)
    return [found[key] for key in sorted(found, key=lambda k: (faults.index(k[0]), phases.index(k[1]), k[2]))]


def problems(lines: Lines) -> list[str]:
    """Cells that are wrong, or of which there is no line though they make sense."""
    wrong = [f"{x['fault']} in {x['phase']} ({x['adapter']}): {x['got']}" for x in lines if not x["right"]]
    there = {(line["fault"], line["phase"]) for line in lines}
    wanted = [(f, p) for f in cells.FAULTS for p in cells.PHASES if not cells.cell(f, p).reason]
    return wrong + [
        f"{fault} in {phase}: not tested" for fault, phase in wanted if (fault, phase) not in there
    ]


def render(lines: Lines) -> str:
    """The table in Markdown, with what its words mean and why some cells are empty."""
    reasons: dict[str, str] = {}
    rows = []
    for fault, words in cells.FAULTS.items():
        row = [_cell(lines, fault, phase, reasons) for phase in cells.PHASES]
        rows.append(f"| {words} | {' | '.join(row)} |")
    count = len({(line["fault"], line["phase"]) for line in lines})
    orphans = sum(line["orphans"] for line in lines)
    leftovers = sum(len(line["leftovers"]) for line in lines)
    others = sum(bool(line["others"]) for line in lines)
    longest = max(line["seconds"] for line in lines)
    head = [f"| | {' | '.join(cells.PHASES.values())} |", f"|---|{'---|' * len(cells.PHASES)}"]
    notes = [f"- {letter}: {reason}." for reason, letter in reasons.items()]
    summary = (
        f"{count} cells in {len(lines)} runs. Left behind: {orphans} processes; {leftovers} locks, scratch "
        f"folders or parts of files. Other jobs with another decision: {others}. The longest took "
        f"{longest:.0f} s, on a machine that was busy with other work."
    )
    return "\n".join([*head, *rows, "", summary, "", "Cells without a test:", "", *notes])


def _cell(lines: Lines, fault: str, phase: str, reasons: dict[str, str]) -> str:
    reason = cells.cell(fault, phase).reason
    if reason:
        return f"({reasons.setdefault(reason, chr(ord('a') + len(reasons)))})"
    here = [line for line in lines if (line["fault"], line["phase"]) == (fault, phase)]
    got: dict[str, list[str]] = {}
    for line in here:
        got.setdefault(line["got"], []).append(line["adapter"])
    if len(got) == 1:
        return next(iter(got))
    return ", ".join(f"{word} ({', '.join(adapters)})" for word, adapters in got.items())


def page(text: str, table: str) -> str:
    """The page with this table."""
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n\n{table}\n\n{END}{rest.split(END)[1]}"


def main() -> int:
    """Check and write. Returns the exit code."""
    lines = read(Path(sys.argv[1]))
    wrong = problems(lines)
    for problem in wrong:
        sys.stderr.write(f"fault matrix: {problem}\n")
    if wrong:
        return 1
    RESULTS.write_text("[\n" + ",\n".join(json.dumps(line) for line in lines) + "\n]\n")
    PAGE.write_text(page(PAGE.read_text(), render(lines)))
    sys.stdout.write(f"fault matrix: {len(lines)} lines, all as they should be: {RESULTS}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
