"""Is this machine ready for a run? One finding per question, each with its fix; nothing here raises."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence

from boosterrun.doctor import compilers, controls, device, frameworks, limits, storage, variables
from boosterrun.doctor.finding import Finding, failure, warning
from boosterrun.doctor.setup import Setup

Check = Callable[[Setup], Iterator[Finding]]

CHECKS: tuple[Check, ...] = (
    *device.CHECKS,
    *compilers.CHECKS,
    *controls.CHECKS,
    *frameworks.CHECKS,
    *variables.CHECKS,
    *storage.CHECKS,
    *limits.CHECKS,
)
# Longer than the longest chain of programs that one check waits for.
SECONDS = 180.0


def examine(setup: Setup, checks: Sequence[Check] = CHECKS, seconds: float = SECONDS) -> list[Finding]:
    """Run every check, each by itself; returns their findings in the order of the checks.

    A check that breaks is a warning, and one that has not ended after ``seconds`` is a failure: what it found
    until then is kept. Never raises.
    """
    found: list[list[Finding]] = [[] for _ in checks]
    # Daemons: a file system or a driver that hangs must not keep the command from ending.
    threads = [
        threading.Thread(target=_run, args=(check, setup, into), daemon=True)
        for check, into in zip(checks, found, strict=True)
    ]
    for thread in threads:
        thread.start()
    end = time.monotonic() + seconds
    for check, thread, into in zip(checks, threads, found, strict=True):
        thread.join(max(0.0, end - time.monotonic()))
        if thread.is_alive():
            fix = "A driver or a network file system hangs: see dmesg, and whether df and nvidia-smi end"
            into.append(failure(_name(check), f"no answer within {seconds:.0f} s", fix))
    return [finding for into in found for finding in list(into)]


def _run(check: Check, setup: Setup, into: list[Finding]) -> None:
    try:
        for finding in check(setup):
            into.append(finding)
    except Exception as error:  # one broken check must not hide the others
        fix = "This is an error in boosterrun; please report it"
        into.append(warning(_name(check), f"could not be examined: {type(error).__name__}: {error}", fix))


def _name(check: Check) -> str:
    return check.__name__.replace("_", " ")
