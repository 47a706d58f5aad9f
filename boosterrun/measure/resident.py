"""The adapter of whatever runs in resident Python workers: plain Python here; frameworks derive from it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import cast

from boosterrun.adapters.base import Job, Judgement, Toolchain
from boosterrun.case import parse_source
from boosterrun.config import Config, PythonWorkload
from boosterrun.measure.api import Built, Side, SideName, SideSpec
from boosterrun.measure.engine import Engine
from boosterrun.measure.side import WorkerSide
from boosterrun.measure.trial import Application


class ResidentAdapter:
    """One worker process a side; ``BOOSTERRUN_ACF`` holds the ACF's path, and is absent on the baseline.

    A framework derives from this and overrides :meth:`environment` (injection, fresh caches, scrubbed
    variables), :meth:`toolchain` and :meth:`prove`.
    """

    name = "python"
    evidence = "timed"

    def toolchain(self, config: Config, env: Mapping[str, str]) -> Toolchain:
        """No compiler is chosen here: the workload's own environment does."""
        return Toolchain()

    def source(self, config: Config) -> Path | None:
        """The case's file; None for ``package.module:function``. Raises UsageError when it is not there."""
        return parse_source(_workload(config).case).path

    def benchmark_command(self, config: Config) -> list[str]:
        """The case is run by the worker; it has no command line of its own."""
        return ["python", "-m", "boosterrun.measure.worker", _workload(config).case]

    def environment(self, job: Job, side: SideName, work: Path) -> dict[str, str | None]:
        """Variables of one side on top of the shell's; None removes one."""
        mine = side == "candidate" and job.acf is not None and job.controls is not None
        acf = {"BOOSTERRUN_ACF": str(job.controls) if mine else None}
        return {**acf, **self.workload_environment(job, mine)}

    def workload_environment(self, job: Job, candidate: bool) -> dict[str, str | None]:
        """``workload.env`` with ``{acf}`` filled in; the baseline goes without a variable that names it."""
        filled: dict[str, str | None] = {}
        for name, value in job.config.workload.env.items():
            if "{acf}" in value and not candidate:
                filled[name] = None
            else:
                filled[name] = value.replace("{acf}", str(job.controls))
        return filled

    def prove(self, job: Job, baseline: Built, candidate: Built) -> Application:
        """Nothing is known of how the code was compiled."""
        return Application(detail="this adapter does not know what compiled the code")

    def judge(self, job: Job) -> Judgement:
        """Measure with two resident workers. Raises RunError when no candidate is at fault."""
        workload = _workload(job.config)
        source = self.source(job.config)
        function = workload.case.rpartition(":")[2]

        def open_side(side: SideName, work: Path) -> Side:
            candidate = side == "candidate" and job.acf is not None
            spec = SideSpec(
                name=side,
                acf=job.controls if candidate else None,
                acf_id=job.acf.id if candidate and job.acf else None,
                work=work,
                env=self.environment(job, side, work),
                case=f"{source}:{function}" if source else workload.case,
                options=workload.options,
                adapter=self.name,
            )
            return WorkerSide(spec, job.config.timeouts)

        return Engine(job, open_side, lambda b, c: self.prove(job, b, c)).judge()


def _workload(config: Config) -> PythonWorkload:
    return cast(PythonWorkload, config.workload)
