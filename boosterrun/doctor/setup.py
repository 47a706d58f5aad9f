"""What is examined: a composed config on this machine, and what several checks ask only once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from omegaconf import DictConfig

from boosterrun.config import Config
from boosterrun.packs import Pack

_T = TypeVar("_T")


@dataclass(frozen=True)
class Needs:
    """What an adapter's runs need.

    Attributes:
        gpu: True: always; False: never; None: that depends on the workload.
        compilers: those that boosterrun chooses for it, ``ptxas`` or ``nvcc``.
        host_compiler: whether it compiles C++ for the host. runs_built: whether it runs or loads what was
            built in the work folder.
        modules: what its workers import, in this order.
    """

    gpu: bool | None = None
    compilers: tuple[str, ...] = ()
    host_compiler: bool = False
    runs_built: bool = False
    modules: tuple[str, ...] = ()


# An adapter that is not here is examined like "python".
NEEDS = {
    "ptxas": Needs(gpu=False, compilers=("ptxas",)),
    "python": Needs(),
    "command": Needs(),
    "nvcc": Needs(gpu=True, compilers=("nvcc",), host_compiler=True, runs_built=True),
    "triton": Needs(
        gpu=True, compilers=("ptxas",), host_compiler=True, runs_built=True, modules=("torch", "triton")
    ),
    "helion": Needs(
        gpu=True,
        compilers=("ptxas",),
        host_compiler=True,
        runs_built=True,
        modules=("torch", "triton", "helion"),
    ),
    "flashinfer": Needs(
        gpu=True, compilers=("nvcc",), host_compiler=True, runs_built=True, modules=("torch", "flashinfer")
    ),
}


@dataclass
class Setup:
    """One config and the machine.

    Attributes:
        config: None when no config could be composed: then only what every run needs is examined.
        pack: None when the pack that was asked for could not be opened.
        raw: ``config`` as Hydra composed it. folder: where results would go; it need not exist.
        env: the shell's variables.
    """

    config: Config | None
    pack: Pack | None
    raw: DictConfig | None
    folder: Path
    env: Mapping[str, str]
    _answers: dict[str, Any] = field(default_factory=dict, repr=False)
    # One for each question: who waits for a slow answer must not keep the others waiting.
    _locks: dict[str, threading.Lock] = field(default_factory=dict, repr=False)

    @property
    def adapter(self) -> str | None:
        """Name of the workload's adapter."""
        return None if self.config is None else self.config.workload.adapter

    @property
    def needs(self) -> Needs:
        """What the adapter needs; without a config a ptxas, so that it is told whether there is one."""
        if self.adapter is None:
            return Needs(compilers=("ptxas",))
        return NEEDS.get(self.adapter, NEEDS["python"])

    @property
    def cuda_version(self) -> str:
        """CUDA version, major.minor, that will compile: the pack's, else the first that knows ACFs."""
        version = self.pack.cuda_version if self.pack is not None else None
        return ".".join((version or "13.3").split(".")[:2])

    def once(self, name: str, ask: Callable[[], _T]) -> _T:
        """The answer of ``ask``, which is called once for each ``name``, by whichever check comes first."""
        with self._locks.setdefault(name, threading.Lock()):
            if name not in self._answers:
                self._answers[name] = ask()
            answer: _T = self._answers[name]
            return answer
