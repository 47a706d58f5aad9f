"""Workers forked from a warm process are as good as fresh ones, and given up for them at the first doubt."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from boosterrun.measure import warm
from boosterrun.measure.api import SideFailed, SideSpec
from boosterrun.measure.side import WorkerSide, warm_up

PATIENT = SimpleNamespace(start=60.0, build=60.0, check=60.0, sample=60.0, grace=0.3)

HEAVY = """
import os, time
with open(os.environ["HEAVY_LOG"], "a") as log:
    log.write("imported\\n")
os.environ["SET_BY_HEAVY"] = "yes"
"""

CASE = """
import json, mmap, os, resource, sys
import numpy as np
from boosterrun import Case

def make(*, seed, report, preload=""):
    if preload:
        __import__(preload)
    facts = {
        "environment": dict(os.environ),
        "argv": sys.argv[0],
        "pid": os.getpid(), "parent": os.getppid(), "session": os.getsid(0),
        "descriptors": sorted(os.listdir("/proc/self/fd")),
        "random": np.random.random(),
        "mapped": np.frombuffer(mmap.mmap(-1, 1 << 22), np.uint8).__array_interface__["data"][0],
        "no_bytecode": sys.flags.dont_write_bytecode,
        "signals": open("/proc/self/status").read().split("SigBlk")[1][:200],
        "limits": resource.getrlimit(resource.RLIMIT_NOFILE),
        "cwd": os.getcwd(),
        "path": sys.path,
    }
    with open(report, "w") as stream:
        json.dump(facts, stream)
    x = np.ones(3)
    return Case(run=lambda: x * 2, reference=lambda: x + 1)
"""


class Play:
    """Makes sides of a case that reports on its process; ``heavy`` stands for a module slow to import."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sides: list[WorkerSide] = []
        self.log = folder / "heavy.log"
        (folder / "case.py").write_text(CASE)

    def module(self, name: str, text: str) -> None:
        (self.folder / "modules").mkdir(exist_ok=True)
        (self.folder / "modules" / f"{name}.py").write_text(text)

    def start(self, *preload: str, spawn: bool = False, **env: str | None) -> WorkerSide:
        work = self.folder / f"side-{len(self.sides)}"
        options = {"report": str(work / "report.json"), "preload": preload[0] if spawn and preload else ""}
        spec = SideSpec(
            name="candidate",
            acf=None,
            acf_id=None,
            work=work,
            env={"MINE": str(len(self.sides)), **env},
            case=f"{self.folder / 'case.py'}:make",
            options=options,
            preload=None if spawn else preload,
        )
        side = WorkerSide(spec, PATIENT)
        self.sides.append(side)
        self.hello = side.start()
        self.how = self.hello.versions["worker_start"]
        return side

    def report(self, side: WorkerSide) -> dict[str, Any]:
        side.build("s", {})
        facts: dict[str, Any] = json.loads((side.spec.work / "report.json").read_text())
        return facts

    def nursery(self) -> int:
        """The process id of the latest one."""
        found = list(warm._registry.known.values())[-1]
        assert isinstance(found, warm._Nursery)
        return found._child.pid


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Play]:
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'modules'}:{Path(__file__).parents[1]}")
    monkeypatch.setenv("HEAVY_LOG", str(tmp_path / "heavy.log"))
    made = Play(tmp_path)
    made.module("heavy", HEAVY)
    yield made
    for side in made.sides:
        side.close()
    warm.close()


def alive(pid: int) -> bool:
    """Whether it runs; as a zombie it may wait for an init that does not reap."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def children(pid: int) -> list[int]:
    return [int(t) for t in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_modules_are_imported_once_for_many_workers(play: Play) -> None:
    for _ in range(3):
        side = play.start("heavy")
        assert play.how == "fork"
        assert side.build("s", {}).seconds >= 0
    assert play.log.read_text() == "imported\n"


def test_a_forked_worker_sees_what_a_fresh_one_sees(play: Play) -> None:
    fresh = play.report(play.start("heavy", spawn=True, MINE="m"))
    forked = play.report(play.start("heavy", MINE="m"))
    assert play.how == "fork"
    for facts in (fresh, forked):
        assert facts["session"] == facts["pid"]
    own = {"BOOSTERRUN_SPAWN", "BOOSTERRUN_DESCRIPTORS"}
    one, other = ({k: v for k, v in f["environment"].items() if k not in own} for f in (fresh, forked))
    assert one == other
    assert one["SET_BY_HEAVY"] == "yes"
    for key in ("argv", "signals", "limits", "cwd", "path"):
        assert fresh[key] == forked[key], key
    assert len(fresh["descriptors"]) == len(forked["descriptors"])


def test_forks_differ_in_chance_and_layout(play: Play) -> None:
    facts = [play.report(play.start("heavy")) for _ in range(3)]
    assert len({f["random"] for f in facts}) == 3
    assert len({f["mapped"] for f in facts}) == 3
    assert len({f["environment"]["MINE"] for f in facts}) == 3


def test_a_variable_that_acts_at_the_start_of_a_process_still_does(play: Play) -> None:
    assert play.report(play.start("heavy", PYTHONDONTWRITEBYTECODE="1"))["no_bytecode"] == 1
    assert play.how == "fork"
    assert play.report(play.start("heavy", PYTHONDONTWRITEBYTECODE=None))["no_bytecode"] == 0


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("threads", "from threading import Event, Thread\nThread(target=Event().wait, daemon=True).start()",
         "threads"),
        ("uses_triton", "import triton", "triton is loaded already"),
        ("broken", "raise OSError('no such library')", "no such library"),
        ("dies", "import os; os.abort()", "has ended"),
        ("there_is_none", None, "No module named 'there_is_none'"),
    ],
)  # fmt: skip
def test_what_cannot_be_forked_is_started(play: Play, name: str, text: str | None, words: str) -> None:
    play.module("triton", "")
    if text is not None:
        play.module(name, text)
    for _ in range(2):
        side = play.start(name)
        assert play.how.startswith("spawn (")
        assert words in play.how
        assert side.build("s", {}).seconds >= 0


def test_workers_outlive_the_warm_process_and_new_ones_are_started(play: Play) -> None:
    side, other = play.start("heavy"), play.start("heavy")
    os.kill(play.nursery(), signal.SIGKILL)
    assert side.build("s", {}).seconds >= 0
    assert side.check("s", 1).passed
    new = play.start("heavy")
    assert "the warm process has ended" in play.how
    assert new.build("s", {}).seconds >= 0
    pids = [side._child.pid, other._child.pid]  # type: ignore[union-attr]
    os.kill(pids[1], signal.SIGKILL)
    with pytest.raises(SideFailed, match="how is not known") as caught:
        other.build("s", {})
    assert caught.value.kind == "compile_error"
    side.close()
    assert not any(alive(pid) for pid in pids)


def test_a_warm_process_that_hangs_is_given_up(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    play.start("heavy")
    pid = play.nursery()
    os.kill(pid, signal.SIGSTOP)
    monkeypatch.setattr(warm, "_ANSWER", 0.5)
    begin = time.monotonic()
    side = play.start("heavy")
    assert "does not answer" in play.how
    assert time.monotonic() - begin < 20
    assert side.build("s", {}).seconds >= 0
    assert not Path(f"/proc/{pid}").exists()


def test_what_workers_need_is_imported_before_the_first_is_asked_for(play: Play) -> None:
    spec = SideSpec("baseline", None, None, play.folder, {"MINE": "none"}, preload=("heavy",))
    begin = time.monotonic()
    warm_up(spec)
    assert time.monotonic() - begin < 5  # it does not wait
    until(play.log.exists)
    play.start("heavy")
    assert play.how == "fork"
    assert play.log.read_text().splitlines() == ["imported"]


def test_the_end_does_not_wait_for_imports(play: Play) -> None:
    """Whoever waits for a worker meanwhile is told, and all get the same answer."""
    play.module("endless", f"open({str(play.log)!r}, 'w').close()\nimport time\ntime.sleep(600)\n")
    said: list[str] = []
    threads = [threading.Thread(target=lambda: said.append(fork_words("endless"))) for _ in range(3)]
    for thread in threads:
        thread.start()
    until(play.log.exists)
    begin = time.monotonic()
    warm.close()
    for thread in threads:
        thread.join(20)
    assert time.monotonic() - begin < 10
    assert said == ["the warm process has ended"] * 3


def fork_words(module: str) -> str:
    """Why there is no worker."""
    with pytest.raises(warm.Unavailable) as caught:
        warm.fork((module,), dict(os.environ), (), (), 60.0)
    return str(caught.value)


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_nothing_piles_up(play: Play) -> None:
    def open_files(pid: int) -> int:
        return len(list(Path(f"/proc/{pid}/fd").iterdir()))

    play.start("heavy").close()
    before = open_files(play.nursery()), open_files(os.getpid())
    for _ in range(5):
        play.start("heavy").close()
    assert (open_files(play.nursery()), open_files(os.getpid())) == before
    assert children(play.nursery()) == []


def test_a_huge_environment_is_no_obstacle(play: Play) -> None:
    play.start("heavy", **{f"V{i}": "x" * 1000 for i in range(400)})
    assert play.how.startswith(("fork", "spawn (the warm process cannot be asked"))


def test_the_end_leaves_no_warm_process(play: Play) -> None:
    side = play.start("heavy")
    pid = play.nursery()
    warm.close()
    assert not Path(f"/proc/{pid}").exists()
    assert side.build("s", {}).seconds >= 0
    side.close()
