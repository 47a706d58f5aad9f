"""``hydra/launcher=ray`` on a real Ray of this machine."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest
from command import results, run
from launched import (
    JOBS,
    SIGNALS,
    SWEEP,
    as_shown,
    begin_long,
    loses_one_and_resumes,
    processes,
    same,
    stopped,
    undisturbed,
)
from test_faults import gone, left, place

pytestmark = pytest.mark.cluster
pytest.importorskip("ray", reason="Ray is not installed: make test-cluster")

# Two at once, whatever the machine has.
TWO = ["hydra/launcher=ray", "+hydra.launcher.ray.init.num_cpus=2"]


@pytest.fixture(autouse=True)
def _ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray itself leaves sockets and files open when a test ends it; only our own warnings are errors."""
    monkeypatch.setattr("command.environment", _environment)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")


def _environment(**extra: str) -> dict[str, str]:
    from command import ROOT

    return {**os.environ, "PYTHONPATH": str(ROOT), **extra}


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return undisturbed(tmp_path_factory.mktemp("undisturbed"))


def test_decides_as_one_process_does(tmp_path: Path, expected: dict[str, str]) -> None:
    done = run(*SWEEP, *TWO, cwd=place(tmp_path), TOKEN=str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(f"/{JOBS}] ") == JOBS
    assert "(pid=" not in done.stdout
    assert same(tmp_path / "out", expected)
    assert gone(f"TOKEN={tmp_path}")


def test_a_worker_that_dies_loses_no_result(tmp_path: Path, expected: dict[str, str]) -> None:
    def kill() -> None:
        os.kill(processes(f"TOKEN={tmp_path}", "ray::run")[0], signal.SIGKILL)

    loses_one_and_resumes(tmp_path, TWO, expected, kill)


def test_a_machine_that_dies_loses_no_result(tmp_path: Path, expected: dict[str, str]) -> None:
    """Its raylet: with it goes all that the machine ran."""

    def kill() -> None:
        os.kill(processes(f"TOKEN={tmp_path}", "raylet/raylet")[0], signal.SIGKILL)

    loses_one_and_resumes(tmp_path, TWO, expected, kill)


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_a_signal_lets_jobs_write_what_they_have(tmp_path: Path, number: int, code: int) -> None:
    with begin_long(tmp_path, TWO, 2) as process:
        stopped(tmp_path, process, number, code, 2)


def test_nothing_goes_on_when_the_sweep_is_killed(tmp_path: Path) -> None:
    with begin_long(tmp_path, TWO, 2) as process:
        process.kill()
        process.communicate(timeout=120)
    deadline = time.monotonic() + 120  # Ray's other processes notice it by and by
    while left(f"TOKEN={tmp_path}") and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not left(f"TOKEN={tmp_path}")


def test_ray_chooses_the_gpu_of_a_job(tmp_path: Path) -> None:
    few = ["-m", "acf=glob([01*,02*,03*])", "seed=1,2", "experiment=kills", "hydra.sweep.dir=out"]
    done = run(*few, *TWO, "+hydra.launcher.ray.init.num_gpus=2", cwd=place(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    found = results(tmp_path / "out")
    assert {result["environment"]["variables"]["CUDA_VISIBLE_DEVICES"] for result in found} == {"0", "1"}


def test_what_the_page_shows_works(tmp_path: Path) -> None:
    as_shown("Ray", tmp_path)


def test_results_stand_where_the_gpus_are_on_other_machines(tmp_path: Path) -> None:
    """A login node has none: it must not send every job away again to be told so."""
    few = ["-m", "acf=glob([01*,02*])", "seed=1", "experiment=kills", "hydra.sweep.dir=out"]
    assert run(*few, cwd=place(tmp_path)).returncode == 0
    for path in (tmp_path / "out").glob("*/identity.json"):
        path.write_text(json.dumps({**json.loads(path.read_text()), "gpu_model": "NVIDIA H200"}))
    assert "changed: gpu_model" in run("plan", "out", cwd=tmp_path).stdout
    assert "changed" not in run("plan", "out", *TWO, cwd=tmp_path).stdout
    again = run("resume", "out", *TWO, cwd=tmp_path)
    assert again.returncode == 0, again.stdout + again.stderr
    assert again.stdout.count("(done before)") == 2


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("hydra.launcher.ray.init.address=127.0.0.1:1", "cannot use Ray"),
        ("+hydra.launcher.ray.init.nonsense=1", "nonsense"),
        ("+hydra.launcher.ray.remote.nonsense=1", "nonsense"),
    ],
)
def test_what_ray_does_not_take_is_told_in_one_line(tmp_path: Path, override: str, said: str) -> None:
    done = run(*SWEEP, *TWO, override, cwd=place(tmp_path))
    assert done.returncode == 2, done.stdout + done.stderr
    assert said in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
