"""``boosterrun canary workload=...``: the canary by itself, with the overrides of a run."""

from __future__ import annotations

from collections.abc import Sequence

from boosterrun.hydra_ext.setup import set_up


def run(argv: Sequence[str]) -> int:
    """Run the canary of every workload that the overrides mean. Returns 0.

    Raises CanaryError when an ACF does not reach a compiler, and BoosterrunError for bad input.
    """
    set_up()
    from boosterrun.config import typed  # noqa: PLC0415
    from boosterrun.gpus import binding  # noqa: PLC0415
    from boosterrun.hydra_ext import arguments, plan  # noqa: PLC0415
    from boosterrun.sweeps import app, canary  # noqa: PLC0415
    from boosterrun.system import leftovers  # noqa: PLC0415

    planned = plan.make(arguments.parse(argv))
    for config in planned.configs:
        if planned.pack.acfs:  # any will do: it is the pack that must suit the compiler
            config.acf.id = planned.pack.acfs[0].id
        app.preflight(config)
    with (
        leftovers.scratch("boosterrun-canary-") as folder,
        binding.lent([typed(config) for config in planned.configs], folder),
    ):
        canary.before_sweep(planned.configs, folder)
    return 0
