"""The frameworks of an adapter: installed, importable, and free of what is known to keep ACFs away."""

from __future__ import annotations

import importlib.util
import re
import shutil
from collections.abc import Iterator
from importlib import metadata

from boosterrun.doctor import device, imports
from boosterrun.doctor.compilers import find
from boosterrun.doctor.finding import Finding, failure, passed, warning
from boosterrun.doctor.setup import Setup
from boosterrun.errors import ToolchainError

_DISTRIBUTIONS = {
    "torch": ("torch",),
    "triton": ("triton", "pytorch-triton"),
    "helion": ("helion",),
    "flashinfer": ("flashinfer-python",),
}
_INSTALL = {
    "torch": "pip install torch==2.11.0 (a build for CUDA)",
    "triton": "pip install triton==3.6.0 (PyTorch 2.11 brings it along)",
    "helion": "pip install helion==1.4.0",
    "flashinfer": (
        "pip install --no-deps flashinfer-python==0.6.6, and pip install apache-tvm-ffi click tabulate "
        "nvidia-cudnn-frontend==1.14.1"
    ),
}
# The ptxas that Triton brings along: for older cards, for newer ones, and the first target of the latter.
_BUNDLED = {
    (3, 6): ("12.8.93", "12.9.86", "sm_100"),
    (3, 7): ("12.8.93", "13.1.80", "sm_100"),
    (3, 8): ("12.9.86", "13.3.33", "sm_100"),
    (3, 9): ("12.9.86", "13.4.59", "sm_90"),
}
_LAST_TRITON = max(_BUNDLED)
# Their kernels were compiled without any ACF, and are taken before anything is built.
_PREBUILT = {"flashinfer_jit_cache": "flashinfer-jit-cache", "flashinfer_cubin": "flashinfer-cubin"}


def installed(setup: Setup) -> Iterator[Finding]:
    """Does each module that the workers import exist, and does its import work?"""
    config = setup.config
    present = [name for name in setup.needs.modules if _version(name) is not None]
    for name in setup.needs.modules:
        if name not in present:
            yield _absent(setup, name)
    if not present or config is None:
        return
    found = setup.once("imports", lambda: imports.attempt(present, config.timeouts.start))
    for name in present:
        module = found[name]
        version = module.version or _version(name)
        if module.error is not None:
            yield failure(
                name, f"{_version(name)} cannot be imported: {module.error}", _remedy(name, _version(name))
            )
        else:
            yield passed(name, f"{version}, imported in {module.seconds:.1f} s")
        if name == "torch" and module.error is None:
            yield from _torch(setup, module)


def triton(setup: Setup) -> Iterator[Finding]:
    """Does this Triton hand options on to ptxas, and is it one whose ways are known?"""
    version = _version("triton")
    if "triton" not in setup.needs.modules or version is None:
        return
    number = _number(version)
    if number < min(_BUNDLED):
        yield failure(
            "Triton and ACFs",
            f"{version} does not read PTXAS_OPTIONS: no ACF would reach ptxas, and nothing would say so",
            _INSTALL["triton"],
        )
    elif number > _LAST_TRITON:
        known = ".".join(map(str, _LAST_TRITON))
        yield warning(
            "Triton and ACFs",
            f"{version} is newer than {known}, the last one whose ways are known",
            f"Run boosterrun canary workload={setup.adapter}, or {_INSTALL['triton']}",
        )
    else:
        old, new, first = _BUNDLED[number]
        yield passed(
            "Triton and ACFs",
            f"reads PTXAS_OPTIONS; its own ptxas ({old}; {new} from {first} on) is replaced on both sides",
        )


def flashinfer(setup: Setup) -> Iterator[Finding]:
    """Would FlashInfer compile its kernels here, or take some that were compiled before?"""
    if "flashinfer" not in setup.needs.modules:
        return
    for module, distribution in _PREBUILT.items():
        if _findable(module):
            yield failure(
                "prebuilt kernels",
                f"{distribution} is installed: its kernels win before anything is built with an ACF",
                f"pip uninstall {distribution}",
            )
    version = _version("flashinfer")
    if version is not None and _number(version) >= (0, 7):
        yield warning(
            "FlashInfer version",
            f"{version}; builds with an ACF were seen to work with 0.6.6",
            "Run boosterrun canary workload=flashinfer, or pip install --no-deps flashinfer-python==0.6.6",
        )
    if shutil.which("ninja", path=setup.env.get("PATH")) is None:
        yield failure("ninja", "not on PATH: FlashInfer builds with it", "pip install ninja")
    try:
        root = find(setup, "nvcc").path.parent.parent
    except ToolchainError:
        return
    if not (root / "lib64").exists() and (root / "lib").exists():
        yield warning(
            "CUDA libraries",
            f"{root} has lib but no lib64, where FlashInfer links from",
            f"ln -s lib {root}/lib64",
        )


def _torch(setup: Setup, torch: imports.Imported) -> Iterator[Finding]:
    if not device.snapshot(setup)["devices"] or torch.sees_gpu:
        return
    why = "a build without CUDA" if torch.cuda is None else f"built for CUDA {torch.cuda}"
    yield failure(
        "torch and GPU",
        f"torch {torch.version} ({why}) sees no GPU, and NVML does",
        "Install a torch for a CUDA that the driver runs, or check CUDA_VISIBLE_DEVICES",
    )


def _absent(setup: Setup, name: str) -> Finding:
    fix = _INSTALL[name]
    if name == "torch" and setup.adapter == "triton":
        return warning(name, "not installed: the shipped cases need it, yours may not", fix)
    return failure(name, f"not installed: {setup.adapter} needs it", fix)


def _remedy(name: str, version: str | None) -> str:
    torch = _version("torch")
    if name == "helion" and version is not None and torch is not None and _number(version) >= (1, 5):
        return f"Helion 1.5 does not import under torch 2.11 (here {torch}): pip install helion==1.4.0"
    return f"Repair it: {_INSTALL[name]}"


def _version(module: str) -> str | None:
    for distribution in _DISTRIBUTIONS[module]:
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    return None


def _number(version: str) -> tuple[int, int]:
    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _findable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


CHECKS = (installed, triton, flashinfer)
