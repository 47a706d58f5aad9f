"""``hydra/launcher=joblib``: several processes of this machine."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from command import AS_USERS, MAIN, executable, run, start
from launched import (
    JOBS,
    SIGNALS,
    SWEEP,
    begin_long,
    ended,
    finished,
    loses_one_and_resumes,
    processes,
    same,
    stopped,
    undisturbed,
    wait_for,
)
from test_faults import decided, decisions, gone, place

pytest.importorskip("joblib", reason="joblib is not installed: pip install 'boosterrun[joblib]'")

TWO = ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2"]


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return undisturbed(tmp_path_factory.mktemp("undisturbed"))


def test_decides_as_one_process_does(tmp_path: Path, expected: dict[str, str]) -> None:
    done = run(*SWEEP, *TWO, cwd=place(tmp_path), TOKEN=str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert done.stdout.count(f"/{JOBS}] ") == JOBS
    assert same(tmp_path / "out", expected)
    assert gone(f"TOKEN={tmp_path}")


def test_a_process_that_dies_loses_no_result(tmp_path: Path, expected: dict[str, str]) -> None:
    def kill() -> None:
        os.kill(processes(f"TOKEN={tmp_path}", "loky")[-1], signal.SIGKILL)

    loses_one_and_resumes(tmp_path, TWO, expected, kill)


# loky as on a busy machine: what it ends has time to write a result after its owner has heard of the death.
LATE = f"""\
import time
from joblib.externals.loky import process_executor as loky
end = loky.kill_process_tree
loky.kill_process_tree = lambda process: (time.sleep(5), end(process))
{MAIN}"""


def test_what_is_written_before_the_end_is_not_told_as_lost(tmp_path: Path, expected: dict[str, str]) -> None:
    executable(tmp_path / ".bin", LATE)
    out = place(tmp_path) / "out"
    with start([*SWEEP, *TWO], tmp_path, TOKEN=str(tmp_path)) as process:
        wait_for(lambda: len(finished(out)) >= 4, process)
        os.kill(processes(f"TOKEN={tmp_path}", "loky")[-1], signal.SIGKILL)
        code, stdout, stderr = ended(process)
    found = decisions(out)
    lost = [line.split(": ")[2] for line in stderr.splitlines() if line.startswith("boosterrun: lost: ")]
    assert not {f"{name}/result.json" for name in lost} & set(found), stderr
    assert len(found) + len(lost) == JOBS
    assert {path: expected[path] for path in found} == found
    assert code == int(bool(lost)), stdout + stderr


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_a_signal_lets_jobs_write_what_they_have(tmp_path: Path, number: int, code: int) -> None:
    with begin_long(tmp_path, TWO, 2) as process:
        stopped(tmp_path, process, number, code, 2)


def test_ctrl_c_reaches_all_processes_of_a_terminal(tmp_path: Path) -> None:
    """A terminal sends it to the whole group: that must not count twice, nor be told twice."""
    with begin_long(tmp_path, [*TWO, "hydra.launcher.n_jobs=3"], 3) as process:
        for pid in processes(f"TOKEN={tmp_path}", "loky"):
            os.kill(pid, signal.SIGINT)
        stopped(tmp_path, process, signal.SIGINT, 130, 3)


def test_nothing_goes_on_when_the_sweep_is_killed(tmp_path: Path) -> None:
    with begin_long(tmp_path, TWO, 2) as process:
        process.kill()
        process.communicate(timeout=60)
    assert gone(f"TOKEN={tmp_path}")
    assert not decided(tmp_path / "out")


def test_a_sweep_goes_on_under_the_launcher(tmp_path: Path, expected: dict[str, str]) -> None:
    out = place(tmp_path) / "out"
    with start([*SWEEP, *TWO], tmp_path, TOKEN=str(tmp_path), **AS_USERS) as process:
        wait_for(lambda: len(finished(out)) >= 4, process)
        process.send_signal(signal.SIGTERM)
        assert ended(process)[0] == 143
    safe = decided(out)
    again = run("resume", "out", cwd=tmp_path)
    assert again.returncode == 0, again.stdout + again.stderr
    assert {path: text for path, text in decided(out).items() if path in safe} == safe
    assert same(out, expected)


def test_an_old_result_of_a_lost_job_does_not_stand(tmp_path: Path) -> None:
    few = ["-m", "acf=glob(01*)", "seed=1", "experiment=kills", "hydra.sweep.dir=out"]
    assert run(*few, cwd=place(tmp_path)).returncode == 0
    (job,) = decided(tmp_path / "out")
    # The job's content has changed, and its process cannot even begin.
    cannot = [*few, *TWO, "protocol.min_gain=0.2", "hydra.job_logging.version=0"]
    done = run(*cannot, cwd=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "boosterrun: lost: 01-" in done.stderr
    assert not job.exists()
    assert job.with_name("result.json.old").exists()
    assert "missing" in (tmp_path / "out" / "booster-pack-rejects.csv").read_text()


@pytest.mark.parametrize("number", ["0", "-1", "many", "1.5", "null"])
def test_a_bad_number_of_jobs_is_told_in_one_line(tmp_path: Path, number: str) -> None:
    done = run(*SWEEP, "hydra/launcher=joblib", f"hydra.launcher.n_jobs={number}", cwd=place(tmp_path))
    assert done.returncode == 2
    assert "n_jobs" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
