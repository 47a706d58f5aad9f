"""What the Helion adapter gives to its sides and refuses; test_frameworks_helion.py runs the real Helion."""

from __future__ import annotations

import ast
import json
import os
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from compilers import pack, ptxas
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from boosterrun.adapters import base
from boosterrun.adapters.helion import CONFIGS
from boosterrun.config import SHIPPED, Config, HelionWorkload
from boosterrun.errors import UsageError

ADAPTER: Any = base.load("helion")
SIDES = ("baseline", "candidate")
CONF = Path(__file__).parents[1] / "conf" / "workload"
CASES = SHIPPED / "cases" / "helion_kernels.py"
SHELL = {
    "HELION_AUTOTUNE_SEARCH_ACF": "/a.acf",
    "HELION_AUTOTUNE_EFFORT": "full",
    "HELION_AUTOTUNER": "RandomSearch",
    "HELION_FORCE_AUTOTUNE": "1",
    "HELION_AOT_MODE": "evaluate",
    "HELION_HEURISTIC_DIR": "/x",
    "HELION_INTERPRET": "1",
    "HELION_BACKEND": "cute",
    "HELION_CACHE_DIR": "/x",
    "HELION_SKIP_CACHE": "0",
    "TRITON_CACHE_DIR": "/x",
    "TRITON_DISABLE_LINE_INFO": "0",
    "PTXAS_OPTIONS": "--apply-controls=/a.acf",
}


def job(configs: dict[str, Any] | None = None, env: dict[str, str] | None = None) -> base.Job:
    workload = HelionWorkload(name="w", case="a.b:make", configs=configs or {}, env=env or {})
    acf = pack().acfs[2]
    chosen = Config(workload=workload)
    return base.Job(chosen, acf, Path("/a.acf"), Path("/f"), Path("/w"), base.Toolchain(ptxas()), None)


def installed(monkeypatch: pytest.MonkeyPatch, **versions: str) -> None:
    """Stand in for what pip has installed."""

    def version(name: str) -> str:
        if name not in versions:
            raise metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(metadata, "version", version)


def test_a_side_differs_from_the_other_by_its_acf_alone() -> None:
    planned = job({"softmax": {"num_warps": 4}})
    baseline, candidate = (ADAPTER.environment(planned, side, Path("/w/s")) for side in SIDES)
    assert (baseline.pop("BOOSTERRUN_ACF"), candidate.pop("BOOSTERRUN_ACF")) == (None, "/a.acf")
    assert baseline == candidate
    assert json.loads(baseline[CONFIGS]) == {"softmax": {"num_warps": 4}}
    assert baseline["PTXAS_OPTIONS"] is None
    assert baseline["TRITON_PTXAS_PATH"] == str(ptxas().path)
    assert baseline["TRITON_DISABLE_LINE_INFO"] == "1"
    assert baseline["HELION_SKIP_CACHE"] == "1"
    for name in ("HELION_CACHE_DIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"):
        assert baseline[name].startswith("/w/s/")


@pytest.mark.parametrize("name", sorted(SHELL))
def test_each_variable_of_the_shell_is_taken_away(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, SHELL[name])
    assert name in ADAPTER.ignored()
    for side in SIDES:
        given_to = ADAPTER.environment(job(), side, Path("/w/s"))
        assert name in given_to
        assert given_to[name] != SHELL[name]


def test_the_default_configs_may_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELION_AUTOTUNE_EFFORT", "full")
    planned = job(env={"HELION_AUTOTUNE_EFFORT": "none"})
    installed(monkeypatch, helion="1.4.0", torch="2.11.0+cu130", triton="3.6.0")
    assert ADAPTER.toolchain(planned.config, os.environ).ptxas is not None
    assert ADAPTER.environment(planned, "candidate", Path("/w"))["HELION_AUTOTUNE_EFFORT"] == "none"


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"PTXAS_OPTIONS": "-O1"}, "may not set PTXAS_OPTIONS: the ACF in a kernel's config takes its place"),
        ({"HELION_CACHE_DIR": "/x"}, "may not set HELION_CACHE_DIR: each side has its own"),
        ({"HELION_AUTOTUNE_EFFORT": "quick"}, "HELION_AUTOTUNE_EFFORT but to none: the sides would be tuned"),
        ({"HELION_AUTOTUNE_SEARCH_ACF": "{acf}"}, "may not set HELION_AUTOTUNE_SEARCH_ACF: every kernel has"),
        ({"HELION_BACKEND": "cute"}, "may not set HELION_BACKEND: every kernel has one config"),
        ({"TRITON_CACHE_DIR": "/x"}, "may not set TRITON_CACHE_DIR: each side has its own"),
    ],
)
def test_variables_that_are_ours(env: dict[str, str], words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, helion="1.4.0", torch="2.11.0", triton="3.6.0")
    with pytest.raises(UsageError, match=words):
        ADAPTER.toolchain(job(env=env).config, os.environ)


@pytest.mark.parametrize(
    ("configs", "words"),
    [
        ({"softmax": 4}, r"workload\.configs\.softmax is no config"),
        ({"softmax": {"advanced_controls_file": "/a"}}, r"configs\.softmax may not set advanced_controls_f"),
    ],
)
def test_configs_that_cannot_be(configs: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, helion="1.4.0", torch="2.11.0", triton="3.6.0")
    with pytest.raises(UsageError, match=words):
        ADAPTER.toolchain(job(configs).config, os.environ)


@pytest.mark.parametrize(
    ("versions", "words"),
    [
        ({}, r"Helion is not installed.*pip install helion==1\.4\.0"),
        ({"helion": "1.4.0"}, "PyTorch is not installed"),
        ({"helion": "1.5.1", "torch": "2.11.0"}, r"Helion 1\.5\.1 does not import under PyTorch 2\.11\.0"),
        ({"helion": "1.4.0", "torch": "2.11.0", "triton": "3.5.1"}, r"Triton 3\.5\.1"),
    ],
)
def test_versions_that_cannot(versions: dict[str, str], words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, **versions)
    with pytest.raises(UsageError, match=words):
        ADAPTER.toolchain(job().config, os.environ)


@settings(max_examples=30, deadline=None)
@given(
    configs=st.dictionaries(
        st.from_regex(r"[a-z_]{1,12}", fullmatch=True),
        st.dictionaries(st.sampled_from(["num_warps", "num_stages"]), st.integers(1, 8)),
    )
)
def test_configs_reach_the_worker_as_they_are(configs: dict[str, Any]) -> None:
    said = ADAPTER.environment(job(configs), "baseline", Path("/w"))[CONFIGS]
    assert (json.loads(said) if said else {}) == configs


@pytest.mark.parametrize(
    "path", [CONF / "helion.yaml", *sorted(CONF.glob("helion/*.yaml"))], ids=lambda path: path.stem
)
def test_shipped_workloads_fit_their_cases(path: Path) -> None:
    workload: Any = OmegaConf.load(path)
    assert workload.defaults == ["/schema/workload/helion@_here_", "_self_"]
    file, _, function = workload._get_node("case")._value().rpartition(":")
    assert file == "${shipped:cases/helion_kernels.py}"
    assert workload.name == f"helion_{function.removeprefix('make_')}"
    functions = {node.name: node for node in ast.parse(CASES.read_text()).body if hasattr(node, "args")}
    made: Any = functions[function]
    assert function.removeprefix("make_") in functions
    names = {argument.arg for argument in made.args.kwonlyargs} - {"seed"}
    assert len(workload.shapes) > 1
    for name, shape in workload.shapes.items():
        assert set(shape) == names
        assert name == "_".join(f"{key}{value}" for key, value in shape.items())


def test_each_shipped_kernel_has_one_config() -> None:
    kernels = [
        node
        for node in ast.parse(CASES.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.decorator_list
    ]
    assert len(kernels) == 4
    for kernel in kernels:
        decorator: Any = kernel.decorator_list[0]
        assert [keyword.arg for keyword in decorator.keywords] == ["config"]
