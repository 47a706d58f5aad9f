"""Config sources: the ACFs of the selected pack as Hydra group ``acf``, a folder as group ``experiment``.

Hydra calls these methods by keyword, copies sources at each composition and pickles them for launchers that
run jobs in other processes; the import of this module there must be enough to resolve what ``conf/`` uses.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import omegaconf
from hydra._internal.core_plugins.file_config_source import FileConfigSource
from hydra.core.object_type import ObjectType
from hydra.plugins.config_source import ConfigLoadError, ConfigResult, ConfigSource
from omegaconf import OmegaConf

from boosterrun import config
from boosterrun.errors import UsageError
from boosterrun.hydra_ext.arguments import literal
from boosterrun.packs import Acf, Pack, open_pack

NONE = "none"
ANY = "*"


_DESCRIPTIONS: dict[str, dict[str, str | None]] = {}


def describe(path: Path, *, cuda_version: str | None, stage: str | None, name: str | None) -> Pack:
    """Open the pack at ``path`` as its config describes it, for all later lookups. Raises PackError."""
    _DESCRIPTIONS[str(path)] = {"cuda_version": cuda_version, "stage": stage, "name": name}
    return open_pack(path, cuda_version=cuda_version, stage=stage, name=name)


def register_resolvers() -> None:
    """Register what the files of ``conf/`` use besides Hydra's own resolvers; safe to call again."""
    config.register()
    # OmegaConf 2.4 gives the function another name, which means another thing in 2.3.
    old = omegaconf.__version__.startswith("2.3.")
    register = getattr(OmegaConf, "register_new_resolver" if old else "register_resolver")
    register("first", _first, replace=True)
    register("stem", _stem, replace=True)


def _first(*values: Any) -> Any:
    return next((value for value in values if value), None)


def _stem(path: str) -> str:
    return Path(path).name.removesuffix(".zip").replace("${", "{")  # OmegaConf reads what a resolver returns


class PackSource(ConfigSource):
    """Group ``acf``: one option per ACF of the pack at ``pack://<path>``, and ``none``, which is not listed.

    ``pack://*`` takes any name: with it a command line can be composed to learn which pack it means.
    """

    @staticmethod
    def scheme() -> str:
        return "pack"

    def __deepcopy__(self, memo: dict[int, Any]) -> PackSource:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return PackSource, (self.provider, self.full_path())

    @cached_property
    def pack(self) -> Pack:
        """The pack. Raises PackError."""
        return open_pack(Path(self.path), **_DESCRIPTIONS.get(self.path, {}))

    @cached_property
    def _by_name(self) -> dict[str, Acf]:
        return {acf.filename: acf for acf in self.pack.acfs} | {acf.id: acf for acf in self.pack.acfs}

    def find(self, name: str) -> Acf | None:
        """The ACF whose option, or whose file, has this name."""
        return self._by_name.get(name)

    def load_config(self, config_path: str) -> ConfigResult:
        name = _name(config_path)
        if name is None or not self.is_config(config_path):
            raise ConfigLoadError(f"no ACF '{config_path}' in {self.full_path()}")
        acf = None if name == NONE or self.path == ANY else self.find(name)
        node: dict[str, str | None] = {"id": name, "filename": None, "sha256": None}
        if acf is not None:
            node = {"id": acf.id, "filename": literal(acf.filename), "sha256": acf.sha256}
        return ConfigResult(
            provider=self.provider,
            path=self.full_path(),
            config=OmegaConf.create(node),
            header={"package": None},
        )

    def is_group(self, config_path: str) -> bool:
        return config_path.strip("/") in {"", "acf"}

    def is_config(self, config_path: str) -> bool:
        name = _name(config_path)
        return name is not None and (name == NONE or self.path == ANY or self.find(name) is not None)

    def available(self) -> bool:
        return True

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        path = config_path.strip("/")
        if path == "":
            return [] if results_filter == ObjectType.CONFIG else ["acf"]
        if path != "acf" or results_filter == ObjectType.GROUP or self.path == ANY:
            return []
        return sorted(acf.id for acf in self.pack.acfs)


class ExperimentSource(ConfigSource):
    """The YAML files of the folder at ``experiments://<path>``, as group ``experiment``."""

    def __init__(self, provider: str, path: str) -> None:
        super().__init__(provider=provider, path=path)
        self._files = FileConfigSource(provider, f"file://{self.path}")

    @staticmethod
    def scheme() -> str:
        return "experiments"

    def load_config(self, config_path: str) -> ConfigResult:
        inner = _inner(config_path)
        if inner is None:
            raise ConfigLoadError(f"no config '{config_path}' in {self.full_path()}")
        try:
            result = self._files.load_config(config_path=inner)
        except UnicodeDecodeError as error:
            raise UsageError(
                f"{self.path}/{inner}.yaml is not UTF-8: {error.reason}", "Save it as UTF-8"
            ) from error
        # An experiment sets any key of a job: its author need not know Hydra's "# @package _global_".
        result.header["package"] = result.header.get("package") or "_global_"
        return result

    def is_group(self, config_path: str) -> bool:
        inner = _inner(config_path)
        return config_path.strip("/") == "" or (inner is not None and self._files.is_group(config_path=inner))

    def is_config(self, config_path: str) -> bool:
        inner = _inner(config_path)
        return bool(inner) and self._files.is_config(config_path=str(inner))

    def available(self) -> bool:
        return self._files.available()

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        if config_path.strip("/") == "":
            return [] if results_filter == ObjectType.CONFIG else ["experiment"]
        inner = _inner(config_path)
        return [] if inner is None else self._files.list(config_path=inner, results_filter=results_filter)


def _name(config_path: str) -> str | None:
    """The option's name in ``acf/<name>``."""
    group, slash, name = config_path.partition("/")
    return name if group == "acf" and slash and name else None


def _inner(config_path: str) -> str | None:
    """The path below group ``experiment``, empty for the group itself; None outside of it."""
    group, _, rest = config_path.strip("/").partition("/")
    return rest if group == "experiment" else None


register_resolvers()
