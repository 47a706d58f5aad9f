"""One job, top to bottom: load the candidate, judge it, write ``result.json``.

A candidate's failure is a result, never an exception. What is no candidate's fault (a broken baseline, no
compiler, a full disk) makes the result ``undecided`` with an error, and the sweep exit 1.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import sys
import time
import traceback
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, cast

from omegaconf import DictConfig

from boosterrun import packs
from boosterrun.adapters import base
from boosterrun.config import Config, typed
from boosterrun.decision.pairs import Protocol
from boosterrun.errors import BoosterrunError, UsageError
from boosterrun.gpus import binding, devices, gpu
from boosterrun.results import draft, environment, record
from boosterrun.sweeps import canary
from boosterrun.system import closer, interrupt, redact

SELF_TEST = "none"
WORK = "work"
# Jobs of a round for each side that may be ahead: the larger, the less often everybody waits for builds.
_ROUNDS = 2
# Seconds that were spent on a job before its turn, by its folder.
_SCREENED: dict[Path, float] = {}


def preflight(cfg: DictConfig) -> None:
    """Check once, before the first job, what no candidate can change: protocol, workload, compilers, pack.

    Raises BoosterrunError (UsageError, PackError, ToolchainError) with what to do next.
    """
    config = typed(cfg)
    Protocol.from_mapping(asdict(config.protocol))
    _check_choices(config)
    devices.check(config, os.environ)
    adapter = base.load(config.workload.adapter)
    adapter.source(config)
    toolchain = adapter.toolchain(config, os.environ)
    if config.acf.id != SELF_TEST:
        _require_controls(_pack(config), toolchain)


def run_job(cfg: DictConfig, folder: Path) -> dict[str, Any]:
    """Judge one candidate and write its result into ``folder``. Returns the result.

    Never raises for a candidate; raises KeyboardInterrupt and SystemExit after the result has been written.
    """
    job = _Job(cfg, folder)
    try:
        job.judge()
    except BoosterrunError as error:
        job.undecided(_kind(error), error.message, error.advice)
    except (KeyboardInterrupt, SystemExit):
        job.undecided(
            "interrupted", "the job was interrupted", f"Go on with boosterrun resume {folder.parent}"
        )
        with interrupt.shielded():
            job.write()
        raise
    except Exception as error:  # an error of ours must not end the sweep: the others still count
        advice = "This is an error in boosterrun; please report it with the details of this result"
        job.undecided(
            "internal_error",
            f"{type(error).__name__}: {error}",
            advice,
            {"traceback": traceback.format_exc()},
        )
    with interrupt.shielded():
        job.write()
    return job.result


def warm_up(cfg: DictConfig) -> None:
    """Begin what takes seconds, whatever the jobs are. Never raises: what is wrong is told by the jobs."""
    with contextlib.suppress(Exception):
        config = typed(cfg)
        adapter = base.load(config.workload.adapter)
        if isinstance(adapter, base.Warming):
            adapter.warm_up(config, cast(base.Adapter, adapter).toolchain(config, os.environ))


def round_size(cfg: DictConfig) -> int:
    """How many jobs are screened before the first of them is confirmed; 1: each job is judged in one go."""
    if not isinstance(base.load(cfg.workload.adapter), base.Preparing):
        return 1
    from boosterrun.measure import ahead  # noqa: PLC0415 - a static screen needs none of it

    return max(1, _ROUNDS * ahead.limit(cfg.sweep.build_ahead))


def announce(cfg: DictConfig, folder: Path) -> bool:
    """Start to build the candidate of a later job in the background.

    Returns False when there is no room now: ask again before a later job. Never raises: what is wrong is told
    when the job itself comes, with the same ``folder``.
    """
    try:
        adapter, job = _early(cfg, folder)
        return job is None or adapter.prepare(job)
    except Exception:
        return True


def screen(cfg: DictConfig, folder: Path) -> bool:
    """Do the screen of a later job now; returns whether :func:`run_job` will go on from there.

    Never raises but for a signal: what is wrong is told when the job itself comes, with the same ``folder``.
    """
    begun = time.monotonic()
    try:
        adapter, job = _early(cfg, folder)
        if job is None:
            return False
        adapter.screen(job)
    except Exception:
        return False
    _SCREENED[folder] = time.monotonic() - begun
    return True


def drop(folder: Path) -> None:
    """End what was built for the job of this folder before its turn. Never raises."""
    if (ahead := sys.modules.get("boosterrun.measure.ahead")) is not None:
        ahead.drop(folder)


def _early(cfg: DictConfig, folder: Path) -> tuple[base.Preparing, base.Job | None]:
    """A job before its turn, and who can do something for it; None: nothing can be done."""
    config = typed(cfg)
    adapter = base.load(config.workload.adapter)
    if not isinstance(adapter, base.Preparing):
        raise TypeError(config.workload.adapter)
    if config.acf.id == SELF_TEST:
        return adapter, None
    pack = _pack(config)
    acf = pack.get(config.acf.id)
    controls = packs.materialise(pack.read(acf), acf.sha256)
    toolchain = cast(base.Adapter, adapter).toolchain(config, os.environ)
    work = _private(folder / WORK)
    return adapter, base.Job(config, acf, controls, folder, work, toolchain, config.gpu.arch)


def _private(folder: Path) -> Path:
    """Make a folder for what user code writes: that may hold secrets, and is for nobody else to read."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def end_round() -> None:
    """End what the jobs of a round shared. Never raises."""
    for name, end in (("rounds", "close"), ("kept", "end_round")):
        _end(name, end)


def close() -> None:
    """End what was started for later jobs. Never raises."""
    for name in ("rounds", "ahead", "kept", "warm"):
        _end(name, "close")
    closer.finish()


def _end(name: str, how: str) -> None:
    """A static screen has none of these modules, and is not to load them for this."""
    if (module := sys.modules.get(f"boosterrun.measure.{name}")) is not None:
        getattr(module, how)()


class _Job:
    """The record of one job, complete at any moment, so that nothing measured is lost."""

    def __init__(self, cfg: DictConfig, folder: Path) -> None:
        self.config = typed(cfg)
        self.folder = folder
        self.work = folder / WORK
        self.begun = time.monotonic() - _SCREENED.pop(folder, 0.0)
        self.place = folder.stat()
        self.result = draft.blank(cfg, self.config)
        redact.learn([self.result["config"], self.result["job"]])

    def judge(self) -> None:
        """Fill in the record step by step. Raises BoosterrunError when the candidate cannot be judged."""
        config, result = self.config, self.result
        adapter = base.load(config.workload.adapter)
        result["evidence"] = adapter.evidence
        source = adapter.source(config)
        before = binding.snapshot()
        result["environment"] = {
            **environment.capture([source] if source is not None else []),
            "gpu": {"before": before},
        }

        acf, controls = None, None
        if config.acf.id != SELF_TEST:
            pack = _pack(config)
            result["pack"] = draft.pack_block(pack, gpu.visible_device(os.environ))
            acf = pack.get(config.acf.id)
            if config.acf.sha256 not in (None, acf.sha256):
                raise BoosterrunError(f"{acf.filename} changed since the sweep began", "Start a new sweep")
            controls = packs.materialise(pack.read(acf), acf.sha256)
            result["acf"] = draft.acf_block(acf)

        result["workload"]["benchmark_command"] = adapter.benchmark_command(config)
        if source is not None:
            result["workload"]["source"] = str(source)
            result["workload"]["source_sha256"] = hashlib.sha256(source.read_bytes()).hexdigest()

        toolchain = adapter.toolchain(config, os.environ)
        result["toolchain"] = draft.toolchain_block(toolchain)
        result["environment"]["canary"] = canary.recorded(config, toolchain, self.folder.parent)
        if result["pack"] is not None:
            _require_controls(_pack(config), toolchain)

        _private(self.work)
        job = base.Job(config, acf, controls, self.folder, self.work, toolchain, config.gpu.arch)
        judgement = adapter.judge(job)
        result["environment"]["gpu"]["after"] = binding.snapshot()
        result["environment"]["gpu"]["stages"] = judgement.stages
        result["environment"]["versions"] = judgement.versions
        result["toolchain"]["framework"] = judgement.framework
        result.update(
            status="decided",
            decision=judgement.decision,
            message=judgement.message,
            objective=judgement.objective,
            shapes=judgement.shapes,
            phases=judgement.phases,
        )

    def undecided(self, kind: str, message: str, advice: str, details: dict[str, Any] | None = None) -> None:
        """Record that the candidate could not be judged, and why."""
        error = {"kind": kind, "message": message, "advice": advice, "details": details}
        self.result.update(status="undecided", decision=None, message=message, error=error)

    def write(self) -> None:
        """Write ``result.json``; on a full disk the job stays without one, and the merge lists it.

        A folder that was removed while the job ran took the pairs along: what was found is no result.
        """
        finished = time.monotonic()
        self.result["job"].update(finished_at=draft.now(), seconds=round(finished - self.begun, 6))
        self.result = redact.tree(self.result)  # what is said of it is free of secrets too
        if not self._there():
            gone = f"{self.folder} was removed while the job ran"
            self.undecided("run", gone, "Leave a sweep's folder alone until it has ended")
            self.result.update(objective=None, shapes=[], phases={})
        try:
            try:
                record.write(self.result, self.folder)
            except record.InvalidResult as error:
                # An error of ours: the job keeps its reason, and its shapes as details.
                details = {"shapes": self.result["shapes"]}
                self.undecided("internal_error", error.message, "Please report it", details)
                self.result.update(objective=None, shapes=[], phases={})
                record.write(self.result, self.folder)
        except BoosterrunError as error:
            self.undecided(_kind(error), error.message, error.advice)
        if self.result["status"] == "decided" and not self.config.keep_work:
            closer.later(partial(shutil.rmtree, self.work, ignore_errors=True), last=True)

    def _there(self) -> bool:
        """Whether the job's folder is still the one in which it began; if not, there is one afterwards."""
        with contextlib.suppress(OSError):
            if os.path.samestat(self.folder.stat(), self.place):
                return True
        with contextlib.suppress(OSError):  # told by whoever writes there
            self.folder.mkdir(parents=True, exist_ok=True)
        return False


def _check_choices(config: Config) -> None:
    start, ahead = config.protocol.confirm_start, config.sweep.build_ahead
    if start not in ("auto", "fork", "spawn"):
        raise UsageError(f"protocol.confirm_start={start} is not known", "Choose auto, fork or spawn")
    if ahead != "auto" and not (isinstance(ahead, int) and ahead >= 0):
        raise UsageError(f"sweep.build_ahead={ahead} is not known", "Choose auto, 0, or a number of sides")


def _pack(config: Config) -> packs.Pack:
    stage = config.pack.stage.value if config.pack.stage is not None else None
    return packs.open_pack(
        Path(config.pack.path), cuda_version=config.pack.cuda_version, stage=stage, name=config.pack.name
    )


def _require_controls(pack: packs.Pack, toolchain: base.Toolchain) -> None:
    from boosterrun.compilers import toolchain as compilers  # noqa: PLC0415 - only needed with an ACF

    for compiler in (toolchain.ptxas, toolchain.nvcc):
        if compiler is not None:
            compilers.require_controls(compiler)
            compilers.require_cuda(compiler, pack.cuda_version)


def _kind(error: BoosterrunError) -> str:
    """``BaselineFailed`` -> ``baseline_failed``."""
    name = type(error).__name__.removesuffix("Error") or "error"
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")
