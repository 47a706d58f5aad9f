"""All results below a folder as one report: who won, what broke, and what each picture shows."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from boosterrun.report import traces
from boosterrun.report.jobs import Job, Row, job
from boosterrun.report.load import results
from boosterrun.system.visible import visible

ALL_SHAPES = "all shapes"


@dataclass(frozen=True)
class Column:
    """What candidates are compared on: a shape of a workload, under the overrides that not all jobs share."""

    workload: str
    variant: tuple[str, ...]
    shape: str


@dataclass
class Point:
    """A dot of an S-curve. ``low`` and ``high``: the interval, or over shapes the worst and the best gain."""

    candidate: str
    column: str
    status: str
    decision: str
    gain: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Report:
    """What a report shows.

    ``jobs`` are sorted: kept first, then by gain. ``older`` counts results that a newer one of the same job
    replaces; ``rejects`` are paths and reasons of results that are missing or not valid.
    """

    root: Path
    jobs: list[Job]
    rejects: list[tuple[str, str]]
    older: int

    @cached_property
    def evidence(self) -> str:
        """timed, static, mixed, or none (there is no valid result)."""
        kinds = {job.evidence for job in self.jobs}
        return kinds.pop() if len(kinds) == 1 else "mixed" if kinds else "none"

    @cached_property
    def candidates(self) -> int:
        """How many different ACFs there are, without the self-test."""
        return len({job.candidate for job in self.jobs if job.sha256})

    @cached_property
    def min_gain(self) -> float | None:
        """The gain from which a candidate is worth keeping, where all jobs agree on it."""
        found = {job.min_gain for job in self.jobs}
        return found.pop() if len(found) == 1 else None

    @cached_property
    def columns(self) -> list[Column]:
        """What there is to compare on, in the order in which it was measured."""
        by_time = sorted(self.jobs, key=lambda job: job.started)
        found = (self.column(one, row) for one in by_time for row in one.rows if row.shape is not None)
        return list(dict.fromkeys(found))

    @cached_property
    def labels(self) -> dict[Column, str]:
        """A name for each column, in their order."""
        return {c: " ".join([*self._prefix(c.workload, c.variant), c.shape]) for c in self.columns}

    def decisions(self) -> list[tuple[str, int]]:
        """Jobs by decision: kept, rejections by their number, undecided."""
        counts = Counter(job.decision for job in self.jobs)
        order = {"KEPT": 0, "undecided": 2}
        return sorted(counts.items(), key=lambda item: (order.get(item[0], 1), -item[1], item[0]))

    def best(self) -> list[tuple[str, Job, Row]]:
        """For each column that a kept job gained on: its label, and the job and row with the largest gain."""
        found: dict[Column, tuple[float, Job, Row]] = {}
        for one, row in self.rows():
            if one.status == row.status == "kept" and row.gain is not None:
                column = self.column(one, row)
                if column not in found or row.gain > found[column][0]:
                    found[column] = (row.gain, one, row)
        return [(label, *found[column][1:]) for column, label in self.labels.items() if column in found]

    def rows(self) -> Iterator[tuple[Job, Row]]:
        """Every row with its job, in the order of the jobs."""
        return ((one, row) for one in self.jobs for row in one.rows)

    def variant(self, one: Job) -> tuple[str, ...]:
        """The overrides of a job that not all jobs share."""
        return tuple(o for o in one.overrides if o not in self._shared)

    def column(self, one: Job, row: Row) -> Column:
        """Where a row belongs."""
        return Column(one.workload, self.variant(one), row.shape or "")

    def name(self, one: Job) -> str:
        """A job's candidate, with what distinguishes its other jobs."""
        return " ".join([one.candidate, *self._prefix(one.workload, self.variant(one))])

    def points(self, column: Column | None = None) -> list[Point]:
        """The dots of a column's S-curve; without a column: over all shapes, one per job."""
        if column is None:
            return [_overall(one, self.name(one)) for one in self.jobs]
        return [
            Point(one.candidate, self.labels[column], row.status, row.decision, row.gain, row.low, row.high)
            for one, row in self.rows()
            if row.shape is not None and self.column(one, row) == column
        ]

    @cached_property
    def _shared(self) -> set[str]:
        sets = [set(job.overrides) for job in self.jobs]
        return set.intersection(*sets) if sets else set()

    @cached_property
    def _several(self) -> bool:
        return len({job.workload for job in self.jobs}) > 1

    def _prefix(self, workload: str, variant: tuple[str, ...]) -> list[str]:
        return [*([workload] if self._several else []), *variant]


def read(root: Path) -> Report:
    """Read everything below a folder. Raises UsageError: there is no job."""
    newest: dict[tuple[str, ...], Job] = {}
    rejects, older = [], 0
    for path, content in results(root):
        if isinstance(content, str):
            rejects.append((visible(os.path.relpath(path, root.resolve())), visible(content)))
            continue
        one = job(content, str(path), traces.read(path.parent, content))
        key = (one.candidate, one.sha256, one.workload, *one.overrides)
        older += key in newest
        if key not in newest or one.finished >= newest[key].finished:
            newest[key] = one
    return Report(root.resolve(), sorted(newest.values(), key=_rank), rejects, older)


def axis(points: Sequence[Point]) -> tuple[float, float]:
    """The range of gains that a picture shows: all gains, but a few very bad ones do not flatten the rest."""
    gains = [p.gain for p in points if p.gain is not None]
    top = max([*gains, 0.02])
    bottom = min([*gains, -0.02])
    top = max(top, min(max((p.high for p in points if p.high is not None), default=top), 2 * top))
    lowest = min([bottom, *(p.low for p in points if p.low is not None)])
    bottom = max(min(bottom, lowest), -max(1.5 * top, 0.2))
    margin = 0.04 * (top - bottom)
    return bottom - margin, top + margin


def _overall(one: Job, name: str) -> Point:
    gains = [row.gain for row in one.rows]
    point = Point(name, ALL_SHAPES, one.status, one.decision)
    known = [gain for gain in gains if gain is not None]
    if one.status in {"failed", "undecided"} or not known:
        return point
    if len(gains) == 1:
        row = one.rows[0]
        point.gain, point.low, point.high = row.gain, row.low, row.high
        return point
    if one.evidence == "timed" and min(known) > -1:
        point.gain = math.expm1(math.fsum(map(math.log1p, known)) / len(known))
    else:
        point.gain = math.fsum(known) / len(known)
    point.low, point.high = min(known), max(known)
    return point


def _rank(one: Job) -> tuple[int, float, str]:
    gain = _overall(one, "").gain
    place = {"kept": 0, "failed": 2, "undecided": 3}.get(one.status, 1)
    return place, -gain if gain is not None else math.inf, one.candidate
