"""What the FlashInfer adapter gives, refuses and proves; test_frameworks_flashinfer.py runs the real one."""

from __future__ import annotations

import ast
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from compilers import controls, pack, ptxas
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from boosterrun import hooks, packs
from boosterrun.adapters import base
from boosterrun.adapters.flashinfer import FLAGS, _arch_list
from boosterrun.compilers.toolchain import Compiler, find_nvcc
from boosterrun.config import SHIPPED, Config, FlashinferWorkload
from boosterrun.errors import RunError, ToolchainError, UsageError
from boosterrun.measure import kept
from boosterrun.measure.api import Built
from boosterrun.measure.trial import Rejected

ADAPTER: Any = base.load("flashinfer")
CONF = Path(__file__).parents[1] / "conf" / "workload"
SIDES = ("baseline", "candidate")
SHELL = {
    FLAGS: "-Xptxas --apply-controls=/other.acf",
    "FLASHINFER_WORKSPACE_BASE": "/x",
    "FLASHINFER_CUBIN_DIR": "/x",
    "FLASHINFER_NVCC": "/x/nvcc",
    "FLASHINFER_CUDA_ARCH_LIST": "8.0",
    "FLASHINFER_JIT_DEBUG": "1",
    "FLASHINFER_JIT_VERBOSE": "1",
    "FLASHINFER_JIT_LINEINFO": "1",
    "CUDA_HOME": "/x",
    "CUDA_PATH": "/x",
    "CUDA_FORCE_PTX_JIT": "1",
    "NVCC_APPEND_FLAGS": "-O0",
    "NVCC_PREPEND_FLAGS": "-O0",
    "CCACHE_DIR": "/x",
}


def nvcc() -> Compiler:
    return find_nvcc(None, os.environ)


def job(
    env: dict[str, str] | None = None, *, acf: packs.Acf | None = None, compiler: Compiler | None = None
) -> base.Job:
    workload = FlashinferWorkload(name="w", case="a.b:make", env=env or {})
    toolchain = base.Toolchain(nvcc=compiler or nvcc())
    chosen = Config(workload=workload)
    return base.Job(
        chosen, acf or pack().acfs[2], Path("/a.acf"), Path("/f"), Path("/w"), toolchain, "sm_90a"
    )


def for_both(acf: packs.Acf) -> packs.Acf:
    return packs.Acf(**{**vars(acf), "compiler_stages": ("nvcc", "ptxas")})


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A FlashInfer that pip has installed, as far as its adapter looks; the real one is not imported."""
    package = folder / "flashinfer"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    info = folder / "flashinfer_python-0.6.6.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: flashinfer-python\nVersion: 0.6.6\n")
    monkeypatch.syspath_prepend(folder)
    return package


def toolkit(folder: Path, *, headers: bool = True) -> Compiler:
    """A toolkit of links to the real one, with or without the headers that come in a package of their own."""
    real = nvcc().path.resolve().parent.parent
    (folder / "include").mkdir(parents=True)
    for name in ("bin", "lib", "nvvm"):
        (folder / name).mkdir()
        for file in (real / name).iterdir():
            (folder / name / file.name).symlink_to(file)
    (folder / "bin" / "nvcc").unlink()
    script = folder / "bin" / "nvcc"
    script.write_text(f'#!/bin/sh\nexec {nvcc().path} "$@"\n')
    script.chmod(0o755)
    if headers:
        (folder / "include" / "cccl" / "nv").mkdir(parents=True)
        (folder / "include" / "cccl" / "nv" / "target").touch()
    return find_nvcc(str(script), {})


def configured(compiler: Compiler, env: dict[str, str] | None = None) -> Config:
    chosen = job(env, compiler=compiler).config
    chosen.toolchain.nvcc = str(compiler.path)
    return chosen


# ---- what a side gets ----


def test_a_side_differs_from_the_other_by_its_acf_alone() -> None:
    baseline, candidate = (ADAPTER.environment(job(), side, Path("/w/s")) for side in SIDES)
    assert (baseline.pop("BOOSTERRUN_ACF"), candidate.pop("BOOSTERRUN_ACF")) == (None, "/a.acf")
    assert (baseline.pop(FLAGS), candidate.pop(FLAGS)) == (None, "-Xptxas --apply-controls=/a.acf")
    places = [side.pop("FLASHINFER_WORKSPACE_BASE") for side in (baseline, candidate)]
    assert len(set(places)) == 2
    assert baseline == candidate
    assert baseline["FLASHINFER_NVCC"] == str(nvcc().path)
    assert baseline["FLASHINFER_CUDA_ARCH_LIST"] == "9.0a"


def test_a_side_builds_once_for_all_its_sessions() -> None:
    def place(side: str, session: int, acf: packs.Acf | None = None, **keep: bool) -> str | None:
        planned = job(acf=acf)
        planned.config.sweep.keep_baseline = keep.get("keep", True)
        found = ADAPTER.environment(planned, side, Path(f"/w/session-{session}/{side}"))
        return found["FLASHINFER_WORKSPACE_BASE"]

    assert place("candidate", 0) == place("candidate", 1)
    assert place("baseline", 0) == place("baseline", 1)
    assert place("baseline", 0) != place("candidate", 0)
    assert place("baseline", 0, keep=False) != place("baseline", 0)
    kept.close()


def test_an_acf_of_both_stages_is_handed_over_whole_or_not_at_all() -> None:
    acf = for_both(pack().acfs[2])
    with pytest.raises(Rejected) as rejection:
        ADAPTER.require_stages(job(acf=acf))
    assert rejection.value.reason == "unsupported_stage"
    blackwell = base.Job(**{**vars(job(acf=acf)), "arch": "sm_100a"})
    ADAPTER.require_stages(blackwell)
    given_to = ADAPTER.environment(blackwell, "candidate", Path("/w"))
    assert given_to[FLAGS] == "--apply-controls /a.acf"
    assert given_to["FLASHINFER_CUDA_ARCH_LIST"] == "10.0a"


@pytest.mark.parametrize("name", sorted(SHELL))
def test_each_variable_of_the_shell_is_taken_away(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, SHELL[name])
    planned = job(compiler=Compiler(Path("/cuda/bin/nvcc"), "13.3.73", "13.3", "here", controls=True))
    assert name in ADAPTER.ignored()
    for side in SIDES:
        given_to = ADAPTER.environment(planned, side, Path("/w/s"))
        assert name in given_to
        assert given_to[name] != SHELL[name]


@settings(max_examples=30, deadline=None)
@given(words=st.lists(st.sampled_from(["-lineinfo", "--maxrregcount=64", "-DX=1"]), max_size=4))
def test_flags_of_the_user_are_for_both_sides(words: list[str]) -> None:
    planned = job({FLAGS: "  ".join(words)} if words else {})
    baseline, candidate = (ADAPTER.environment(planned, side, Path("/w"))[FLAGS] or "" for side in SIDES)
    assert baseline.split() == words
    assert candidate.split() == [*words, "-Xptxas", "--apply-controls=/a.acf"]


@given(major=st.integers(7, 12), minor=st.integers(0, 9), suffix=st.sampled_from(["", "a", "f"]))
def test_targets_as_flashinfer_says_them(major: int, minor: int, suffix: str) -> None:
    assert _arch_list(f"sm_{major}{minor}{suffix}") == f"{major}.{minor}{suffix}"


@pytest.mark.parametrize("arch", ["compute_90a", "sm_90a,sm_80", "native", ""])
def test_targets_that_are_no_gpu(arch: str) -> None:
    with pytest.raises(UsageError, match=r"gpu\.arch=.* is no GPU"):
        _arch_list(arch)


@pytest.mark.parametrize("name", ["a b", "a$b", "12:00", "a'b", "a(b)"])
def test_a_folder_that_a_build_cannot_take(name: str) -> None:
    with pytest.raises(RunError, match=r"cannot build in .*hydra\.sweep\.dir"):
        ADAPTER.environment(job(), "baseline", Path("/w") / name)


# ---- what is refused before ----


def test_a_machine_with_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path / "lib", monkeypatch)
    compiler = toolkit(tmp_path / "cuda")
    assert ADAPTER.toolchain(configured(compiler), os.environ).nvcc == compiler
    assert ADAPTER.framework() == {"name": "flashinfer", "version": "0.6.6", "commit": None}


def test_flashinfer_is_not_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    with pytest.raises(UsageError, match=r"FlashInfer is not installed.*pip install --no-deps flashinfer"):
        ADAPTER.toolchain(job().config, os.environ)


@pytest.mark.parametrize("module", ["flashinfer_jit_cache", "flashinfer_cubin"])
def test_prebuilt_packages_are_refused_by_name(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path / "lib", monkeypatch)
    (tmp_path / "lib" / f"{module}.py").touch()
    with pytest.raises(UsageError, match=f"{module} is installed.*pip uninstall {module.replace('_', '-')}"):
        ADAPTER.toolchain(job().config, os.environ)


def test_prebuilt_kernels_in_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prebuilt = stand_in(tmp_path / "lib", monkeypatch) / "data" / "aot" / "batch_decode"
    prebuilt.mkdir(parents=True)
    with pytest.raises(UsageError, match=r"has kernels that were compiled before, in .*aot"):
        ADAPTER.toolchain(job().config, os.environ)


@pytest.mark.parametrize("where", ["shell", "workload"])
def test_building_is_disabled(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path / "lib", monkeypatch)
    mine = {"FLASHINFER_DISABLE_JIT": "1"}
    with pytest.raises(UsageError, match=r"FLASHINFER_DISABLE_JIT is set.*Unset it"):
        ADAPTER.toolchain(job(mine if where == "workload" else {}).config, mine if where == "shell" else {})


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"FLASHINFER_WORKSPACE_BASE": "/x"}, "may not set FLASHINFER_WORKSPACE_BASE: each side has its own"),
        ({"CUDA_HOME": "/x"}, r"may not set CUDA_HOME: set toolchain\.nvcc"),
        ({"NVCC_APPEND_FLAGS": "-O1"}, f"may not set NVCC_APPEND_FLAGS.*{FLAGS}"),
        ({FLAGS: "-Xptxas --apply-controls={acf}"}, "may not name an ACF"),
        ({FLAGS: "-dlto"}, "may not hold -dlto"),
        ({FLAGS: "-gencode=arch=compute_80,code=sm_80"}, "may not hold -gencode"),
        ({FLAGS: "-G"}, "may not hold -G"),
        ({FLAGS: "-DX='"}, "cannot be read"),
    ],
)
def test_variables_that_are_ours(
    env: dict[str, str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path / "lib", monkeypatch)
    with pytest.raises(UsageError, match=words):
        ADAPTER.toolchain(job(env).config, os.environ)


def test_headers_that_come_in_a_package_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path / "lib", monkeypatch)
    compiler = toolkit(tmp_path / "cuda", headers=False)
    with pytest.raises(ToolchainError, match=r"lacks .*nv/target.*pip install 'nvidia-cuda-cccl=="):
        ADAPTER.toolchain(configured(compiler), os.environ)


def test_ninja_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path / "lib", monkeypatch)
    compiler = toolkit(tmp_path / "cuda")
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    with pytest.raises(ToolchainError, match=r"builds with ninja.*pip install ninja"):
        ADAPTER.toolchain(configured(compiler), {"PATH": str(tmp_path)})


# ---- what a worker does ----


def test_cuda_home_is_laid_out_for_a_toolkit_without_lib64(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = nvcc().path.resolve().parent.parent
    given_to = ADAPTER.environment(job(), "candidate", tmp_path)
    assert given_to["CUDA_HOME"] == str(tmp_path / "cuda")
    for name in ("CUDA_HOME", "FLASHINFER_NVCC", "FLASHINFER_WORKSPACE_BASE", "FLASHINFER_CUBIN_DIR"):
        monkeypatch.setenv(name, given_to[name])
    hooks.load("flashinfer", tmp_path)
    hooks.load("flashinfer", tmp_path)
    home = tmp_path / "cuda"
    version = [str(home / "bin" / "nvcc"), "--version"]
    assert nvcc().version in subprocess.run(version, check=True, capture_output=True, text=True).stdout
    assert (home / "lib64" / "libcudart.so").resolve() == next(
        (real / "lib").glob("libcudart.so.*")
    ).resolve()
    assert (home / "include" / "cuda_runtime.h").is_file()


def test_a_complete_toolkit_is_used_as_it_is(tmp_path: Path) -> None:
    compiler = Compiler(tmp_path / "bin" / "nvcc", "13.3.73", "13.3", "here", controls=True)
    (tmp_path / "lib64").mkdir()
    (tmp_path / "lib64" / "libcudart.so").touch()
    given_to = ADAPTER.environment(job(compiler=compiler), "baseline", Path("/w"))
    assert given_to["CUDA_HOME"] == str(tmp_path)


def test_libraries_of_every_shape_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace, cubins = tmp_path / "flashinfer", tmp_path / "cubins"
    monkeypatch.setenv("FLASHINFER_WORKSPACE_BASE", str(workspace))
    monkeypatch.setenv("FLASHINFER_CUBIN_DIR", str(cubins))
    for path in (workspace / "ops" / "a.so", cubins / "x" / "b.cubin", tmp_path / "other.so"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    found = hooks.load("flashinfer", tmp_path)
    assert found.artifacts() == [str(workspace / "ops" / "a.so")]
    assert found.kernels() == [{"prebuilt": str(cubins / "x" / "b.cubin")}]


# ---- what is proven ----


def library(folder: Path, *flags: str) -> Built:
    """A shared object of one kernel, by the real nvcc."""
    folder.mkdir(parents=True)
    source, output = folder / "one.cu", folder / "one.so"
    source.write_text(
        "__global__ void one(float *p, int n) { float s = 0;"
        " for (int i = 0; i < n; i++) s += p[i] * p[threadIdx.x]; p[threadIdx.x] = s; }"
    )
    command = ["-gencode", "arch=compute_90a,code=sm_90a", "-shared", "-Xcompiler", "-fPIC", *flags]
    subprocess.run([str(nvcc().path), *command, str(source), "-o", str(output)], check=True, timeout=120)
    return Built(seconds=1.0, artifacts=[str(output)])


def test_the_note_of_a_library_proves_its_acf(tmp_path: Path) -> None:
    acf, path = controls(tmp_path / "acf", 3)
    planned = base.Job(**{**vars(job(acf=acf)), "controls": path})
    plain = library(tmp_path / "baseline")
    applied = library(tmp_path / "candidate", "-Xptxas", f"--apply-controls={path}")
    found = ADAPTER.prove(planned, plain, applied)
    assert found.applied == "proven"
    assert [kernel["name"] for kernel in found.kernels] == ["_Z3onePfi"]
    assert ADAPTER.prove(planned, plain, plain).applied == "not_applied"
    with pytest.raises(RunError, match="the baseline's kernel _Z3onePfi was compiled with the controls"):
        ADAPTER.prove(planned, applied, applied)
    assert ptxas().version == nvcc().version


def test_kernels_that_never_see_the_flags_are_not_applicable() -> None:
    nothing = Built(seconds=1.0)
    fetched = Built(seconds=1.0, kernels=[{"prebuilt": "/w/fmha.cubin"}])
    for candidate, words in ((nothing, "no kernel was built from source"), (fetched, "fmha.cubin")):
        found = ADAPTER.prove(job(), nothing, candidate)
        assert found.applied == "not_applicable"
        assert words in found.detail


# ---- the shipped workloads ----


@pytest.mark.parametrize("name", ["flashinfer", "flashinfer/batch_decode", "flashinfer/batch_decode_shapes"])
def test_shipped_workloads_fit_their_case(name: str) -> None:
    workload: Any = OmegaConf.load(CONF / f"{name}.yaml")
    parent: Any = OmegaConf.load(CONF / "flashinfer.yaml")
    assert parent.defaults == ["/schema/workload/flashinfer@_here_", "_self_"]
    if name != "flashinfer":
        assert workload.defaults == ["/workload/flashinfer@_here_", "_self_"]
    file, _, function = parent._get_node("case")._value().rpartition(":")
    assert file == "${shipped:cases/flashinfer_decode.py}"
    tree = ast.parse((SHIPPED / "cases" / "flashinfer_decode.py").read_text())
    [made] = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == function]
    names = {argument.arg for argument in made.args.kwonlyargs} - {"seed"}
    for shape_name, shape in (workload.get("shapes") or parent.shapes).items():
        assert set(shape) | set(parent.options) == names
        assert shape_name == f"b{shape.batch}_kv{shape.kv}"
