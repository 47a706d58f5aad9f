"""The real ptxas, the real ACFs, and stand-ins for a ptxas that misbehaves."""

from __future__ import annotations

import os
import shlex
import subprocess
from functools import cache
from pathlib import Path

from boosterrun import packs
from boosterrun.compilers import toolchain
from boosterrun.config import SHIPPED

KERNELS = SHIPPED / "kernels"

# heavy() is too large to be inlined: its spills belong to the kernels that call it.
TWO_KERNELS = """
__device__ __noinline__ float heavy(float *p, int n) {
  float a[64]; for (int i = 0; i < 64; i++) a[i] = p[i * n];
  float s = 0;
  for (int j = 0; j < n; j++)
    for (int i = 0; i < 64; i++) { a[i] = a[i] * a[(i + j) & 63] + s; s += a[i] * p[j]; }
  return s;
}
extern "C" __global__ void calls(float *p, int n) { p[threadIdx.x] = heavy(p, n); }
extern "C" __global__ void __launch_bounds__(64) shares(float *p, int n) {
  __shared__ float s[333]; s[threadIdx.x] = p[n]; __syncthreads(); p[threadIdx.x] = s[n];
}
"""


@cache
def ptxas() -> toolchain.Compiler:
    """The ptxas of the CUDA wheels; the tests fail without one."""
    return toolchain.find_ptxas(None, os.environ)


@cache
def pack() -> packs.Pack:
    """The pack that is shipped."""
    return packs.open_pack(SHIPPED / "packs" / "booster-pack-sample.zip")


def controls(root: Path, number: int) -> tuple[packs.Acf, Path]:
    """ACF number 1 to 24 of the shipped pack, and its copy below ``root``."""
    acf = pack().acfs[number - 1]
    return acf, packs.materialise(pack().read(acf), acf.sha256, root)


def script(path: Path, body: str) -> Path:
    """An executable shell script; ``$REAL`` in it is the real ptxas."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/bash\nREAL={shlex.quote(str(ptxas().path))}\n{body}\n")
    path.chmod(0o755)
    return path


def stand_in(path: Path, body: str) -> toolchain.Compiler:
    """A ptxas that answers --version and --help like the real one, but compiles as ``body`` says."""
    script(path, f'case "$1" in --version|--help) exec "$REAL" "$@";; esac\n{body}')
    return toolchain.find_ptxas(str(path), {})


def assemble(ptx: Path, output: Path, *flags: str) -> str:
    """Run the real ptxas, expecting success; returns what it printed."""
    argv = [str(ptxas().path), "-v", "-arch", "sm_90a", *flags, str(ptx), "-o", str(output)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=120)
    return done.stderr + done.stdout


def two_kernels(folder: Path) -> Path:
    """PTX of two kernels by the real nvcc: one calls a device function, one has shared memory."""
    nvcc = toolchain.find_nvcc(None, os.environ)
    source, ptx = folder / "two.cu", folder / "two.ptx"
    source.write_text(TWO_KERNELS)
    argv = [str(nvcc.path), "-arch=compute_90a", "-ptx", str(source), "-o", str(ptx)]
    subprocess.run(argv, check=True, capture_output=True, timeout=120)
    return ptx
