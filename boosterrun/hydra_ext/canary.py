"""``boosterrun canary workload=...``: the canary by itself, with the overrides of a run."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import hydra
from hydra.core.plugins import Plugins
from hydra.core.utils import setup_globals


def run(argv: Sequence[str]) -> int:
    """Run the canary of every workload that the overrides mean. Returns 0.

    Raises CanaryError when an ACF does not reach a compiler, and BoosterrunError for bad input.
    """
    if hydra.__version__.startswith("1.3."):
        hydra.version.setbase("1.3")
    Plugins.instance()  # before any module of Hydra's own plugins: its scan executes them again

    from boosterrun import app, canary, sweep  # noqa: PLC0415
    from boosterrun.hydra_ext import arguments, plan, search  # noqa: PLC0415

    search.register_sources()
    sweep.register()
    setup_globals()
    planned = plan.make(arguments.parse(argv))
    for config in planned.configs:
        if planned.pack.acfs:  # any will do: it is the pack that must suit the compiler
            config.acf.id = planned.pack.acfs[0].id
        app.preflight(config)
    with tempfile.TemporaryDirectory(prefix="boosterrun-canary-") as folder:
        canary.before_sweep(planned.configs, Path(folder))
    return 0
