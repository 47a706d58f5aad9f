"""Two sweeps of the same candidates: who kept, who lost, who flipped, and what changed around them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from boosterrun.errors import UsageError
from boosterrun.report import model, page
from boosterrun.report.jobs import Job, Row
from boosterrun.report.text import plain
from boosterrun.verbs.parser import Parser

LOST, WON, FASTER, SLOWER, CHANGED, SAME = "lost", "won", "faster", "slower", "changed", "same"
CHANGES = (LOST, WON, SLOWER, FASTER, CHANGED, SAME)
_EXPLAINED = {
    LOST: "kept in A, not in B",
    WON: "kept in B, not in A",
    SLOWER: "the gain in B is below all of A's interval, and the intervals do not meet",
    FASTER: "the gain in B is above all of A's interval, and the intervals do not meet",
    CHANGED: "rejected in both, for another reason, or undecided in one of them",
}


@dataclass(frozen=True)
class Both:
    """One candidate on one shape in two sweeps; `change` is one of `CHANGES`."""

    candidate: str
    shape: str
    before: Row
    after: Row
    change: str


@dataclass(frozen=True)
class Comparison:
    """``both`` is sorted by change; ``only`` are "candidate, shape" that one sweep alone has (A's, B's).

    ``facts`` are the facts that differ: name, values in A, values in B.
    """

    both: list[Both]
    only: tuple[list[str], list[str]]
    facts: list[tuple[str, str, str]]

    def count(self, change: str) -> int:
        """How many candidates and shapes changed so."""
        return sum(one.change == change for one in self.both)


def compare(before: Path, after: Path) -> Comparison:
    """Compare the newest results below two folders: the same ACF (by SHA-256), workload and shape.

    Raises UsageError: a folder holds no result, or they have no candidate and shape in common.
    """
    a, b = model.read(before), model.read(after)
    rows_a, rows_b = _rows(a, before), _rows(b, after)
    common = [key for key in rows_a if key in rows_b]
    if not common:
        raise UsageError(
            f"{before} and {after} have no candidate and shape in common", "Compare sweeps of one workload"
        )
    both = [
        Both(
            rows_a[key][0].candidate,
            _shape(key),
            rows_a[key][1],
            rows_b[key][1],
            _change(rows_a[key][1], rows_b[key][1]),
        )
        for key in common
    ]
    both.sort(key=lambda one: CHANGES.index(one.change))
    only = (
        [_title(rows_a[key][0], key) for key in rows_a if key not in rows_b],
        [_title(rows_b[key][0], key) for key in rows_b if key not in rows_a],
    )
    return Comparison(both, only, _facts(a, b))


def run(argv: Sequence[str]) -> int:
    """Print the comparison of two folders as Markdown. Returns the exit code 0. Raises BoosterrunError."""
    parser = Parser(
        "boosterrun compare", description="Compare two sweeps of the same candidates, A before B."
    )
    parser.add_argument("before", metavar="DIR_A", type=Path)
    parser.add_argument("after", metavar="DIR_B", type=Path)
    parser.add_argument("--all", action="store_true", help="list what did not change, too")
    options = parser.parse_args(argv)
    sys.stdout.write(markdown(compare(options.before, options.after), everything=options.all))
    return 0


def markdown(found: Comparison, *, everything: bool = False) -> str:
    """The comparison for people; ``everything``: with the candidates that did not change."""
    counts = ", ".join(f"{found.count(change)} {change}" for change in CHANGES if found.count(change))
    lines = [f"{len(found.both)} candidates and shapes in both sweeps: {counts}."]
    shown = [one for one in found.both if everything or one.change != SAME]
    if shown:
        lines += ["", "| change | candidate | shape | A | B |", "|---|---|---|---|---|"]
        lines += [
            f"| {one.change} | {plain(one.candidate)} | {plain(one.shape)} "
            f"| {_cell(one.before)} | {_cell(one.after)} |"
            for one in shown
        ]
        seen = dict.fromkeys(one.change for one in shown)
        lines += ["", *(f"- {change}: {_EXPLAINED[change]}" for change in seen if change in _EXPLAINED)]
    lines += [
        "",
        "What differs around them:"
        if found.facts
        else "Nothing recorded about the machine, the tools or the inputs differs.",
    ]
    if found.facts:
        lines += ["", "| what | A | B |", "|---|---|---|"]
        lines += [f"| {plain(name)} | {plain(a)} | {plain(b)} |" for name, a, b in found.facts]
    for name, missing in zip("AB", found.only, strict=True):
        if missing:
            more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
            lines += ["", f"Only in {name}: {'; '.join(map(plain, missing[:5]))}{more}."]
    return "\n".join(lines) + "\n"


Key = tuple[str, ...]


def _rows(report: model.Report, folder: Path) -> dict[Key, tuple[Job, Row]]:
    """Rows by ACF, workload, shape, and the overrides that tell the jobs of one sweep apart."""
    if not report.jobs:
        raise UsageError(f"no valid result below {folder}", f"See boosterrun collect {folder}")
    return {
        (one.sha256 or one.candidate, one.workload, row.shape or "", *report.variant(one)): (one, row)
        for one, row in report.rows()
    }


def _shape(key: Key) -> str:
    return " ".join(part for part in (key[1], *key[3:], key[2]) if part)


def _title(one: Job, key: Key) -> str:
    return f"{one.candidate}, {_shape(key)}"


def _change(a: Row, b: Row) -> str:
    if a.status == "kept" or b.status == "kept":
        if a.status != b.status:
            return LOST if a.status == "kept" else WON
    elif a.decision != b.decision:
        return CHANGED
    ends = (a.low, a.high, b.low, b.high)
    if None not in ends:
        low_a, high_a, low_b, high_b = (float(end) for end in ends if end is not None)
        return SLOWER if high_b < low_a else FASTER if low_b > high_a else SAME
    # A static screen repeats exactly: any difference is one.
    if a.gain is None or b.gain is None or a.gain == b.gain:
        return SAME
    return SLOWER if b.gain < a.gain else FASTER


def _facts(a: model.Report, b: model.Report) -> list[tuple[str, str, str]]:
    mine, others = dict(page.facts(a)), dict(page.facts(b))
    names = [*mine, *(name for name in others if name not in mine)]
    found = [(name, mine.get(name, []), others.get(name, [])) for name in names]
    return [
        (name, "; ".join(x) or "not there", "; ".join(y) or "not there")
        for name, x, y in found
        if sorted(x) != sorted(y)
    ]


def _cell(row: Row) -> str:
    text = plain(row.decision.replace("REJECTED:", ""))
    if row.gain is not None:
        text += f" {row.gain:+.2%}"
    if row.low is not None and row.high is not None:
        text += f" ({row.low:+.2%} to {row.high:+.2%})"
    return text
