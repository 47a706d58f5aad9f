"""The adapter that docs/adapters.md writes, on a framework of a few lines and the real nvcc."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from compilers import controls

from boosterrun.adapters import base
from boosterrun.adapters.base import Toolchain
from boosterrun.compilers import proof
from boosterrun.compilers.probe import Remedies
from boosterrun.compilers.toolchain import find_nvcc, require_controls
from boosterrun.config import Config, PythonWorkload
from boosterrun.measure.resident import ResidentAdapter
from boosterrun.sweeps.canary import damaged

PAGE = Path(__file__).parents[1] / "docs" / "adapters.md"
CASE = """
import os, pathlib, shlex, subprocess
import numpy as np
from boosterrun import Case

SOURCE = "__global__ void one(float *p, int n) { for (int i = 0; i < n; i++) p[i] *= p[threadIdx.x]; }"

def make(*, seed):
    done = np.zeros(1)
    def run():
        folder = pathlib.Path(os.environ["MOJAVE_CACHE"])
        folder.mkdir(exist_ok=True)
        (folder / "one.cu").write_text(SOURCE)
        flags = shlex.split(os.environ.get("MOJAVE_NVCC_FLAGS", ""))
        target = ["-gencode", "arch=compute_90a,code=sm_90a", "-shared", "-Xcompiler", "-fPIC"]
        argv = [os.environ["MOJAVE_NVCC"], *target, *flags, "one.cu", "-o", "one.so"]
        subprocess.run(argv, cwd=folder, check=True, capture_output=True, text=True)
        done[:] = 1
    return Case(run=run, reference=lambda: np.ones(1), outputs=[done])
"""


def adapter() -> Any:
    [text] = re.findall(r"```python\n(class Mojave.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, Any] = {
        "ResidentAdapter": ResidentAdapter,
        "Remedies": Remedies,
        "Toolchain": Toolchain,
        "find_nvcc": find_nvcc,
        "require_controls": require_controls,
        "proof": proof,
    }
    exec(compile(text, str(PAGE), "exec"), names)
    made = names["ADAPTER"]
    made.name = "python"  # the page's adapter has no hooks of its own either
    return made


def test_the_adapter_of_the_page_proves_its_acf(tmp_path: Path) -> None:
    mojave = adapter()
    case = tmp_path / "case.py"
    case.write_text(CASE)
    acf, path = controls(tmp_path / "acf", 3)
    chosen = Config(
        workload=PythonWorkload(name="mojave", case=f"{case}:make", shapes={"default": {}}, preload=[])
    )
    toolchain = mojave.toolchain(chosen, os.environ)
    job = base.Job(chosen, acf, path, tmp_path, tmp_path / "work", toolchain, "sm_90a")
    built = {}
    for name in ("baseline", "candidate"):
        with mojave.side(job, name, job.work / name) as side:
            side.start()
            built[name] = side.build("default", {})
    found = mojave.prove(job, built["baseline"], built["candidate"])
    assert found.applied == "proven"
    assert [kernel["name"] for kernel in found.kernels] == ["_Z3onePfi"]
    content = damaged(path.read_bytes())
    path.unlink()
    path.write_bytes(content)
    probe = mojave.probe(base.Job(**{**vars(job), "work": tmp_path / "again"}))
    assert probe.reason == "acf_invalid"


def test_the_page_names_every_adapter() -> None:
    table = set(re.findall(r"^\| `(\w+)` \|", PAGE.read_text().split("## ", maxsplit=1)[0], re.MULTILINE))
    files = {path.stem for path in (PAGE.parents[1] / "boosterrun" / "adapters").glob("*.py")}
    assert table == files - {"__init__", "base"}
