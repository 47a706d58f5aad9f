"""Make Hydra ready for this command, in this process only."""

from __future__ import annotations

import hydra
from hydra.core.plugins import Plugins
from hydra.core.utils import setup_globals


def set_up() -> None:
    """Register our sources, sweeper and resolvers. Safe to call again.

    Nothing of ours that imports Hydra's sweepers or launchers may be imported before.
    """
    if hydra.__version__.startswith("1.3."):  # 1.4 has no other defaults than these, and warns
        hydra.version.setbase("1.3")
    Plugins.instance()  # before any module of Hydra's own plugins: its scan executes them again

    from boosterrun.hydra_ext import search  # noqa: PLC0415
    from boosterrun.sweeps import sweep  # noqa: PLC0415

    search.register_sources()
    sweep.register()
    setup_globals()
