"""Where a result was made: host, packages, the experiment's commit, variables that change compilation."""

from __future__ import annotations

import fnmatch
import functools
import os
import platform
import re
import socket
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from boosterrun.errors import RunError
from boosterrun.system import process, redact
from boosterrun.system.digest import sha256_if_there

PACKAGES = (
    "boosterrun",
    "torch",
    "triton",
    "helion",
    "flashinfer-python",
    "flashinfer-jit-cache",
    "flashinfer-cubin",
    "apache-tvm-ffi",
    "numpy",
    "cupy-cuda13x",
    "jax",
    "hydra-core",
    "omegaconf",
    "pandas",
    "nvidia-ml-py",
    "nvidia-cuda-nvcc",
    "nvidia-nvvm",
    "nvidia-cuda-crt",
    "nvidia-cuda-runtime",
    "nvidia-cuda-cuobjdump",
    "nvidia-cuda-nvdisasm",
    "nvidia-cutlass-dsl",
)

VARIABLES = (
    "CUDA_*",
    "NVCC_*",
    "PTXAS_*",
    "TRITON_*",
    "HELION_*",
    "FLASHINFER_*",
    "TORCH_*",
    "TORCHINDUCTOR_*",
    "PYTORCH_*",
    "NVIDIA_TF32_OVERRIDE",
    "OMP_NUM_THREADS",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "PYTHONPATH",
    "PYTHONHASHSEED",
    "SLURM_JOB_ID",
)

_GIT_TIMEOUT = 2.0


def capture(paths: Sequence[Path] = ()) -> dict[str, Any]:
    """Return a JSON-ready description of this machine and of the experiment; takes some 30 ms, then is
    cached.

    Args:
        paths: files that define the experiment (YAML, case, kernels). The first one's repository, or that of
            the working directory, is the experiment's.

    Returns:
        ``host`` (memory in bytes), ``packages`` (installed distributions among `PACKAGES`), ``experiment``
        (``git_commit``, ``git_dirty``: tracked files differ from the commit, or a path is not in it; both
        null outside of a repository; ``files`` with their sha256) and ``variables`` (matching `VARIABLES`;
        values that may be secret are never recorded).
    """
    return {
        "host": dict(_host()),
        "packages": dict(_packages()),
        "experiment": _experiment(tuple(Path(path).absolute() for path in paths), Path.cwd()),
        "variables": _variables(),
    }


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text(errors="replace").strip()
    except OSError:
        return None


def _field(text: str | None, name: str) -> str | None:
    match = re.search(rf"^{name}\s*:\s*(.+)$", text or "", re.MULTILINE)
    return match[1].strip() if match else None


@functools.lru_cache(maxsize=1)
def _host() -> dict[str, Any]:
    try:
        system = platform.freedesktop_os_release().get("PRETTY_NAME")
    except OSError:
        system = None
    memory = _field(_read("/proc/meminfo"), "MemTotal")
    return {
        "hostname": socket.gethostname(),
        "os": system,
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpu_model": _field(_read("/proc/cpuinfo"), "model name"),
        "cpu_count": os.cpu_count(),
        "cpu_usable": len(os.sched_getaffinity(0)),
        "cpu_governor": _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "memory_bytes": int(memory.split()[0]) * 1024 if memory else None,
        "python": platform.python_version(),
        "python_implementation": platform.python_implementation(),
        "python_executable": sys.executable,
    }


@functools.lru_cache(maxsize=1)
def _packages() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _variables() -> dict[str, str]:
    wanted = (n for n in sorted(os.environ) if any(fnmatch.fnmatchcase(n, p) for p in VARIABLES))
    return redact.variables({name: os.environ[name] for name in wanted})


def _git(folder: Path, *arguments: str) -> str | None:
    # A status must not take locks that a commit running beside it needs, nor run a file system monitor.
    argv = ["git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-C", str(folder), *arguments]
    try:
        done = process.run(argv, timeout=_GIT_TIMEOUT, grace=0.2)
    except RunError:  # no git
        return None
    return done.stdout if done.returncode == 0 else None


@functools.lru_cache(maxsize=8)
def _experiment(paths: tuple[Path, ...], cwd: Path) -> dict[str, Any]:
    folder = paths[0].parent if paths else cwd
    status = _git(folder, "status", "--porcelain=v2", "--branch", "--untracked-files=no")
    commit = dirty = None
    if status is not None:
        lines = status.splitlines()
        oid = next((line.split()[-1] for line in lines if line.startswith("# branch.oid")), "(initial)")
        commit = oid if oid != "(initial)" else None
        dirty = commit is None or any(not line.startswith("#") for line in lines)
        if not dirty and paths:
            # Untracked and ignored files, and files outside of the repository, are not in the commit either.
            dirty = _git(folder, "ls-files", "--error-unmatch", "--", *map(str, paths)) is None
    return {
        "git_commit": commit,
        "git_dirty": dirty,
        "files": [{"path": str(path), "sha256": sha256_if_there(path)} for path in paths],
    }
