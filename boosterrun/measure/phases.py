"""How long each phase of a job took, what the GPU did meanwhile, and whose turn it is on it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from boosterrun.gpus import binding, lease
from boosterrun.measure import progress, quiet
from boosterrun.measure.api import Hello
from boosterrun.measure.watch import Stages


class Phases:
    """The phases of one job.

    Attributes:
        seconds: of each phase so far, by name.
        session: number of the one that runs. hello: what its candidate has said, or that of the one before.
        stages: readings of the GPU.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.session = 0
        self.hello: Hello | None = None
        self.stages = Stages()

    @contextlib.contextmanager
    def during(self, name: str) -> Iterator[None]:
        """Count the time of the block as that of a phase."""
        progress.phase(name)
        begin = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - begin
            self.stages.passed(name, self.session, self.hello.device if self.hello else None)

    @contextlib.contextmanager
    def turn(self, patience: float) -> Iterator[None]:
        """Time alone: what builds ahead is stopped, and other processes leave the GPU.

        ``patience``: seconds to wait for them. Raises GpuBusy.
        """
        with contextlib.ExitStack() as stack:
            with self.during("wait"):
                device = self.hello.device if self.hello is not None else None
                stack.enter_context(quiet.timing(everything=device is None))
                stack.enter_context(lease.held(binding.told(device), patience))
            yield
