"""The proof that an ACF was applied, on cubins that the real compilers made."""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path

import pytest
from compilers import KERNELS, assemble, controls, ptxas, two_kernels
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from boosterrun.compilers import cubin, fatbin, toolchain
from boosterrun.compilers.probe import Remedies
from boosterrun.compilers.proof import Code, prove, read
from boosterrun.errors import RunError, ToolchainError
from boosterrun.measure.api import Built

REMEDIES = Remedies(options="OPTIONS_VAR", replaced="options=", compiler="PTXAS_VAR", cache="CACHE_VAR")
EMPTY = ".version 8.6\n.target sm_90a\n.address_size 64\n.visible .entry nothing() { ret; }\n"
SOURCE = (
    "__global__ void %s(float *p) { p[threadIdx.x] *= %d; }\nvoid call_%s(float *p) { %s<<<1, 32>>>(p); }\n"
)


def made(
    folder: Path, name: str, acf: Path | None = None, ptx: Path = KERNELS / "rmsnorm.ptx", log: bool = True
) -> Code:
    """A cubin by the real ptxas, as Triton's cache keeps it: the PTX beside it."""
    path = folder / name / f"{ptx.stem}.cubin"
    path.parent.mkdir()
    path.with_suffix(".ptx").write_bytes(ptx.read_bytes())
    said = assemble(ptx, path, *(["--apply-controls", str(acf)] if acf else []))
    facts = [{"cubin": str(path), "log": said, "shared_bytes": 16}] if log else []
    [code] = read(Built(0.0, artifacts=[str(path)], kernels=facts), ptxas())
    return code


def test_proven(tmp_path: Path) -> None:
    acf = controls(tmp_path, 3)[1]
    found = prove([made(tmp_path, "b")], [made(tmp_path, "c", acf)], acf, ptxas(), REMEDIES)
    assert (found.applied, found.code_identical) == ("proven", False)
    assert str(acf) in found.detail
    [kernel] = found.kernels
    assert (kernel["name"], kernel["arch"]) == ("rmsnorm", "sm_90a")
    assert kernel["code_sha256"]["baseline"] != kernel["code_sha256"]["candidate"]
    for side in ("baseline", "candidate"):
        assert kernel[side]["registers"] > 0
        assert kernel[side]["shared_bytes"] == 16
        assert kernel[side]["spill_bytes"] == 0
        assert kernel[side]["code_bytes"] > 0


def test_identical_code(tmp_path: Path) -> None:
    ptx = tmp_path / "nothing.ptx"
    ptx.write_text(EMPTY)
    acf = controls(tmp_path, 3)[1]
    found = prove([made(tmp_path, "b", ptx=ptx)], [made(tmp_path, "c", acf, ptx)], acf, ptxas(), REMEDIES)
    assert (found.applied, found.code_identical) == ("proven", True)


def test_equal_code_in_other_resources_is_not_identical(tmp_path: Path) -> None:
    ptx = tmp_path / "nothing.ptx"
    ptx.write_text(EMPTY)
    acf = controls(tmp_path, 3)[1]
    baseline, candidate = made(tmp_path, "b", ptx=ptx), made(tmp_path, "c", acf, ptx)
    more = dataclasses.replace(candidate, facts={**candidate.facts, "shared_bytes": 32})
    assert prove([baseline], [more], acf, ptxas(), REMEDIES).code_identical is False


def test_one_other_kernel_of_several_is_not_identical(tmp_path: Path) -> None:
    ptx = tmp_path / "nothing.ptx"
    ptx.write_text(EMPTY)
    acf = controls(tmp_path, 3)[1]
    baseline = [made(tmp_path, "b1", ptx=ptx), made(tmp_path, "b2")]
    candidate = [made(tmp_path, "c1", acf, ptx), made(tmp_path, "c2", acf)]
    found = prove(baseline, candidate, acf, ptxas(), REMEDIES)
    assert (found.applied, found.code_identical) == ("proven", False)
    assert [kernel["name"] for kernel in found.kernels] == ["nothing", "rmsnorm"]


def test_the_self_test_has_nothing_to_prove(tmp_path: Path) -> None:
    found = prove([made(tmp_path, "b")], [made(tmp_path, "c")], None, ptxas(), REMEDIES)
    assert (found.applied, found.code_identical) == ("not_applicable", True)


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({}, "compiled without controls.*OPTIONS_VAR"),
        ({"options": "--opt-level 3"}, "its own options '--opt-level 3'.*remove options=.*BOOSTERRUN_ACF"),
        ({"foreign": True}, "not compiled here: it came from .*CACHE_VAR"),
    ],
)
def test_a_candidate_without_the_acf(facts: dict[str, object], words: str, tmp_path: Path) -> None:
    acf = controls(tmp_path, 3)[1]
    good = made(tmp_path, "c1", acf)
    bad = dataclasses.replace(made(tmp_path, "c2"), facts=facts)
    found = prove([made(tmp_path, "b")], [good, bad], acf, ptxas(), REMEDIES)
    assert (found.applied, found.code_identical) == ("not_applied", None)
    assert_matches(words, found.detail)


def test_a_candidate_with_another_acf(tmp_path: Path) -> None:
    acf, other = controls(tmp_path, 3)[1], controls(tmp_path, 4)[1]
    found = prove([made(tmp_path, "b")], [made(tmp_path, "c", other)], acf, ptxas(), REMEDIES)
    assert found.applied == "not_applied"
    assert str(other) in found.detail
    self_test = prove([made(tmp_path, "b2")], [made(tmp_path, "c2", other)], None, ptxas(), REMEDIES)
    assert self_test.applied == "not_applied"


def test_nothing_to_read(tmp_path: Path) -> None:
    acf = controls(tmp_path, 3)[1]
    code = made(tmp_path, "c", acf)
    assert prove([], [], acf, ptxas(), REMEDIES).applied == "unproven"
    found = prove([], [code], acf, ptxas(), REMEDIES)
    assert (found.applied, found.code_identical) == ("unproven", None)
    assert "of the baseline was found in CACHE_VAR" in found.detail


def test_a_baseline_with_controls_is_the_environments_fault(tmp_path: Path) -> None:
    acf = controls(tmp_path, 3)[1]
    both = made(tmp_path, "c", acf)
    with pytest.raises(
        RunError, match=r"baseline's kernel rmsnorm was compiled with the controls .*OPTIONS_VAR"
    ):
        prove([both], [both], acf, ptxas(), REMEDIES)


def test_a_baseline_from_another_cache_is_the_environments_fault(tmp_path: Path) -> None:
    acf = controls(tmp_path, 3)[1]
    old = dataclasses.replace(made(tmp_path, "b"), facts={"foreign": True})
    with pytest.raises(RunError, match=r"not from its own cache.*CACHE_VAR"):
        prove([old], [made(tmp_path, "c", acf)], acf, ptxas(), REMEDIES)


def test_another_ptxas_is_the_environments_fault(tmp_path: Path) -> None:
    acf = controls(tmp_path, 3)[1]
    later = dataclasses.replace(ptxas(), version="13.3.99")
    with pytest.raises(RunError, match=r"compiled by ptxas 13\.3\.73, not by .*13\.3\.99.*PTXAS_VAR"):
        prove([made(tmp_path, "b")], [made(tmp_path, "c", acf)], acf, later, REMEDIES)


def test_a_ptxas_without_notes_is_the_environments_fault(tmp_path: Path) -> None:
    triton = pytest.importorskip("triton")
    bundled = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "ptxas"
    ptx = tmp_path / "nothing.ptx"
    ptx.write_text(EMPTY)
    path = tmp_path / "old.cubin"
    subprocess.run([bundled, "-arch", "sm_90a", ptx, "-o", path], check=True)
    with pytest.raises(RunError, match=r"kernel nothing was compiled by a ptxas that leaves no note"):
        prove([Code(str(path), cubin.read(path))], [], None, ptxas(), REMEDIES)


def test_other_ptx_on_one_side_is_the_environments_fault(tmp_path: Path) -> None:
    acf = controls(tmp_path, 3)[1]
    ptx = tmp_path / "rmsnorm.ptx"
    ptx.write_text((KERNELS / "rmsnorm.ptx").read_text() + "// another program\n")
    with pytest.raises(RunError, match=r"kernel rmsnorm of the baseline was made from other PTX"):
        prove([made(tmp_path, "b")], [made(tmp_path, "c", acf, ptx)], acf, ptxas(), REMEDIES)
    with pytest.raises(RunError, match=r"kernel softmax of the candidate was made from other PTX"):
        more = [made(tmp_path, "c2", acf), made(tmp_path, "c3", acf, KERNELS / "softmax.ptx")]
        prove([made(tmp_path, "b2")], more, acf, ptxas(), REMEDIES)


@pytest.fixture(scope="module")
def variants(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Code], list[Code]]:
    """Three kernels of the same name from different PTX, on both sides."""
    folder = tmp_path_factory.mktemp("variants")
    acf = controls(folder, 3)[1]
    sides: tuple[list[Code], list[Code]] = ([], [])
    for number in range(3):
        ptx = folder / f"{number}" / "nothing.ptx"
        ptx.parent.mkdir()
        ptx.write_text(EMPTY.replace("{ ret; }", "{ " + "bar.sync 0; " * number + "ret; }"))
        sides[0].append(made(folder, f"b{number}", ptx=ptx))
        sides[1].append(made(folder, f"c{number}", acf, ptx))
    return acf, *sides


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(order=st.permutations(range(3)))
def test_kernels_of_one_name_are_told_apart_by_their_ptx(
    order: list[int], variants: tuple[Path, list[Code], list[Code]]
) -> None:
    acf, baseline, candidate = variants
    found = prove(baseline, [candidate[number] for number in order], acf, ptxas(), REMEDIES)
    assert found.applied == "proven"
    pairs = {(k["code_sha256"]["baseline"], k["code_sha256"]["candidate"]) for k in found.kernels}
    assert pairs == {
        (b.cubin.kernels[0].code_sha256, c.cubin.kernels[0].code_sha256)
        for b, c in zip(baseline, candidate, strict=True)
    }


def test_without_what_ptxas_said_only_the_code_is_known(tmp_path: Path) -> None:
    acf = controls(tmp_path, 3)[1]
    sides = [[made(tmp_path, "b", log=False)], [made(tmp_path, "c", acf, log=False)]]
    [kernel] = prove(sides[0], sides[1], acf, ptxas(), REMEDIES).kernels
    assert set(kernel["baseline"]) == {"sass_instructions", "code_bytes"}
    for side in sides:
        side[0] = dataclasses.replace(side[0], facts={"compile_seconds": 0.5})
    [kernel] = prove(sides[0], sides[1], acf, ptxas(), REMEDIES).kernels
    assert kernel["candidate"]["compile_seconds"] == 0.5


def library(folder: Path, acf: Path | None) -> Path:
    """A shared object of two sources, by the real nvcc."""
    folder.mkdir()
    sources = []
    for number, name in enumerate(("first", "second"), 2):
        sources.append(folder / f"{name}.cu")
        sources[-1].write_text(SOURCE % (name, number, name, name))
    nvcc = toolchain.find_nvcc(None, {})
    options = [f"-Xptxas=--apply-controls={acf}"] if acf else []
    argv = [nvcc.path, "-arch=sm_90a", "-shared", "-Xcompiler=-fPIC", "-cudart=none", *options, *sources]
    subprocess.run([*map(str, argv), "-o", str(folder / "lib.so")], check=True, cwd=folder, timeout=120)
    return folder / "lib.so"


def test_programs_hold_several_cubins(tmp_path: Path) -> None:
    acf = controls(tmp_path / "acf", 3)[1]
    sides = [
        read(Built(0.0, artifacts=[str(library(tmp_path / name, path))]), ptxas())
        for name, path in (("b", None), ("c", acf))
    ]
    assert [len(side) for side in sides] == [2, 2]
    found = prove(sides[0], sides[1], acf, ptxas(), REMEDIES)
    assert found.applied == "proven"
    assert sorted(kernel["name"] for kernel in found.kernels) == ["_Z5firstPf", "_Z6secondPf"]
    half = prove(sides[0], [sides[1][0], sides[0][1]], acf, ptxas(), REMEDIES)
    assert half.applied == "not_applied"


def test_programs_without_device_code(tmp_path: Path) -> None:
    source = tmp_path / "plain.c"
    source.write_text("int one(void) { return 1; }\n")
    subprocess.run(["gcc", "-shared", "-fPIC", source, "-o", tmp_path / "plain.so"], check=True)
    assert fatbin.cubins(tmp_path / "plain.so", fatbin.find_cuobjdump(ptxas().path)) == []
    with pytest.raises(RunError, match="cuobjdump cannot read"):
        fatbin.cubins(tmp_path / "absent.so", fatbin.find_cuobjdump(ptxas().path))


def test_cuobjdump_is_looked_for_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolchainError, match="no cuobjdump beside"):
        fatbin.find_cuobjdump(tmp_path / "ptxas")
    (tmp_path / "cuobjdump").symlink_to(ptxas().path.with_name("cuobjdump"))
    assert fatbin.find_cuobjdump(None) == tmp_path / "cuobjdump"


def test_several_kernels_in_one_cubin(tmp_path: Path) -> None:
    ptx = two_kernels(tmp_path)
    acf = controls(tmp_path, 3)[1]
    found = prove([made(tmp_path, "b", ptx=ptx)], [made(tmp_path, "c", acf, ptx)], acf, ptxas(), REMEDIES)
    assert [kernel["name"] for kernel in found.kernels] == ["calls", "shares"]


def assert_matches(pattern: str, text: str) -> None:
    import re

    assert re.search(pattern, text), text
