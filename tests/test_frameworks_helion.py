"""The real Helion on the real Triton and ptxas, in real workers; only launches are missing, without a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from compilers import controls, ptxas

from boosterrun.adapters import base
from boosterrun.compilers import cubin
from boosterrun.config import SHIPPED, AcfConfig, Config, HelionWorkload, PackConfig, ProtocolConfig
from boosterrun.measure.judged import BaselineFailed
from boosterrun.sweeps.canary import damaged

pytest.importorskip("helion")
pytestmark = pytest.mark.timeout(900)

CASE = Path(__file__).parent / "cases" / "helion_compile_only.py"


def config(
    configs: dict[str, Any] | None = None, env: dict[str, str] | None = None, **options: Any
) -> Config:
    protocol = ProtocolConfig(
        name="quick", method="quick", trials=4, confirm_sessions=1, every_shape=True, require_proof=True
    )
    return Config(
        acf=AcfConfig(id="any"),
        workload=HelionWorkload(
            name="compile_only",
            case=f"{CASE}:make",
            shapes={"default": {}},
            options=options,
            configs=configs or {},
            env=env or {},
        ),
        pack=PackConfig(name="sample", path=str(SHIPPED / "packs" / "booster-pack-sample.zip")),
        protocol=protocol,
    )


def job(folder: Path, number: int | None, chosen: Config) -> base.Job:
    acf, path = controls(folder / "acf", number) if number is not None else (None, None)
    work = folder / "work"
    work.mkdir(parents=True, exist_ok=True)
    return base.Job(chosen, acf, path, folder, work, base.load("helion").toolchain(chosen, os.environ), None)


def judge(folder: Path, number: int | None, chosen: Config) -> base.Judgement:
    return base.load("helion").judge(job(folder, number, chosen))


def test_the_acf_arrives_in_every_shipped_kernel_on_one_side_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HELION_AUTOTUNE_SEARCH_ACF", "/some/where/else.acf")
    monkeypatch.setenv("HELION_FORCE_AUTOTUNE", "1")
    monkeypatch.setenv("HELION_INTERPRET", "1")
    monkeypatch.setenv("PTXAS_OPTIONS", "--apply-controls=/some/where/else.acf")
    kernels = ["conv1d_causal", "fp8_quant", "gated_delta", "softmax"]
    found = judge(tmp_path, 3, config(kernels=kernels))
    shape = found.shapes[0]
    assert shape["application"]["applied"] == "proven"
    assert shape["application"]["code_identical"] is False
    assert "HELION_AUTOTUNE_SEARCH_ACF, HELION_FORCE_AUTOTUNE" in shape["application"]["detail"]
    assert shape["correctness"] == "passed"
    assert [kernel["name"] for kernel in shape["kernels"]] == [f"_helion_{name}" for name in kernels]
    assert all(kernel["baseline"]["registers"] > 0 for kernel in shape["kernels"])
    acf = controls(tmp_path / "acf", 3)[1]
    for side, expected in (("baseline", []), ("candidate", [str(acf)])):
        made = [cubin.read(p) for p in (tmp_path / "work").glob(f"session-*/{side}/triton/*/*.cubin")]
        assert len(made) >= len(kernels)
        assert all(cubin.applied_controls(code) == expected for code in made)
        assert all(ptxas().version in (code.tool_version or "") for code in made)
    assert found.versions["helion"] == (found.framework or {})["version"]


def test_a_config_from_the_yaml_is_the_one_that_is_compiled(tmp_path: Path) -> None:
    pinned = {"softmax": {"block_sizes": [1], "reduction_loops": [None], "num_warps": 4, "num_stages": 1}}
    found = judge(tmp_path, None, config(pinned, warps=4))
    assert found.shapes[0]["correctness"] == "passed"
    assert found.shapes[0]["application"]["code_identical"] is True


def test_a_damaged_acf_is_told_in_the_words_of_ptxas(tmp_path: Path) -> None:
    planned = job(tmp_path, 3, config())
    assert planned.controls is not None
    bad = tmp_path / "acf" / "bad.acf"
    bad.write_bytes(damaged(planned.controls.read_bytes()))
    found = base.load("helion").judge(base.Job(**{**vars(planned), "controls": bad}))
    assert found.decision == "REJECTED:acf_invalid"
    assert found.message == "shape default: ptxas fatal : Invalid compiler controls file (exit code 255)"


@pytest.mark.parametrize(
    ("configs", "options", "words"),
    [
        ({}, {"trap": "untuned"}, r"kernel softmax has no pinned config.*workload\.configs\.softmax"),
        ({}, {"trap": "own_acf"}, r"kernel softmax has advanced_controls_file='/some/where/else\.acf'"),
        ({"nothing": {"num_warps": 4}}, {}, r"workload\.configs names nothing, .*gated_delta, softmax"),
    ],
)
def test_what_ends_the_comparison_is_refused(
    configs: dict[str, Any], options: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(BaselineFailed, match=words):
        judge(tmp_path, 3, config(configs, **options))


def test_a_kernel_may_name_the_acf_itself(tmp_path: Path) -> None:
    found = judge(tmp_path, 3, config(trap="own_acf_is_ours"))
    assert found.shapes[0]["application"]["applied"] == "proven"


def test_the_default_config_may_be_asked_for(tmp_path: Path) -> None:
    found = judge(tmp_path, 3, config(env={"HELION_AUTOTUNE_EFFORT": "none"}, trap="untuned"))
    assert found.shapes[0]["application"]["applied"] == "proven"
    assert found.shapes[0]["correctness"] == "passed"


def test_each_shipped_kernel_agrees_with_its_oracle(tmp_path: Path) -> None:
    """Helion runs the same kernels as plain torch on the CPU: what they compute, not how they compile."""
    source = (SHIPPED / "cases" / "helion_kernels.py").read_text()
    assert 'DEVICE = "cuda"' in source
    (tmp_path / "on_the_cpu.py").write_text(source.replace('DEVICE = "cuda"', 'DEVICE = "cpu"'))
    script = (
        "import on_the_cpu as c\n"
        "from boosterrun.measure import arrays, compare\n"
        "sizes = {'softmax': dict(M=5, N=200), 'fp8_quant': dict(M=5, N=200),\n"
        "         'conv1d_causal': dict(B=2, T=40, D=130), 'gated_delta': dict(H=3, T=11)}\n"
        "for name, size in sizes.items():\n"
        "    case = getattr(c, 'make_' + name)(seed=1, **size)\n"
        "    expected = arrays.keep(case.reference())\n"
        "    assert arrays.poison(case.outputs) == len(case.outputs)\n"
        "    bounds = dict(tolerance=case.tolerance, rtol=case.rtol, atol=case.atol)\n"
        "    passed, detail = compare.compare(arrays.look(case.run()), expected, **bounds)\n"
        "    assert passed, (name, detail)\n"
        "    print(name)\n"
    )
    env = {**os.environ, "HELION_INTERPRET": "1", "PYTHONPATH": f"{Path.cwd()}:{tmp_path}"}
    argv = [sys.executable, "-c", script]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split() == ["softmax", "fp8_quant", "conv1d_causal", "gated_delta"]
