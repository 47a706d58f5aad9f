"""What nvcc is called with: the plan of a workload's build, and the options that would defeat it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from boosterrun.compilers.toolchain import Compiler
from boosterrun.config import SHIPPED, NvccMode, NvccWorkload
from boosterrun.errors import UsageError
from boosterrun.gpus import gpu

INCLUDE = SHIPPED / "include"
# Without a GPU to ask.
_DEFAULT_ARCH = "sm_90a"
_FIRST_NVCC_STAGE = 100
_ARCH = re.compile(r"sm_(\d+)([af]?)")

_OUTPUT = "the output has a place of its own"
_TARGET = "set gpu.arch: it is compiled for exactly that GPU"
_NO_PROGRAM = "it makes no program"
_LATE = "code would be generated at link time, out of reach of the ACF"
# Options, without dashes, that are given here anyway, or leave the ACF or its proof nothing to hold on to.
_REFUSED = {
    **dict.fromkeys(("o", "output-file", "odir", "output-directory"), _OUTPUT),
    **dict.fromkeys(("arch", "gpu-architecture", "code", "gpu-code", "gencode", "generate-code"), _TARGET),
    **dict.fromkeys(("dlto", "dlink-time-opt", "lto"), _LATE),
    **dict.fromkeys(
        ("c", "compile", "dc", "device-c", "dw", "device-w", "dlink", "device-link"), _NO_PROGRAM
    ),
    **dict.fromkeys(
        ("ptx", "cubin", "fatbin", "optix-ir", "ltoir", "cuda", "lib", "E", "preprocess"), _NO_PROGRAM
    ),
    **dict.fromkeys(("dryrun", "clean-targets", "help", "h", "version", "V", "run"), _NO_PROGRAM),
    **dict.fromkeys(
        ("M", "MM", "MD", "MMD", "MF", "generate-dependencies"), "dependencies are listed anyway"
    ),
    **dict.fromkeys(("optf", "options-file"), "list the options in flags"),
}
# Of the shell or of workload.env, these would override the command line.
_APPENDED = ("NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS")
_SCRUBBED = re.compile(r"NVCC_(?!CCBIN$).*|PTXAS_.*|S?CCACHE_.*")
# A compiler cache may take an ACF's path for its content; it may stand before nvcc or the host compiler.
_NO_CACHE = {"CCACHE_DISABLE": "1", "SCCACHE_RECACHE": "1"}


@dataclass(frozen=True)
class Plan:
    """Everything but the ACF that decides what nvcc makes; equal plans make equal programs of equal files."""

    nvcc: Compiler
    sources: tuple[Path, ...]
    include_dirs: tuple[Path, ...]
    flags: tuple[str, ...]
    arch: str
    env: tuple[tuple[str, str], ...]

    def command(self, controls: Path | None, stages: Sequence[str], output: str) -> tuple[str, ...]:
        """The command line of one side; ``controls`` None is the baseline."""
        hand_on: tuple[str, ...] = ()
        if controls is not None:
            whole = "nvcc" in stages
            hand_on = (
                ("--apply-controls", str(controls)) if whole else ("-Xptxas", f"--apply-controls={controls}")
            )
        return (*self._common(), "-Xptxas", "-v", *hand_on, *map(str, self.sources), "-o", output)

    def dependency_command(self) -> tuple[str, ...]:
        """The command line that lists every file that is compiled."""
        return (*self._common(), "-M", *map(str, self.sources))

    def environment(self, base: Mapping[str, str], temporary: Path) -> dict[str, str]:
        """``base`` without what adds options or caches, plus the workload's own variables."""
        kept = {name: value for name, value in base.items() if _SCRUBBED.fullmatch(name) is None}
        return {**kept, **dict(self.env), **_NO_CACHE, "TMPDIR": str(temporary)}

    def _common(self) -> tuple[str, ...]:
        virtual = self.arch.replace("sm_", "compute_")
        includes = [word for folder in self.include_dirs for word in ("-I", str(folder))]
        return (str(self.nvcc.path), *self.flags, "-gencode", f"arch={virtual},code={self.arch}", *includes)


def plan(workload: NvccWorkload, arch: str | None, nvcc: Compiler) -> Plan:
    """Return the plan of a workload; raises UsageError that names the key for what cannot work.

    ``arch`` null means: this machine's GPU, else sm_90a.
    """
    where = f"workload {workload.name}"
    names = _texts(workload.sources, f"{where}: sources")
    if not names:
        raise UsageError(f"{where} has no sources", "Name at least one .cu file")
    sources = tuple(Path(name).expanduser().absolute() for name in names)
    for path in sources:
        if not path.is_file():
            raise UsageError(f"{where}: sources: there is no file {path}", "Relative paths begin here")
    includes = tuple(
        Path(name).expanduser().absolute() for name in _texts(workload.include_dirs, f"{where}: include_dirs")
    )
    for path in includes:
        if not path.is_dir():
            raise UsageError(f"{where}: include_dirs: there is no folder {path}", "Relative paths begin here")
    if workload.mode == NvccMode.harness:
        includes = (*includes, INCLUDE)
    flags = _texts(workload.flags, f"{where}: flags")
    for flag in flags:
        _accept(flag, f"{where}: flags")
    env = {name: str(value) for name, value in workload.env.items()}
    for name, value in env.items():
        if name in _APPENDED:
            raise UsageError(f"{where}: env may not set {name}", "Put these options into flags")
        if "{acf}" in value:
            raise UsageError(f"{where}: env.{name} names {{acf}}", "Remove it: nvcc gets the ACF by itself")
    target = arch or detected_arch(env)
    match = _ARCH.fullmatch(target)
    if match is None:
        raise UsageError(
            f"gpu.arch={target} is no GPU: nvcc must make machine code, not PTX", "Give one like sm_90a"
        )
    return Plan(nvcc, sources, includes, tuple(flags), target, tuple(sorted(env.items())))


def detected_arch(env: Mapping[str, str]) -> str:
    """The target of the first GPU that a program with these variables sees, as specific as possible."""
    device = gpu.visible_device(env)
    capability = device["compute_capability"] if device is not None else None
    if capability is None:
        return _DEFAULT_ARCH
    major, _, minor = str(capability).partition(".")
    return f"sm_{major}{minor}{'a' if int(major) >= 9 else ''}"


def supports(stages: Sequence[str], arch: str) -> bool:
    """Whether nvcc can apply an ACF of these stages for a target: cicc takes none before sm_100."""
    match = _ARCH.fullmatch(arch)
    return "nvcc" not in stages or (match is not None and int(match[1]) >= _FIRST_NVCC_STAGE)


def ignored(env: Mapping[str, str]) -> list[str]:
    """The variables of the shell that nvcc does not get to see."""
    return sorted(name for name in env if _SCRUBBED.fullmatch(name) is not None)


def _accept(flag: str, where: str) -> None:
    """Raise UsageError for a flag that would defeat the comparison."""
    if "apply-controls" in flag:
        raise UsageError(
            f"{where} may not hold {flag}: the ACF is added here", "Remove it, select it with acf="
        )
    if not flag.startswith("-"):
        return
    name = re.split(r"[=\s]", flag.lstrip("-"), maxsplit=1)[0]
    if name in _REFUSED:
        raise UsageError(f"{where} may not hold {flag}: {_REFUSED[name]}", "Remove it")


def _texts(value: Any, where: str) -> list[str]:
    plain = OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
    if not isinstance(plain, list | tuple) or not all(isinstance(item, str) and item for item in plain):
        raise UsageError(f"{where} is {plain!r}, not a list of texts", "Write a list, e.g. [-O3]")
    return list(plain)
