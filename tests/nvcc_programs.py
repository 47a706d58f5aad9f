"""Programs for the tests of nvcc: built by the real compilers, run on a CUDA runtime that needs no GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from boosterrun import packs
from boosterrun.adapters.base import Job, Toolchain
from boosterrun.compilers import toolchain
from boosterrun.compilers.nvcc_options import INCLUDE
from boosterrun.config import Config, NvccWorkload, ProtocolConfig, TimeoutsConfig
from boosterrun.packs import Acf

DATA = Path(__file__).parent / "data"
TIMEOUTS = TimeoutsConfig(start=60.0, build=120.0, check=60.0, sample=60.0, grace=0.3)


@cache
def nvcc() -> toolchain.Compiler:
    """The nvcc of the CUDA wheels; the tests fail without one."""
    return toolchain.find_nvcc(None, os.environ)


def cuda_include() -> Path:
    """The headers beside nvcc."""
    return nvcc().path.parent.parent / "include"


def fake_runtime(folder: Path) -> Path:
    """A CUDA runtime without a GPU, as a shared library."""
    library = folder / "libfake_cudart.so"
    _run(
        "g++", "-std=c++17", "-O1", "-shared", "-fPIC", f"-I{cuda_include()}",
        str(DATA / "fake_cudart.cpp"), "-o", str(library),
    )  # fmt: skip
    return library


def host_object(source: Path, folder: Path) -> Path:
    """A program of ``boosterrun.cuh`` without device code, by the host compiler alone, not yet linked."""
    made = folder / "program.o"
    _run(
        "g++", "-std=c++17", "-O0", "-Wall", "-Wextra", "-Werror", "-c", "-x", "c++",
        f"-isystem{cuda_include()}",
        f"-I{INCLUDE}", str(source), "-o", str(made),
    )  # fmt: skip
    return made


def linked(compiled: Path, runtime: Sequence[str], program: Path) -> Path:
    """The program of an object file with one CUDA runtime or another."""
    _run("g++", str(compiled), *runtime, "-pthread", "-o", str(program))
    return program


def emulated_flags(folder: Path) -> list[str]:
    """Flags for nvcc that link the runtime without a GPU; the notes stay readable in the program."""
    library = fake_runtime(folder)
    return [
        "-O0", "-std=c++17", "-cudart", "none", "--no-compress", "-Xlinker", "--export-dynamic",
        "-Xlinker", f"-rpath={folder}", str(library),
    ]  # fmt: skip


def plain(folder: Path, amount: str = "1.25f") -> Path:
    """The small program's source, with a header that it includes."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "amount.h").write_text(f"#define AMOUNT {amount}\n")
    source = folder / "plain.cu"
    source.write_text((DATA / "plain.cu").read_text())
    return source


def both_stages(root: Path) -> tuple[Acf, Path]:
    """An ACF for nvcc and ptxas, and its copy below ``root``."""
    pack = packs.open_pack(DATA / "nvcc-pack")
    acf = pack.acfs[0]
    return acf, packs.materialise(pack.read(acf), acf.sha256, root)


def job(
    folder: Path,
    workload: NvccWorkload,
    acf: Acf | None = None,
    controls: Path | None = None,
    *,
    arch: str = "sm_90a",
    compiler: toolchain.Compiler | None = None,
    protocol: dict[str, Any] | None = None,
) -> Job:
    """A job in a fresh folder."""
    config = Config(
        workload=workload,
        protocol=ProtocolConfig(name="test", **(protocol or {})),
        timeouts=TIMEOUTS,
    )
    config.gpu.arch = arch
    config.acf.id = acf.id if acf else "none"
    folder.mkdir(parents=True)
    return Job(config, acf, controls, folder, folder / "work", Toolchain(nvcc=compiler or nvcc()), arch)


def script(path: Path, body: str) -> toolchain.Compiler:
    """A stand-in for nvcc in Python; ``real(args, env)`` runs the real one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    head = (
        f"#!{sys.executable}\nimport os, subprocess, sys\n"
        "args, env = sys.argv[1:], dict(os.environ)\n"
        "def real(args=args, env=env):\n"
        f"    return subprocess.run([{str(nvcc().path)!r}, *args], env=env).returncode\n"
        "if '--version' in args or '--help' in args: sys.exit(real())\n"
    )
    path.write_text(head + body)
    path.chmod(0o755)
    (path.parent / "cuobjdump").symlink_to(nvcc().path.parent / "cuobjdump")
    return toolchain.find_nvcc(str(path), {})


def _run(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
