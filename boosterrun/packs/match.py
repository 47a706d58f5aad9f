"""Whether a pack is for this machine: its GPU (a warning) and its CUDA toolkit (which cannot work if not)."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from boosterrun.compilers import toolchain
from boosterrun.errors import ToolchainError
from boosterrun.gpus import gpu
from boosterrun.packs.names import printable
from boosterrun.packs.pack import Pack
from boosterrun.packs.support import supported


def gpu_warning(pack: Pack, devices: Sequence[Mapping[str, Any]]) -> str | None:
    """One sentence if the first of ``devices`` (of gpu.snapshot) is none that the pack is for."""
    for device in devices[:1]:
        if supported(pack.supported_gpus, device["name"], device["compute_capability"]) is False:
            names = printable(", ".join(pack.supported_gpus))
            return (
                f"pack '{printable(pack.display_name)}' is for {names}, and here is {device['name']}: "
                "expect fewer gains; each result says pack.gpu_supported: false"
            )
    return None


def toolkit_warning(pack: Pack, ptxas: str | None, env: Mapping[str, str]) -> str | None:
    """One sentence if the ptxas found here cannot load the ACFs of the pack."""
    try:
        compiler = toolchain.find_ptxas(ptxas, env)
        toolchain.require_controls(compiler)
        toolchain.require_cuda(compiler, pack.cuda_version)
    except ToolchainError as error:
        return str(error)
    return None


def announce(pack: Pack) -> None:
    """Before a sweep: write the warning about the GPU, if there is one, to stderr."""
    if pack.supported_gpus:
        warning = gpu_warning(pack, gpu.snapshot()["devices"])
        if warning is not None:
            sys.stderr.write(f"boosterrun: warning: {warning}\n")


def warnings(pack: Pack) -> list[str]:
    """All that does not fit this machine, for people."""
    found = [gpu_warning(pack, gpu.snapshot()["devices"]), toolkit_warning(pack, None, os.environ)]
    return [warning for warning in found if warning is not None]
