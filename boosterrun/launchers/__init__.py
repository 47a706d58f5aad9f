"""Jobs of a sweep in other processes: joblib on this machine, Slurm, Ray.

Hydra's own plugins for these return nothing before the last job has ended, and lose what the others did as
soon as one job dies; these tell of each job as it ends (:mod:`boosterrun.launchers.engine`). Parameters have
the plugins' names.
"""

from boosterrun.launchers.registry import elsewhere, here, register, require

__all__ = ["elsewhere", "here", "register", "require"]
