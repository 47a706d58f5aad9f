"""Sides built ahead of their turn: ready sooner, never built while pairs are timed, no verdict by them."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from boosterrun.adapters import base
from boosterrun.adapters.base import Job, Judgement, Toolchain
from boosterrun.config import (
    SHIPPED,
    AcfConfig,
    Config,
    ProtocolConfig,
    PythonWorkload,
    SweepConfig,
    TimeoutsConfig,
)
from boosterrun.measure import ahead, kept, quiet, warm
from boosterrun.measure.api import SideFailed, SideSpec
from boosterrun.measure.blocks import Timing
from boosterrun.measure.resident import ResidentAdapter
from boosterrun.measure.side import WorkerSide
from boosterrun.packs import Acf
from boosterrun.system import closer

PATIENT = SimpleNamespace(start=60.0, build=60.0, check=60.0, sample=60.0, grace=0.3)
TIMEOUTS = TimeoutsConfig(start=60.0, build=60.0, check=60.0, sample=60.0, grace=0.3)
CASE = f"""
import json, os, sys, time
sys.path.insert(0, {str(SHIPPED / "cases")!r})
import simulated

def note(what):
    with open(os.environ["EVENTS"], "a") as log:
        log.write(json.dumps([what, os.environ.get("BOOSTERRUN_ACF_ID", "baseline"), os.getpid(), time.monotonic()]) + "\\n")

def make(*, seed, seconds=0.0, fail_once="", **keys):
    if fail_once and os.environ.get("BOOSTERRUN_ACF_ID") and not os.path.exists(fail_once):
        open(fail_once, "w").close()
        raise MemoryError("CUDA out of memory")
    if seed == 0:
        note("build")
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            note("tick")
            time.sleep(0.005)
        note("built")
    case = simulated.make(seed=seed, **keys)
    if seed == 0:
        sample = case.sample
        def noted(count):
            note("sample")
            values = sample(count)
            note("sampled")
            return values
        case.sample = noted
    return case
"""  # noqa: E501


class Play:
    """Makes sides and judges jobs of a case that says when it builds and when it is timed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.case = folder / "case.py"
        self.case.write_text(CASE)
        self.options: dict[str, Any] = {
            "noise": {"sigma": 0.005},
            "behaviours": {"02-*": {"gain": 0.2}, "*": {"gain": -0.2}},
        }

    def side(self, name: str = "x", **options: Any) -> WorkerSide:
        spec = SideSpec(
            "candidate",
            None,
            None,
            self.folder / name,
            case=f"{self.case}:make",
            options={**self.options, **options},
        )
        return WorkerSide(spec, PATIENT)

    def job(self, name: str, build_ahead: int = 2) -> Job:
        folder = self.folder / name
        workload = PythonWorkload(
            name="s", case=f"{self.case}:make", shapes={"a": {"size": 16}}, options=self.options
        )
        sweep = SweepConfig(candidates=4)
        sweep.build_ahead = build_ahead
        protocol = ProtocolConfig(name="screen", calibration_pairs=4, checks=1)
        config = Config(
            AcfConfig(id=name), workload=workload, protocol=protocol, timeouts=TIMEOUTS, sweep=sweep
        )
        acf = Acf(name, f"{name}.acf", "0" * 64, 1, ("ptxas",), "", f"{name}.acf")
        return Job(config, acf, folder / "0.acf", folder, folder / "work", Toolchain(), None)

    def judge(self, job: Job) -> Judgement:
        job.work.mkdir(parents=True, exist_ok=True)
        return adapter().judge(job)

    def events(self) -> list[list[Any]]:
        path = self.folder / "events"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def wait_for(self, what: str, count: int = 1) -> None:
        deadline = time.monotonic() + 60
        while sum(e[0] == what for e in self.events()) < count:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def adapter() -> ResidentAdapter:
    found = base.load("python")
    assert isinstance(found, ResidentAdapter)
    return found


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Play]:
    monkeypatch.setenv("EVENTS", str(tmp_path / "events"))
    made = Play(tmp_path)
    yield made
    ahead.close()
    kept.close()
    warm.close()
    closer.finish()
    assert ahead.waiting() == 0
    assert not [t for t in threading.enumerate() if t.name == "boosterrun-ahead"]
    pids = {e[2] for e in made.events()}
    assert not any(alive(pid) for pid in pids)


def early_side(make: Callable[[], Any], most: int = 4) -> ahead.EarlySide:
    return ahead.EarlySide(make, [ahead.Errand("s", {"size": 16})], most)


def state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def alive(pid: int) -> bool:
    return state(pid) != "Z"


def test_a_side_is_built_before_it_is_asked_for(play: Play) -> None:
    with early_side(play.side) as early:
        play.wait_for("built")
        assert early.start().pid is not None
        built = early.build("s", {"size": 16})
        assert built.seconds >= 0
        assert early.build("s", {"size": 16}) is built
        assert early.check("s", 1).passed
        assert len(early.sample("s", 3, "auto").values) == 3
        early.build("t", {"size": 32})
        assert early.check_timed("t").passed
    assert sum(e[0] == "build" for e in play.events()) == 2


def test_nothing_builds_while_pairs_are_timed(play: Play) -> None:
    with quiet.timing():
        early = early_side(play.side)
        time.sleep(0.7)
        assert play.events() == []
    play.wait_for("built")
    early.close()


def test_a_build_is_stopped_while_pairs_are_timed(play: Play) -> None:
    with early_side(lambda: play.side("y", seconds=0.5)) as early:
        play.wait_for("build")
        for _ in range(2):
            with quiet.timing():
                pid = play.events()[0][2]
                assert state(pid) == "T"
                time.sleep(0.6)
                assert state(pid) == "T"
                count = len(play.events())
                time.sleep(0.1)
                assert len(play.events()) == count
        early.start()
        assert (
            early.build("s", {"size": 16}).seconds > 1.2
        )  # it knows nothing of the time that it was stopped
        assert state(pid) != "T"


def test_beside_pairs_on_a_gpu_sides_start_but_do_not_build(play: Play) -> None:
    with quiet.timing(everything=False):
        with early_side(play.side):
            deadline = time.monotonic() + 60
            while not list(play.folder.glob("x/stdout.log")):
                assert time.monotonic() < deadline
                time.sleep(0.01)
            time.sleep(0.5)
        assert play.events() == []


def test_a_side_that_is_stopped_can_be_ended(play: Play) -> None:
    early = early_side(lambda: play.side(seconds=60.0))
    play.wait_for("build")
    with quiet.timing():
        begin = time.monotonic()
        early.close()
        assert time.monotonic() - begin < 20


def test_sides_get_room_in_their_order(play: Play) -> None:
    sides = [early_side(lambda n=n: play.side(f"side-{n}"), most=1) for n in range(3)]
    play.wait_for("built")
    time.sleep(0.5)
    assert ahead.waiting() == 1
    assert len({e[2] for e in play.events()}) == 1
    sides[2].start()  # its turn has come before it had room
    assert sides[2].build("s", {"size": 16}).seconds >= 0
    sides[0].start()
    play.wait_for("built", 3)
    for side in sides:
        side.close()


def test_what_does_not_fit_waits_for_its_turn(play: Play) -> None:
    ahead.fit({"free": 4 << 30, "side": 6 << 30})
    try:
        with early_side(play.side) as early:
            time.sleep(0.3)
            assert ahead.waiting() == 0
            early.start()
            assert early.build("s", {"size": 16}).seconds >= 0
        ahead.fit({"free": 40 << 30, "side": 6 << 30})
        with early_side(lambda: play.side("y")):
            assert ahead.waiting() == 1
    finally:
        ahead.fit({"free": 1 << 50, "side": 0})


def test_all_shapes_and_checks_are_made_ahead(play: Play) -> None:
    errand = ahead.Errand("s", {"size": 16}, (1, 2))
    with ahead.EarlySide(play.side, [errand, ahead.Errand("t", {"size": 32})], 1) as early:
        early.start()
        made = len(play.events())
        assert early.build("s", {"size": 16}).seconds >= 0
        assert early.build("t", {"size": 32}).seconds >= 0
        assert early.check("s", 1).passed
        assert len(play.events()) == made


class Told(WorkerSide):
    """Tells what it is asked to prepare, and may refuse."""

    def __init__(self, side: WorkerSide, refuse: bool = False) -> None:
        super().__init__(side.spec, PATIENT)
        self.asked: list[tuple[Any, ...]] = []
        self.refuse = refuse

    def ready(self, *block: Any) -> None:
        self.asked.append(block)
        super().ready(*block)
        if self.refuse:
            raise SideFailed("candidate", "runtime_error", "this case fits no CUDA graph", alive=True)


@pytest.mark.parametrize("refuse", [False, True])
def test_the_first_block_is_prepared_once_its_timing_is_known(play: Play, refuse: bool) -> None:
    side = Told(play.side(), refuse)
    known = ahead.Errand("s", {"size": 16}, (1,), lambda: Timing("own", 5, 2))
    with ahead.EarlySide(lambda: side, [known, ahead.Errand("t", {"size": 32}, (1,))], 1) as early:
        early.start()
        assert side.asked == [("s", 5, "own", 2)]
        assert len(early.sample("s", 5, "own", 2).values) == 5
        assert [event[0] for event in play.events()].count("sample") == 1  # nothing was timed ahead


def test_a_wrong_result_is_the_last_thing_that_is_done_ahead(play: Play) -> None:
    play.options["behaviours"] = {"*": {"fail": "wrong"}}
    made: list[WorkerSide] = []

    def make() -> WorkerSide:
        spec = SideSpec(**{**vars(play.side().spec), "acf": play.folder / "0.acf", "acf_id": "01-x"})
        made.append(WorkerSide(spec, PATIENT))
        return made[-1]

    errands = [ahead.Errand("s", {"size": 16}, (1, 2)), ahead.Errand("t", {"size": 32})]
    with ahead.EarlySide(make, errands, 1) as early:
        early.start()
        assert [event[0] for event in play.events()].count("build") == 1  # t's was never begun
        assert early.build("s", {"size": 16}).seconds >= 0
        assert early.check("s", 1).passed is False  # asked again, in its turn
        assert early.build("t", {"size": 32}).seconds >= 0
    assert len(made) == 1


def test_what_failed_ahead_is_tried_again_in_its_turn(play: Play) -> None:
    play.options["fail_once"] = str(play.folder / "failed")

    def make() -> WorkerSide:
        side = play.side()
        spec = SideSpec(**{**vars(side.spec), "acf": play.folder / "0.acf", "acf_id": "01-x"})
        return WorkerSide(spec, PATIENT)

    with early_side(make) as early:
        early.start()
        assert early.build("s", {"size": 16}).seconds >= 0
    assert Path(play.options["fail_once"]).exists()


def test_a_failure_that_stays_is_raised_in_its_turn(play: Play) -> None:
    play.case.write_text("raise ImportError('the framework is broken')")
    with (
        early_side(play.side) as early,
        pytest.raises(SideFailed, match="the framework is broken"),
    ):
        early.start()


@pytest.mark.parametrize("delay", [0.0, 0.02, 0.1, 0.3, 0.6])
def test_a_build_that_hangs_is_ended_at_close(play: Play, delay: float) -> None:
    early = early_side(lambda: play.side(seconds=60.0))
    time.sleep(delay)
    begin = time.monotonic()
    early.close()
    early.close()
    assert time.monotonic() - begin < 20


def test_a_later_job_takes_over_what_was_prepared(play: Play) -> None:
    jobs = [play.job(name) for name in ("01-x", "02-x", "03-x")]
    for job in (*jobs, jobs[1]):  # the last is on its way already
        assert adapter().prepare(job)
    play.wait_for("built", 2)
    assert ahead.waiting() == 2  # so many have room
    lent = adapter()._lent(jobs[1])
    assert lent is not None
    assert lent(0).timing("a") is None
    assert play.judge(jobs[0]).decision == "REJECTED:regression"
    assert lent(0).timing("a") == Timing("own", 10, 2)  # for what is prepared from now on
    assert play.judge(jobs[1]).decision == "KEPT"
    assert play.judge(jobs[2]).decision == "REJECTED:regression"
    for name in ("01-x", "03-x"):
        assert [e[1] for e in play.events() if e[0] == "build"].count(name) == 1
    assert not overlaps(play.events())


def overlaps(events: list[list[Any]]) -> list[Any]:
    """What a process that builds did while another one was timed. All ran on one clock."""
    samples = [(a[3], b[3]) for a, b in pairwise(events_of(events, "sample", "sampled")) if a[0] == "sample"]
    assert samples
    built = events_of(events, "build", "tick", "built")
    return [(e, s) for e in built for s in samples if s[0] < e[3] < s[1]]


def events_of(events: list[list[Any]], *names: str) -> list[list[Any]]:
    return sorted((e for e in events if e[0] in names), key=lambda e: float(e[3]))


def test_a_changed_case_is_not_taken_over(play: Play) -> None:
    job = play.job("01-x")
    adapter().prepare(job)
    play.wait_for("built")
    play.case.write_text(CASE + "\n# changed\n")
    assert play.judge(job).decision == "REJECTED:regression"
    assert [e[1] for e in play.events() if e[0] == "build"].count("01-x") == 2


def test_confirmations_never_build_beside_pairs(play: Play) -> None:
    play.options["seconds"] = 0.2
    assert play.judge(play.job("02-x", build_ahead=4)).decision == "KEPT"
    assert (
        sum(e[0] == "build" for e in play.events()) == 8
    )  # a screen and three confirmations, two sides each
    assert not overlaps(play.events())


@pytest.mark.parametrize(("wanted", "least", "most"), [("auto", 0, 12), (0, 0, 0), (3, 3, 3), (-1, 0, 0)])
def test_the_limit(wanted: str | int, least: int, most: int) -> None:
    assert least <= ahead.limit(wanted) <= most


def test_builds_begin_in_batches() -> None:
    batches = quiet.Batches()
    assert [batches.room(held, 3) for held in (0, 1, 2, 3, 2, 1, 0, 1)] == [
        *(True, True, True, False),
        *(False, False, True, True),
    ]
    assert [quiet.Batches().room(0, most) for most in (0, 1)] == [False, True]
