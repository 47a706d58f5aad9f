"""Helion kernels, as they are: each one's config is pinned, and carries the ACF on one side."""

from __future__ import annotations

import fnmatch
import json
import os
import re
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import cast

from boosterrun.adapters import triton
from boosterrun.adapters.base import Job, Toolchain
from boosterrun.compilers.probe import Remedies
from boosterrun.config import Config, HelionWorkload
from boosterrun.errors import UsageError
from boosterrun.measure.api import SideName

CONFIGS = "BOOSTERRUN_HELION_CONFIGS"  # for the worker (boosterrun.hooks.helion): JSON by kernel
_INSTALL = "pip install helion==1.4.0 (with PyTorch 2.11)"

# Given to each side: a value in the shell or in workload.env would end the comparison.
_OWN = {
    CONFIGS: "set workload.configs",
    "HELION_CACHE_DIR": "each side has its own",
    "HELION_SKIP_CACHE": "each side begins without",
    "TRITON_DISABLE_LINE_INFO": "line numbers hold the path of a side, so its PTX would differ",
    triton.OPTIONS: "the ACF in a kernel's config takes its place",
}
# Taken from each side: these choose configs, bring them from elsewhere, or compile none with ptxas.
_SCRUBBED = (
    "HELION_AUTOTUNE*",
    "HELION_FORCE_AUTOTUNE",
    "HELION_DISALLOW_AUTOTUNING",
    "HELION_AOT_*",
    "HELION_HEURISTIC_DIR",
    "HELION_REMOTE_CACHE_BACKEND",
    "HELION_ASSERT_CACHE_HIT",
    "HELION_INTERPRET",
    "HELION_BACKEND",
)
_MAY_PIN = "HELION_AUTOTUNE_EFFORT"  # "none" in workload.env: the default config of each kernel


class Helion(triton.Triton):
    """A Python case with Helion kernels, which Triton compiles by the chosen ptxas."""

    name = "helion"
    remedies = Remedies(
        options="advanced_controls_file in the config (kernels of plain Triton do not get the ACF)",
        replaced="advanced_controls_file= in the kernel's own config",
        compiler="TRITON_PTXAS_PATH",
        cache="TRITON_CACHE_DIR",
    )

    def toolchain(self, config: Config, env: Mapping[str, str]) -> Toolchain:
        """Find a ptxas that can apply controls; raises ToolchainError, UsageError for what cannot work."""
        version = _version()
        if version is None:
            raise UsageError("Helion is not installed", f"Run {_INSTALL}")
        _require_torch(version)
        _require_own(config.workload.env)
        _require_pinned(_workload(config).configs)
        return super().toolchain(config, env)

    def framework(self) -> dict[str, str | None]:
        """Name and version of the Helion that is installed."""
        return {"name": "helion", "version": _version(), "commit": None}

    def environment(self, job: Job, side: SideName, work: Path) -> dict[str, str | None]:
        """Triton's, but the worker puts the ACF into the configs; on both sides the same pinned configs."""
        given = super().environment(job, side, work)
        configs = _workload(job.config).configs
        return {
            **{name: None for name in os.environ if _scrubbed(name) and name not in given},
            **given,
            triton.OPTIONS: None,
            CONFIGS: json.dumps(configs, sort_keys=True) if configs else None,
            "HELION_CACHE_DIR": str(work / "helion"),
            "HELION_SKIP_CACHE": "1",
            "TRITON_DISABLE_LINE_INFO": "1",
        }

    def ignored(self, env: Mapping[str, str] = os.environ) -> list[str]:
        """Variables of the shell that no side gets to see."""
        mine = {name for name in env if _scrubbed(name) or name in _OWN}
        return sorted(mine | set(super().ignored(env)))


def _workload(config: Config) -> HelionWorkload:
    return cast(HelionWorkload, config.workload)


def _scrubbed(name: str) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in _SCRUBBED)


def _version() -> str | None:
    try:
        return metadata.version("helion")
    except metadata.PackageNotFoundError:
        return None


def _require_torch(version: str) -> None:
    try:
        torch = metadata.version("torch")
    except metadata.PackageNotFoundError:
        raise UsageError("PyTorch is not installed: Helion needs it", f"Run {_INSTALL}") from None
    if _number(version) >= (1, 5) and _number(torch) < (2, 12):
        raise UsageError(
            f"Helion {version} does not import under PyTorch {torch}", f"Run {_INSTALL}, or a newer PyTorch"
        )


def _number(version: str) -> tuple[int, int]:
    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _require_own(env: Mapping[str, str]) -> None:
    for name in env:
        why = _OWN.get(name)
        if why is None and _scrubbed(name) and name != _MAY_PIN:
            why = "every kernel has one config, compiled by Triton on both sides"
        if why is not None:
            raise UsageError(f"workload.env may not set {name}: {why}", "Remove it")
    if env.get(_MAY_PIN, "none") != "none":
        raise UsageError(
            f"workload.env may not set {_MAY_PIN} but to none: the sides would be tuned apart", "Remove it"
        )


def _require_pinned(configs: Mapping[str, object]) -> None:
    for name, config in configs.items():
        if not isinstance(config, dict):
            raise UsageError(
                f"workload.configs.{name} is no config",
                "Write the arguments of helion.Config, e.g. {block_sizes: [1], num_warps: 4}",
            )
        if "advanced_controls_file" in config:
            raise UsageError(
                f"workload.configs.{name} may not set advanced_controls_file: the ACF is added to it",
                "Remove it, select the ACF with acf=",
            )


ADAPTER = Helion()
