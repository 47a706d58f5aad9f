"""Jobs of the Triton adapter on kernels that are only compiled: what several test modules share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from compilers import controls

from boosterrun.adapters import base
from boosterrun.config import (
    SHIPPED,
    AcfConfig,
    Config,
    PackConfig,
    ProtocolConfig,
    ToolchainConfig,
    TritonWorkload,
)

CASE = Path(__file__).parent / "cases" / "triton_compile_only.py"


def config(
    *,
    shapes: dict[str, dict[str, Any]] | None = None,
    env: dict[str, str] | None = None,
    protocol: dict[str, Any] | None = None,
    ptxas: str | None = None,
    **options: Any,
) -> Config:
    """A short protocol on the compile-only case; ``options`` are the case's."""
    return Config(
        acf=AcfConfig(id="any"),
        workload=TritonWorkload(
            name="compile_only",
            case=f"{CASE}:make",
            shapes=shapes or {"default": {}},
            options=options,
            env=env or {},
        ),
        pack=PackConfig(name="sample", path=str(SHIPPED / "packs" / "booster-pack-sample.zip")),
        protocol=ProtocolConfig(
            name="quick", method="quick", trials=4, confirm_sessions=1, **(protocol or {})
        ),
        toolchain=ToolchainConfig(ptxas=ptxas),
    )


def job(folder: Path, number: int | None, chosen: Config) -> base.Job:
    """ACF number 1 to 24 of the shipped pack, or None for the self-test, in ``folder``."""
    acf, path = controls(folder / "acf", number) if number is not None else (None, None)
    work = folder / "work"
    work.mkdir(parents=True, exist_ok=True)
    toolchain = base.load("triton").toolchain(chosen, os.environ)
    return base.Job(chosen, acf, path, folder, work, toolchain, None)


def judge(folder: Path, number: int | None, chosen: Config) -> base.Judgement:
    """What the adapter makes of it."""
    return base.load("triton").judge(job(folder, number, chosen))
