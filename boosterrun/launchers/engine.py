"""What the launchers have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator, Sequence
from dataclasses import dataclass

from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from boosterrun.errors import UsageError
from boosterrun.launchers.task import Failure, Task

# Seconds that running jobs have to bring a pair to its end and write, once they are told to stop.
PATIENCE = 3.0


@dataclass(frozen=True)
class Ended:
    """A job that runs no more. ``failure``: why it may have no result."""

    name: str
    failure: Failure | None = None


class Engine(Launcher):
    """A launcher that tells of each job as soon as it has ended."""

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Nothing: each task has its whole config."""

    @abstractmethod
    def run(self, tasks: Sequence[Task]) -> Generator[Ended, None, None]:
        """Run the tasks elsewhere, and tell of each that has ended, in that order.

        Closing the generator, and whatever is raised in it (a signal), stops the jobs: those that run bring a
        pair to its end and write what they have, for ``PATIENCE`` seconds or what the engine needs; the
        others do not begin. Raises BoosterrunError where the engine itself cannot be used.
        """

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Hydra's own way to launch, which our sweeper does not use."""
        raise UsageError("this launcher needs boosterrun's sweeper", "Leave out hydra/sweeper=...")
