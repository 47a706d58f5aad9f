"""The sweeper: one job per combination, its folder, its line on stdout, and the merge however it ends.

Hydra's own sweeper composes every job before the first one starts; here one job per distinct rest of the
overrides is checked beforehand (:mod:`boosterrun.hydra_ext.plan`): the first of thousands starts at once.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import shlex
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import hydra
from hydra._internal.core_plugins.basic_launcher import BasicLauncher
from hydra.core.config_loader import ConfigLoader
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob, Override
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, JobStatus, configure_log
from hydra.core.utils import run_job as hydra_job
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, open_dict

from boosterrun import launchers
from boosterrun.errors import BoosterrunError, RunError, UsageError
from boosterrun.hydra_ext import written
from boosterrun.hydra_ext.jobs import JobConfigs
from boosterrun.hydra_ext.keys import did_you_mean
from boosterrun.hydra_ext.sources import NONE, PackSource
from boosterrun.launchers import outcome
from boosterrun.launchers.engine import Engine
from boosterrun.launchers.task import Task
from boosterrun.sweeps import live, summary, turns
from boosterrun.system import interrupt, redact
from boosterrun.system.atomic import replacing
from boosterrun.system.visible import one_line

# Hydra 1.3 takes sweepers only from a package of this name; 1.4 wants the name that the class has.
HYDRA_1_3 = hydra.__version__.startswith("1.3.")
TARGET = "hydra_plugins.boosterrun.PackSweeper" if HYDRA_1_3 else "boosterrun.sweeps.sweep.PackSweeper"
MAX_NAME = 200
_first: list[Callable[[], None]] = []


@dataclass
class SweeperConfig:
    """``hydra/sweeper=boosterrun``; ``params`` are sweeps as on the command line, for a YAML."""

    _target_: str = TARGET
    params: dict[str, str] | None = None
    max_batch_size: int | None = None


def register() -> None:
    """Make the sweeper known to Hydra, in this process only."""
    ConfigStore.instance().store(
        group="hydra/sweeper", name="boosterrun", node=SweeperConfig, provider="boosterrun"
    )
    plugins = Plugins.instance()
    plugins.register(PackSweeper)
    plugins.class_name_to_class[TARGET] = PackSweeper
    launchers.register()


def before_jobs(what: Callable[[], None]) -> None:
    """Have something done once, before the first job of the next sweep is measured."""
    _first.append(what)


def _begin() -> None:
    while _first:
        _first[-1]()
        _first.pop()


def expand(arguments: Sequence[str], loader: ConfigLoader) -> list[dict[str, str]]:
    """Every job of a sweep as key -> value, both as overrides have them, in the order of the command line.

    A key given again replaces the earlier one. Equal jobs are one job.
    Raises UsageError for a glob without a match, a sweep without an end, an ACF that is not there.
    """
    choices: dict[str, list[str]] = {}
    for override in OverridesParser.create(config_loader=loader).parse_overrides(list(arguments)):
        choices[override.get_key_element()] = _values(override, loader)
    jobs = [dict(zip(choices, values, strict=True)) for values in product(*choices.values())]
    return list({tuple(job.items()): job for job in jobs}.values())


def _values(override: Override, loader: ConfigLoader) -> list[str]:
    if not override.is_sweep_override():
        return [str(override.get_value_element_as_str())]
    if not override.is_discrete_sweep():
        raise UsageError(f"'{override.input_line}' has no end", "Sweep over choices, a range or a glob")
    values = list(override.sweep_string_iterator())
    if values:
        return values
    group = override.key_or_group
    if isinstance(override.value(), Glob):
        options = loader.get_group_options(group)
        raise UsageError(f"'{override.input_line}' matches no {group}", did_you_mean("", options))
    raise UsageError(f"'{override.input_line}' is an empty sweep", "Give at least one value")


def acf_ids(jobs: Sequence[Mapping[str, str]], loader: ConfigLoader, default: str = NONE) -> list[str]:
    """The id of each job's ACF, which may be given by its filename; ``default`` where the job names none."""
    source = next((source for source in loader.get_sources() if isinstance(source, PackSource)), None)
    names = [job.get("acf", default) for job in jobs]
    found = [source.find(name) if source is not None and name != NONE else None for name in names]
    return [name if acf is None else acf.id for name, acf in zip(names, found, strict=True)]


def subdirs(jobs: Sequence[Mapping[str, str]], acfs: Sequence[str]) -> list[str]:
    """A folder name per job, with letters, digits and ``._-`` only: the ACF's id, then every other swept key.

    Names depend on the job alone where they can, and two jobs never share one.
    """
    swept = [key for key in (jobs[0] if jobs else ()) if key != "acf" and len({job[key] for job in jobs}) > 1]
    names: list[str] = []
    used: set[str] = set()
    for job, acf in zip(jobs, acfs, strict=True):
        values = [f"{key.lstrip('+')}={job[key]}" for key in swept]
        plain = "__".join([acf, *(value.replace("=", "-", 1) for value in values)])
        shown = [value.replace("=", "-", 1) for value in redact.argv(values)]
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", "__".join([acf, *shown])).strip(".-") or "job"
        if len(name) > MAX_NAME or name.casefold() in used:
            name = f"{name[:MAX_NAME]}-{hashlib.sha256(plain.encode()).hexdigest()[:8]}"
        used.add(name.casefold())
        names.append(name)
    return names


def job_overrides(jobs: Sequence[Mapping[str, str]], acfs: Sequence[str]) -> list[list[str]]:
    """The overrides of each job, but for that of its folder; each is told how many candidates there are."""
    common = f"sweep.candidates={max(1, len(set(acfs) - {NONE}))}"
    return [[*(_override(key, value) for key, value in job.items()), common] for job in jobs]


class PackSweeper(Sweeper):
    """Runs the jobs in this process, or hands them in batches to a launcher that runs them elsewhere."""

    def __init__(self, params: Mapping[str, str] | None = None, max_batch_size: int | None = None) -> None:
        super().__init__()
        self.params = dict(params or {})
        self.max_batch_size = max_batch_size
        self.launcher: Launcher | None = None

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.hydra_context = hydra_context
        self.config = config
        self.task_function = task_function
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> int:
        """Run every job. Returns the exit code: 0 all decided, 1 some job could not be judged."""
        assert self.config is not None and self.hydra_context is not None  # noqa: S101 - for the type checker
        loader = self.hydra_context.config_loader
        jobs = expand([*(f"{key}={value}" for key, value in self.params.items()), *arguments], loader)
        folder = Path(self.config.hydra.sweep.dir)
        with _writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        with replacing(folder / "multirun.yaml") as stream:
            stream.write(written.as_yaml(self.config))
        done, judged, kept = 0, 0, list[summary.Row]()
        here = isinstance(self.launcher, BasicLauncher)
        try:
            running = self._run(jobs, acf_ids(jobs, loader, str(self.config.acf.id)))
            # Closed before the merge: what still runs elsewhere writes what it has.
            with live.view(len(jobs), here=here) as view, contextlib.closing(running) as results:
                for result in results:
                    interrupt.check()
                    done += 1
                    judged += result["status"] == "decided" and result["acf"] is not None
                    kept += summary.rows(result)
                    view.finished(result)
        except BaseException:
            if _first:  # nothing has begun yet
                _first.clear()
                raise
            again = shlex.join(["boosterrun", "resume", str(folder)])
            sys.stderr.write(f"boosterrun: stopped after {done} of {len(jobs)} jobs; go on with: {again}\n")
            try:
                summary.merge(folder)
            except BoosterrunError as error:  # what stopped the sweep decides the exit code
                sys.stderr.write(f"boosterrun: error: {one_line(redact.text(str(error)))}\n")
            raise
        names = subdirs(jobs, acf_ids(jobs, loader, str(self.config.acf.id)))
        return summary.merge(folder, kept, judged, report=bool(self.config.report), expected=names)

    def _run(
        self, jobs: Sequence[Mapping[str, str]], acfs: Sequence[str]
    ) -> Generator[Mapping[str, Any], None, None]:
        assert self.config is not None  # noqa: S101 - for the type checker
        overrides = job_overrides(jobs, acfs)
        limit = self.config.protocol.max_baseline_failures
        failed: list[Mapping[str, Any]] = []
        launch = self._here if isinstance(self.launcher, BasicLauncher) else self._launched
        with contextlib.closing(launch(jobs, overrides, subdirs(jobs, acfs))) as launched:
            for number, returned in enumerate(launched, 1):
                result = _result(returned)
                yield result
                failed = [] if result["status"] == "decided" else [*failed, result]
                if len(failed) >= limit > 0 and number < len(jobs):
                    error = failed[-1]["error"]
                    raise RunError(
                        f"{len(failed)} jobs in a row could not be judged, the last one: {error['message']}",
                        error["advice"] or "Correct the cause and run the sweep again",
                    )

    def _here(
        self, jobs: Sequence[Mapping[str, str]], overrides: Sequence[list[str]], names: Sequence[str]
    ) -> Generator[JobReturn, None, None]:
        """One job after the other in this process, like Hydra's basic launcher; each is told at once."""
        assert self.config is not None and self.hydra_context is not None  # noqa: S101 - for the type checker
        configs = JobConfigs(self.hydra_context.config_loader, self.config)
        composed: dict[int, DictConfig] = {}

        def config(number: int) -> DictConfig:
            if number not in composed:
                composed[number] = configs.get(jobs[number], overrides[number], names[number])
                with open_dict(composed[number]):
                    composed[number].hydra.job.id = composed[number].hydra.job.num = number
            return composed[number]

        try:
            for number in turns.rounds(len(jobs), config, begin=_begin):
                yield self._job(config(number))
                del composed[number]
        finally:
            turns.close()

    def _job(self, config: DictConfig) -> JobReturn:
        assert self.config is not None and self.hydra_context is not None  # noqa: S101 - for the type checker
        if (stands := turns.earlier(config)) is not None:
            return _completed(stands)
        with _writing(Path(config.hydra.sweep.dir, config.hydra.sweep.subdir)):
            returned = hydra_job(
                hydra_context=self.hydra_context,
                task_function=self.task_function,
                config=config,
                job_dir_key="hydra.sweep.dir",
                job_subdir_key="hydra.sweep.subdir",
            )
        configure_log(self.config.hydra.hydra_logging, self.config.hydra.verbose)
        return returned

    def _launched(
        self, jobs: Sequence[Mapping[str, str]], overrides: Sequence[list[str]], names: Sequence[str]
    ) -> Generator[JobReturn, None, None]:
        """All jobs whose results do not stand, elsewhere; each is told as it ends."""
        assert self.config is not None and self.hydra_context is not None  # noqa: S101 - for the type checker
        _begin()
        configs = JobConfigs(self.hydra_context.config_loader, self.config)
        folder, cwd = Path(self.config.hydra.sweep.dir), str(Path.cwd())
        tasks = []
        for number, (job, line, name) in enumerate(zip(jobs, overrides, names, strict=True)):
            config = configs.get(job, line, name)
            if (stands := turns.earlier(config)) is not None:
                yield _completed(stands)
                continue
            with open_dict(config):
                config.hydra.job.id = config.hydra.job.num = number
            tasks.append(Task(name, config, cwd))
        if isinstance(self.launcher, Engine):
            with contextlib.closing(outcome.results(self.launcher, tasks, folder)) as results:
                for result in results:
                    yield _completed(result)
        elif tasks:
            yield from self._by_plugin(tasks, [[*overrides[t.config.hydra.job.num]] for t in tasks])

    def _by_plugin(self, tasks: Sequence[Task], lines: Sequence[list[str]]) -> Iterator[JobReturn]:
        """By a launcher of somebody else: all at once, or in ``hydra.sweeper.max_batch_size``."""
        assert self.launcher is not None  # noqa: S101 - for the type checker
        lines = [[*line, f"hydra.sweep.subdir={task.name}"] for task, line in zip(tasks, lines, strict=True)]
        size = self.max_batch_size or len(lines)
        for start in range(0, len(lines), size):
            try:
                returned = self.launcher.launch(lines[start : start + size], initial_job_idx=start)
            except Exception as error:  # a job that died is a result of its kind; the others are merged
                raise RunError(
                    f"the launcher failed: {type(error).__name__}: {error}", "What has a result stands"
                ) from error
            yield from returned


@contextlib.contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """Tell in one line when Hydra or we cannot write there."""
    try:
        yield
    except OSError as error:
        raise RunError(
            f"cannot write to {folder}: {error.strerror or error}",
            "Free some space or choose another hydra.sweep.dir",
        ) from error


def _override(key: str, value: str) -> str:
    return f"{key}={value}" if value or not key.startswith("~") else key


def _completed(result: Mapping[str, Any]) -> JobReturn:
    returned = JobReturn()
    returned.return_value = result
    returned.status = JobStatus.COMPLETED
    return returned


def _result(returned: JobReturn) -> Mapping[str, Any]:
    """The result of a job; an error of ours that ended it is raised as it was."""
    value = returned._return_value  # its public property prints before it raises
    if returned.status != JobStatus.COMPLETED:
        raise value
    result: Mapping[str, Any] = value
    return result
