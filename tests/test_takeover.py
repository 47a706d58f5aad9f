"""A job that is interrupted, anywhere and several times, goes on from its pairs as if it had paused."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import random
import signal
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from command import SAMPLE, results, run, start
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from boosterrun import packs
from boosterrun.adapters.base import Job, Judgement, Toolchain
from boosterrun.config import AcfConfig, Config, ProtocolConfig, PythonWorkload, SweepConfig
from boosterrun.decision.decide import Decider, decide
from boosterrun.decision.pairs import FILENAME, Pair, Protocol
from boosterrun.errors import RunError
from boosterrun.measure import kept, takeover
from boosterrun.measure.api import Built, Checked, Closing, Hello, Samples, SideName, SideSpec
from boosterrun.measure.blocks import toss
from boosterrun.measure.engine import Engine
from boosterrun.measure.kept import LentBaseline
from boosterrun.measure.sessions import Sources
from boosterrun.measure.trial import Application
from boosterrun.packs import Acf
from boosterrun.results import identity
from boosterrun.sweeps import resume

IDS = [acf.id for acf in packs.open_pack(SAMPLE).acfs]
Key = tuple[Any, ...]
SCREEN = ProtocolConfig(name="screen", calibration_pairs=4, max_pairs=20, confirm_max_pairs=30, checks=1)
FIXED = ProtocolConfig(name="fixed", method="fixed", trials=12, checks=1)


class Machine:
    """Plays every process: blocks whose times tell them apart, until the sample at which a run is stopped."""

    def __init__(self, gain: float, seed: int) -> None:
        self.gain = gain
        self.dice = random.Random(seed)
        self.processes = itertools.count()
        self.made_by: dict[float, int] = {}
        self.left = math.inf
        self.everywhere = True

    def block(self, process: int, launches: int, *, candidate: bool, gains: bool = True) -> list[float]:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt
        faster = math.log1p(self.gain) if candidate and gains else 0.0
        values = [math.exp(self.dice.gauss(0, 0.003) - faster) for _ in range(launches)]
        self.made_by |= dict.fromkeys(values, process)
        return values


class PlayedSide(Closing):
    """One process of the machine."""

    def __init__(self, machine: Machine, name: SideName, work: Path) -> None:
        self.spec = SideSpec(name, None, None, work, {}, "", {}, "python", None)
        self.machine = machine
        self.process = next(machine.processes)

    def start(self) -> Hello:
        return Hello({}, None, None)

    def build(self, shape: str, params: Mapping[str, Any]) -> Built:
        return Built(seconds=0.0)

    def check(self, shape: str, seed: int) -> Checked:
        return Checked(True)

    def check_timed(self, shape: str) -> Checked:
        return Checked(True)

    def sample(self, shape: str, launches: int, timer: str, warmup: int = 0) -> Samples:
        candidate = self.spec.name == "candidate"
        gains = self.machine.everywhere or shape == "s0"
        values = self.machine.block(self.process, launches, candidate=candidate, gains=gains)
        return Samples(values=list(values), unit="ms", timer="host" if timer == "auto" else timer)

    def close(self) -> None:
        pass


@dataclass
class Attempts:
    """Runs of one job in one folder, each of which may be stopped."""

    folder: Path
    machine: Machine
    protocol: ProtocolConfig = field(default_factory=lambda: SCREEN)
    shapes: int = 1
    candidates: int = 5
    self_test: bool = False
    lent: bool = False

    def config(self) -> Config:
        case = self.folder.parent / "case.py"
        if not case.exists():
            case.write_text("def make(**keys): ...\n")
        shapes = {f"s{n}": {"size": n} for n in range(self.shapes)}
        acf = AcfConfig(id="none" if self.self_test else "01-x", sha256=None if self.self_test else "0" * 64)
        return Config(
            acf,
            workload=PythonWorkload(name="own", case=f"{case}:make", shapes=shapes),
            protocol=self.protocol,
            sweep=SweepConfig(candidates=self.candidates),
        )

    def run(self, stop_after: float = math.inf) -> Judgement | None:
        """One run: what it found, None if it was stopped after so many blocks."""
        config = self.config()
        self.folder.mkdir(parents=True, exist_ok=True)
        assert resume.settle(config, self.folder) is None
        acf = None if self.self_test else Acf("01-x", "01-x.acf", "0" * 64, 1, ("ptxas",), "", "01-x.acf")
        job = Job(config, acf, None, self.folder, self.folder / "work", Toolchain(), None)
        self.machine.left = stop_after

        def open_side(name: SideName, work: Path) -> PlayedSide:
            return PlayedSide(self.machine, name, work)

        def lend(session: int) -> LentBaseline:
            return LentBaseline("baseline", lambda work: open_side("baseline", work), session)

        sources = Sources(open_side, lent=lend if self.lent else None)
        engine = Engine(job, open_side, lambda baseline, candidate: Application(), sources=sources)
        with contextlib.suppress(KeyboardInterrupt):
            return engine.judge()
        return None

    def lines(self, name: str = FILENAME) -> list[dict[str, Any]]:
        """Complete lines of a log."""
        with contextlib.suppress(FileNotFoundError):
            text = (self.folder / name).read_bytes()
            return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith(b"\n")]
        return []

    def tear(self, size: int) -> None:
        """Cut so many bytes off the log, as a run that is killed while it writes may leave it."""
        path = self.folder / FILENAME
        if path.exists():
            path.write_bytes(path.read_bytes()[: -size or None])


def key(line: Mapping[str, Any]) -> Key:
    return (line["shape"], tuple(line["baseline"]), tuple(line["candidate"]))


def assert_one_measurement(attempts: Attempts, judgement: Judgement, before: Sequence[Key]) -> None:
    """The result is what the rule says of the pairs in the log: all that there were before, and new ones."""
    lines = attempts.lines()
    keys = [key(line) for line in lines]
    assert len(keys) == len(set(keys))
    assert {*before} == {key(line) for line in lines if line.get("taken_over")}
    rules = Protocol.from_mapping(vars(attempts.protocol))
    for shape in judgement.shapes:
        mine = [line for line in lines if line["shape"] == shape["name"]]
        assert shape["pairs"]["taken_over"] == sum(bool(line.get("taken_over")) for line in mine)
        pairs = [Pair.from_entry(line) for line in mine]
        again = decide(pairs, rules, attempts.candidates, attempts.shapes)
        assert again.state == "final"
        assert shape["decision"] == ("KEPT" if again.reason == "KEPT" else f"REJECTED:{again.reason}")
        assert shape["statistics"] == again.statistics
        deciding = [pair for pair in pairs if pair.phase != "guard"]
        assert decide(deciding[:-1], rules, attempts.candidates, attempts.shapes).state != "final"
        screened = rules.method == "sequential" and sum(pair.phase == "confirm" for pair in pairs) < 4
        if judgement.decision == "KEPT" and screened and again.reason in ("no_gain", "inconclusive"):
            guards = [pair.session for pair in pairs if pair.phase == "guard"]
            assert sum(guards.count(session) >= 4 for session in set(guards)) >= 3
        coin = random.Random(f"0:{'0' * 64}:{shape['name']}")
        assert [pair.order for pair in pairs] == [toss(coin) for _ in pairs]
        # A confirmation session is one pair of processes, before and after any stop.
        for side in ("baseline", "candidate"):
            made: dict[int, set[int]] = {}
            for line in (line for line in mine if line["phase"] in ("confirm", "guard")):
                made.setdefault(line["session"], set()).add(attempts.machine.made_by[line[side][0]])
            assert all(len(processes) == 1 for processes in made.values())


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(
    stops=st.lists(st.tuples(st.integers(0, 70), st.integers(0, 400)), min_size=1, max_size=4),
    gain=st.sampled_from([-0.05, 0.0, 0.012, 0.03, 0.2]),
    protocol=st.sampled_from([SCREEN, FIXED]),
    shapes=st.integers(1, 2),
    everywhere=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_any_interruptions_leave_one_measurement(
    stops: list[tuple[int, int]],
    gain: float,
    protocol: ProtocolConfig,
    shapes: int,
    everywhere: bool,
    seed: int,
) -> None:
    with tempfile.TemporaryDirectory() as name:
        machine = Machine(gain, seed)
        machine.everywhere = everywhere
        attempts = Attempts(Path(name) / "job", machine, protocol, shapes)
        known: list[Key] = []
        judgement = None
        for blocks, torn in stops:
            judgement = attempts.run(blocks)
            if judgement is not None:
                break
            attempts.tear(torn)
            # What a run had not taken over when it was stopped is still there for the next.
            measured = [key(line) for line in attempts.lines() if "taken_over" not in line]
            if measured:
                known = [key(line) for line in attempts.lines()]
        assert_one_measurement(attempts, judgement or attempts.run() or pytest.fail("no end"), known)


def test_a_stop_after_the_last_pair_costs_no_further_pair(tmp_path: Path) -> None:
    attempts = Attempts(tmp_path / "job", Machine(0.2, 1))
    first = attempts.run()
    again = attempts.run()  # no result was written
    assert first is not None
    assert again is not None
    assert again.decision == first.decision == "KEPT"
    assert all(line["taken_over"] for line in attempts.lines())
    old = attempts.lines(f"{FILENAME}.old")
    assert [key(line) for line in attempts.lines()] == [key(line) for line in old]


def test_the_session_that_was_cut_short_counts_by_itself(tmp_path: Path) -> None:
    for blocks in itertools.count(20):
        attempts = Attempts(tmp_path / f"job-{blocks}", Machine(0.2, 1))
        assert attempts.run(blocks) is None
        if any(line["phase"] == "confirm" for line in attempts.lines()):
            break
    judgement = attempts.run()
    assert judgement is not None
    sizes = [s["pairs"] for s in judgement.shapes[0]["statistics"]["sessions"]]
    assert len(sizes) == 4
    assert sizes[0] == 1
    assert len(set(sizes[1:])) == 1


@pytest.mark.parametrize("blocks", range(60, 150, 6))
def test_a_shape_that_did_not_gain_is_looked_at_to_the_end(tmp_path: Path, blocks: int) -> None:
    """One shape is confirmed, and the other is guarded in the same processes."""
    machine = Machine(0.2, 1)
    machine.everywhere = False
    attempts = Attempts(tmp_path / "job", machine, shapes=2)
    stopped = attempts.run(blocks)
    before = [key(line) for line in attempts.lines()] if stopped is None else []
    judgement = stopped or attempts.run()
    assert judgement is not None
    assert [shape["decision"] for shape in judgement.shapes] == ["KEPT", "REJECTED:no_gain"]
    assert_one_measurement(attempts, judgement, before)


def test_what_a_kept_baseline_remembers_is_not_counted_twice(tmp_path: Path) -> None:
    """A job that begins again in the same process, whose baseline lives on."""
    attempts = Attempts(tmp_path / "job", Machine(0.0, 1), lent=True)
    try:
        assert attempts.run(6) is None
        before = [key(line) for line in attempts.lines()]
        assert len(before) == 2
        assert all(line["phase"] == "calibrate" for line in attempts.lines())
        judgement = attempts.run()
        assert judgement is not None
        assert_one_measurement(attempts, judgement, before)
    finally:
        kept.close()


def test_what_the_coin_did_not_draw_is_not_taken(tmp_path: Path) -> None:
    attempts = Attempts(tmp_path / "job", Machine(0.0, 3))
    assert attempts.run(16) is None
    lines = attempts.lines()
    assert len(lines) > 6
    del lines[5]  # what was left out is noticed where the orders no longer agree
    (attempts.folder / FILENAME).write_text("".join(json.dumps(line) + "\n" for line in lines))
    coin = random.Random(f"0:{'0' * 64}:s0")
    agree = 0
    for line in lines:
        if toss(coin) != line["order"]:
            break
        agree += 1
    assert agree < len(lines)
    judgement = attempts.run()
    assert judgement is not None
    assert judgement.shapes[0]["pairs"]["taken_over"] == agree


def test_more_candidates_go_on_with_the_same_pairs(tmp_path: Path) -> None:
    attempts = Attempts(tmp_path / "job", Machine(0.03, 5))
    assert attempts.run() is not None
    attempts.candidates = 2000
    before = len(attempts.lines())
    judgement = attempts.run()
    assert judgement is not None
    assert judgement.shapes[0]["statistics"]["family"] == 2000
    assert 0 < judgement.shapes[0]["pairs"]["taken_over"] <= before


def test_pairs_that_the_rule_does_not_ask_for_are_not_taken(tmp_path: Path) -> None:
    attempts = Attempts(tmp_path / "fewer", Machine(0.03, 5), candidates=2000)
    assert attempts.run() is not None
    before = [key(line) for line in attempts.lines()]
    attempts.candidates = 1  # whose sessions are shorter
    judgement = attempts.run()
    assert judgement is not None
    taken = judgement.shapes[0]["pairs"]["taken_over"]
    assert 0 < taken < len(before)
    assert_one_measurement(attempts, judgement, before[:taken])

    attempts = Attempts(tmp_path / "final", Machine(0.0, 5))
    assert attempts.run() is not None
    lines = attempts.lines()
    coin = random.Random(f"0:{'0' * 64}:s0")
    surplus = {**lines[-1], "order": [toss(coin) for _ in range(len(lines) + 1)][-1]}
    (attempts.folder / FILENAME).write_text("".join(json.dumps(line) + "\n" for line in [*lines, surplus]))
    judgement = attempts.run()
    assert judgement is not None
    assert_one_measurement(attempts, judgement, [key(line) for line in lines])


def test_a_self_test_and_a_failed_baseline_begin_anew(tmp_path: Path) -> None:
    attempts = Attempts(tmp_path / "self", Machine(0.0, 7), self_test=True)
    assert attempts.run(14) is None
    judgement = attempts.run()
    assert judgement is not None
    assert judgement.shapes[0]["pairs"]["taken_over"] == 0

    class Failing(Machine):
        fails = True

        def block(self, process: int, launches: int, *, candidate: bool, gains: bool = True) -> list[float]:
            values = super().block(process, launches, candidate=candidate, gains=gains)
            return values if candidate or not self.fails or self.left > 917 else [math.nan, *values[1:]]

    machine = Failing(0.0, 8)
    attempts = Attempts(tmp_path / "failed", machine)
    with pytest.raises(RunError, match="launches of the baseline failed"):
        attempts.run(930)
    machine.fails = False
    judgement = attempts.run()
    assert judgement is not None
    assert judgement.shapes[0]["pairs"]["taken_over"] == 0


# ---- what must be the same ----

KERNELS = [{"name": "k", "arch": "sm_90a", "code_sha256": {"baseline": "a", "candidate": "b"}}]
GPU = {"uuid": "GPU-1", "name": "NVIDIA H200"}


def digest(folder: Path, ingredients: Mapping[str, Any], hello: Hello, application: Application) -> Any:
    (folder / identity.FILENAME).write_text(json.dumps(ingredients))
    return takeover.fingerprint(folder, hello, application)


def test_every_ingredient_tells_sides_apart(tmp_path: Path) -> None:
    one = {"acf": "0", "file.case.py": "1", "protocol.min_gain": 0.01, "timeouts.build": 60.0}
    hello = Hello({"torch": "2.11"}, GPU, 1)
    proven = Application("proven", False, "", KERNELS)
    same = digest(tmp_path, one, hello, proven)
    assert same is not None
    assert digest(tmp_path, {**one, "timeouts.build": 90.0}, replace(hello, pid=2), proven) == same
    code = {"baseline": "a", "candidate": "c"}
    others = [
        *(digest(tmp_path, {**one, key: "other"}, hello, proven) for key in [*one][:-1]),
        digest(tmp_path, {**one, "workload.options.more": 1}, hello, proven),
        digest(tmp_path, one, replace(hello, device={**GPU, "uuid": "GPU-2"}), proven),
        digest(tmp_path, one, replace(hello, device=None), proven),
        digest(tmp_path, one, replace(hello, versions={"torch": "2.12"}), proven),
        digest(tmp_path, one, hello, replace(proven, applied="unproven")),
        digest(tmp_path, one, hello, replace(proven, kernels=[{**KERNELS[0], "code_sha256": code}])),
        digest(tmp_path, one, hello, replace(proven, kernels=[*KERNELS, *KERNELS])),
    ]
    assert None not in others
    assert len({same, *others}) == 1 + len(others)


def test_sides_that_are_not_known_well_enough_have_no_digest(tmp_path: Path) -> None:
    proven, hello = Application("proven", False, "", KERNELS), Hello({}, GPU, 1)
    unread = [{**KERNELS[0], "code_sha256": {"baseline": "a", "candidate": None}}]
    assert digest(tmp_path, {}, hello, replace(proven, kernels=unread)) is None
    assert digest(tmp_path, {}, replace(hello, device={"index": 0, "uuid": None}), proven) is None
    (tmp_path / identity.FILENAME).write_text("[]")
    assert takeover.fingerprint(tmp_path, hello, proven) is None
    (tmp_path / identity.FILENAME).unlink()
    assert takeover.fingerprint(tmp_path, hello, proven) is None


@pytest.mark.parametrize("change", ["case", "protocol", "timing", "shape"])
def test_what_has_changed_is_measured_anew(tmp_path: Path, change: str) -> None:
    attempts = Attempts(tmp_path / "job", Machine(0.0, 3))
    assert attempts.run(16) is None
    lines = attempts.lines()
    assert lines
    if change == "case":
        (tmp_path / "case.py").write_text("def make(**keys): return None\n")
    elif change == "protocol":
        attempts.protocol = replace(SCREEN, min_gain=0.02)
    elif change == "timing":
        wrong = [{**line, "launches": str(line["launches"])} for line in lines]
        (attempts.folder / FILENAME).write_text("".join(json.dumps(line) + "\n" for line in wrong))
    else:
        wrong = [{**line, "shape": "other"} for line in lines]
        (attempts.folder / FILENAME).write_text("".join(json.dumps(line) + "\n" for line in wrong))
    judgement = attempts.run()
    assert judgement is not None
    assert judgement.shapes[0]["pairs"]["taken_over"] == 0
    assert not {key(line) for line in lines} & {key(line) for line in attempts.lines()}


def test_pairs_of_an_older_run_on_the_same_sides_are_found(tmp_path: Path) -> None:
    """A, then B, then A again: what was measured of A counts."""
    attempts = Attempts(tmp_path / "job", Machine(0.0, 3))
    assert attempts.run(16) is None
    first = {key(line) for line in attempts.lines()}
    attempts.protocol = replace(SCREEN, min_gain=0.02)
    assert attempts.run(16) is None
    attempts.protocol = SCREEN
    assert attempts.run(0) is None
    judgement = attempts.run()
    assert judgement is not None
    assert first == {key(line) for line in attempts.lines() if line.get("taken_over")}


def test_renewing_is_for_confirmations_that_have_begun() -> None:
    fixed = Decider(Protocol(method="fixed", trials=12))
    fixed.renew()
    assert fixed.decision().session == 1
    fixed.add(Pair("confirm", 1, "bc", (1.0,), (1.0,)))
    fixed.renew()
    fixed.renew()
    assert (fixed.decision().state, fixed.decision().session) == ("confirm", 2)
    screen = Decider(Protocol())
    screen.add(Pair("calibrate", 0, "bc", (1.0,), (1.1,)))
    screen.renew()
    assert (screen.decision().state, screen.decision().session) == ("continue", 0)


# ---- the command ----

EXPERIMENT = """\
defaults: [{override /workload: simulated}]
workload:
  options: {base_ms: 4.0, clock: real, noise: {sigma: 0.002}, behaviours: {'*': {gain: 0.1}}}
protocol: {calibration_pairs: 6, checks: 1}
"""


@pytest.mark.parametrize(("number", "phase"), [(signal.SIGKILL, "screen"), (signal.SIGINT, "confirm")])
def test_a_run_that_was_ended_is_resumed_from_its_pairs(
    tmp_path: Path, number: signal.Signals, phase: str
) -> None:
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "own.yaml").write_text(EXPERIMENT)
    log = tmp_path / "out" / IDS[0] / FILENAME
    sweep = ["-m", f"acf={IDS[0]},{IDS[1]}", "experiment=own", "hydra.sweep.dir=out"]
    with start(sweep, tmp_path) as process:
        deadline = time.monotonic() + 120
        while not (log.exists() and f'"{phase}"' in log.read_text()):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        os.kill(process.pid, number)
        process.communicate(timeout=60)
    done = run("resume", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    old = [json.loads(line) for line in (log.parent / f"{FILENAME}.old").read_text().splitlines()]
    new = [json.loads(line) for line in log.read_text().splitlines()]
    assert [key(line) for line in new[: len(old)]] == [key(line) for line in old]
    assert all(line["taken_over"] for line in new[: len(old)])
    assert not any("taken_over" in line for line in new[len(old) :])
    first, second = results(tmp_path / "out")
    assert first["shapes"][0]["pairs"]["taken_over"] == len(old)
    # On a busy machine the clock may hide the gain: what counts is that all pairs have decided.
    rules = Protocol.from_mapping(first["config"]["protocol"])
    again = decide([Pair.from_entry(line) for line in new], rules, 2, 1)
    assert first["shapes"][0]["statistics"] == again.statistics
    assert (first["status"], second["status"]) == ("decided", "decided")
    assert "(done before)" in run("resume", "out", cwd=tmp_path).stdout
