"""PTX that ptxas assembles with and without an ACF: a static screen, nothing runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from boosterrun.adapters.base import Job, Judgement, Toolchain
from boosterrun.compilers import assembly, static
from boosterrun.compilers.cubin import applied_controls
from boosterrun.compilers.probe import Probe, Remedies
from boosterrun.compilers.resources import METRICS
from boosterrun.compilers.toolchain import find_ptxas, require_controls
from boosterrun.config import Config
from boosterrun.errors import RunError


class Ptxas:
    """The adapter; it keeps the baseline builds, so that a sweep makes each once."""

    evidence = "static"
    remedies = Remedies(
        options="--apply-controls on ptxas's command line",
        replaced="apply-controls in the workload's flags",
        compiler="toolchain.ptxas",
        cache="a cache around ptxas",
    )

    def __init__(self) -> None:
        self._baselines = static.Baselines()

    def toolchain(self, config: Config, env: Mapping[str, str]) -> Toolchain:
        """Find a ptxas that can apply controls; raises ToolchainError."""
        ptxas = find_ptxas(config.toolchain.ptxas, env)
        require_controls(ptxas)
        return Toolchain(ptxas=ptxas)

    def source(self, config: Config) -> Path:
        """Return the PTX file of the first shape; raises UsageError when the workload makes no sense."""
        return assembly.shapes(config.workload, config.gpu.arch)[0].ptx

    def benchmark_command(self, config: Config) -> list[str]:
        """Return how the baseline of the first shape is assembled; raises UsageError like :meth:`source`."""
        shape = assembly.shapes(config.workload, config.gpu.arch)[0]
        return list(assembly.command("ptxas", shape, None, "baseline.cubin"))

    def judge(self, job: Job) -> Judgement:
        """Assemble every shape with and without the candidate and decide by the workload's objective.

        Raises UsageError for a workload that makes no sense, RunError when no candidate is at fault.
        """
        config = job.config
        if job.toolchain.ptxas is None:
            raise RunError(
                "no ptxas was chosen for this job", "Choose one with toolchain.ptxas=/path/to/ptxas"
            )
        metric, *tie_breakers = assembly.objective(config.workload)
        started = time.monotonic()
        verdict = static.judge(
            config.workload,
            arch=job.arch,
            compiler=job.toolchain.ptxas,
            acf=job.acf,
            controls=job.controls,
            folder=job.work,
            timeout=config.timeouts.build,
            grace=config.timeouts.grace,
            min_gain=config.protocol.min_gain,
            baselines=self._baselines,
        )
        return Judgement(
            decision=verdict.decision,
            message=verdict.message,
            shapes=verdict.shapes,
            objective={
                "metric": metric,
                "unit": METRICS[metric],
                "better": "lower",
                "tie_breakers": tie_breakers,
            },
            phases={"build": time.monotonic() - started},
        )

    def injects(self, config: Config) -> bool:
        """Always."""
        return True

    def ignored(self) -> list[str]:
        """ptxas itself reads no variable that matters here."""
        return []

    def probe(self, job: Job, begin: Callable[[], None] = lambda: None) -> Probe:
        """Assemble the first shape with the ACF; raises RunError when the machine is at fault."""
        assert job.toolchain.ptxas is not None  # noqa: S101 - for the type checker
        if job.acf is not None and tuple(job.acf.compiler_stages) != ("ptxas",):
            return Probe("unsupported_stage", "the ACF is for more than ptxas")
        begin()
        workload = job.config.workload
        build = assembly.build(
            str(job.toolchain.ptxas.path),
            assembly.shapes(workload, job.arch)[0],
            job.controls,
            folder=job.work,
            output="canary.cubin",
            timeout=job.config.timeouts.build,
            grace=job.config.timeouts.grace,
            env=assembly.environment(workload),
        )
        reason, words = build.failure or (None, "")
        found = " ".join(applied_controls(build.cubin)) if build.cubin is not None else ""
        return Probe(reason, words, () if build.cubin is None else (found,))


ADAPTER = Ptxas()
