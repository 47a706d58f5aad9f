"""``hydra/launcher=ray``: tasks on a Ray cluster, or on a Ray of its own on this machine."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from omegaconf import OmegaConf

from boosterrun.errors import UsageError
from boosterrun.launchers.engine import PATIENCE, Ended, Engine
from boosterrun.launchers.task import Failure, Task, run
from boosterrun.system import interrupt

_POLL = 1.0
_AUTO = "auto"


class RayLauncher(Engine):
    """One Ray task for each job. ``ray.init`` and ``ray.remote`` go to Ray's functions of these names;
    ``remote.num_gpus`` ``auto``: 1 where the cluster has any, so that Ray chooses the job's GPU.
    """

    def __init__(self, ray: Any) -> None:
        plain: Any = OmegaConf.to_container(ray, resolve=True)
        self.init: Mapping[str, Any] = plain["init"]
        self.remote: Mapping[str, Any] = plain["remote"]

    def run(self, tasks: Sequence[Task]) -> Generator[Ended, None, None]:
        """Run the tasks. Ray repeats those whose worker or node dies as ``remote.max_retries`` says."""
        import ray  # noqa: PLC0415 - an extra

        if not tasks:
            return
        with _connected(self.init):
            options = dict(self.remote)
            if options.get("num_gpus") == _AUTO:
                options["num_gpus"] = min(1, ray.cluster_resources().get("GPU", 0))
            try:
                remote = ray.remote(**options)(run)
            except (ValueError, TypeError) as error:
                raise UsageError(
                    f"hydra.launcher.ray.remote: {error}", "Give what ray.remote takes"
                ) from error
            waiting = {remote.remote(task): task for task in tasks}
            try:
                while waiting:
                    for reference in ray.wait(list(waiting), timeout=_POLL)[0]:
                        yield _ended(waiting.pop(reference), reference)
            finally:
                if waiting:
                    for reference in waiting:
                        ray.cancel(reference)  # raises KeyboardInterrupt in a task that runs
                    ray.wait(list(waiting), num_returns=len(waiting), timeout=PATIENCE)


def _ended(task: Task, reference: Any) -> Ended:
    import ray  # noqa: PLC0415 - an extra

    try:
        return Ended(task.name, ray.get(reference))
    except ray.exceptions.RayError as error:
        words = " ".join(str(error).split(". ")[0].split())
        return Ended(task.name, Failure(f"{type(error).__name__}: {words}"))


@contextmanager
def _connected(init: Mapping[str, Any]) -> Iterator[None]:
    """Ray for as long as the block; signals stay ours."""
    import ray  # noqa: PLC0415 - an extra

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # a Ray of our own asks nobody's leave to report
    before = {number: signal.getsignal(number) for number in interrupt.EXIT_CODES}
    try:
        try:
            ray.init(**init)
        except (ConnectionError, RuntimeError, ValueError, TypeError) as error:
            words = " ".join(str(error).split())
            raise UsageError(f"cannot use Ray: {words}", "Correct hydra.launcher.ray.init.*") from error
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        yield
    finally:
        ray.shutdown()
