"""The configs of a sweep's jobs: those that differ by their ACF only share one composition.

A composition takes most of the time that a job costs besides its own work.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import cast

from hydra.core.config_loader import ConfigLoader
from omegaconf import DictConfig, OmegaConf, open_dict

from boosterrun.hydra_ext.sources import PackSource

ACF = "acf"
MAX_PATTERNS = 64


class JobConfigs:
    """Gives each job its config, as Hydra would compose it.

    The first two jobs with the same rest of the overrides are both composed, and the second is compared with
    what exchanging the ACF in the first gives. Only if they are equal are later ones made by exchange.
    """

    def __init__(self, loader: ConfigLoader, master: DictConfig) -> None:
        self._loader = loader
        self._master = master
        self._source = next((s for s in loader.get_sources() if isinstance(s, PackSource)), None)
        self._patterns: dict[tuple[str, ...], tuple[str, str, DictConfig]] = {}
        self._exchangeable: bool | None = None if self._source is not None else False

    def get(self, job: Mapping[str, str], overrides: Sequence[str], subdir: str) -> DictConfig:
        """The config of ``job``, whose ``overrides`` are all but the one of its folder below the sweep's."""
        folder = f"hydra.sweep.subdir={subdir}"
        rest = tuple(override for override in overrides if not override.startswith(f"{ACF}="))
        pattern = self._patterns.get(rest)
        if pattern is None or ACF not in job or self._exchangeable is False:
            config = self._compose([*overrides, folder])
            if ACF in job and len(self._patterns) < MAX_PATTERNS:
                self._patterns[rest] = (job[ACF], folder, copy.deepcopy(config))
            return config
        exchanged = self._exchange(pattern, job[ACF], folder)
        if self._exchangeable is None:
            config = self._compose([*overrides, folder])
            self._exchangeable = OmegaConf.to_container(config) == OmegaConf.to_container(exchanged)
            return config
        return exchanged

    def _compose(self, overrides: Sequence[str]) -> DictConfig:
        return self._loader.load_sweep_config(self._master, list(overrides))

    def _exchange(self, pattern: tuple[str, str, DictConfig], acf: str, folder: str) -> DictConfig:
        assert self._source is not None  # noqa: S101 - for the type checker
        old_acf, old_folder, config = pattern
        config = copy.deepcopy(config)
        changed = {f"{ACF}={old_acf}": f"{ACF}={acf}", old_folder: folder}
        node = cast(DictConfig, self._source.load_config(config_path=f"{ACF}/{acf}").config)
        hydra = config.hydra
        with open_dict(config):
            for key, value in node.items_ex(resolve=False):
                config.acf[key] = value
            hydra.sweep.subdir = folder.partition("=")[2]
            hydra.runtime.choices[ACF] = acf
            for overrides in (hydra.overrides.task, hydra.overrides.hydra):
                overrides[:] = [changed.get(override, override) for override in overrides]
            hydra.job.override_dirname = ",".join(sorted(hydra.overrides.task))
        return config
