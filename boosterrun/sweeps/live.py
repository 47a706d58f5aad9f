"""The live view of a sweep on a terminal; elsewhere one plain line per job."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from boosterrun.measure import progress
from boosterrun.sweeps.estimate import duration
from boosterrun.sweeps.summary import Row, percent, report, rows

if TYPE_CHECKING:
    from rich.console import RenderableType

    from boosterrun.decision.decide import Decision

_KEPT_SHOWN = 5
_PER_SECOND = 4
_BAR = 30


class View:
    """Says what has finished. ``here``: the jobs run in this process."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self.done = 0

    def finished(self, result: Mapping[str, Any]) -> None:
        """Tell of one more finished job on standard output."""
        self.done += 1
        level = progress.level()
        if level is progress.Level.QUIET:
            return
        line = report(self.done, self.jobs, result)
        if level is progress.Level.VERBOSE:
            spent = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in result["phases"].items())
            line += f" ({result['job']['seconds']:.2f} s{f': {spent}' if spent else ''})"
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


class LiveView(View):
    """The same on a terminal, above a few lines about the job that runs; a :class:`progress.Listener`."""

    def __init__(self, jobs: int) -> None:
        super().__init__(jobs)
        self.begun = time.monotonic()
        self.ran = 0
        self.kept: list[Row] = []
        self.name = self.now = ""

    def finished(self, result: Mapping[str, Any]) -> None:
        """Tell of one more finished job on standard output."""
        from boosterrun.sweeps.resume import Earlier  # noqa: PLC0415 - not for a static screen's start

        super().finished(result)
        self.ran += not isinstance(result, Earlier)
        self.kept = sorted([*self.kept, *rows(result)], key=lambda row: -row.gain)[:_KEPT_SHOWN]
        self.name = self.now = ""

    def job(self, name: str) -> None:
        """A job begins."""
        self.name, self.now = name, ""

    def phase(self, name: str) -> None:
        """A phase of it begins."""
        self.now = name

    def pair(self, shape: str, decision: Decision) -> None:
        """A pair has been measured."""
        count = sum(decision.statistics["pairs"].values())
        words = f"{shape}: {decision.phase}, {count} pairs"
        if decision.gain is not None:
            words += f", {percent(decision.gain)}"
        if decision.interval is not None:
            words += f" [{percent(decision.interval[0])}, {percent(decision.interval[1])}]"
        self.now = words

    def lines(self) -> list[str]:
        """The view as text."""
        full = round(_BAR * self.done / max(1, self.jobs))
        head = f"{'━' * full}{'╌' * (_BAR - full)} {self.done}/{self.jobs}"
        spent = time.monotonic() - self.begun
        if self.ran:
            left = spent / self.ran * (self.jobs - self.done)
            head += f", about {duration(math.ceil(left))} left" if left else ""
        kept = [f"  kept {percent(row.gain)} {row.name}" for row in self.kept]
        return [head, *kept, *([f"  {self.name}  {self.now}"] if self.name else [])]

    def __rich__(self) -> RenderableType:
        from rich.text import Text  # noqa: PLC0415 - only on a terminal

        return Text("\n".join(self.lines()), no_wrap=True, overflow="ellipsis")


@contextlib.contextmanager
def view(jobs: int, *, here: bool) -> Iterator[View]:
    """Show a sweep of ``jobs`` while the block runs; ``here``: its jobs run in this process."""
    if not (here and sys.stdout.isatty() and progress.level() is not progress.Level.QUIET):
        yield View(jobs)
        return
    try:
        from rich.live import Live  # noqa: PLC0415 - only on a terminal
    except ImportError:
        yield View(jobs)
        return
    shown = LiveView(jobs)
    with progress.heard_by(shown), Live(shown, refresh_per_second=_PER_SECOND, transient=True):
        yield shown
