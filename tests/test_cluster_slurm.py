"""``hydra/launcher=submitit_slurm`` on a real Slurm of two nodes, started here."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import slurm_here
from command import results, run
from launched import (
    JOBS,
    SIGNALS,
    SWEEP,
    as_shown,
    begin_long,
    ended,
    finished,
    loses_one_and_resumes,
    same,
    stopped,
    undisturbed,
    wait_for,
)
from slurm_here import Slurm, slurm
from test_faults import gone, place

pytestmark = pytest.mark.cluster
pytest.importorskip("submitit", reason="submitit is not installed: make test-cluster")
if reason := slurm_here.why_not():
    pytest.skip(f"no Slurm here: {reason}", allow_module_level=True)

ENGINE = [
    "hydra/launcher=submitit_slurm",
    "hydra.launcher.mem_gb=null",
    "hydra.launcher.cpus_per_task=4",
    # Else Slurm itself repeats the jobs of a node that was lost, after two minutes.
    "+hydra.launcher.additional_parameters.no_requeue=true",
]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    with slurm(tmp_path_factory.mktemp("slurm")) as started, pytest.MonkeyPatch.context() as patch:
        for key, value in started.environment.items():
            patch.setenv(key, value)
        yield started


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return undisturbed(tmp_path_factory.mktemp("undisturbed"))


@pytest.fixture
def engine(here: Slurm) -> list[str]:
    return ENGINE if here.gpus else [*ENGINE, "hydra.launcher.gres=null"]


def queue(here: Slurm) -> list[str]:
    return here.ask("squeue", "-h", "-o", "%i %T").splitlines()


def test_decides_as_one_process_does(
    here: Slurm, engine: list[str], tmp_path: Path, expected: dict[str, str]
) -> None:
    done = run(*SWEEP, *engine, cwd=place(tmp_path), TOKEN=str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(f"/{JOBS}] ") == JOBS
    assert same(tmp_path / "out", expected)
    found = results(tmp_path / "out")
    assert len({result["environment"]["variables"]["SLURM_JOB_ID"] for result in found}) == JOBS
    if here.gpus:  # Slurm has chosen them
        visible = {result["environment"]["variables"]["CUDA_VISIBLE_DEVICES"] for result in found}
        assert visible == {"0", "1"}
    assert (tmp_path / "out" / ".submitit").stat().st_mode & 0o777 == 0o700
    assert not list((tmp_path / "out").rglob("*submitted.pkl"))
    assert gone(f"TOKEN={tmp_path}")


def test_a_node_that_dies_loses_no_result(
    here: Slurm, engine: list[str], tmp_path: Path, expected: dict[str, str]
) -> None:
    killed = []

    def kill() -> None:
        while not (busy := [name for name in here.daemons if here.measures(name)]):
            time.sleep(0.02)
        killed.append(busy[0])
        here.kill_node(busy[0])

    def repair() -> None:
        here.start_node(killed[-1])
        here.wait_for_nodes()

    loses_one_and_resumes(tmp_path, engine, expected, kill, repair)


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_a_signal_to_the_sweep_stops_all_its_jobs(
    here: Slurm, engine: list[str], tmp_path: Path, number: int, code: int
) -> None:
    with begin_long(tmp_path, [*engine, "hydra.launcher.array_parallelism=2"], 2) as process:
        stopped(tmp_path, process, number, code, 2)
    assert queue(here) == []


@pytest.mark.parametrize("sent", ["USR2", "USR1", "TERM"])
def test_a_job_that_slurm_is_about_to_end_writes_what_it_has(
    here: Slurm, engine: list[str], tmp_path: Path, sent: str
) -> None:
    """As before a time limit, or for a job of higher priority; the others go on."""
    with begin_long(tmp_path, engine, 3) as process:
        job = queue(here)[0].split()[0]
        here.ask("scancel", f"--signal={sent}", job)
        wait_for(lambda: len(finished(tmp_path / "out")) == 1, process)
        (result,) = results(tmp_path / "out")
        assert result["error"]["kind"] == "interrupted"
        wait_for(lambda: len(queue(here)) == 2, process)
        assert process.stdout is not None
        assert any("UNDECIDED" in line for line in iter(process.stdout.readline, ""))
        process.terminate()
        assert ended(process)[0] == 143
    assert len(results(tmp_path / "out")) == 3


def test_what_the_page_shows_works(here: Slurm, tmp_path: Path) -> None:
    as_shown("Slurm", tmp_path)


def test_what_slurm_does_not_take_is_told_in_one_line(here: Slurm, engine: list[str], tmp_path: Path) -> None:
    done = run(*SWEEP, *engine, "hydra.launcher.partition=nowhere", cwd=place(tmp_path))
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Invalid partition" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
