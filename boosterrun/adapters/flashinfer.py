"""FlashInfer, built from source once per side by nvcc, with the ACF in the flags of one side."""

from __future__ import annotations

import fnmatch
import importlib.util
import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path

from boosterrun.adapters.base import Job, Toolchain
from boosterrun.compilers import nvcc_options, proof
from boosterrun.compilers.probe import Remedies
from boosterrun.compilers.toolchain import find_nvcc, require_controls
from boosterrun.config import Config
from boosterrun.errors import RunError, ToolchainError, UsageError
from boosterrun.measure import kept
from boosterrun.measure.api import Built, SideName
from boosterrun.measure.resident import ResidentAdapter
from boosterrun.measure.trial import Application, Rejected

FLAGS = "FLASHINFER_EXTRA_CUDAFLAGS"
_INSTALL = (
    "pip install --no-deps flashinfer-python==0.6.6, and pip install apache-tvm-ffi click tabulate "
    "nvidia-cudnn-frontend==1.14.1"
)
_PREBUILT = {"flashinfer_jit_cache": "flashinfer-jit-cache", "flashinfer_cubin": "flashinfer-cubin"}
_NO_JIT = "FLASHINFER_DISABLE_JIT"

# Given to each side: a value in the shell or in workload.env would end the comparison.
_OWN = {
    "FLASHINFER_WORKSPACE_BASE": "each side has its own",
    "FLASHINFER_CUBIN_DIR": "each side has its own",
    "FLASHINFER_NVCC": "set toolchain.nvcc",
    "FLASHINFER_CUDA_ARCH_LIST": "set gpu.arch",
    "CUDA_HOME": "set toolchain.nvcc",
    "CUDA_PATH": "set toolchain.nvcc",
}
# Taken from each side: these change how kernels are compiled, or choose others.
_SCRUBBED = ("FLASHINFER_JIT_*", "FLASHINFER_AUTOTUNER_*", "CUDA_FORCE_PTX_JIT", "CUDA_FORCE_JIT")
# Flags that would defeat the comparison, with or without "=value".
_REFUSED_FLAG = re.compile(
    r"-+(dlto|dlink-time-opt|lto|gencode|generate-code|arch|gpu-architecture|code|gpu-code|G|device-debug)(=|$)"
)
_ARCH = re.compile(r"sm_(\d+)(\d)([af]?)")
# Ninja and FlashInfer write paths without quotes.
_PLAIN = re.compile(r"[\w/.=+@%,~-]*")


class Flashinfer(ResidentAdapter):
    """A Python case that calls FlashInfer's kernels; only those built from source can take an ACF."""

    name = "flashinfer"
    proves = True
    remedies = Remedies(
        options=f"{FLAGS} (or a wrapper around nvcc)",
        replaced="options for ptxas in the flags of the kernel's module",
        compiler="FLASHINFER_NVCC and CUDA_HOME",
        cache="FLASHINFER_WORKSPACE_BASE",
    )

    def toolchain(self, config: Config, env: Mapping[str, str]) -> Toolchain:
        """Find an nvcc that can apply controls; raises ToolchainError, UsageError for what cannot work."""
        _require_flashinfer()
        _require_jit({**env, **config.workload.env})
        _require_own(config.workload.env)
        nvcc = find_nvcc(config.toolchain.nvcc, env)
        require_controls(nvcc)
        _require_headers(_root(nvcc.path))
        if shutil.which("ninja", path=_path(env)) is None:
            raise ToolchainError("FlashInfer builds with ninja, which is not on PATH", "pip install ninja")
        return Toolchain(nvcc=nvcc)

    def framework(self) -> dict[str, str | None]:
        """Name and version of the FlashInfer that is installed."""
        return {"name": "flashinfer", "version": _version(), "commit": None}

    def require_stages(self, job: Job) -> None:
        """Rejected for an ACF of which nvcc could apply only a part to this target."""
        arch = _arch(job)
        if job.acf is not None and not nvcc_options.supports(job.acf.compiler_stages, arch):
            stages = ", ".join(job.acf.compiler_stages)
            raise Rejected(
                "unsupported_stage",
                f"the ACF is for the stages {stages}, and nvcc applies none of its own before sm_100: {arch}",
            )

    def injects(self, config: Config) -> bool:
        """Always; a pack with no ACF for this target is told by the stages."""
        return True

    def environment(self, job: Job, side: SideName, work: Path) -> dict[str, str | None]:
        """Injection on the candidate only; on both sides one nvcc, a fresh workspace, nothing of the shell's.

        Raises RunError for a folder whose name a build cannot take.
        """
        if job.toolchain.nvcc is None:
            raise RunError("no nvcc was chosen for this job", "Choose one with toolchain.nvcc=/path/to/nvcc")
        if _PLAIN.fullmatch(str(work)) is None:
            raise RunError(
                f"FlashInfer cannot build in {work}: a name in it has a space or a special character",
                "Choose another folder for the results (hydra.sweep.dir)",
            )
        nvcc = job.toolchain.nvcc.path
        given = super().environment(job, side, work)
        flags = (given.get(FLAGS) or "").split()
        if side == "candidate" and job.acf is not None and job.controls is not None:
            whole = "nvcc" in job.acf.compiler_stages
            ours = ("--apply-controls", str(job.controls))
            flags += ours if whole else ("-Xptxas", "=".join(ours))
        root = _root(nvcc)
        return {
            **dict.fromkeys(name for name in self.ignored() if name not in given),
            "PATH": _path(os.environ),
            **given,
            FLAGS: " ".join(flags) or None,
            "FLASHINFER_NVCC": str(nvcc),
            # What lacks lib64 gets it in a folder of links that the worker makes.
            "CUDA_HOME": str(root if (root / "lib64" / "libcudart.so").exists() else work / "cuda"),
            "CUDA_PATH": None,
            "FLASHINFER_CUDA_ARCH_LIST": _arch_list(_arch(job)),
            "FLASHINFER_WORKSPACE_BASE": str(self._workspace(job, side, nvcc, flags)),
            # Kernels that come as cubins are fetched to here, so that they are noticed.
            "FLASHINFER_CUBIN_DIR": str(work / "flashinfer-cubins"),
            "CCACHE_DISABLE": "1",
            "SCCACHE_RECACHE": "1",
        }

    def _workspace(self, job: Job, side: SideName, nvcc: Path, flags: Sequence[str]) -> Path:
        """Where a side builds: once for all its sessions, which takes a minute; the proof reads it in each.

        A candidate has one for its job, and the baseline one for the sweep.
        """
        if side == "candidate" or job.acf is None or not job.config.sweep.keep_baseline:
            return job.work / f"flashinfer-{side}"
        return kept.workspace(repr((self.name, nvcc, flags, _arch(job)))) / "flashinfer"

    def ignored(self, env: Mapping[str, str] = os.environ) -> list[str]:
        """Variables of the shell that no side gets to see."""
        mine = {
            name
            for name in env
            if name == FLAGS
            or name in _OWN
            or any(fnmatch.fnmatchcase(name, pattern) for pattern in _SCRUBBED)
        }
        return sorted(mine | set(nvcc_options.ignored(env)))

    def prove(self, job: Job, baseline: Built, candidate: Built) -> Application:
        """Read the cubins of all that both sides built. Raises RunError when the environment is at fault."""
        prebuilt = sorted({Path(k["prebuilt"]).name for k in candidate.kernels if "prebuilt" in k})
        if prebuilt:
            words = f"kernels that come compiled ({', '.join(prebuilt[:3])}) never see nvcc's flags"
            return Application("not_applicable", None, f"{words}: choose the backend fa2 or fa3")
        compiler = job.toolchain.nvcc
        codes = [
            [code for code in proof.read(built, compiler) if code.cubin.kernels]
            for built in (baseline, candidate)
        ]
        if not any(codes):
            words = "no kernel was built from source: those of cuDNN, trtllm-gen, CuTe-DSL and Triton"
            return Application("not_applicable", None, f"{words} never see nvcc's flags")
        found = proof.prove(codes[0], codes[1], job.controls, compiler, self.remedies)
        return found.noting(self.ignored())


def _version() -> str | None:
    try:
        return metadata.version("flashinfer-python")
    except metadata.PackageNotFoundError:
        return None


def _require_flashinfer() -> None:
    spec = importlib.util.find_spec("flashinfer")
    if _version() is None or spec is None or spec.origin is None:
        raise UsageError("FlashInfer is not installed", f"Run {_INSTALL}")
    for module, distribution in _PREBUILT.items():
        if importlib.util.find_spec(module) is not None:
            raise UsageError(
                f"{module} is installed: its kernels were compiled before and win over those with an ACF",
                f"Run pip uninstall {distribution}",
            )
    prebuilt = Path(spec.origin).parent / "data" / "aot"
    if prebuilt.is_dir() and any(prebuilt.iterdir()):
        raise UsageError(
            f"this FlashInfer has kernels that were compiled before, in {prebuilt}", "Move that folder away"
        )


def _require_jit(env: Mapping[str, str]) -> None:
    if env.get(_NO_JIT):
        raise UsageError(f"{_NO_JIT} is set: FlashInfer builds nothing, so no ACF is applied", "Unset it")


def _require_own(env: Mapping[str, str]) -> None:
    for name, why in _OWN.items():
        if name in env:
            raise UsageError(f"workload.env may not set {name}: {why}", "Remove it")
    for name in nvcc_options.ignored(env):
        raise UsageError(f"workload.env may not set {name}", f"Put options for nvcc into {FLAGS}")
    try:
        flags = shlex.split(env.get(FLAGS, ""))
    except ValueError as error:
        raise UsageError(f"workload.env.{FLAGS} cannot be read: {error}", "Mend its quotes") from error
    for flag in flags:
        if "apply-controls" in flag or "{acf}" in flag:
            raise UsageError(
                f"workload.env.{FLAGS} may not name an ACF: the candidate's is added", "Leave only the others"
            )
        if _REFUSED_FLAG.match(flag):
            raise UsageError(
                f"workload.env.{FLAGS} may not hold {flag}: optimised machine code of gpu.arch is compared",
                "Remove it",
            )


def _root(nvcc: Path) -> Path:
    return nvcc.resolve().parent.parent


def _require_headers(root: Path) -> None:
    places = (root / "include" / "cccl", root / "include")
    if not any((place / "nv" / "target").is_file() for place in places):
        raise ToolchainError(
            f"{root} lacks the CUDA C++ core libraries (nv/target), which FlashInfer includes",
            "pip install 'nvidia-cuda-cccl==13.3.*' (of the same CUDA version as nvcc)",
        )


def _path(env: Mapping[str, str]) -> str:
    """PATH, and at its end where pip puts ninja, which is not on it while this environment is not active."""
    return f"{env.get('PATH', os.defpath)}{os.pathsep}{Path(sys.executable).parent}"


def _arch(job: Job) -> str:
    return job.arch or nvcc_options.detected_arch(os.environ)


def _arch_list(arch: str) -> str:
    """``sm_90a`` as FlashInfer says it: ``9.0a``. Raises UsageError."""
    match = _ARCH.fullmatch(arch)
    if match is None:
        raise UsageError(f"gpu.arch={arch} is no GPU: machine code must be made", "Give one like sm_90a")
    return f"{match[1]}.{match[2]}{match[3]}"


ADAPTER = Flashinfer()
