"""One build with one ACF, to see whether it arrives: what adapters offer to the canary."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from boosterrun.adapters.base import Job
from boosterrun.config import Config


@dataclass(frozen=True)
class Remedies:
    """What a framework calls the things that can go wrong, for messages.

    Attributes:
        options: how options get to its ptxas. replaced: what in the user's code takes their place.
        compiler: how its ptxas is chosen. cache: where it keeps compiled code.
    """

    options: str
    replaced: str
    compiler: str
    cache: str


@dataclass(frozen=True)
class Probe:
    """What came of a build.

    Attributes:
        reason: None when it built, else why it failed (boosterrun.compilers.compilation, ``runtime_error``).
        words: the compiler's own, or those of whatever else failed.
        controls: for each cubin that was found, the paths of the controls in its note, joined.
    """

    reason: str | None
    words: str
    controls: tuple[str, ...] = ()


@runtime_checkable
class Probing(Protocol):
    """An adapter whose injection can be tested."""

    remedies: Remedies

    def injects(self, config: Config) -> bool:
        """Whether an ACF is handed to a compiler for this workload, so that a damaged one must fail."""

    def ignored(self) -> list[str]:
        """Variables of the shell that no side gets to see."""

    def probe(self, job: Job, begin: Callable[[], None] = lambda: None) -> Probe:
        """Build the first shape with ``job.controls`` in the fresh folder ``job.work``.

        ``begin`` is called, once, when nothing but the build is left to do; what it raises goes through.
        Raises RunError when the build could not even begin.
        """
