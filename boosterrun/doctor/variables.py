"""Variables of the shell that change what is compiled or measured; most are kept from both sides."""

from __future__ import annotations

import os
from collections.abc import Iterator

from boosterrun.adapters import base
from boosterrun.compilers.probe import Probing
from boosterrun.doctor.finding import Finding, failure, passed, warning
from boosterrun.doctor.setup import Setup
from boosterrun.errors import UsageError

_PTXAS_PATHS = ("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH")
_COMPILING = ("NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS", "PTXAS_OPTIONS")
_JIT = ("CUDA_FORCE_PTX_JIT", "CUDA_FORCE_JIT")
_LOADING = ("LD_PRELOAD", "CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH")
_SHOWN = 60


def kept_away(setup: Setup) -> Iterator[Finding]:
    """Which variables of the shell does no side get to see?"""
    if setup.adapter is None:
        return
    try:
        adapter = base.load(setup.adapter)
    except UsageError:  # told by the check that a run begins with
        return
    ignored = set(adapter.ignored()) if isinstance(adapter, Probing) else set()
    if setup.adapter == "command":
        ignored |= set(_COMPILING) & set(setup.env)
    for name in sorted(ignored):
        yield warning(
            name,
            f"set in the shell ({_value(setup, name)}), and kept from both sides",
            _instead(setup, name),
        )
    loose = [name for name in _COMPILING if name in setup.env and name not in ignored]
    if setup.needs.gpu is not False:
        for name in loose:
            yield warning(
                name,
                f"set in the shell ({_value(setup, name)}), and it reaches both sides",
                f"unset {name}, or set it in workload.env, where the results record it",
            )
    if not ignored and not loose:
        yield passed("shell", "no variable here changes what is compiled")


def usable_ptxas(setup: Setup) -> Iterator[Finding]:
    """Do Triton's variables name a ptxas? If not, Triton takes its own without a word."""
    for name in _PTXAS_PATHS:
        path = setup.env.get(name)
        if path is None or setup.needs.gpu is False or setup.needs.compilers == ("nvcc",):
            continue
        if os.access(path, os.X_OK) and not os.path.isdir(path):  # noqa: PTH112 - text as Triton takes it
            continue
        report = warning if "triton" in setup.needs.modules else failure
        yield report(
            name,
            f"{path} cannot be executed: Triton silently takes its own ptxas, which knows no ACFs",
            f"unset {name}, and choose by toolchain.ptxas",
        )


def measuring(setup: Setup) -> Iterator[Finding]:
    """Do variables change how the GPU is used?"""
    if setup.needs.gpu is False:
        return
    for name in _JIT:
        if setup.env.get(name, "0") not in {"", "0"} and setup.adapter != "nvcc":
            yield failure(
                name,
                "the driver compiles again from PTX when it loads code, without any ACF",
                f"unset {name}",
            )
    if setup.env.get("CUDA_LAUNCH_BLOCKING", "0") not in {"", "0"}:
        yield warning(
            "CUDA_LAUNCH_BLOCKING", "each launch waits for its end, and is timed with that", "unset it"
        )
    for name in _LOADING:
        if setup.env.get(name):
            yield warning(
                name,
                f"loads {_value(setup, name)} into both sides: a profiler there changes times",
                f"unset {name} unless it is needed",
            )
    if "flashinfer" in setup.needs.modules and setup.env.get("FLASHINFER_DISABLE_JIT"):
        yield failure("FLASHINFER_DISABLE_JIT", "FlashInfer builds nothing, so no ACF is applied", "unset it")
    if "helion" in setup.needs.modules and setup.env.get("HELION_AUTOTUNE_SEARCH_ACF"):
        yield warning(
            "HELION_AUTOTUNE_SEARCH_ACF",
            "Helion's own search for ACFs: ignored with a fixed config, else it mixes in 'no ACF'",
            "unset it: here the ACF is set in the config",
        )


def _instead(setup: Setup, name: str) -> str:
    if name in _PTXAS_PATHS:
        return "Nothing, or set toolchain.ptxas to choose a ptxas"
    if name.endswith(("_CACHE_DIR", "_HOME")):
        return "Nothing: each side has a fresh one"
    if setup.adapter == "nvcc" and name in _COMPILING:
        return "Nothing, or put the options into workload.flags: both sides get them then"
    return f"Nothing, or set workload.env.{name}: both sides get it then, where the adapter allows it"


def _value(setup: Setup, name: str) -> str:
    value = setup.env.get(name, "")
    return value if len(value) <= _SHOWN else f"{value[: _SHOWN - 3]}..."


CHECKS = (kept_away, usable_ptxas, measuring)
