"""What a check does with a problem it finds: stop at the first one, or note it and go on."""

from __future__ import annotations

from collections.abc import Callable

from boosterrun.errors import PackError

Report = Callable[[PackError], None]


def stop(problem: PackError) -> None:
    """Raise ``problem``: whoever only opens a pack needs no second one."""
    raise problem
