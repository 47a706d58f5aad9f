"""The adapter as the command uses it: configuration in, judgement out."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from compilers import KERNELS, controls, script
from omegaconf import OmegaConf

from boosterrun.adapters import base
from boosterrun.config import Config, GpuConfig, PtxasWorkload, ToolchainConfig
from boosterrun.errors import ToolchainError, UsageError

CONF = Path(base.__file__).parents[2] / "conf" / "workload"


def config(ptxas_path: str | None = None, **keys: Any) -> Config:
    workload = PtxasWorkload(
        **{"name": "w", "ptx": str(KERNELS / "softmax.ptx"), "shapes": {"d": {}}, **keys}
    )
    return Config(workload=workload, toolchain=ToolchainConfig(ptxas=ptxas_path), gpu=GpuConfig())


def job(folder: Path, number: int | None, chosen: Config) -> base.Job:
    acf, path = controls(folder, number) if number is not None else (None, None)
    toolchain = base.load("ptxas").toolchain(chosen, os.environ)
    return base.Job(chosen, acf, path, folder, folder / "work", toolchain, chosen.gpu.arch)


def test_judges_a_candidate(tmp_path: Path) -> None:
    judgement = base.load("ptxas").judge(job(tmp_path, 2, config()))
    assert judgement.decision == judgement.shapes[0]["decision"] == "REJECTED:regression"
    assert judgement.shapes[0]["name"] == "d"
    assert judgement.objective == {
        "metric": "spill_bytes",
        "unit": "bytes",
        "better": "lower",
        "tie_breakers": ["sass_instructions"],
    }
    assert judgement.phases["build"] > 0
    assert base.load("ptxas").evidence == "static"


def test_the_objective_is_the_users(tmp_path: Path) -> None:
    judgement = base.load("ptxas").judge(job(tmp_path, 2, config(objective=["registers"])))
    assert judgement.shapes[0]["metric"] == "registers"
    assert judgement.shapes[0]["unit"] == "registers"
    assert judgement.objective["tie_breakers"] == []


def test_self_test(tmp_path: Path) -> None:
    assert base.load("ptxas").judge(job(tmp_path, None, config())).decision == "REJECTED:no_difference"


def test_says_what_is_run() -> None:
    chosen = config(shapes={"first": {"maxrregcount": 64}, "second": {}})
    adapter = base.load("ptxas")
    assert adapter.source(chosen) == KERNELS / "softmax.ptx"
    command = adapter.benchmark_command(chosen)
    assert command[0] == "ptxas"
    assert "--apply-controls" not in command
    assert "64" in command


def test_takes_the_ptxas_that_is_configured(tmp_path: Path) -> None:
    mine = script(tmp_path / "ptxas", 'exec "$REAL" "$@"')
    found = base.load("ptxas").toolchain(config(str(mine)), os.environ)
    assert found.ptxas is not None
    assert found.ptxas.path == mine
    assert found.nvcc is None


def test_refuses_a_ptxas_without_controls(tmp_path: Path) -> None:
    old = script(tmp_path / "ptxas", "echo release 12.8, V12.8.93")
    with pytest.raises(ToolchainError, match="cannot apply ACFs"):
        base.load("ptxas").toolchain(config(str(old)), os.environ)


def test_refuses_a_workload_before_the_first_job() -> None:
    with pytest.raises(UsageError, match="cannot read"):
        base.load("ptxas").source(config(ptx="/no/such.ptx"))


@pytest.mark.parametrize(
    "path", [CONF / "ptxas.yaml", *sorted(CONF.glob("ptxas/*.yaml"))], ids=lambda path: path.stem
)
def test_shipped_workloads_build(path: Path, tmp_path: Path) -> None:
    declared = OmegaConf.load(path)
    assert isinstance(declared, type(OmegaConf.create({})))
    name = declared.name
    declared.ptx = str(KERNELS / f"{name}.ptx")
    del declared["defaults"]
    workload = OmegaConf.merge(OmegaConf.structured(PtxasWorkload(shapes={})), declared)
    chosen = Config(workload=workload, gpu=GpuConfig())
    assert path.stem in (name, "ptxas")
    judgement = base.load("ptxas").judge(job(tmp_path, None, chosen))
    assert judgement.decision == "REJECTED:no_difference"
    assert {kernel["name"] for shape in judgement.shapes for kernel in shape["kernels"]} == {name}
    if path.stem == "ptxas":
        spills = [shape["kernels"][0]["baseline"]["spill_bytes"] for shape in judgement.shapes]
        assert len(spills) == 3
        assert spills[0] > spills[1] > 0
