"""Triton kernels, as they are: the ACF reaches ptxas by the environment that Triton reads at its import."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from boosterrun.adapters.base import Job, Toolchain
from boosterrun.compilers import proof
from boosterrun.compilers.probe import Remedies
from boosterrun.compilers.toolchain import find_ptxas, require_controls
from boosterrun.config import Config
from boosterrun.errors import UsageError
from boosterrun.measure import kept
from boosterrun.measure.api import Built, SideName
from boosterrun.measure.resident import ResidentAdapter
from boosterrun.measure.trial import Application, Rejected

OPTIONS = "PTXAS_OPTIONS"
FIRST_VERSION = (3, 6)
_INSTALL = "pip install triton==3.6.0 (PyTorch 2.11 brings it along)"

# Given to each side: a value in the shell or in workload.env would end the comparison.
_OWN = {
    "TRITON_PTXAS_PATH": "set toolchain.ptxas",
    "TRITON_PTXAS_BLACKWELL_PATH": "set toolchain.ptxas",
    "TRITON_CACHE_DIR": "each side has its own",
    "TRITON_HOME": "each side has its own",
    "TRITON_DUMP_PTXAS_LOG": "it is read here",
    "TORCHINDUCTOR_CACHE_DIR": "each side has its own",
}
# Taken from each side: these bring code from elsewhere, keep it out of sight, or compile none.
_SCRUBBED = (
    "TRITON_CACHE_MANAGER",
    "TRITON_REMOTE_CACHE_BACKEND",
    "TRITON_KERNEL_OVERRIDE",
    "TRITON_OVERRIDE_DIR",
    "TRITON_KERNEL_DUMP",
    "TRITON_DUMP_DIR",
    "TRITON_STORE_BINARY_ONLY",
    "TRITON_ALWAYS_COMPILE",
    "TRITON_INTERPRET",
    "TRITON_MOCK_PTX_VERSION",
    "TRITON_OVERRIDE_ARCH",
    "DISABLE_PTXAS_OPT",
    "USE_IR_LOC",
    "TORCHINDUCTOR_FX_GRAPH_REMOTE_CACHE",
    "TORCHINDUCTOR_AUTOTUNE_REMOTE_CACHE",
)


class Triton(ResidentAdapter):
    """A Python case whose Triton kernels are compiled by the chosen ptxas, with the ACF on one side."""

    name = "triton"
    proves = True
    remedies = Remedies(
        options=OPTIONS,
        replaced="ptx_options= at the launch",
        compiler="TRITON_PTXAS_PATH",
        cache="TRITON_CACHE_DIR",
    )

    def toolchain(self, config: Config, env: Mapping[str, str]) -> Toolchain:
        """Find a ptxas that can apply controls, for every kernel on both sides.

        Raises ToolchainError, and UsageError for a Triton that would not hand the ACF on.
        """
        _require_triton()
        _require_own(config.workload.env)
        ptxas = find_ptxas(config.toolchain.ptxas, env)
        require_controls(ptxas)
        return Toolchain(ptxas=ptxas)

    def framework(self) -> dict[str, str | None]:
        """Name and version of the Triton that is installed."""
        return {"name": "triton", "version": _version(), "commit": None}

    def require_stages(self, job: Job) -> None:
        """Triton has no other compiler than ptxas: Rejected for an ACF that wants more."""
        if job.acf is not None and tuple(job.acf.compiler_stages) != ("ptxas",):
            stages = ", ".join(job.acf.compiler_stages)
            raise Rejected(
                "unsupported_stage", f"the ACF is for the stages {stages}, and Triton runs only ptxas"
            )

    def injects(self, config: Config) -> bool:
        """Always."""
        return True

    def environment(self, job: Job, side: SideName, work: Path) -> dict[str, str | None]:
        """Injection on the candidate only; on both sides one ptxas, fresh caches, nothing of the shell's."""
        variables: dict[str, str | None] = dict.fromkeys((*_SCRUBBED, OPTIONS))
        variables.update(super().environment(job, side, work))
        options = (variables[OPTIONS] or "").split()
        if side == "candidate" and job.controls is not None:
            options.append(f"--apply-controls={job.controls}")
        ptxas = str(job.toolchain.ptxas.path) if job.toolchain.ptxas is not None else None
        return {
            **variables,
            OPTIONS: " ".join(options) or None,
            "TRITON_PTXAS_PATH": ptxas,
            "TRITON_PTXAS_BLACKWELL_PATH": ptxas,
            "TRITON_CACHE_DIR": str(work / "triton"),
            "TRITON_HOME": str(work / "triton-home"),
            "TRITON_DUMP_PTXAS_LOG": "1",
            "TORCHINDUCTOR_CACHE_DIR": str(work / "inductor"),
            # Launchers, compiled by a C compiler: see boosterrun.hooks.triton_once.
            "BOOSTERRUN_HOST_CODE": str(kept.workspace("host code") / _digest(job.config.workload.env)),
        }

    def ignored(self, env: Mapping[str, str] = os.environ) -> list[str]:
        """Variables of the shell that no side gets to see."""
        return sorted({OPTIONS, *_SCRUBBED, *_OWN} & set(env))

    def prove(self, job: Job, baseline: Built, candidate: Built) -> Application:
        """Read every cubin of both sides. Raises RunError when the environment is at fault."""
        compiler = job.toolchain.ptxas
        codes = [proof.read(built, compiler) for built in (baseline, candidate)]
        found = proof.prove(codes[0], codes[1], job.controls, compiler, self.remedies)
        return found.noting(self.ignored())


def _digest(env: Mapping[str, str]) -> str:
    return hashlib.sha256(repr(sorted(env.items())).encode()).hexdigest()[:16]


def _version() -> str | None:
    for name in ("triton", "pytorch-triton"):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None


def _require_triton() -> None:
    version = _version()
    if version is None:
        raise UsageError("Triton is not installed", f"Run {_INSTALL}")
    number = re.match(r"(\d+)\.(\d+)", version)
    if number is not None and (int(number[1]), int(number[2])) < FIRST_VERSION:
        raise UsageError(
            f"Triton {version} does not read {OPTIONS} (3.6 does): no ACF would reach ptxas",
            f"Run {_INSTALL}, or use workload=python and launch kernels with "
            'ptx_options="--apply-controls=" + os.environ["BOOSTERRUN_ACF"] where that variable is set',
        )


def _require_own(env: Mapping[str, str]) -> None:
    for name, why in _OWN.items():
        if name in env:
            raise UsageError(f"workload.env may not set {name}: {why}", "Remove it")
    if "{acf}" in env.get(OPTIONS, "") or "apply-controls" in env.get(OPTIONS, ""):
        raise UsageError(
            f"workload.env.{OPTIONS} may not name an ACF: the candidate's is added to these options",
            "Leave only the other options",
        )


ADAPTER = Triton()
