"""Triton's real compiler and the real ptxas in real workers; only launches are missing, without a GPU."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from compilers import controls, pack, ptxas, script
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from triton_jobs import CASE, config, job, judge

from boosterrun import packs
from boosterrun.adapters import base
from boosterrun.compilers import cubin
from boosterrun.config import SHIPPED
from boosterrun.errors import RunError, ToolchainError, UsageError
from boosterrun.measure.judged import BaselineFailed
from boosterrun.sweeps.canary import damaged

TRITON = Path(metadata.distribution("triton").locate_file("triton"))  # type: ignore[arg-type]
BUNDLED = TRITON / "backends" / "nvidia" / "bin" / "ptxas"
CONF = Path(__file__).parents[1] / "conf" / "workload"
SHELL = {
    "PTXAS_OPTIONS": "--apply-controls=/some/where/else.acf",
    "TRITON_PTXAS_PATH": str(BUNDLED),
    "TRITON_PTXAS_BLACKWELL_PATH": str(BUNDLED),
    "TRITON_CACHE_MANAGER": "no_such_module:Manager",
    "TRITON_KERNEL_OVERRIDE": "1",
    "TRITON_STORE_BINARY_ONLY": "1",
    "TRITON_INTERPRET": "1",
    "DISABLE_PTXAS_OPT": "1",
    "TRITON_MOCK_PTX_VERSION": "12.0",
}


def cubins(folder: Path, side: str) -> list[cubin.Cubin]:
    """What a side really compiled, by kernel name."""
    paths = (folder / "work").glob(f"session-*/{side}/triton/*/*.cubin")
    return [cubin.read(path) for path in sorted(paths, key=lambda path: path.name)]


def codes(judgement: base.Judgement) -> list[dict[str, str]]:
    return [kernel["code_sha256"] for kernel in judgement.shapes[0]["kernels"]]


def test_the_acf_arrives_on_one_side_only(tmp_path: Path) -> None:
    found = judge(tmp_path, 3, config(kernels=["softmax", "double"]))
    shape = found.shapes[0]
    acf = controls(tmp_path / "acf", 3)[1]
    assert shape["application"]["applied"] == "proven"
    assert shape["application"]["code_identical"] is False
    assert shape["correctness"] == "passed"
    assert [kernel["name"] for kernel in shape["kernels"]] == ["double", "softmax"]
    assert {kernel["arch"] for kernel in shape["kernels"]} == {"sm_90a"}
    assert all(
        kernel[side]["registers"] > 0 for kernel in shape["kernels"] for side in ("baseline", "candidate")
    )
    assert found.framework == {"name": "triton", "version": metadata.version("triton"), "commit": None}
    assert found.versions["triton"] == metadata.version("triton")
    for side, expected in (("baseline", []), ("candidate", [str(acf)])):
        compiled = cubins(tmp_path, side)
        assert len(compiled) >= 2
        assert all(cubin.applied_controls(code) == expected for code in compiled)
        assert all(ptxas().version in (code.tool_version or "") for code in compiled)


def test_identical_code_is_not_measured(tmp_path: Path) -> None:
    found = judge(tmp_path, 3, config(kernels=["nothing"]))
    assert found.decision == "REJECTED:identical_code"
    assert found.shapes[0]["application"]["applied"] == "proven"
    assert found.shapes[0]["baseline"] is None


def test_self_test(tmp_path: Path) -> None:
    """Without the timing: these kernels take no time at all, and the machine may be busy."""
    planned = job(tmp_path, None, config())
    adapter: Any = base.load("triton")
    built = []
    for name in ("baseline", "candidate"):
        with adapter.side(planned, name, tmp_path / name) as side:
            side.start()
            built.append(side.build("default", {}))
    found = adapter.prove(planned, *built)
    assert (found.applied, found.code_identical) == ("not_applicable", True)


def test_a_kernel_that_an_earlier_shape_compiled_is_proven_again(tmp_path: Path) -> None:
    found = judge(tmp_path, 3, config(shapes={"one": {"block": 1024}, "same": {"block": 1024}}))
    assert [shape["application"]["applied"] for shape in found.shapes] == ["proven", "proven"]


# ---- what the shell may hold ----


def test_nothing_of_the_shell_gets_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clean = judge(tmp_path / "clean", 3, config(shapes={"one": {"block": 1024}}))
    script(tmp_path / "bin" / "ptxas", "echo not me >&2; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    for name, value in SHELL.items():
        monkeypatch.setenv(name, value)
    found = judge(tmp_path / "lies", 3, config(shapes={"one": {"block": 1024}}))
    application = found.shapes[0]["application"]
    assert application["applied"] == "proven"
    assert "ignored from the shell: " in application["detail"]
    assert all(name in application["detail"] for name in SHELL)
    assert codes(found) == codes(clean)


@pytest.mark.parametrize("name", sorted(SHELL))
def test_each_variable_of_the_shell_is_taken_away(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, SHELL[name])
    adapter: Any = base.load("triton")
    planned = job(tmp_path, 3, config())
    assert name in adapter.ignored()
    for side in ("baseline", "candidate"):
        assert adapter.environment(planned, side, tmp_path)[name] != SHELL[name]


def test_a_stale_cache_of_the_shell_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trap itself first: new content at an old path is the old code, as long as the cache is kept."""
    acf, path = controls(tmp_path / "acf", 3)
    stale = tmp_path / "stale"
    run_by_hand = (
        "import sys; sys.path.insert(0, sys.argv[1]); import triton_compile_only as c; "
        "c.make(seed=0, block=1024).run()"
    )
    by_hand = {
        **os.environ,
        "PTXAS_OPTIONS": f"--apply-controls={path}",
        "TRITON_PTXAS_PATH": str(ptxas().path),
        "TRITON_CACHE_DIR": str(stale),
    }
    argv = [sys.executable, "-c", run_by_hand, str(CASE.parent)]

    def compiled() -> set[str]:
        subprocess.run(argv, env=by_hand, check=True, capture_output=True)
        return {cubin.read(one).code_sha256 for one in stale.glob("*/*.cubin")}

    path.unlink()
    path.write_bytes(pack().read(pack().acfs[3]))
    old = compiled()
    path.unlink()
    assert packs.materialise(pack().read(acf), acf.sha256, tmp_path / "acf") == path
    assert compiled() == old
    for folder in [stale, *stale.iterdir()]:
        folder.chmod(0o555)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(stale))

    found = judge(tmp_path, 3, config(shapes={"one": {"block": 1024}}))
    assert found.shapes[0]["application"]["applied"] == "proven"
    assert "TRITON_CACHE_DIR" in found.shapes[0]["application"]["detail"]
    fresh = {one.code_sha256 for one in cubins(tmp_path, "candidate")}
    assert fresh
    assert not fresh & old


# ---- what the case may do ----


@pytest.mark.parametrize("trap", ["ptx_options", "ptx_options_on_double"])
def test_explicit_options_replace_the_acf(trap: str, tmp_path: Path) -> None:
    found = judge(tmp_path, 3, config(kernels=["softmax", "double"], trap=trap))
    assert found.decision == "REJECTED:acf_not_applied"
    assert "kernel double was compiled with its own options '--opt-level 3'" in found.message.replace(
        "softmax", "double"
    )
    assert "remove ptx_options= at the launch" in found.message


def test_explicit_options_may_name_the_acf(tmp_path: Path) -> None:
    found = judge(tmp_path, 3, config(trap="adds_the_acf"))
    assert found.shapes[0]["application"]["applied"] == "proven"


@pytest.mark.parametrize(
    ("trap", "place", "words"),
    [
        (
            "other_ptxas",
            str(BUNDLED),
            r"Triton takes .*ptxas \(12\.8\) instead of .*triton\.knobs\.nvidia\.ptxas",
        ),
        (
            "unusable_ptxas",
            "/no/such/ptxas",
            r"Triton takes .*ptxas \(12\.8\) instead of .*TRITON_PTXAS_PATH",
        ),
        ("other_cache", "{}", r"Triton's cache is .*, not this side's own.*TRITON_CACHE_DIR"),
        ("broken", "", r"ValueError: there is no such kernel"),
    ],
)
def test_a_case_that_changes_the_compiler(trap: str, place: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(BaselineFailed, match=words):
        judge(tmp_path, 3, config(trap=trap, place=place.format(tmp_path / "other")))


def test_a_cache_that_all_processes_share(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"is not from its own cache but from .*site.*TRITON_CACHE_DIR"):
        judge(tmp_path, 3, config(trap="site_cache", place=str(tmp_path / "site")))


def test_a_baseline_that_adds_controls_itself(tmp_path: Path) -> None:
    other = controls(tmp_path / "other", 4)[1]
    with pytest.raises(
        RunError, match=r"the baseline's kernel softmax was compiled with the controls .*ptx_options="
    ):
        judge(tmp_path, 3, config(trap="baseline_with_controls", place=str(other)))


def test_sides_that_compile_two_programs(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="was made from other PTX than on the other side"):
        judge(tmp_path, 3, config(trap="other_source", shapes={"one": {"block": 1024}}))


@pytest.mark.parametrize(("required", "rejected"), [(None, True), (True, True), (False, False)])
def test_without_proof_nothing_is_kept_unless_the_protocol_says_so(
    required: bool | None, rejected: bool, tmp_path: Path
) -> None:
    found = judge(tmp_path, 3, config(trap="no_code", protocol={"require_proof": required}))
    assert found.shapes[0]["application"]["applied"] == "unproven"
    assert (found.decision == "REJECTED:acf_not_applied") is rejected
    assert (found.shapes[0]["candidate"] is None) is rejected
    if rejected:
        assert (
            "no compiled code of the baseline and the candidate was found in TRITON_CACHE_DIR"
            in found.message
        )


def test_a_triton_that_was_imported_too_early(tmp_path: Path) -> None:
    late = (
        "import os, sys, pathlib, triton, boosterrun.errors as e, boosterrun.hooks.triton as h\n"
        "os.environ['PTXAS_OPTIONS'] = '--apply-controls=/a.acf'\n"
        "try: h.worker_hooks(pathlib.Path(sys.argv[1]))\n"
        "except e.RunError as error: print(error)"
    )
    clean = {name: value for name, value in os.environ.items() if name not in SHELL}
    argv = [sys.executable, "-c", late, str(tmp_path)]
    done = subprocess.run(argv, env=clean, capture_output=True, text=True, check=True)
    assert "imported with the ptxas options None, before this side's '--apply-controls=/a.acf'" in done.stdout


# ---- what ptxas may say ----


def test_a_damaged_acf_is_told_in_the_words_of_ptxas(tmp_path: Path) -> None:
    planned = job(tmp_path, 3, config())
    assert planned.controls is not None
    bad = tmp_path / "acf" / "bad.acf"
    bad.write_bytes(damaged(planned.controls.read_bytes()))
    found = base.load("triton").judge(base.Job(**{**vars(planned), "controls": bad}))
    assert found.decision == "REJECTED:acf_invalid"
    assert found.message == "shape default: ptxas fatal : Invalid compiler controls file (exit code 255)"


def test_a_crashing_ptxas(tmp_path: Path) -> None:
    mine = script(
        tmp_path / "bin" / "ptxas", 'case "$*" in *--apply-controls*) kill -SEGV $$;; esac\nexec "$REAL" "$@"'
    )
    found = judge(tmp_path, 3, config(ptxas=str(mine)))
    assert found.decision == "REJECTED:compiler_crash"
    assert ".version" not in found.message


def test_an_acf_for_other_stages(tmp_path: Path) -> None:
    planned = job(tmp_path, 3, config())
    acf = packs.Acf(**{**vars(planned.acf), "compiler_stages": ("nvcc", "ptxas")})
    found = base.load("triton").judge(base.Job(**{**vars(planned), "acf": acf}))
    assert found.decision == "REJECTED:unsupported_stage"
    assert not list((tmp_path / "work").rglob("*.cubin"))


# ---- what is checked before ----


def test_the_users_options_are_for_both_sides(tmp_path: Path) -> None:
    found = judge(tmp_path, 3, config(env={"PTXAS_OPTIONS": "--opt-level  1"}))
    assert found.shapes[0]["application"]["applied"] == "proven"
    for side in ("baseline", "candidate"):
        assert all("-O 1" in str(code.options) for code in cubins(tmp_path, side))


@settings(max_examples=50, deadline=None)
@given(words=st.lists(st.sampled_from(["--fmad=false", "-O1", "--maxrregcount", "64", "-v"]), max_size=5))
def test_options_have_single_spaces_and_the_acf_last(words: list[str]) -> None:
    adapter: Any = base.load("triton")
    acf = pack().acfs[0]
    chosen = config(env={"PTXAS_OPTIONS": "  ".join(words)} if words else {})
    planned = base.Job(chosen, acf, Path("/a.acf"), Path("/f"), Path("/w"), base.Toolchain(ptxas()), None)
    baseline, candidate = (
        adapter.environment(planned, side, Path("/w")) for side in ("baseline", "candidate")
    )
    assert (baseline["PTXAS_OPTIONS"] or "") == " ".join(words)
    assert candidate["PTXAS_OPTIONS"] == " ".join([*words, "--apply-controls=/a.acf"])
    assert (baseline["BOOSTERRUN_ACF"], candidate["BOOSTERRUN_ACF"]) == (None, "/a.acf")
    own = {"PTXAS_OPTIONS", "BOOSTERRUN_ACF"}
    assert {k: v for k, v in baseline.items() if k not in own} == {
        k: v for k, v in candidate.items() if k not in own
    }


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"TRITON_PTXAS_PATH": "/x"}, r"may not set TRITON_PTXAS_PATH: set toolchain\.ptxas"),
        ({"TRITON_CACHE_DIR": "/x"}, "may not set TRITON_CACHE_DIR: each side has its own"),
        ({"PTXAS_OPTIONS": "--apply-controls={acf}"}, "PTXAS_OPTIONS may not name an ACF"),
        ({"PTXAS_OPTIONS": "--apply-controls /a"}, "PTXAS_OPTIONS may not name an ACF"),
    ],
)
def test_variables_that_are_ours(env: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        base.load("triton").toolchain(config(env=env), os.environ)


@pytest.mark.parametrize(
    ("version", "words"),
    [
        (None, "Triton is not installed.*pip install triton"),
        ("3.5.1", "Triton 3.5.1 does not read.*ptx_options="),
    ],
)
def test_a_triton_that_cannot(version: str | None, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def installed(name: str) -> str:
        if version is None or name != "triton":
            raise metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(metadata, "version", installed)
    with pytest.raises(UsageError, match=words):
        base.load("triton").toolchain(config(), os.environ)


def test_a_ptxas_that_cannot() -> None:
    with pytest.raises(ToolchainError, match="cannot apply ACFs"):
        base.load("triton").toolchain(config(ptxas=str(BUNDLED)), os.environ)


# ---- the shipped workloads ----


def composed(name: str) -> Any:
    """A workload's YAML with those that it begins from, without Hydra."""
    declared: Any = OmegaConf.load(CONF / f"{name}.yaml")
    first = declared.pop("defaults")[0]
    parent = str(next(iter(first.keys())) if not isinstance(first, str) else first).removesuffix("@_here_")
    if parent.startswith("/workload/"):
        return OmegaConf.merge(composed(parent.removeprefix("/workload/")), declared)
    assert parent == "/schema/workload/triton"
    return declared


@pytest.mark.parametrize("path", sorted(CONF.glob("triton/*.yaml")), ids=lambda path: path.stem)
def test_shipped_workloads_fit_their_cases(path: Path) -> None:
    workload = composed(f"triton/{path.stem}")
    kernel = path.stem.removesuffix("_shapes")
    file, _, function = workload._get_node("case")._value().rpartition(":")
    assert (file, function) == ("${shipped:cases/triton_kernels.py}", f"make_{kernel}")
    tree = ast.parse((SHIPPED / "cases" / "triton_kernels.py").read_text())
    [made] = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == function]
    defaults = {
        argument.arg: ast.literal_eval(value)
        for argument, value in zip(made.args.kwonlyargs, made.args.kw_defaults, strict=True)
        if value is not None
    }
    shapes = OmegaConf.to_container(workload.shapes)
    assert isinstance(shapes, dict)
    assert next(iter(shapes.values())) == defaults  # the shape whose outcomes are known
    assert (len(shapes) > 1) is path.stem.endswith("_shapes")
    for name, shape in shapes.items():
        assert set(shape) == set(defaults)
        assert name == "_".join(f"{key}{value}" for key, value in shape.items())


def test_the_default_workload_is_rmsnorm() -> None:
    assert composed("triton") == composed("triton/rmsnorm")
