"""Jobs in this process: each in its turn, and what is done for it before that.

Where a candidate can be built before its turn, jobs come in rounds: all jobs of a round are screened before
the first of them is judged to its end, so that the processes of all confirmations start side by side.
"""

from __future__ import annotations

import contextlib
import copy
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from boosterrun import launchers
from boosterrun.config import typed
from boosterrun.errors import BoosterrunError
from boosterrun.gpus import binding
from boosterrun.hydra_ext import written
from boosterrun.measure import progress
from boosterrun.results import record
from boosterrun.sweeps import resume
from boosterrun.system import interrupt, redact

# Folders of jobs whose candidates this process builds, or has built, before their turn.
_BUILT_AHEAD: set[Path] = set()
# Folders of jobs that have been screened, and whose turn is to come.
_SCREENED: set[Path] = set()
# Their folders are held until then: another process must not begin what is half done here.
_HELD: dict[Path, int] = {}


def run_job(cfg: DictConfig) -> Mapping[str, Any]:
    """Hydra's task: one job in its folder, unless an earlier result stands there. Returns the result."""
    folder = Path(HydraConfig.get().runtime.output_dir)
    redact.learn(OmegaConf.to_container(cfg, resolve=True))
    written.keep(cfg, folder)
    progress.job(folder.name)
    with interrupt.handling(), _alone(folder):
        result = _turn(cfg, folder)
        if binding.lost(result, folder.parent, folder.name):
            result = _turn(cfg, folder)  # once: a candidate may be what breaks one GPU after the other
            binding.lost(result, folder.parent, folder.name)
        return result


def _turn(cfg: DictConfig, folder: Path) -> Mapping[str, Any]:
    """Run a job on a GPU that is fit for it, unless an earlier result stands. Returns the result."""
    from boosterrun.sweeps import app  # noqa: PLC0415 - the parent of a sweep in other processes never needs it

    bind(cfg, folder.parent)
    earlier, place = None, folder.absolute()
    with contextlib.suppress(BoosterrunError):  # the job itself tells what is wrong
        if place not in _SCREENED:
            earlier = resume.settle(typed(cfg), folder, built_ahead=place in _BUILT_AHEAD)
    _SCREENED.discard(place)
    if earlier is not None:
        return earlier
    result = app.run_job(cfg, folder)
    if interrupt.stopping():  # and yet it went on: what was killed may have been blamed on the candidate
        resume.discard(folder)
        interrupt.check()
    return result


def bind(cfg: DictConfig, folder: Path) -> None:
    """Have a GPU for the next job of the sweep in ``folder``; what lives on another one ends."""
    if binding.bind(typed(cfg), folder):
        close()
        _BUILT_AHEAD.clear()
        _SCREENED.clear()


def warm_up(cfg: DictConfig, folder: Path) -> None:
    """Have a GPU for the jobs to come in ``folder``, and begin what takes seconds.

    Never raises: what is wrong is told by the jobs.
    """
    from boosterrun.sweeps import app  # noqa: PLC0415 - see _turn

    with contextlib.suppress(BoosterrunError):
        bind(cfg, folder)
        app.warm_up(cfg)


def task_config(config: DictConfig) -> DictConfig:
    """A composed job's config as :func:`run_job` gets it."""
    task = copy.copy(config)
    with open_dict(task):
        task.pop("hydra", None)
    return task


def earlier(config: DictConfig) -> resume.Earlier | None:
    """The result of a composed job that an earlier run has left, if it stands."""
    elsewhere = launchers.elsewhere(config.hydra.launcher)
    folder = Path(config.hydra.sweep.dir, config.hydra.sweep.subdir)
    if not (folder / record.FILENAME).exists():
        return None
    try:
        found = resume.standing(typed(task_config(config)), folder, elsewhere=elsewhere)
    except (BoosterrunError, OmegaConfBaseException):  # told by the job itself
        return None
    return None if found.rewritten else found.result


def round_size(config: DictConfig) -> int:
    """How many jobs are screened before any of them is confirmed."""
    from boosterrun.sweeps import app  # noqa: PLC0415 - see _turn

    return app.round_size(config)


def announce(config: DictConfig) -> bool:
    """Tell of a job to come, as :func:`run_job` will get it; False when there is no room for it now."""
    from boosterrun.sweeps import app  # noqa: PLC0415 - see _turn

    task, folder = _to_come(config)
    if folder in _BUILT_AHEAD:
        return True
    if folder.exists():  # of an earlier run: its result may stand, and its leftovers go before the job begins
        return True
    if not app.announce(task, folder):
        return False
    _BUILT_AHEAD.add(folder)
    return True


def screen(config: DictConfig) -> None:
    """Do the screen of a job that was announced; whatever is wrong is told by the job itself."""
    from boosterrun.sweeps import app  # noqa: PLC0415 - see _turn

    task, folder = _to_come(config)
    if folder not in _BUILT_AHEAD:
        return
    progress.job(folder.name)
    with contextlib.suppress(BoosterrunError, OSError):
        redact.learn(OmegaConf.to_container(task, resolve=True))
        folder.mkdir(parents=True, exist_ok=True)
        if (held := resume.hold(folder)) is not None:
            _HELD[folder] = held
            if resume.settle(typed(task), folder, built_ahead=True) is None:
                if app.screen(task, folder):
                    _SCREENED.add(folder)
                    return
                resume.withdraw(folder)
    _let_go(folder)
    app.drop(folder)
    _BUILT_AHEAD.discard(folder)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Have a job's folder alone, as it may be since the job's screen."""
    place = folder.absolute()
    if place not in _HELD:
        with resume.turn(folder):
            yield
        return
    try:
        yield
    finally:
        _let_go(place)


def _let_go(folder: Path) -> None:
    if (held := _HELD.pop(folder, None)) is not None:
        os.close(held)


def _to_come(config: DictConfig) -> tuple[DictConfig, Path]:
    hydra = config.hydra
    return task_config(config), Path(hydra.sweep.dir, hydra.sweep.subdir).absolute()


def end_round() -> None:
    """End what the jobs of a round shared."""
    from boosterrun.sweeps import app  # noqa: PLC0415 - see _turn

    app.end_round()


def rounds(
    count: int, config: Callable[[int], DictConfig], begin: Callable[[], None] = lambda: None
) -> Iterator[int]:
    """Yield the number of each job when its turn has come, for the caller to run it.

    ``config`` gives the composed config of a job by its number; ``begin`` is called before anything is
    measured, when the first builds have begun.
    """
    size = round_size(config(0)) if count else 1
    for start in range(0, count, size):
        if size > 1:
            near = [config(n) for n in range(start, min(start + 2 * size, count))]
            _prepare(near[:size], near[size:], begin)
        begin()
        # Those that are held here come first: who waits for another's must hold none that it waits for.
        due = range(start, min(start + size, count))
        yield from sorted(due, key=lambda n: size > 1 and _to_come(config(n))[1] not in _SCREENED)
        if size > 1:
            end_round()


def _prepare(configs: Sequence[DictConfig], later: Sequence[DictConfig], begin: Callable[[], None]) -> None:
    """Screen the jobs of a round; the candidates of the next one begin to build after that."""
    bind(task_config(configs[0]), Path(configs[0].hydra.sweep.dir))
    for config in configs:
        announce(config)
    begin()
    for config in configs:
        interrupt.check()
        screen(config)
    for config in later:
        if not announce(config):
            break


def close() -> None:
    """End what was started for jobs to come."""
    from boosterrun.sweeps import app  # noqa: PLC0415 - see _turn

    app.close()
    for folder in list(_HELD):
        _let_go(folder)
