"""``boosterrun resume DIR``: the command that made a folder of results, once more into the same folder."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from boosterrun.errors import UsageError
from boosterrun.hydra_ext.remembered import command

_ABOUT = """usage: boosterrun resume DIR [OVERRIDE...]

Repeat the command that made DIR, in DIR. A job with a final result that was measured on the same content
stands: ACF, files of the workload, settings that change a measurement, versions of compilers and frameworks,
model of the GPU. All others run. Overrides are added to the command.
"""


def resume(argv: Sequence[str]) -> int:
    """Go on with the sweep in a folder. Returns the exit code of the run.

    Raises UsageError for a folder that no run has made, and whatever a run raises.
    """
    from boosterrun.hydra_ext import launch  # noqa: PLC0415

    if not argv or "--help" in argv or "-h" in argv:
        sys.stdout.write(_ABOUT)
        return 0 if argv else UsageError.exit_code
    return launch.run(command(argv[0], argv[1:]))
