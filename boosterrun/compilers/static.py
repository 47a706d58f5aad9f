"""The static screen: judge an ACF by what ptxas makes of each shape, without running any of it.

The deciding half is pure: totals of two builds and an objective in, a decision out. The other half builds.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from boosterrun.compilers import assembly
from boosterrun.compilers.assembly import Build, Shape
from boosterrun.compilers.cubin import applied_controls
from boosterrun.compilers.static_record import proof, same_code, shape_record, totals
from boosterrun.compilers.toolchain import Compiler
from boosterrun.config import PtxasWorkload
from boosterrun.errors import RunError
from boosterrun.packs import Acf
from boosterrun.system import guardian
from boosterrun.system.digest import sha256_if_there

KEPT = "KEPT"
_REJECTED = "REJECTED:"
_NO_GAIN = _REJECTED + "no_gain"
_REGRESSION = _REJECTED + "regression"
_IDENTICAL = _REJECTED + "identical_code"
_NO_DIFFERENCE = _REJECTED + "no_difference"
_MEASURED = (KEPT, _NO_GAIN, _REGRESSION, _IDENTICAL, _NO_DIFFERENCE)
_GROUP = "BOOSTERRUN_BUILD"


@dataclass(frozen=True)
class Comparison:
    """What the objective says about one shape.

    Attributes:
        metric: the one that decided; the first of the objective when none differs.
        gain: fraction by which the candidate is lower; None when the baseline is 0.
    """

    decision: str
    message: str
    metric: str
    baseline: float
    candidate: float
    gain: float | None


@dataclass(frozen=True)
class Verdict:
    """The decision over all shapes, a sentence for people, and the record of each shape."""

    decision: str
    message: str
    shapes: list[dict[str, Any]]


class Baselines:
    """The baseline builds of this process: each distinct one is made once, whoever asks first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._builds: dict[object, Build] = {}
        self._locks: dict[object, threading.Lock] = {}

    def get(self, key: object, make: Callable[[], Build]) -> Build:
        """Return the build with this key, made by ``make`` if it is not there; an error is not kept."""
        with self._lock:
            own = self._locks.setdefault(key, threading.Lock())
        with own:
            if key not in self._builds:
                self._builds[key] = make()
            return self._builds[key]


def compare(
    baseline: Mapping[str, float], candidate: Mapping[str, float], objective: Sequence[str], min_gain: float
) -> Comparison:
    """Decide one shape by the first metric of the objective that differs; lower is better.

    ``min_gain`` is a fraction of the baseline: that much less is a gain, that much more a regression, as is
    any growth from 0. Both mappings hold each metric of the objective.
    """
    metric = next((name for name in objective if baseline[name] != candidate[name]), objective[0])
    before, after = baseline[metric], candidate[metric]
    gain = (before - after) / before if before else None
    if before == after:
        same = f"{' and '.join(objective)} stay the same, in other code"
        return Comparison(_NO_GAIN, same, metric, before, after, gain)
    change = f"{metric} {before:g} -> {after:g}" + ("" if gain is None else f" ({-100 * gain:+.1f} %)")
    if gain is not None and abs(gain) < min_gain:
        return Comparison(_NO_GAIN, change, metric, before, after, gain)
    return Comparison(KEPT if after < before else _REGRESSION, change, metric, before, after, gain)


def decide(decisions: Sequence[str]) -> str:
    """Return the decision over all shapes: a failure of one is one of all, else a regression, else a gain."""
    failed = [decision for decision in decisions if decision not in _MEASURED]
    if failed:
        return failed[0]
    for decision in (_REGRESSION, KEPT, _NO_GAIN, _IDENTICAL):
        if decision in decisions:
            return decision
    return _NO_DIFFERENCE


def judge(
    workload: PtxasWorkload,
    *,
    arch: str | None,
    compiler: Compiler,
    acf: Acf | None,
    controls: Path | None,
    folder: Path,
    timeout: float,
    grace: float,
    min_gain: float,
    baselines: Baselines,
) -> Verdict:
    """Assemble every shape with and without an ACF, all shapes at a time, and decide.

    ``acf`` and ``controls`` (its sha256-named copy) are None for the self-test. ``timeout`` and ``grace``
    are seconds for each run of ptxas; ``min_gain`` is a fraction. Cubins are left in ``folder``. Raises
    UsageError for a workload that makes no sense, and RunError when the baseline does not build, the
    self-test fails, or the machine is at fault.
    """
    objective = assembly.objective(workload)
    shapes = assembly.shapes(workload, arch)
    if acf is not None and tuple(acf.compiler_stages) != ("ptxas",):
        stages = ", ".join(acf.compiler_stages)
        why = f"the ACF is for the stages {stages}, and ptxas alone would get only its own half"
        decision = _REJECTED + "unsupported_stage"
        return Verdict(decision, why, [shape_record(shape, decision, why, objective[0]) for shape in shapes])
    group = secrets.token_hex(8)
    job = _Job(
        compiler=compiler,
        controls=controls,
        objective=objective,
        min_gain=min_gain,
        timeout=timeout,
        grace=grace,
        env={**assembly.environment(workload), _GROUP: group},
        settings=tuple(sorted(assembly.environment(workload, {}).items())),
        baselines=baselines,
    )
    tasks = [
        lambda shape=shape, place=folder / f"shape-{number:02}": job.shape(shape, place)
        for number, shape in enumerate(shapes, 1)
    ]
    records = _together(tasks, f"{_GROUP}={group}")
    decision = decide([record["decision"] for record in records])
    return Verdict(decision, _summary(decision, records), records)


@dataclass(frozen=True)
class _Job:
    """What is the same for each shape of one candidate."""

    compiler: Compiler
    controls: Path | None
    objective: tuple[str, ...]
    min_gain: float
    timeout: float
    grace: float
    env: Mapping[str, str]
    settings: tuple[tuple[str, str], ...]
    baselines: Baselines

    def shape(self, shape: Shape, folder: Path) -> dict[str, Any]:
        """Build both sides of a shape and return its record."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(
                f"cannot make the work folder {folder}: {error.strerror}", "Make room there"
            ) from error
        key = (shape.ptx_sha256, shape.ptx, shape.arch, shape.flags, self.compiler, self.settings)
        baseline = self.baselines.get(key, lambda: self._baseline(shape, folder))
        candidate = self._build(shape, self.controls, folder, "candidate.cubin")
        record = partial(shape_record, shape, baseline=baseline, candidate=candidate)
        if candidate.failure is not None:
            reason, words = self._explained(shape, candidate.failure)
            applied = "not_applied" if reason == "acf_not_applied" else "unproven"
            application = (applied, "no cubin to prove it")
            return record(_REJECTED + reason, words, self.objective[0], application=application)
        application = proof(candidate, self.controls)
        if application[0] == "not_applied":
            reason = _REJECTED + "acf_not_applied"
            return record(reason, application[1], self.objective[0], application=application)
        comparison = compare(totals(baseline), totals(candidate), self.objective, self.min_gain)
        identical = same_code(baseline, candidate)
        decision, message = comparison.decision, comparison.message
        if self.controls is None:
            if not identical:
                raise RunError(
                    f"the self-test of shape {shape.name} failed: two builds without ACF differ ({message})",
                    f"Do not trust static results of {self.compiler.path} on this workload",
                )
            decision, message = _NO_DIFFERENCE, "two builds without an ACF are the same, bit for bit"
        elif identical:
            decision, message = _IDENTICAL, "the machine code is the baseline's, bit for bit"
        return record(decision, message, comparison.metric, application=application, identical=identical)

    def _explained(self, shape: Shape, failure: tuple[str, str]) -> tuple[str, str]:
        reason, words = failure
        if self.controls is None:
            raise RunError(f"shape {shape.name} built once, but not twice ({reason}): {words}", "Try again")
        if reason == "acf_invalid":
            words += f": damaged, or not made for CUDA {self.compiler.cuda_version}"
        return reason, words

    def _build(self, shape: Shape, controls: Path | None, folder: Path, output: str) -> Build:
        """Assemble the PTX that the shape was read from, and no other."""
        build = assembly.build(
            str(self.compiler.path),
            shape,
            controls,
            folder=folder,
            output=output,
            timeout=self.timeout,
            grace=self.grace,
            env=self.env,
        )
        if sha256_if_there(shape.ptx) != shape.ptx_sha256:
            raise RunError(f"{shape.ptx} changed while it was assembled", "Run it again")
        return build

    def _baseline(self, shape: Shape, folder: Path) -> Build:
        build = self._build(shape, None, folder, "baseline.cubin")
        if build.failure is not None:
            reason, words = build.failure
            raise RunError(
                f"the baseline of shape {shape.name} does not build ({reason}): {words}",
                f"No ACF is at fault: correct the workload, or gpu.arch (now {shape.arch})",
            )
        if build.cubin is not None and applied_controls(build.cubin):
            raise RunError(
                f"the baseline of shape {shape.name} was built with controls: {build.cubin.options}",
                f"Find what adds --apply-controls to {self.compiler.path}, and remove it",
            )
        return build


def _summary(decision: str, records: Sequence[dict[str, Any]]) -> str:
    """Return one sentence: the shape that shows the decision best, and how many share it."""
    chosen = [record for record in records if record["decision"] == decision]
    shown = max(chosen, key=lambda record: abs(record["gain"] or 0.0))
    if decision in (_IDENTICAL, _NO_DIFFERENCE) or len(records) == 1:
        return str(shown["message"])
    share = f"{decision.removeprefix(_REJECTED)} in {len(chosen)} of {len(records)} shapes"
    return f"{shown['name']}: {shown['message']}; {share}"


def _together(tasks: Sequence[Callable[[], dict[str, Any]]], marker: str) -> list[dict[str, Any]]:
    """Run tasks in threads; when one raises, or this thread is interrupted, end what the others started."""
    with ThreadPoolExecutor(min(len(tasks), len(os.sched_getaffinity(0)))) as pool:
        futures: list[Future[dict[str, Any]]] = [pool.submit(task) for task in tasks]
        try:
            for future in wait(futures, return_when=FIRST_EXCEPTION).done:
                future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            while not all(future.done() for future in futures):
                guardian.kill_marked(marker.encode(), patience=1.0)
                time.sleep(0.05)
            raise
        return [future.result() for future in futures]
