"""The launchers as Hydra finds them, and what each needs to be installed."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import hydra
from hydra._internal.core_plugins.basic_launcher import BasicLauncher
from hydra.core.plugins import Plugins
from omegaconf import OmegaConf

from boosterrun.errors import UsageError

# Class of ours -> its module here, the package it needs, and the extra of ours that installs it.
_LAUNCHERS = {
    "JoblibLauncher": ("pool", "joblib", "joblib"),
    "SlurmLauncher": ("slurm", "submitit", "slurm"),
    "RayLauncher": ("ray", "ray", "ray"),
}
# Hydra 1.3 takes launchers only from a package of this name; 1.4 wants the name that the class has.
_HYDRA_1_3 = hydra.__version__.startswith("1.3.")


def target(name: str) -> str:
    """The ``_target_`` of a launcher of ours."""
    return f"hydra_plugins.boosterrun.{name}" if _HYDRA_1_3 else f"{__package__}.{_LAUNCHERS[name][0]}.{name}"


def register() -> None:
    """Make the launchers known to Hydra, in this process only."""
    OmegaConf.register_new_resolver("launcher", target, replace=True)
    plugins = Plugins.instance()
    for name, (module, _, _) in _LAUNCHERS.items():
        found = getattr(importlib.import_module(f"{__package__}.{module}"), name)
        plugins.register(found)
        plugins.class_name_to_class[target(name)] = found


def here(launcher: Any) -> bool:
    """Whether a launcher's config means this very process: Hydra's own launcher."""
    return str(launcher.get("_target_")).endswith(f".{BasicLauncher.__name__}")


def elsewhere(launcher: Any) -> bool:
    """Whether a launcher's config means other machines than this one."""
    return launcher.get("_target_") in (target("SlurmLauncher"), target("RayLauncher"))


def require(launcher: Any) -> None:
    """Raise UsageError unless what a launcher's config needs is installed."""
    for name, (_, package, extra) in _LAUNCHERS.items():
        if launcher.get("_target_") == target(name) and importlib.util.find_spec(package) is None:
            raise UsageError(
                f"this launcher needs {package}, which is not installed",
                f"pip install 'boosterrun[{extra}]'",
            )
