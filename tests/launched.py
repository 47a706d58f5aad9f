"""Sweeps under a launcher: half the jobs of ``test_faults``, and what must hold whatever an engine does."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from command import AS_USERS, run, start
from pages import PAGES, sections
from test_faults import ACFS, decided, decisions, gone, place

from boosterrun.results import record

SWEEP = ["-m", ACFS, "seed=1", "experiment=kills", "hydra.sweep.dir=out"]
JOBS = 15
# One job of some minutes, whose launches take their time: whatever stops it stops it in a pair.
SLOW = """\
defaults: [{override /workload: simulated}, {override /protocol: fixed}]
workload:
  options: {base_ms: 20, clock: real, noise: {sigma: 0.002}, behaviours: {}}
protocol: {trials: 5000, calibration_pairs: 4, checks: 1}
"""
LONG = ["-m", "acf=glob([02*,03*,08*])", "experiment=slow", "hydra.sweep.dir=out"]
PATIENCE = 240


def undisturbed(folder: Path) -> dict[str, str]:
    """The decisions of the sweep in one process."""
    done = run(*SWEEP, cwd=place(folder))
    assert done.returncode == 0, done.stderr
    found = decisions(folder / "out")
    assert len(found) == JOBS
    return found


def same(out: Path, expected: dict[str, str]) -> bool:
    """Whether a sweep has decided as expected; what differs is a failure, and is told."""
    found = decisions(out)
    odd = {job: (expected.get(job), found.get(job)) for job in {*expected, *found}}
    odd = {job: both for job, both in odd.items() if both[0] != both[1]}
    assert not odd, odd  # in words: pytest explains no assertion of a helper
    return True


def wait_for(what: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Wait until something holds; a process that ends before is a failure, and is told."""
    deadline = time.monotonic() + PATIENCE
    while not what():
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            raise AssertionError(process.communicate())
        time.sleep(0.05)


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    stdout, stderr = process.communicate(timeout=PATIENCE)
    assert "Traceback" not in stderr, stderr
    return process.returncode, stdout, stderr


def processes(token: str, *words: str) -> list[int]:
    """Processes with the test's token in their environment and these words in their command."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if token.encode() in (entry / "environ").read_bytes() and all(w in command for w in words):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def loses_one_and_resumes(
    folder: Path,
    engine: Sequence[str],
    expected: dict[str, str],
    kill: Callable[[], None],
    repair: Callable[[], None] = lambda: None,
) -> None:
    """Kill something when some results are there; what is lost is missing, and nothing else is touched."""
    for attempt in range(5):  # what is killed may just have ended its job: then nothing is lost
        (here := folder / str(attempt)).mkdir()
        out = place(here) / "out"
        with start([*SWEEP, *engine], here, TOKEN=str(here)) as process:
            wait_for(lambda: len(finished(out)) >= 4, process)  # noqa: B023 - it is called at once
            kill()
            code, stdout, stderr = ended(process)
        if code != 0:
            break
        assert same(out, expected)
        repair()
    assert code == 1, stdout + stderr
    lost = [line.split(": ")[2] for line in stderr.splitlines() if line.startswith("boosterrun: lost: ")]
    assert lost, stderr
    assert "run them again with: boosterrun resume out" in stderr
    rejects = (out / "booster-pack-rejects.csv").read_text()
    assert all(f'{name}/{record.FILENAME},"missing: ' in rejects for name in lost), rejects
    safe = decided(out)
    assert len(safe) + len(lost) == JOBS
    repair()
    again = run("resume", "out", cwd=here, TOKEN=str(here))
    assert again.returncode == 0, again.stdout + again.stderr
    assert again.stdout.count("(done before)") == len(safe)
    assert {path: text for path, text in decided(out).items() if path in safe} == safe
    assert same(out, expected)
    assert gone(f"TOKEN={folder}")


def finished(out: Path) -> list[Path]:
    """The jobs with a result, while others run (whose work folders come and go)."""
    return list(out.glob(f"*/{record.FILENAME}"))


def measuring(out: Path, jobs: int) -> bool:
    """Whether so many jobs have measured some pairs and go on; where jobs come in rounds, more have begun."""
    found = [path.read_bytes().count(b"\n") for path in out.glob("*/pairs.jsonl")]
    return sum(pairs >= 5 for pairs in found) >= jobs


def begin_long(folder: Path, engine: Sequence[str], jobs: int) -> subprocess.Popen[str]:
    """Start a sweep, and return when so many jobs of it measure."""
    (folder / "experiments").mkdir(parents=True)
    (folder / "experiments" / "slow.yaml").write_text(SLOW)
    process = start([*LONG, *engine], folder, TOKEN=str(folder), **AS_USERS)
    wait_for(lambda: measuring(folder / "out", jobs), process)
    return process


def stopped(folder: Path, process: subprocess.Popen[str], number: int, code: int, jobs: int) -> None:
    """After a signal to the sweep: jobs have written what they had, it is merged, nothing runs on."""
    assert ended_with(process, number, code)
    results = [json.loads(path.read_text()) for path in finished(folder / "out")]
    assert len(results) == jobs
    assert {result["error"]["kind"] for result in results} == {"interrupted"}
    for path in (folder / "out").glob("*/pairs.jsonl"):
        assert all(json.loads(line) for line in path.read_text().splitlines()), "a torn pair"
    assert (folder / "out" / "booster-pack-log.csv").exists()
    assert gone(f"TOKEN={folder}")


def ended_with(process: subprocess.Popen[str], number: int, code: int) -> bool:
    process.send_signal(number)
    found, stdout, stderr = ended(process)
    assert found == code, stdout + stderr
    assert "go on with: boosterrun resume out" in stderr
    return True


def as_shown(section: str, folder: Path) -> None:
    """Run the commands of a section of docs/cluster.md."""
    (page,) = [page for page in PAGES if page.name == "cluster.md"]
    (found,) = [each for each in sections(page) if each.key == f"cluster.md: {section}"]
    assert found.commands
    for command in found.commands:
        done = run(*shlex.split(command)[1:], cwd=folder)
        assert done.returncode == 0, done.stdout + done.stderr


SIGNALS = ((signal.SIGINT, 130), (signal.SIGTERM, 143))
