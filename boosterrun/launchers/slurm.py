"""``hydra/launcher=submitit_slurm``: an array of Slurm jobs, submitted by submitit."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from boosterrun.errors import RunError, UsageError
from boosterrun.launchers.engine import Ended, Engine
from boosterrun.launchers.task import Failure, Task, run

# What submitit's executor takes by these names; everything else is for Slurm alone.
_SHARED = {"timeout_min", "cpus_per_task", "gpus_per_node", "tasks_per_node", "mem_gb", "nodes", "name"}
_SHARED |= {"stderr_to_stdout"}
_OVER = {
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "TIMEOUT",
}
_GONE = "GONE"
_POLL = 1.0
# A shared file system may show what another machine has written some seconds later.
_LAG = 5.0
# Until a signal has reached all nodes and the jobs have written, and for one question to Slurm.
_PATIENCE = 15.0
_ANSWER = 60.0


@dataclass
class _Job:
    """A submitted job. ``since``: when Slurm was first seen to have ended it (monotonic seconds)."""

    task: Task
    job: Any
    since: float | None = None


class SlurmLauncher(Engine):
    """One Slurm job for each job of the sweep, in one array. The parameters are submitit's."""

    def __init__(self, submitit_folder: str, **parameters: Any) -> None:
        self.folder = Path(submitit_folder)
        self.parameters = {
            key: OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
            for key, value in parameters.items()
            if value is not None
        }

    def run(self, tasks: Sequence[Task]) -> Generator[Ended, None, None]:
        """Run the tasks. Slurm is asked by squeue, which needs no accounting."""
        if not tasks:
            return
        jobs = self._submit(tasks)
        waiting = dict(jobs)
        try:
            while waiting:
                states = _states(waiting)
                for name in list(waiting):
                    ended = _ended(waiting[name], states.get(name, _GONE) if states is not None else None)
                    if ended is not None:
                        del waiting[name]
                        yield ended
                if waiting:
                    time.sleep(_POLL)
        finally:
            if waiting:
                _stop(waiting)
            for job in jobs.values():  # it has the whole configuration
                with contextlib.suppress(OSError):
                    job.job.paths.submitted_pickle.unlink()

    def _submit(self, tasks: Sequence[Task]) -> dict[str, _Job]:
        """Submitted jobs by their ids in Slurm."""
        import submitit  # noqa: PLC0415 - an extra

        parameters = {key if key in _SHARED else f"slurm_{key}": v for key, v in self.parameters.items()}
        try:
            base = self.folder
            while "%" in base.name:
                base = base.parent
            base.mkdir(mode=0o700, parents=True, exist_ok=True)
            executor = submitit.AutoExecutor(folder=self.folder, cluster="slurm", slurm_max_num_timeout=0)
            executor.update_parameters(**parameters)
            jobs = executor.map_array(run, tasks)
        except (RuntimeError, ValueError, NameError, TypeError, OSError, subprocess.SubprocessError) as error:
            raise UsageError(
                f"Slurm takes no jobs: {_last_line(str(error))}",
                "Correct hydra.launcher.*; without GPUs in Slurm: hydra.launcher.gres=null",
            ) from error
        return {job.job_id: _Job(task, job) for job, task in zip(jobs, tasks, strict=True)}


def _ended(job: _Job, state: str | None) -> Ended | None:
    """What has come of a job; None: it may still run. ``state`` None: Slurm does not answer."""
    name = job.task.name
    if job.job.paths.result_pickle.exists():
        try:
            return Ended(name, job.job.result())
        except Exception as error:
            return Ended(name, Failure(_last_line(str(error))))
    if state is None or state not in {*_OVER, _GONE}:
        job.since = None
        return None
    job.since = job.since or time.monotonic()
    if time.monotonic() - job.since < _LAG:
        return None
    log = job.job.paths.stderr
    return Ended(name, Failure(f"Slurm ended its job {job.job.job_id}: {state}", f"See {log}"))


def _states(ids: Iterable[str]) -> dict[str, str] | None:
    """The state of each job that Slurm knows, by id; None: it does not answer now."""
    arrays = sorted({each.partition("_")[0] for each in ids})
    found: dict[str, str] = {}
    for array in arrays:
        command = ["squeue", "--noheader", "--array", "--states=all", "--format=%i %T", f"--jobs={array}"]
        done = _ask(command)
        if done is None:
            return None
        if done.returncode != 0 and "Invalid job id" not in done.stderr:
            return None
        for line in done.stdout.splitlines():
            name, _, state = line.partition(" ")
            found[name] = state.strip()
    return found


def _stop(waiting: Iterable[str]) -> None:
    """Let the jobs that run write what they have, and cancel all others."""
    ids = sorted(waiting)
    arrays = sorted({each.partition("_")[0] for each in ids})
    _ask(["scancel", "--state=PENDING", *arrays])
    _ask(["scancel", "--signal=USR2", "--state=RUNNING", *arrays])
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        states = _states(ids)
        if states is not None and all(states.get(each, _GONE) in {*_OVER, _GONE} for each in ids):
            return
        time.sleep(_POLL / 4)
    _ask(["scancel", *arrays])


def _ask(command: Sequence[str]) -> subprocess.CompletedProcess[str] | None:
    """Run one of Slurm's commands; None: it did not come back. Raises RunError where it is not installed."""
    try:
        # An argument list: the names of Slurm's own commands and of jobs that it has named.
        return subprocess.run(command, capture_output=True, text=True, timeout=_ANSWER, check=False)  # nosec B603
    except subprocess.TimeoutExpired:
        return None
    except OSError as error:
        raise RunError(
            f"cannot run {command[0]}: {error.strerror}", "Put Slurm's commands on PATH"
        ) from error


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no reason given"
