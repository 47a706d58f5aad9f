"""What Hydra would write of a configuration, without the secrets in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf
from omegaconf._utils import get_omega_conf_dumper

from boosterrun.errors import RunError
from boosterrun.system import interrupt, redact

FOLDER = ".hydra"


def as_yaml(config: Any) -> bytes:
    """Return a configuration as Hydra writes it, interpolations as they are, without secrets."""
    plain = redact.tree(OmegaConf.to_container(config, enum_to_str=True))
    text: str = yaml.dump(plain, allow_unicode=True, sort_keys=False, Dumper=get_omega_conf_dumper())
    return text.encode("utf-8", "backslashreplace")


def keep(task: DictConfig, folder: Path) -> None:
    """Write ``.hydra/`` of a job, whose config is ``task``. Raises RunError.

    Hydra itself is told not to (``hydra.output_subdir: null``): it would write every override as it is.
    """
    hydra = OmegaConf.create({"hydra": HydraConfig.get()})
    files = {"config": task, "hydra": hydra, "overrides": hydra.hydra.overrides.task}
    try:
        with interrupt.shielded():  # a signal in the middle of a file would leave it open
            (folder / FOLDER).mkdir(exist_ok=True)
            for name, config in files.items():
                (folder / FOLDER / f"{name}.yaml").write_bytes(as_yaml(config))
    except OSError as error:
        raise RunError(
            f"cannot write to {folder}: {error.strerror}", "Free some space or choose another hydra.sweep.dir"
        ) from error
