"""One job of a sweep as another process gets it and runs it: composed, so nothing is looked up there."""

from __future__ import annotations

import os
import socket
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

from omegaconf import DictConfig

from boosterrun.errors import BoosterrunError
from boosterrun.system import interrupt


@dataclass(frozen=True)
class Task:
    """A job. ``name``: of its folder below the sweep's; ``config``: composed, with ``hydra``;
    ``cwd``: where relative paths begin.
    """

    name: str
    config: DictConfig
    cwd: str


@dataclass(frozen=True)
class Failure:
    """An error that ended a job before it had a result, for the user: what is wrong, what to do next."""

    message: str
    advice: str = ""


def in_rounds(tasks: Sequence[Task]) -> Generator[Task, None, None]:
    """Yield each task when it is to be run in this process (:func:`boosterrun.sweeps.turns.rounds`)."""
    if _enter(tasks[0]) is not None:  # each task says so
        yield from tasks
        return
    from boosterrun.sweeps import turns  # noqa: PLC0415 - after Hydra is set up

    with interrupt.handling():
        for number in turns.rounds(len(tasks), lambda n: tasks[n].config):
            yield tasks[number]


def run(task: Task) -> Failure | None:
    """Run a job in this process; its result is in its folder. Returns what has kept it from that.

    A signal to end is no failure: the job has written what it had (:func:`boosterrun.sweeps.app.run_job`).
    """
    try:
        return _run(task)
    except (KeyboardInterrupt, SystemExit):
        return None


def _enter(task: Task) -> Failure | None:
    """Set Hydra up and go where the tasks' paths begin. Returns what is in the way."""
    from boosterrun.hydra_ext.setup import set_up  # noqa: PLC0415 - before all that imports Hydra's plugins

    set_up()
    folder = Path(task.cwd, str(task.config.hydra.sweep.dir))
    if not folder.is_dir():
        return Failure(
            f"{socket.gethostname()} does not see {folder}",
            "Sweep into a folder that all machines share: hydra.sweep.dir=FOLDER",
        )
    try:
        os.chdir(task.cwd)
    except OSError as error:
        return Failure(f"{socket.gethostname()} cannot go to {task.cwd}: {error.strerror}")
    return None


def _run(task: Task) -> Failure | None:
    if (failure := _enter(task)) is not None:
        return failure
    from hydra._internal.callbacks import Callbacks  # noqa: PLC0415
    from hydra.core.utils import JobStatus, run_job  # noqa: PLC0415
    from hydra.types import HydraContext  # noqa: PLC0415

    from boosterrun.hydra_ext import search  # noqa: PLC0415
    from boosterrun.sweeps import turns  # noqa: PLC0415

    context = HydraContext(
        config_loader=search.loader(search.search_path(None)), callbacks=Callbacks(task.config)
    )
    returned = run_job(
        hydra_context=context,
        task_function=turns.run_job,
        config=task.config,
        job_dir_key="hydra.sweep.dir",
        job_subdir_key="hydra.sweep.subdir",
    )
    if returned.status == JobStatus.COMPLETED:
        return None
    cause = returned._return_value  # its public property prints before it raises
    if isinstance(cause, BoosterrunError):
        return Failure(cause.message, cause.advice)
    return Failure(f"{type(cause).__name__}: {cause}")
