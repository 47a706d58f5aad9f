"""The compilers: which would be taken and why, can they apply this pack, does something stand before them?"""

from __future__ import annotations

import json
import re
import shutil
import sysconfig
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

from boosterrun.compilers import toolchain
from boosterrun.compilers.toolchain import Compiler
from boosterrun.doctor.finding import Finding, failure, passed, warning
from boosterrun.doctor.setup import Setup
from boosterrun.errors import ToolchainError

_FINDERS: dict[str, Callable[..., Compiler]] = {"ptxas": toolchain.find_ptxas, "nvcc": toolchain.find_nvcc}
_CACHES = re.compile(r"\bs?ccache\b")
_WRAPPER_BYTES = 4096
_WHEELS = ("nvidia-cuda-nvcc", "nvidia-nvvm", "nvidia-cuda-crt")


def chosen(setup: Setup) -> Iterator[Finding]:
    """Is each compiler there, which one is it, and does it apply the ACFs of this pack?"""
    for name in setup.needs.compilers:
        try:
            compiler = find(setup, name)
        except ToolchainError as error:
            yield failure(name, error.message, error.advice)
            continue
        yield passed(name, f"{compiler.version}, {compiler.path} (from {compiler.source})")
        yield from _applies(setup, name, compiler)


def uncached(setup: Setup) -> Iterator[Finding]:
    """Does a compiler cache answer instead of the compiler?"""
    for name in setup.needs.compilers:
        try:
            path = find(setup, name).path
        except ToolchainError:
            continue
        cache = _cache_before(path)
        if cache is not None:
            yield warning(
                f"{cache} before {name}",
                f"{path} leads to {cache}, which may know an ACF by its path only",
                f"Set toolchain.{name}= to the {name} that {cache} calls",
            )


def one_toolkit(setup: Setup) -> Iterator[Finding]:
    """Are nvcc's wheels of one version? pip left alone mixes them."""
    if "nvcc" not in setup.needs.compilers:
        return
    try:
        nvcc = find(setup, "nvcc")
    except ToolchainError:
        return
    if "wheels" in nvcc.source.partition(" (passed over")[0]:
        versions = {name: version for name in _WHEELS if (version := _version(name)) is not None}
        missing = [name for name in _WHEELS if name not in versions]
        if missing or len({".".join(version.split(".")[:2]) for version in versions.values()}) > 1:
            have = ", ".join(f"{name} {version}" for name, version in versions.items())
            lacking = f"; without {', '.join(missing)}" if missing else ""
            yield failure("CUDA wheels", have + lacking, toolchain.install_command(nvcc.cuda_version))
        else:
            yield passed("CUDA wheels", f"all of CUDA {nvcc.cuda_version}")


def host_compiler(setup: Setup) -> Iterator[Finding]:
    """Is there a C++ compiler for the host's part of the code?"""
    if not setup.needs.host_compiler:
        return
    nvcc = "nvcc" in setup.needs.compilers
    named = setup.env.get("NVCC_CCBIN") if nvcc else setup.env.get("CC")
    flags = " ".join(map(str, getattr(setup.config.workload, "flags", ()))) if setup.config else ""
    if nvcc and ("-ccbin" in flags or "--compiler-bindir" in flags):
        return
    path = setup.env.get("PATH")
    wanted = [named] if named else ["g++"] if nvcc else ["gcc", "clang", "cc"]
    found = next((hit for name in wanted if (hit := shutil.which(name, path=path))), None)
    if found is None:
        fix = "Install g++ (Debian, Ubuntu: apt install g++)"
        if named:
            fix = f"Correct or unset {'NVCC_CCBIN' if nvcc else 'CC'}"
        yield failure(
            "host compiler", f"no {' or '.join(wanted)} on PATH: {setup.adapter} builds with it", fix
        )
    elif (cache := _cache_before(Path(found))) is not None:
        yield warning(
            "host compiler",
            f"{found} leads to {cache}",
            "Runs switch it off where they can; unset it or name the compiler itself to be sure",
        )
    else:
        yield passed("host compiler", found)


def python_headers(setup: Setup) -> Iterator[Finding]:
    """Are Python's own headers there? Triton compiles its launcher with them."""
    if "triton" not in setup.needs.modules:
        return
    header = Path(sysconfig.get_path("include")) / "Python.h"
    if header.is_file():
        yield passed("Python headers", str(header))
    else:
        yield failure(
            "Python headers",
            f"there is no {header}: Triton cannot compile its launcher",
            "Install them (Debian, Ubuntu: apt install python3-dev)",
        )


def own(setup: Setup) -> Iterator[Finding]:
    """Can the compilers on PATH, which a workload calls by itself, apply ACFs?"""
    if setup.needs.compilers or setup.config is None or "{acf" not in _text(setup.config.workload):
        return
    for name, finder in _FINDERS.items():
        path = shutil.which(name, path=setup.env.get("PATH"))
        if path is None:
            continue
        try:
            compiler = finder(path, setup.env)
        except ToolchainError as error:
            yield warning(f"{name} on PATH", error.message, f"Repair it if the workload calls {name}")
            continue
        for finding in _applies(setup, f"{name} on PATH", compiler):
            # Whether the workload calls this one at all is not known.
            fix = f"Matters if the workload calls it: {finding.fix}" if finding.fix else ""
            yield finding if not fix else warning(finding.subject, finding.detail, fix)


def _applies(setup: Setup, subject: str, compiler: Compiler) -> Iterator[Finding]:
    try:
        toolchain.require_controls(compiler)
    except ToolchainError as error:
        yield failure(f"{subject}, ACFs", error.message, error.advice)
        return
    pack = setup.pack
    try:
        toolchain.require_cuda(compiler, pack.cuda_version if pack is not None else None)
    except ToolchainError as error:
        yield failure(f"{subject}, ACFs", error.message, error.advice)
        return
    if pack is None or pack.cuda_version is None:
        yield passed(f"{subject}, ACFs", "has --apply-controls; the CUDA version of the pack is not known")
    else:
        yield passed(
            f"{subject}, ACFs", f"has --apply-controls, and the pack is for CUDA {pack.cuda_version}"
        )


def find(setup: Setup, name: str) -> Compiler:
    configured = getattr(setup.config.toolchain, name) if setup.config is not None else None

    def ask() -> Compiler | ToolchainError:
        try:
            return _FINDERS[name](configured, setup.env)
        except ToolchainError as error:
            return error

    found = setup.once(name, ask)
    if isinstance(found, ToolchainError):
        raise found
    return found


def _cache_before(path: Path) -> str | None:
    """``ccache`` or ``sccache`` if ``path`` is one by another name, or a script that calls one."""
    try:
        real = path.resolve()
        if _CACHES.fullmatch(real.name):
            return real.name
        with real.open("rb") as stream:
            head = stream.read(_WRAPPER_BYTES)
    except OSError:
        return None
    called = _CACHES.search(head.decode(errors="replace")) if head.startswith(b"#!") else None
    return called[0] if called else None


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _text(workload: object) -> str:
    return json.dumps(vars(workload), default=str)


CHECKS = (chosen, one_toolkit, uncached, host_compiler, python_headers, own)
