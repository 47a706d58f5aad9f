"""Finding compilers: which is taken, why, and what is said when none will do."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from compilers import ptxas, script
from hypothesis import given
from hypothesis import strategies as st

from boosterrun.compilers import toolchain
from boosterrun.compilers.toolchain import Compiler
from boosterrun.errors import ToolchainError

ROOT = Path(__file__).parents[1]
OLD = """
case "$1" in
--version) echo "Cuda compilation tools, release 12.8, V12.8.93";;
--help) echo "--maxrregcount <N>";;
esac"""
REAL = 'exec "$REAL" "$@"'


def compiler(cuda: str = "13.3", *, controls: bool = True) -> Compiler:
    return Compiler(Path("/opt/bin/ptxas"), f"{cuda}.73", cuda, "PATH", controls)


def test_finds_the_wheels_and_says_so() -> None:
    found = toolchain.find_ptxas(None, {"PATH": "/nowhere"})
    assert re.fullmatch(r"13\.3\.\d+", found.version)
    assert found.cuda_version == "13.3"
    assert found.controls
    assert "wheels" in found.source
    assert toolchain.find_nvcc(None, {"PATH": "/nowhere"}).path == found.path.with_name("nvcc")


def test_order_of_places(tmp_path: Path) -> None:
    named = script(tmp_path / "named" / "ptxas", REAL)
    variable = script(tmp_path / "variable" / "my-ptxas", REAL)
    home = script(tmp_path / "home" / "bin" / "ptxas", REAL)
    path = script(tmp_path / "path" / "ptxas", REAL)
    env = {"BOOSTERRUN_PTXAS": str(variable), "CUDA_HOME": str(tmp_path / "home"), "PATH": str(path.parent)}
    assert toolchain.find_ptxas(str(named), env) == Compiler(
        named, ptxas().version, "13.3", "toolchain.ptxas", True
    )
    assert toolchain.find_ptxas(None, env).path == variable
    assert toolchain.find_ptxas(None, env).source == "BOOSTERRUN_PTXAS"
    del env["BOOSTERRUN_PTXAS"]
    assert toolchain.find_ptxas(None, env).path == home
    assert toolchain.find_ptxas(None, {**env, "CUDA_HOME": ""}).source.startswith("the CUDA wheels")
    assert toolchain.find_ptxas("ptxas", env).path == path  # a bare name, as a shell takes it


def test_a_name_relative_to_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(tmp_path / "bin" / "ptxas", REAL)
    monkeypatch.chdir(tmp_path)
    assert toolchain.find_ptxas("bin/ptxas", {}).path == tmp_path / "bin" / "ptxas"


def test_passes_over_what_cannot_apply_controls_or_does_not_work(tmp_path: Path) -> None:
    old = script(tmp_path / "home" / "bin" / "ptxas", OLD)
    script(tmp_path / "other" / "bin" / "ptxas", "exit 3")
    found = toolchain.find_ptxas(
        None, {"CUDA_HOME": str(tmp_path / "home"), "CUDA_PATH": str(tmp_path / "other")}
    )
    assert found.path == ptxas().path
    assert f"passed over: {old} (CUDA_HOME) is 12.8.93, without --apply-controls" in found.source
    assert "exit code 3" in found.source


def test_what_the_user_named_is_never_replaced(tmp_path: Path) -> None:
    old = script(tmp_path / "old" / "ptxas", OLD)
    for configured, env in ((str(old), {}), (None, {"BOOSTERRUN_PTXAS": str(old)})):
        found = toolchain.find_ptxas(configured, env)
        assert (found.path, found.cuda_version, found.controls) == (old, "12.8", False)
        with pytest.raises(ToolchainError, match=r"pip install 'boosterrun\[cuda13\]'") as caught:
            toolchain.require_controls(found)
        assert str(old) in str(caught.value)
        assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (None, "No such file"),
        ("exit 3", "exit code 3"),
        ("kill -SEGV $$", "signal 11"),
        ("echo GNU assembler 2.40", "no CUDA version"),
    ],
)
def test_a_named_compiler_that_does_not_work(tmp_path: Path, body: str | None, words: str) -> None:
    path = tmp_path / "ptxas"
    if body is not None:
        script(path, body)
    with pytest.raises(ToolchainError, match=words) as caught:
        toolchain.find_ptxas(str(path), {})
    assert "Correct or unset toolchain.ptxas" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_a_text_and_a_program_of_another_machine(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("ptxas")
    alien = tmp_path / "alien"
    alien.write_bytes(b"\x7fELF\x01\x01\x01" + bytes(60))
    alien.chmod(0o755)
    for path in (tmp_path, text, alien):
        with pytest.raises(ToolchainError, match=str(path)):
            toolchain.find_ptxas(str(path), {})


def test_without_any_compiler_says_where_it_looked(tmp_path: Path) -> None:
    code = (
        "import os; from boosterrun.compilers import toolchain\n"
        "print(toolchain.find_ptxas(None, dict(os.environ)))"
    )
    old = script(tmp_path / "path" / "ptxas", OLD)
    env = {"PYTHONPATH": str(ROOT), "PATH": "/nowhere"}
    bare = [sys.executable, "-S", "-c", code]  # -S: this Python without its site-packages, hence no wheels
    done = subprocess.run(bare, env=env, capture_output=True, text=True, timeout=60, check=False)
    said = done.stderr.strip().splitlines()[-1]
    assert "ToolchainError: no ptxas found; looked at toolchain.ptxas" in said
    assert "PATH" in said
    assert "pip install 'boosterrun[cuda13]'" in said
    env["PATH"] = str(old.parent) + os.pathsep + os.environ["PATH"]
    done = subprocess.run(bare, env=env, capture_output=True, text=True, timeout=60, check=True)
    assert "version='12.8.93'" in done.stdout  # better than none: what it lacks is said by require_controls


def test_asks_a_compiler_once_until_its_file_changes(tmp_path: Path) -> None:
    log = tmp_path / "log"
    path = script(tmp_path / "ptxas", f'echo "$1" >> {log}; exec "$REAL" "$@"')
    for _ in range(3):
        toolchain.find_ptxas(str(path), {})
    assert log.read_text().split() == ["--version", "--help"]
    script(path, OLD + "\n")
    assert toolchain.find_ptxas(str(path), {}).version == "12.8.93"


@pytest.mark.parametrize("version", [None, "13.3", "13.3.0", " 13.3.73 "])
def test_packs_of_the_same_minor_version_pass(version: str | None) -> None:
    toolchain.require_cuda(compiler(), version)


@given(st.integers(10, 20), st.integers(0, 40))
def test_packs_of_another_minor_version_do_not(major: int, minor: int) -> None:
    wanted = f"{major}.{minor}"
    if wanted == "13.3":
        return
    with pytest.raises(ToolchainError, match=f"for CUDA {re.escape(wanted)},") as caught:
        toolchain.require_cuda(compiler(), f"{wanted}.0")
    for wheel in ("nvidia-cuda-nvcc", "nvidia-nvvm", "nvidia-cuda-crt"):
        assert f"'{wheel}=={wanted}.*'" in str(caught.value)


@pytest.mark.parametrize("version", ["", "13", "next", "13.x"])
def test_pack_versions_that_are_none(version: str) -> None:
    with pytest.raises(ToolchainError, match=r"not MAJOR\.MINOR"):
        toolchain.require_cuda(compiler(), version)


def test_the_extra_that_is_advised_installs_the_compilers_of_that_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["name"] == "boosterrun"
    assert toolchain.install_command("13.3").endswith("'boosterrun[cuda13]'")
    pins = dict(pin.split("==") for pin in project["optional-dependencies"]["cuda13"])
    for wheel in ("nvidia-cuda-nvcc", "nvidia-nvvm", "nvidia-cuda-crt"):
        assert pins[wheel].startswith("13.3.")
