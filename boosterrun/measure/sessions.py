"""Where the two sides of each session come from: kept, built ahead, forked or fresh."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from boosterrun.measure import ahead
from boosterrun.measure.api import Hello, Side, SideName
from boosterrun.measure.kept import LentBaseline
from boosterrun.measure.trial import Trial

OpenSide = Callable[[SideName, Path], Side]


@dataclass(frozen=True)
class Sources:
    """How sides are had. Session 0 is the screen, each later one a confirmation.

    Attributes:
        usual: makes a side of any session, not started.
        fresh: makes one in a process of its own, for confirmations on the CPU, where the layout of a process
            shows in its times. lent: the baseline of the screen that is kept from job to job.
        confirm_start: ``auto`` as above, ``spawn``: fresh ones on a GPU too, ``fork``: never.
        sides_ahead: how many sides of later sessions may build in the background; sides are then
            :class:`boosterrun.measure.ahead.Abortable`.
    """

    usual: OpenSide
    fresh: OpenSide | None = None
    lent: LentBaseline | None = None
    confirm_start: str = "auto"
    sides_ahead: int = 0


class Sides:
    """The sides of one job. ``last``: number of the last session. ``work``: folder of their folders."""

    def __init__(self, sources: Sources, work: Path, last: int) -> None:
        self._sources = sources
        self._work = work
        self._last = last
        self._early: dict[int, tuple[Side, Side]] = {}

    def lent(self, number: int) -> LentBaseline | None:
        """The baseline of a session if it is one that is kept."""
        return self._sources.lent if number == 0 else None

    def take(self, number: int, hello: Hello | None) -> tuple[Side, Side]:
        """Return baseline and candidate of a session, for the caller to close.

        ``hello``: what the candidate of an earlier session said. Raises Rejected.
        """
        if number in self._early:
            return self._early.pop(number)
        baseline = self.lent(number) or self._open("baseline", number, hello)
        return baseline, self._open("candidate", number, hello)

    def go_ahead(self, number: int, first: Trial, hello: Hello | None) -> None:
        """Build for the sessions after ``number``: a confirmation that began mostly goes to its end."""
        if number == 0:
            return
        for later in range(number + 1, self._last + 1):
            if later not in self._early and 2 * len(self._early) + 2 <= self._sources.sides_ahead:
                self._early[later] = (
                    self._open_early("baseline", later, first, hello),
                    self._open_early("candidate", later, first, hello),
                )

    def _open(self, name: SideName, number: int, hello: Hello | None) -> Side:
        fresh = self._sources.fresh if number > 0 and self._layout_shows(hello) else None
        return (fresh or self._sources.usual)(name, self._work / f"session-{number}" / name)

    def _open_early(self, name: SideName, number: int, first: Trial, hello: Hello | None) -> Side:
        def make() -> ahead.Abortable:
            return cast(ahead.Abortable, self._open(name, number, hello))

        return ahead.EarlySide(make, first.name, first.params)

    def close(self) -> None:
        """End what was built ahead and never taken."""
        while self._early:
            for side in self._early.popitem()[1]:
                side.close()

    def _layout_shows(self, hello: Hello | None) -> bool:
        start = self._sources.confirm_start
        return start == "spawn" or (start == "auto" and (hello is None or hello.device is None))
