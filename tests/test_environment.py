"""What a result says about the machine and the experiment."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from boosterrun.results import environment
from boosterrun.system import redact

GIT = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]


@pytest.fixture(autouse=True)
def _no_outer_git(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [n for n in os.environ if n.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run([*GIT, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repo with space"
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "experiment.yaml").write_text("a: 1\n")
    (folder / ".gitignore").write_text("*.log\n")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "x")
    return folder


def experiment(*paths: Path) -> dict[str, Any]:
    environment._experiment.cache_clear()
    found: dict[str, Any] = environment.capture(paths)["experiment"]
    return found


def test_the_host_and_the_packages_are_described() -> None:
    found = environment.capture()
    assert found["host"]["python"] == ".".join(map(str, sys.version_info[:3]))
    assert found["host"]["kernel"] == os.uname().release
    assert found["host"]["cpu_count"] == os.cpu_count()
    assert found["host"]["memory_bytes"] > 1 << 28
    assert found["packages"]["hydra-core"].startswith("1.")
    assert "torch" not in sys.modules
    json.dumps(found, allow_nan=False)


def test_clean_and_dirty_trees_are_told_apart(repository: Path) -> None:
    path = repository / "experiment.yaml"
    found = experiment(path)
    assert found["git_commit"] == git(repository, "rev-parse", "HEAD")
    assert found["git_dirty"] is False
    assert found["files"] == [{"path": str(path), "sha256": hashlib.sha256(b"a: 1\n").hexdigest()}]
    (repository / ".gitignore").write_text("*.log\n*.tmp\n")
    assert experiment(path)["git_dirty"] is True


@pytest.mark.parametrize("name", ["new.yaml", "ignored.log"])
def test_an_experiment_that_is_not_committed_is_dirty(repository: Path, name: str) -> None:
    (repository / name).write_text("a: 2\n")
    assert experiment(repository / "experiment.yaml")["git_dirty"] is False
    assert experiment(repository / "experiment.yaml", repository / name)["git_dirty"] is True


def test_a_file_outside_of_the_repository_is_dirty(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "case.py").write_text("")
    assert experiment(repository / "experiment.yaml", tmp_path / "case.py")["git_dirty"] is True


def test_no_repository_no_commit_yet_and_missing_files(tmp_path: Path) -> None:
    found = experiment(tmp_path / "none.yaml")
    assert (found["git_commit"], found["git_dirty"]) == (None, None)
    assert found["files"] == [{"path": str(tmp_path / "none.yaml"), "sha256": None}]
    git(tmp_path, "init", "-q")
    found = experiment(tmp_path / "none.yaml")
    assert (found["git_commit"], found["git_dirty"]) == (None, True)


def test_a_missing_and_a_hanging_git_are_survived(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert experiment(repository / "experiment.yaml")["git_commit"] is None
    fake = tmp_path / "git"
    fake.write_text("#!/bin/sh\nexec /bin/sleep 1000\n")
    fake.chmod(0o755)
    started = time.monotonic()
    assert experiment(repository / "experiment.yaml")["git_commit"] is None
    assert time.monotonic() - started < 20


def test_variables_that_matter_are_recorded_and_secrets_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTXAS_OPTIONS", "--verbose")
    monkeypatch.setenv("TRITON_CACHE_DIR", "/x")
    monkeypatch.setenv("NVCC_API_KEY", "hunter2")
    monkeypatch.setenv("TRITON_ACCESS_TOKEN", "hunter2")
    monkeypatch.setenv("TORCH_MIRROR", "https://me:hunter2@example.org/x")
    monkeypatch.setenv("UNRELATED", "hunter2")
    found = environment.capture()["variables"]
    assert found["PTXAS_OPTIONS"] == "--verbose"
    assert found["TRITON_CACHE_DIR"] == "/x"
    assert found["NVCC_API_KEY"] == found["TRITON_ACCESS_TOKEN"] == redact.HIDDEN
    assert found["TORCH_MIRROR"] == f"https://{redact.HIDDEN}@example.org/x"
    assert "UNRELATED" not in found
    assert "hunter2" not in json.dumps(environment.capture())


def test_what_was_captured_is_kept(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = experiment(repository / "experiment.yaml")
    monkeypatch.setenv("PATH", "")
    assert environment.capture([repository / "experiment.yaml"])["experiment"] == first
