"""What every adapter offers, and what it gets.

An adapter is a module of this package with the name that ``workload.adapter`` says. It has one object
``ADAPTER`` that satisfies :class:`Adapter`. Frameworks are imported only inside the workers, never here.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast, runtime_checkable

import boosterrun.adapters
from boosterrun.compilers.toolchain import Compiler
from boosterrun.config import Config
from boosterrun.errors import UsageError
from boosterrun.packs import Acf


@dataclass(frozen=True)
class Toolchain:
    """The compilers of a job; None where the adapter uses none, or leaves the choice to the framework."""

    ptxas: Compiler | None = None
    nvcc: Compiler | None = None


@dataclass(frozen=True)
class Job:
    """One candidate on one workload, ready to be judged.

    Attributes:
        acf: the candidate; None for ``acf=none``, the baseline against itself.
        controls: path of the candidate's sha256-named copy, the only path a compiler may see.
        folder: where results go. work: scratch, removed after success unless ``keep_work``.
        arch: SASS target such as ``sm_90a``; None: what the source names.
    """

    config: Config
    acf: Acf | None
    controls: Path | None
    folder: Path
    work: Path
    toolchain: Toolchain
    arch: str | None


@dataclass
class Judgement:
    """What a judge found: the decision over all shapes, and each shape's record (schema/result-v1.json).

    ``stages``: how the GPU did before and after each stage of each session
    (:func:`boosterrun.gpus.gpu.vitals`).
    """

    decision: str
    message: str
    shapes: list[dict[str, Any]]
    objective: dict[str, Any]
    phases: dict[str, float] = field(default_factory=dict)
    framework: dict[str, str | None] | None = None
    versions: dict[str, str] = field(default_factory=dict)
    stages: list[dict[str, Any]] = field(default_factory=list)


class Adapter(Protocol):
    """How a framework takes an ACF, and how its candidates are judged."""

    evidence: str

    def toolchain(self, config: Config, env: Mapping[str, str]) -> Toolchain:
        """Find and check the compilers. Raises ToolchainError."""

    def source(self, config: Config) -> Path | None:
        """The file that holds the workload, for its hash. Raises UsageError when it is not there."""

    def benchmark_command(self, config: Config) -> list[str]:
        """What one side runs, as someone would type it."""

    def judge(self, job: Job) -> Judgement:
        """Compare candidate and baseline. Raises RunError when no candidate is at fault."""


@runtime_checkable
class Preparing(Protocol):
    """An adapter that can build candidates before their turn, and screen several before it confirms any."""

    def prepare(self, job: Job) -> bool:
        """Start to build the candidate in the background; False when there is no room now."""

    def screen(self, job: Job) -> None:
        """Do the part of :meth:`Adapter.judge` that needs one session. Raises as that."""


@runtime_checkable
class Warming(Protocol):
    """An adapter whose workers take long to import what they need."""

    def warm_up(self, config: Config, toolchain: Toolchain) -> None:
        """Begin with that in the background, before the first job."""


def load(name: str) -> Adapter:
    """The adapter called ``name``. Raises UsageError with the known names."""
    known = sorted(m.name for m in pkgutil.iter_modules(boosterrun.adapters.__path__) if m.name != "base")
    if name not in known:
        raise UsageError(f"workload.adapter={name} is not an adapter", f"Known adapters: {', '.join(known)}")
    return cast(Adapter, importlib.import_module(f"boosterrun.adapters.{name}").ADAPTER)
