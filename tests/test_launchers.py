"""What the launchers share, without an engine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from command import QUICK, run
from omegaconf import OmegaConf

from boosterrun import launchers
from boosterrun.launchers import pool
from boosterrun.launchers.task import Failure, Task
from boosterrun.launchers.task import run as run_task
from boosterrun.sweeps import turns


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_machine_that_does_not_see_the_sweep_says_so(tmp_path: Path) -> None:
    config = OmegaConf.create({"hydra": {"sweep": {"dir": "out", "subdir": "job"}}})
    failure = run_task(Task("job", config, str(tmp_path)))
    assert isinstance(failure, Failure)
    assert f"{os.uname().nodename} does not see {tmp_path / 'out'}" in failure.message
    assert "hydra.sweep.dir" in failure.advice
    assert not (tmp_path / "out").exists(), "it must not begin a folder that nobody merges"


@pytest.mark.parametrize("name", ["joblib", "submitit_slurm", "ray"])
def test_a_launcher_is_composed_without_its_package(tmp_path: Path, name: str) -> None:
    """Else nobody could look at a configuration, or be told what to install."""
    bare = {"PYTHONPATH": f"{tmp_path}:{Path(launchers.__file__).parents[2]}"}
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as util\nfound = util.find_spec\n"
        "gone = {'joblib', 'submitit', 'ray'}\n"
        "util.find_spec = lambda name, package=None: None if name in gone else found(name, package)\n"
    )
    done = run("-m", "acf=glob(01*)", QUICK, f"hydra/launcher={name}", cwd=tmp_path, **bare)
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    extra = {"submitit_slurm": "slurm"}.get(name, name)
    assert f"pip install 'boosterrun[{extra}]'" in line
    assert not (tmp_path / "outputs").exists()
    help_ = run("--help", f"hydra/launcher={name}", cwd=tmp_path, **bare)
    assert help_.returncode == 0, help_.stderr


def test_a_bad_value_for_a_launcher_is_told_in_one_line(tmp_path: Path) -> None:
    done = run("-m", "acf=glob(01*)", QUICK, "hydra/launcher=nowhere", cwd=tmp_path)
    assert done.returncode == 2
    assert all(name in done.stderr for name in ("joblib", "submitit_slurm", "ray"))


@pytest.mark.parametrize(
    ("jobs", "number", "round_size", "sizes"),
    [
        (5, 2, 1, [1, 1, 1, 1, 1]),
        (24, 2, 24, [12, 12]),
        (96, 2, 24, [48, 48]),
        (97, 2, 24, [35, 35, 14, 13]),
        (500, 2, 24, [175, 175, 53, 53, 22, 22]),
        (3, 4, 24, [1, 1, 1]),
    ],
)
def test_processes_get_large_shares_first_and_end_together(
    jobs: int, number: int, round_size: int, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "round_size", lambda config: round_size)
    config = OmegaConf.create({"hydra": {}})
    tasks = [Task(str(n), config, ".") for n in range(jobs)]
    shares = pool._shares(tasks, number)
    assert [len(share) for share in shares] == sizes
    assert sorted(int(task.name) for share in shares for task in share) == list(range(jobs))
    assert [share[0].name for share in shares[:number]] == [str(n) for n in range(min(jobs, number))]
