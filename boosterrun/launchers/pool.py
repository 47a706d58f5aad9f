"""``hydra/launcher=joblib``: processes of this machine, one for each GPU, by joblib's loky."""

from __future__ import annotations

import math
import os
from collections.abc import Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import closing
from typing import Any

from boosterrun.config import Config, typed
from boosterrun.errors import RunError, UsageError
from boosterrun.gpus import devices
from boosterrun.launchers.engine import PATIENCE, Ended, Engine
from boosterrun.launchers.leash import Leash, leash, run_on, watch
from boosterrun.launchers.task import Failure, Task

_AUTO = "auto"
# Seconds between looks at which jobs of a share have ended.
_POLL = 0.5
# What is left for a process is given out at once if it is this many rounds, else so much of it.
_WHOLE, _FIRST = 2, 0.7
_DIED = "its process died, or was ended as another one died"


class JoblibLauncher(Engine):
    """Runs ``n_jobs`` jobs at once; ``auto``: one for each GPU, for a static screen one for each core."""

    def __init__(self, n_jobs: int | str = _AUTO) -> None:
        self.n_jobs = n_jobs

    def run(self, tasks: Sequence[Task]) -> Generator[Ended, None, None]:
        """Run the tasks. Where a process dies, loky ends the others too: all that they ran is lost."""
        number = self._number(tasks)
        waiting = {task.name: task for task in tasks}
        with leash() as held:
            while waiting:
                before = len(waiting)
                with closing(_pool(list(waiting.values()), number, held)) as pool:
                    for ended in pool:
                        del waiting[ended.name]
                        yield ended
                if len(waiting) == before:
                    raise RunError("no process could be started for a job", "Check memory and process limits")

    def _number(self, tasks: Sequence[Task]) -> int:
        if self.n_jobs == _AUTO:
            return _fitting(typed(_plain(tasks[0]))) if tasks else 1
        if not isinstance(self.n_jobs, int) or self.n_jobs < 1:
            raise UsageError(f"hydra.launcher.n_jobs={self.n_jobs} is no number", "Give auto, 1, 2, ...")
        return self.n_jobs


def _pool(tasks: Sequence[Task], number: int, held: Leash) -> Generator[Ended, None, None]:
    """Run tasks until all have ended or the pool has broken: what has not begun then is not told of."""
    from joblib.externals.loky import ProcessPoolExecutor  # noqa: PLC0415 - an extra

    pool = ProcessPoolExecutor(min(number, len(tasks)), initializer=watch, initargs=(held.folder,))
    running: dict[Future[Any], list[Task]] = {}
    try:
        running = {pool.submit(run_on, held.folder, share): share for share in _shares(tasks, number)}
        told: set[str] = set()
        while running:
            done = wait(running, timeout=_POLL, return_when=FIRST_COMPLETED).done
            if any(_died(future) for future in done):
                # loky tells before it ends the other processes, and one may just write its result.
                pool.shutdown(wait=True, kill_workers=True)
            for future in list(running):
                if future not in done:
                    ended = [Ended(task.name) for task in running[future] if held.ended(task)]
                else:
                    ended = _ended(running.pop(future), future, held)
                for each in ended:
                    if each.name not in told:
                        told.add(each.name)
                        yield each
    finally:
        held_back = [future for future in running if not future.cancel()]
        if held_back:
            held.release()
            wait(held_back, timeout=PATIENCE)
        pool.shutdown(wait=True, kill_workers=True)


def _died(future: Future[Any]) -> bool:
    """Whether a process has died, and the pool with it."""
    from concurrent.futures.process import BrokenProcessPool  # noqa: PLC0415 - it takes its time

    return isinstance(future.exception(), BrokenProcessPool)


def _ended(share: Sequence[Task], future: Future[Any], held: Leash) -> list[Ended]:
    """What has come of the tasks that a process had; of those that it did not begin nothing is said."""
    error = future.exception()
    if error is None:
        return list(map(Ended, (task.name for task in share), future.result()))
    if _died(future):
        return [Ended(task.name, Failure(_DIED)) for task in share if held.begun(task)]
    return [Ended(task.name, Failure(f"{type(error).__name__}: {error}")) for task in share]


def _shares(tasks: Sequence[Task], number: int) -> list[list[Task]]:
    """The tasks that a process gets at once, in the order in which they are given out.

    Most of its part comes first: while it measures one round, it builds for the next. The rest comes in
    smaller shares, so that all end together. Neighbours are for different processes: like takes like long.
    """
    from boosterrun.sweeps.turns import round_size  # noqa: PLC0415 - as late as Hydra

    size = round_size(_plain(tasks[0]))
    if size == 1:
        return [[task] for task in tasks]
    shares: list[list[Task]] = []
    rest = list(tasks)
    while rest:
        part = math.ceil(len(rest) / number)
        level = number * (part if part <= _WHOLE * size else math.ceil(_FIRST * part))
        now, rest = rest[:level], rest[level:]
        shares += [now[n::number] for n in range(min(number, len(now)))]
    return shares


def _plain(task: Task) -> Any:
    from boosterrun.sweeps.turns import task_config  # noqa: PLC0415 - as late as Hydra

    return task_config(task.config)


def _fitting(config: Config) -> int:
    """How many jobs fit on this machine at once without disturbing each other."""
    from boosterrun.adapters import base  # noqa: PLC0415

    if base.load(config.workload.adapter).evidence != "timed":
        return len(os.sched_getaffinity(0))
    return max(1, len(devices.allowed(config.gpu.devices, os.environ))) if devices.chosen(config) else 1
