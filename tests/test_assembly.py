"""From a workload's YAML to command lines, and one build."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from compilers import KERNELS, controls, ptxas
from omegaconf import OmegaConf

from boosterrun.compilers import assembly
from boosterrun.config import PtxasWorkload
from boosterrun.errors import RunError, UsageError

SOFTMAX = str(KERNELS / "softmax.ptx")


def workload(**keys: Any) -> PtxasWorkload:
    return PtxasWorkload(**{"name": "w", "ptx": SOFTMAX, "shapes": {"default": {}}, **keys})


def flags(params: dict[str, Any], **keys: Any) -> list[str]:
    (shape,) = assembly.shapes(workload(shapes={"s": params}, **keys), None)
    return list(shape.flags)


def test_command_lines() -> None:
    declared = {"plain": {}, "limited": {"maxrregcount": 64, "opt_level": 2, "flags": ["--fmad=false"]}}
    plain, limited = assembly.shapes(workload(shapes=declared, flags=["-lineinfo"]), None)
    assert assembly.command("ptxas", plain, None, "out") == (
        *("ptxas", "-v", "-arch", "sm_90a", "-lineinfo", SOFTMAX, "-o", "out"),
    )
    assert assembly.command("ptxas", limited, Path("/a.acf"), "out") == (
        *("ptxas", "-v", "-arch", "sm_90a", "-lineinfo", "--fmad=false", "--maxrregcount", "64"),
        *(
            "--override-directive-values",
            "--opt-level",
            "2",
            "--apply-controls",
            "/a.acf",
            SOFTMAX,
            "-o",
            "out",
        ),
    )
    assert limited.params == declared["limited"]


def test_a_register_limit_overrides_the_block_size_once() -> None:
    mine = ["--override-directive-values"]
    assert flags({"maxrregcount": 64}, flags=mine).count("--override-directive-values") == 1


def test_architecture_of_the_shape_then_the_gpu_then_the_ptx(tmp_path: Path) -> None:
    ptx = tmp_path / "k.ptx"
    ptx.write_text("// .target sm_75\n.version 9.3\n.target sm_80, debug\n")
    declared = {"own": {"arch": "sm_120a"}, "none": {}}
    own, none = assembly.shapes(workload(ptx=str(ptx), shapes=declared), "sm_100f")
    assert (own.arch, none.arch) == ("sm_120a", "sm_100f")
    assert assembly.shapes(workload(ptx=str(ptx)), None)[0].arch == "sm_80"
    ptx.write_text(".version 9.3\n")
    with pytest.raises(UsageError, match=r"no \.target line"):
        assembly.shapes(workload(ptx=str(ptx)), None)


def test_reads_what_hydra_gives() -> None:
    config = OmegaConf.structured(workload(shapes={"s": {"flags": ["-lineinfo"]}}, env={"A": "1"}))
    assert assembly.shapes(config, None)[0].flags == ("-lineinfo",)
    assert assembly.objective(config) == ("spill_bytes", "sass_instructions")
    assert assembly.environment(config, {})["A"] == "1"


@pytest.mark.parametrize(
    ("params", "words"),
    [
        (
            {"maxregcount": 1},
            r"shapes\.s has the unknown key 'maxregcount'.*Known keys: ptx, arch, maxrregcount",
        ),
        ({"maxrregcount": 0}, r"shapes\.s\.maxrregcount is 0, not a whole number from 1 to 255"),
        ({"maxrregcount": 256}, "256"),
        ({"maxrregcount": True}, "True"),
        ({"maxrregcount": "many"}, "'many'"),
        ({"maxrregcount": 1.5}, r"1\.5"),
        ({"opt_level": 4}, r"shapes\.s\.opt_level is 4"),
        ({"arch": "compute_90"}, r"arch 'compute_90' is not a GPU architecture.*sm_90a"),
        ({"arch": 90}, "arch 90"),
        ({"flags": "-lineinfo"}, r"shapes\.s\.flags is '-lineinfo', not a list"),
        ({"flags": [1]}, "not a list of words"),
        ({"flags": [""]}, "not a list of words"),
        ({"flags": ["--apply-controls", "x.acf"]}, "may not hold --apply-controls: select it with acf="),
        ({"flags": ["-apply-controls=x.acf"]}, "may not hold -apply-controls=x.acf"),
        ({"flags": ["-o", "x"]}, "may not hold -o"),
        ({"flags": ["-c"]}, "relocatable"),
        ({"flags": ["--options-file", "x"]}, "may not hold --options-file"),
        ({"flags": ["--maxrregcount=64"]}, "set maxrregcount in the shape"),
        ({"flags": ["-arch", "sm_80"]}, r"gpu\.arch"),
        ({"ptx": "/no/such.ptx"}, r"shapes\.s: cannot read /no/such\.ptx: No such file"),
        ({"ptx": "/"}, "cannot read /: Is a directory"),
        (None, "is None"),
        (3, "is 3"),
    ],
)
def test_refuses_shapes_that_make_no_sense(params: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        flags(params)
    assert "workload w" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_refuses_a_workload_without_shapes_or_with_bad_common_flags() -> None:
    with pytest.raises(UsageError, match="no shapes"):
        assembly.shapes(workload(shapes={}), None)
    with pytest.raises(UsageError, match="workload w: flags may not hold --output-file"):
        assembly.shapes(workload(flags=["--output-file=x"]), None)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ([], "no objective"),
        (["speed"], "'speed' is not a metric"),
        (["compile_seconds"], "differs from run to run"),
    ],
)
def test_refuses_objectives_that_cannot_decide(names: list[str], words: str) -> None:
    with pytest.raises(UsageError, match=f"{words}.*Choose from spill_bytes"):
        assembly.objective(workload(objective=names))


def test_environment_without_options_of_the_shell() -> None:
    base = {"NVCC_APPEND_FLAGS": "-G", "NVCC_PREPEND_FLAGS": "-G", "PTXAS_OPTIONS": "-O0", "PATH": "/bin"}
    assert assembly.environment(workload(env={"X": "1"}), base) == {"PATH": "/bin", "X": "1"}


def build(folder: Path, shape: assembly.Shape, acf: Path | None, output: str = "out.cubin") -> assembly.Build:
    program = str(ptxas().path)
    return assembly.build(program, shape, acf, folder=folder, output=output, timeout=60, grace=1, env={})


def test_builds(tmp_path: Path) -> None:
    (shape,) = assembly.shapes(workload(), None)
    _, acf = controls(tmp_path, 2)
    plain, with_acf = build(tmp_path, shape, None, "a.cubin"), build(tmp_path, shape, acf, "b.cubin")
    for made in (plain, with_acf):
        assert made.failure is None
        assert made.returncode == 0
        assert made.seconds > 0
        assert list(made.kernels) == ["softmax"]
        assert made.total("registers") == made.kernels["softmax"]["registers"]
    assert plain.total("sass_instructions") != with_acf.total("sass_instructions")


def test_a_build_that_fails_keeps_the_compilers_words(tmp_path: Path) -> None:
    (shape,) = assembly.shapes(workload(), None)
    bad = tmp_path / "bad.acf"
    bad.write_bytes(b"")
    made = build(tmp_path, shape, bad)
    assert made.failure is not None
    assert made.failure[0] == "acf_invalid"
    assert "not in expected format" in made.output
    assert made.cubin is None
    assert made.kernels == {}


def test_a_full_disk_is_no_failed_build(tmp_path: Path) -> None:
    (shape,) = assembly.shapes(workload(), None)
    with pytest.raises(RunError, match="could not write"):
        build(tmp_path, shape, None, "/dev/full")
