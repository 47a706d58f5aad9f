"""Where configs are looked up: the user's experiments, ``conf/``, shipped experiments, the pack, schemas."""

from __future__ import annotations

from pathlib import Path

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.utils import create_config_search_path
from hydra.core.config_search_path import ConfigSearchPath, SearchPathQuery
from hydra.core.plugins import Plugins

from boosterrun.errors import UsageError
from boosterrun.hydra_ext.sources import ANY, ExperimentSource, PackSource

PACKAGE = Path(__file__).parent.parent
MAIN = SearchPathQuery(provider="main")
SCHEMA = SearchPathQuery(provider="schema")


def register_sources() -> None:
    """Make the sources known to Hydra in this process only: other Hydra programs here are untouched."""
    for source in (PackSource, ExperimentSource):
        Plugins.instance().register(source)


def conf_folder() -> Path:
    """``conf/`` of the installed package, or of the checkout for an editable install."""
    installed = PACKAGE / "conf"
    return installed if installed.is_dir() else PACKAGE.parent / "conf"


def _shipped_experiments() -> Path:
    installed = PACKAGE / "conf"
    return installed / "experiment" if installed.is_dir() else PACKAGE.parent / "experiments"


def search_path(
    pack: Path | None, config_path: str | None = None, config_dir: str | None = None
) -> ConfigSearchPath:
    """Hydra's search path, first match wins.

    Args:
        pack: the pack whose ACFs are group ``acf``; None: any name is taken.
        config_path: replaces ``conf/`` (``--config-path``). config_dir: one more folder (``--config-dir``).
    Raises UsageError if a folder does not exist.
    """
    main = conf_folder() if config_path is None else _folder(config_path, "--config-path")
    path = create_config_search_path(str(main))
    own = Path.cwd() / "experiments"
    if own.is_dir():
        path.prepend("your experiments", f"experiments://{own}", anchor=MAIN)
    shipped = _shipped_experiments()
    if shipped.is_dir() and own.resolve() != shipped.resolve():
        path.prepend("experiments", f"experiments://{shipped}", anchor=MAIN)
    if config_dir is not None:
        path.prepend("command-line", f"file://{_folder(config_dir, '--config-dir')}", anchor=SCHEMA)
    path.prepend("pack", f"pack://{ANY if pack is None else pack}", anchor=SCHEMA)
    return path


def loader(path: ConfigSearchPath) -> ConfigLoaderImpl:
    """A config loader outside of a running Hydra app."""
    return ConfigLoaderImpl(config_search_path=path)


def _folder(name: str, flag: str) -> Path:
    folder = Path(name).expanduser().absolute()
    if not folder.is_dir():
        raise UsageError(f"{flag} {name}: no such folder", "Name an existing folder of config files")
    return folder
