"""Where the two sides of each session come from: kept, built ahead, forked or fresh."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

from boosterrun.config import Config
from boosterrun.measure import ahead
from boosterrun.measure.api import Hello, Side, SideName
from boosterrun.measure.blocks import Timing
from boosterrun.measure.kept import LentBaseline
from boosterrun.measure.trial import Trial
from boosterrun.system import closer

OpenSide = Callable[[SideName, Path], Side]


@dataclass(frozen=True)
class Sources:
    """How sides are had. Session 0 is the screen, each later one a confirmation.

    Attributes:
        usual: makes a side of any session, not started.
        fresh: makes one in a process of its own, for confirmations on the CPU, where the layout of a process
            shows in its times.
        lent: the baseline of a session that several jobs share; None: each has its own.
        confirm_start: ``auto`` as above, ``spawn``: fresh ones on a GPU too, ``fork``: never.
        sides_ahead: how many sides of later sessions may build in the background; sides are then
            :class:`boosterrun.measure.ahead.Abortable`.
    """

    usual: OpenSide
    fresh: OpenSide | None = None
    lent: Callable[[int], LentBaseline] | None = None
    confirm_start: str = "auto"
    sides_ahead: int = 0


def check_seeds(config: Config, session: int) -> list[int]:
    """The seeds of a session's checks: fresh inputs for each check and session, the same for both sides."""
    count = config.protocol.checks if session <= 1 else 1
    return [config.seed * 1_000_003 + session * 1009 + index + 1 for index in range(count)]


def errands(
    config: Config,
    session: int,
    trials: Sequence[Trial],
    timing: Callable[[str], Timing | None] | None = None,
) -> list[ahead.Errand]:
    """What can be done for the shapes of a session before it begins.

    ``timing``: says how a shape will be timed, if that is known when the rest is done; None: as its trial.
    """
    known = timing or {trial.name: trial.timing for trial in trials}.get
    seeds = check_seeds(config, session)
    return [ahead.Errand(trial.name, trial.params, seeds, partial(known, trial.name)) for trial in trials]


class Sides:
    """The sides of one job. ``work``: folder of their folders."""

    def __init__(self, sources: Sources, config: Config, work: Path) -> None:
        self._sources = sources
        self._config = config
        self._work = work
        self._last = config.protocol.confirm_sessions
        self._early: dict[int, tuple[Side, Side]] = {}
        self._shared = False

    def take(self, number: int, hello: Hello | None) -> tuple[Side, Side]:
        """Return baseline and candidate of a session, for the caller to close.

        ``hello``: what the candidate of an earlier session said. Raises Rejected.
        """
        if number in self._early:
            return self._early.pop(number)
        baseline = self._lent(number) or self._open("baseline", number, hello)
        return baseline, self._open("candidate", number, hello)

    def share(self, hello: Hello | None) -> None:
        """Several jobs are confirmed side by side: they may share a confirmation's baseline, on a GPU."""
        self._shared = not self._layout_shows(hello)

    def go_ahead(self, number: int, trials: Sequence[Trial], hello: Hello | None) -> None:
        """Build for the sessions after ``number``: a confirmation that began mostly goes to its end."""
        for later in range(number + 1, self._last + 1):
            room = self._shared or 2 * len(self._early) + 2 <= self._sources.sides_ahead
            if later not in self._early and self._sources.sides_ahead > 0 and room:
                todo = errands(self._config, later, trials)
                baseline = self._baseline(later, todo, hello)
                self._early[later] = baseline, self._side("candidate", later, todo, hello)

    def _baseline(self, number: int, todo: Sequence[ahead.Errand], hello: Hello | None) -> Side:
        lent = self._lent(number)
        if lent is None:
            return self._side("baseline", number, todo, hello)
        lent.begin(todo, self._sources.sides_ahead)
        return lent

    def _side(
        self, name: SideName, number: int, todo: Sequence[ahead.Errand], hello: Hello | None
    ) -> ahead.EarlySide:
        make = partial(self._open, name, number, hello)
        return ahead.EarlySide(cast(Callable[[], ahead.Abortable], make), todo, self._sources.sides_ahead)

    def _lent(self, number: int) -> LentBaseline | None:
        """The baseline of a session if it is one that jobs share."""
        lent = self._sources.lent
        return lent(number) if lent is not None and (number == 0 or self._shared) else None

    def _open(self, name: SideName, number: int, hello: Hello | None) -> Side:
        fresh = self._sources.fresh if number > 0 and self._layout_shows(hello) else None
        return (fresh or self._sources.usual)(name, self._work / f"session-{number}" / name)

    def close(self) -> None:
        """End what was built ahead and never taken."""
        while self._early:
            for side in self._early.popitem()[1]:
                closer.later(side.close)

    def _layout_shows(self, hello: Hello | None) -> bool:
        start = self._sources.confirm_start
        return start == "spawn" or (start == "auto" and (hello is None or hello.device is None))
