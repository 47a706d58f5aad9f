"""``boosterrun plan ...``: what a run would do, what is done, how long the rest may take. Runs nothing."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.types import RunMode

from boosterrun.errors import UsageError
from boosterrun.hydra_ext import arguments
from boosterrun.hydra_ext.remembered import command as remembered
from boosterrun.hydra_ext.setup import set_up
from boosterrun.sweeps.estimate import Estimate, duration, estimate
from boosterrun.system.visible import one_line

_ABOUT = """usage: boosterrun plan [-m] [OVERRIDE...]
       boosterrun plan DIR [OVERRIDE...]      what `boosterrun resume DIR` would do

Print the jobs, what is done already and stands, and how long the rest may take. Nothing is run or written.
"""


@dataclass(frozen=True)
class Listed:
    """One job of a plan: its folder's name, what there is of it, and the decision if that stands."""

    name: str
    state: str
    why: str
    decision: str | None


def run(argv: Sequence[str]) -> int:
    """Print the plan of a run with these arguments. Returns 0.

    Raises BoosterrunError for what would stop the run before its first job.
    """
    if "--help" in argv or "-h" in argv:
        sys.stdout.write(_ABOUT)
        return 0
    if argv and not argv[0].startswith("-") and "=" not in argv[0]:
        argv = remembered(argv[0], argv[1:])
    set_up()
    from boosterrun.hydra_ext import plan  # noqa: PLC0415
    from boosterrun.sweeps import app  # noqa: PLC0415

    parsed = arguments.parse(argv)
    if parsed.flags.cfg or parsed.flags.info:
        raise UsageError("plan takes the overrides of a run", "See boosterrun plan --help")
    planned = plan.make(parsed)
    for config in planned.configs:
        app.preflight(config)
    listed = _listed(planned)
    shapes = {str(name) for config in planned.configs for name in config.workload.shapes or {"default": {}}}
    _print(planned, listed, sorted(shapes))
    return 0


def _listed(planned: Any) -> list[Listed]:
    """Every job in order, and how it stands. Composes each config, which takes most of the time."""
    from boosterrun.config import typed  # noqa: PLC0415
    from boosterrun.hydra_ext import launch  # noqa: PLC0415
    from boosterrun.hydra_ext.jobs import JobConfigs  # noqa: PLC0415
    from boosterrun.sweeps import resume, sweep, turns  # noqa: PLC0415

    with launch.prepared(planned.search_path) as hydra_app:
        master = hydra_app.compose_config(
            config_name=planned.config_name,
            overrides=[*planned.overrides, f"hydra.mode={RunMode.MULTIRUN.name}"],
            run_mode=RunMode.MULTIRUN,
            with_log_configuration=False,
        )
        loader = hydra_app.config_loader
        params = master.hydra.sweeper.get("params") or {} if planned.multirun else {}
        swept = [f"{key}={value}" for key, value in params.items()]
        jobs = sweep.expand([*swept, *master.hydra.overrides.task], loader)
        acfs = sweep.acf_ids(jobs, loader, str(master.acf.id))
        names = sweep.subdirs(jobs, acfs)
        if not planned.folder.is_dir():
            return [Listed(name, "new", "", None) for name in names]
        configs = JobConfigs(loader, master)
        found = []
        for job, lines, name in zip(jobs, sweep.job_overrides(jobs, acfs), names, strict=True):
            if not (planned.folder / name).is_dir():
                found.append(Listed(name, "new", "", None))
                continue
            config = typed(turns.task_config(configs.get(job, lines, name)))
            standing = resume.standing(config, planned.folder / name, elsewhere=planned.elsewhere)
            decision = standing.result["decision"] if standing.result else None
            found.append(Listed(name, standing.state, standing.why, decision))
        return found


def _print(planned: Any, listed: Sequence[Listed], shapes: Sequence[str]) -> None:
    due = [job for job in listed if job.state != "done"]
    workloads = ", ".join(dict.fromkeys(config.workload.name for config in planned.configs))
    protocols = ", ".join(dict.fromkeys(config.protocol.name for config in planned.configs))
    width = len(str(len(listed)))
    for number, job in enumerate(listed, 1):
        what = (
            f"done: {job.decision}" if job.state == "done" else "to run" + (f": {job.why}" if job.why else "")
        )
        sys.stdout.write(f"[{number:>{width}}/{len(listed)}] {job.name}  {one_line(what)}\n")
    states = Counter(job.state for job in listed)
    counts = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    sys.stdout.write(f"jobs:     {len(listed)}: {counts}\n")
    sys.stdout.write(f"workload: {workloads} (shapes: {', '.join(shapes)}), protocol {protocols}\n")
    sys.stdout.write(f"pack:     {planned.pack.display_name}, {planned.pack.location}\n")
    where = "exists" if planned.folder.is_dir() else "new"
    sys.stdout.write(f"folder:   {planned.folder} ({where})\n")
    sys.stdout.write(f"time:     {_time(planned, due, len(shapes))}\n")


def _time(planned: Any, due: Sequence[Listed], shapes: int) -> str:
    if not due:
        return "none, everything is done"
    from boosterrun.adapters import base  # noqa: PLC0415

    config = planned.configs[0]
    evidence = base.load(config.workload.adapter).evidence
    found: Estimate = estimate(_tree(planned.folder), config.workload.name, evidence, shapes)
    jobs = f"{len(due)} jobs" if len(due) > 1 else "1 job"
    return f"about {duration(found.seconds * len(due))}: {jobs} of {found.seconds:.2g} s, {found.basis}"


def _tree(folder: Path) -> Path:
    """Where earlier runs of the same workload are: the folder itself, else beside it."""
    return folder if folder.is_dir() else folder.parent
