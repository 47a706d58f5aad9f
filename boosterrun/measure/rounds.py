"""Jobs of a round: each is screened first, and then those that need it are confirmed side by side.

Between its screen and its confirmation a job's engine waits here, while the sides of all confirmations of the
round start in the background.
"""

from __future__ import annotations

import os
from collections.abc import Hashable

from boosterrun.measure.engine import Engine

_screened: dict[Hashable, Engine] = {}


def screen(key: Hashable, engine: Engine) -> None:
    """Screen, and begin to make the sides of the confirmation if there is to be one. Raises as judge."""
    engine.screen()
    _screened[key] = engine


def take(key: Hashable) -> Engine | None:
    """Return the engine that was screened with an equal key; None if there is none."""
    return _screened.pop(key, None)


def close() -> None:
    """End what waits for a job that does not come. Never raises."""
    while _screened:
        _screened.popitem()[1].close()


os.register_at_fork(after_in_child=_screened.clear)
