"""Assemble PTX with and without an ACF: the variants that a workload declares, and one run of ptxas."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from boosterrun.compilers import compilation, cubin, resources
from boosterrun.config import PtxasWorkload
from boosterrun.errors import RunError, UsageError
from boosterrun.system import process

SHAPE_KEYS = ("ptx", "arch", "maxrregcount", "opt_level", "flags")

# Flags that are given here anyway, or that would hide which controls were applied or what code was made.
_REFUSED = {
    "apply-controls": "select it with acf=",
    "gpu-name": "set arch in the shape, or gpu.arch",
    "arch": "set arch in the shape, or gpu.arch",
    "maxrregcount": "set maxrregcount in the shape",
    "output-file": "the output has a place of its own",
    "o": "the output has a place of its own",
    "compile-only": "relocatable code is not what runs",
    "c": "relocatable code is not what runs",
    "options-file": "list the options in flags",
    "optf": "list the options in flags",
    "input-as-string": "set ptx",
    "ias": "set ptx",
    "help": "it assembles nothing",
    "h": "it assembles nothing",
    "version": "it assembles nothing",
    "V": "it assembles nothing",
}
_ARCH = re.compile(r"sm_\d+[af]?")
_TARGET = re.compile(rb"^[ \t]*\.target[ \t]+(sm_\d+[af]?)", re.MULTILINE)
_OUTPUT_LIMIT = 16 << 20
_KEPT_OUTPUT = 8000


@dataclass(frozen=True)
class Shape:
    """One variant of the assembly: which PTX, for which architecture, with which flags."""

    name: str
    params: dict[str, Any]
    ptx: Path
    ptx_sha256: str
    arch: str
    flags: tuple[str, ...]


@dataclass(frozen=True)
class Build:
    """One run of ptxas.

    Attributes:
        returncode: exit code; None when a signal ended it, then ``signal`` has its number.
        seconds: wall time of the whole run.
        output: what ptxas printed, its middle dropped when it is long.
        failure: (reason, the compiler's words); None when it succeeded, and then ``cubin`` is there.
        kernels: the metrics of each kernel by name; empty after a failure.
    """

    command: tuple[str, ...]
    returncode: int | None
    signal: int | None
    seconds: float
    timed_out: bool
    output: str
    failure: tuple[str, str] | None
    cubin: cubin.Cubin | None
    kernels: Mapping[str, Mapping[str, float | None]]

    def total(self, metric: str) -> float:
        """Return the sum of a metric over all kernels."""
        return sum(kernel[metric] or 0 for kernel in self.kernels.values())


def shapes(workload: PtxasWorkload, arch: str | None) -> tuple[Shape, ...]:
    """Return the variants that a workload declares, in order.

    ``arch`` holds where a shape has none; where both are missing, the target that the PTX itself names does.
    Raises UsageError that names the shape and the key for anything unknown, unreadable or out of range.
    """
    declared = _plain(workload.shapes)
    if not declared:
        raise UsageError(f"workload {workload.name} has no shapes", "Add one, e.g. shapes: {default: {}}")
    common = _flags(_plain(workload.flags), f"workload {workload.name}: flags")
    return tuple(_shape(workload, str(name), params, common, arch) for name, params in declared.items())


def objective(workload: PtxasWorkload) -> tuple[str, ...]:
    """Return the metrics that decide, in order; raises UsageError for an unknown one or none."""
    metrics = tuple(_plain(workload.objective))
    advice = f"Choose from {', '.join(resources.OBJECTIVES)}"
    if not metrics:
        raise UsageError(f"workload {workload.name} has no objective", advice)
    for metric in metrics:
        if metric not in resources.OBJECTIVES:
            why = "differs from run to run" if metric in resources.METRICS else "is not a metric"
            raise UsageError(f"workload {workload.name}: objective {metric!r} {why}", advice)
    return metrics


def command(program: str, shape: Shape, acf: Path | None, output: str) -> tuple[str, ...]:
    """Return the command line that assembles a shape with (or, for None, without) an ACF into a file."""
    controls = () if acf is None else ("--apply-controls", str(acf))
    return (program, "-v", "-arch", shape.arch, *shape.flags, *controls, str(shape.ptx), "-o", output)


def environment(workload: PtxasWorkload, base: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment for ptxas: ``base`` without what adds options, plus the workload's own."""
    kept = {key: value for key, value in base.items() if not key.startswith(("NVCC_", "PTXAS_"))}
    return {**kept, **{key: str(value) for key, value in _plain(workload.env).items()}}


def build(
    program: str,
    shape: Shape,
    acf: Path | None,
    *,
    folder: Path,
    output: str,
    timeout: float,
    grace: float,
    env: Mapping[str, str],
) -> Build:
    """Assemble a shape into the file ``output`` of ``folder`` and read what came out.

    ``timeout`` and ``grace`` are seconds. A compiler that fails is a Build with ``failure`` set. Raises
    RunError when the machine is at fault (disk full, no such program) or what came out cannot be understood.
    """
    argv = command(program, shape, acf, output)
    done = process.run(argv, timeout=timeout, grace=grace, env=env, cwd=folder, stdout_limit=_OUTPUT_LIMIT)
    fault = compilation.environment_fault(done)
    if fault is not None:
        raise RunError(f"ptxas could not write {folder / output}: {fault}", "Make room there")
    failure = compilation.classify(done, acf)
    text = done.stderr + done.stdout
    image = None if failure is not None else cubin.read(folder / output)
    return Build(
        command=argv,
        returncode=done.returncode,
        signal=done.signal,
        seconds=done.seconds,
        timed_out=done.timed_out,
        output=_bounded(text),
        failure=failure,
        cubin=image,
        kernels={} if image is None else resources.measure(text, image),
    )


def _shape(
    workload: PtxasWorkload, name: str, params: Any, common: Sequence[str], default_arch: str | None
) -> Shape:
    where = f"workload {workload.name}: shapes.{name}"
    known = f"Known keys: {', '.join(SHAPE_KEYS)}"
    if not isinstance(params, dict):
        raise UsageError(f"{where} is {params!r}, not a list of keys with values", known)
    for key in params:
        if key not in SHAPE_KEYS:
            raise UsageError(f"{where} has the unknown key {key!r}", known)
    ptx = Path(str(params.get("ptx") or workload.ptx)).expanduser().absolute()
    try:
        source = ptx.read_bytes()
    except OSError as error:
        raise UsageError(f"{where}: cannot read {ptx}: {error.strerror}", "Correct ptx there") from error
    flags = [*common, *_flags(params.get("flags") or [], f"{where}.flags")]
    if params.get("maxrregcount") is not None:
        flags += ["--maxrregcount", _whole(params["maxrregcount"], 1, 255, f"{where}.maxrregcount")]
        # Without this, ptxas ignores the limit, without a word, for kernels that declare their block size.
        flags += ["--override-directive-values"] * ("--override-directive-values" not in flags)
    if params.get("opt_level") is not None:
        flags += ["--opt-level", _whole(params["opt_level"], 0, 3, f"{where}.opt_level")]
    arch = params.get("arch") or default_arch or _target(source, ptx, where)
    if not isinstance(arch, str) or _ARCH.fullmatch(arch) is None:
        raise UsageError(f"{where}: arch {arch!r} is not a GPU architecture", "Give one like sm_90a")
    return Shape(name, dict(params), ptx, hashlib.sha256(source).hexdigest(), arch, tuple(flags))


def _target(source: bytes, ptx: Path, where: str) -> str:
    found = _TARGET.search(source)
    if found is None:
        raise UsageError(f"{where}: {ptx} has no .target line", "Check that it is PTX, or set arch there")
    return found[1].decode()


def _flags(flags: Any, where: str) -> list[str]:
    if not isinstance(flags, list) or not all(isinstance(flag, str) and flag for flag in flags):
        raise UsageError(f"{where} is {flags!r}, not a list of words", "Write a list, e.g. [--fmad=false]")
    for flag in flags:
        name = flag.lstrip("-").partition("=")[0]
        if flag.startswith("-") and name in _REFUSED:
            raise UsageError(f"{where} may not hold {flag}: {_REFUSED[name]}", "Remove it")
    return list(flags)


def _whole(value: Any, low: int, high: int, where: str) -> str:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise UsageError(f"{where} is {value!r}, not a whole number from {low} to {high}", "Correct it")
    return str(value)


def _bounded(text: str) -> str:
    if len(text) <= _KEPT_OUTPUT:
        return text
    half = _KEPT_OUTPUT // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters dropped ...]\n{text[-half:]}"


def _plain(value: Any) -> Any:
    """Return configuration as plain lists and dictionaries."""
    return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
