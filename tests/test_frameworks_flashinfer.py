"""The real FlashInfer builds its kernels with the real nvcc, in real workers; launches alone are missing."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from compilers import controls

from boosterrun.adapters import base
from boosterrun.compilers.toolchain import find_nvcc
from boosterrun.config import SHIPPED, AcfConfig, Config, FlashinferWorkload, PackConfig, ProtocolConfig
from boosterrun.errors import UsageError
from boosterrun.measure import blame
from boosterrun.measure.api import Built, SideFailed
from boosterrun.measure.trial import Application
from boosterrun.sweeps.canary import damaged

pytest.importorskip("flashinfer")
pytestmark = pytest.mark.timeout(900)

CASE = Path(__file__).parent / "cases" / "flashinfer_build_only.py"
ADAPTER: Any = base.load("flashinfer")


def job(folder: Path, number: int = 3, *, nvcc: str | None = None, **options: Any) -> base.Job:
    """A job on the build-only case, for an H100; the driver's library that it links with is an empty one."""
    driver = folder / "driver"
    driver.mkdir(parents=True)
    source, library = driver / "empty.c", driver / "libcuda.so"
    source.touch()
    subprocess.run(["g++", "-shared", "-o", str(library), "-x", "c", str(source)], check=True)
    chosen = Config(
        acf=AcfConfig(id="any"),
        workload=FlashinferWorkload(
            name="build_only",
            case=f"{CASE}:make",
            shapes={"default": {}},
            options=options,
            env={"FLASHINFER_EXTRA_LDFLAGS": f"-L{driver}"},
        ),
        pack=PackConfig(name="sample", path=str(SHIPPED / "packs" / "booster-pack-sample.zip")),
        protocol=ProtocolConfig(name="quick", method="quick", trials=4, confirm_sessions=1),
    )
    chosen.toolchain.nvcc = nvcc
    chosen.timeouts.build = 600.0
    acf, path = controls(folder / "acf", number)
    work = folder / "work"
    work.mkdir(parents=True)
    return base.Job(chosen, acf, path, folder, work, ADAPTER.toolchain(chosen, os.environ), "sm_90a")


def built(planned: base.Job, side: Any) -> Built:
    with ADAPTER.side(planned, side, planned.work / side) as worker:
        worker.start()
        result: Built = worker.build("default", {})
        assert worker.check("default", 1).passed
        return result


def proven(planned: base.Job) -> Application:
    found: Application = ADAPTER.prove(planned, built(planned, "baseline"), built(planned, "candidate"))
    return found


def test_the_acf_arrives_in_batch_decode_on_one_side_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    liar = tmp_path / "bin" / "nvcc"
    liar.parent.mkdir()
    liar.write_text("#!/bin/sh\necho not me >&2; exit 1\n")
    liar.chmod(0o755)
    nvcc = str(find_nvcc(None, os.environ).path)
    shell = {
        "PATH": f"{liar.parent}:{os.environ['PATH']}",
        "NVCC_APPEND_FLAGS": "-Xptxas --apply-controls=/some/where/else.acf",
        "FLASHINFER_EXTRA_CUDAFLAGS": "-Xptxas --apply-controls=/some/where/else.acf",
        "FLASHINFER_JIT_DEBUG": "1",
        "FLASHINFER_WORKSPACE_BASE": str(tmp_path / "shared"),
        "FLASHINFER_CUDA_ARCH_LIST": "8.0",
        "CUDA_HOME": "/no/such/cuda",
    }
    for name, value in shell.items():
        monkeypatch.setenv(name, value)
    found = proven(job(tmp_path, op="decode", nvcc=nvcc))
    assert found.applied == "proven"
    assert found.code_identical is False
    assert all(name in found.detail for name in shell if name != "PATH")
    names = [str(kernel["name"]) for kernel in found.kernels]
    assert len(names) > 10
    assert any("BatchDecodeWithPagedKVCacheKernel" in name for name in names)
    assert {kernel["arch"] for kernel in found.kernels} == {"sm_90a"}
    assert not (tmp_path / "shared").exists()


def test_a_damaged_acf_stops_the_build_in_the_words_of_ptxas(tmp_path: Path) -> None:
    planned = job(tmp_path)
    assert planned.controls is not None
    bad = tmp_path / "acf" / "bad.acf"
    bad.write_bytes(damaged(planned.controls.read_bytes()))
    probe = ADAPTER.probe(base.Job(**{**vars(planned), "controls": bad}))
    assert probe.reason == "acf_invalid"
    assert "ptxas fatal : Invalid compiler controls file" in probe.words


def test_a_stale_library_is_not_used(tmp_path: Path) -> None:
    """New content at an old path: ninja would see the same command, and build nothing."""
    planned = job(tmp_path)
    assert planned.controls is not None
    assert ADAPTER.probe(planned).controls == (str(planned.controls),)
    content = damaged(planned.controls.read_bytes())
    planned.controls.unlink()
    planned.controls.write_bytes(content)
    assert ADAPTER.probe(base.Job(**{**vars(planned), "work": tmp_path / "second"})).reason == "acf_invalid"


def test_flags_that_the_case_takes_away(tmp_path: Path) -> None:
    found = proven(job(tmp_path, trap="own_options"))
    assert found.applied == "not_applied"
    assert "compiled without controls" in found.detail
    assert "FLASHINFER_EXTRA_CUDAFLAGS" in found.detail


def test_a_workspace_of_the_case_is_refused(tmp_path: Path) -> None:
    planned = job(tmp_path, trap="other_workspace", place=str(tmp_path / "other"))
    with pytest.raises(
        SideFailed, match=r"workspace is .*other.*nothing in the case sets FLASHINFER_WORK"
    ) as e:
        built(planned, "baseline")
    assert blame.explain(e.value, None)[0] == "compile_error"


def test_kernels_that_were_fetched_are_not_judged(tmp_path: Path) -> None:
    found = proven(job(tmp_path, trap="prebuilt"))
    assert found.applied == "not_applicable"
    assert "fetched.cubin" in found.detail


def test_prebuilt_packages_are_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lib" / "flashinfer_cubin").mkdir(parents=True)
    (tmp_path / "lib" / "flashinfer_cubin" / "__init__.py").touch()
    planned = job(tmp_path)
    monkeypatch.syspath_prepend(tmp_path / "lib")
    with pytest.raises(UsageError, match=r"flashinfer_cubin is installed.*pip uninstall flashinfer-cubin"):
        ADAPTER.toolchain(planned.config, os.environ)
    # Where only the workers see it.
    planned.config.workload.env["PYTHONPATH"] = f"{tmp_path / 'lib'}:{os.environ.get('PYTHONPATH', '')}"
    with pytest.raises(SideFailed, match="flashinfer_cubin can be imported here"):
        built(planned, "baseline")
