"""Pairs: watched a stretch at a time, logged before anything is decided on them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from boosterrun.decision.pairs import Pair
from boosterrun.measure.api import Samples, SideFailed
from boosterrun.measure.blocks import Compared, PairLog, PairRunner, Timing


class Played:
    """A side whose blocks take ``seconds``; it dies at a block, or a launch fails in one."""

    def __init__(self, seconds: float = 0.0, dies: int | None = None, fails: int | None = None) -> None:
        self.seconds, self.dies, self.fails = seconds, dies, fails
        self.blocks = 0

    def sample(self, shape: str, launches: int, timer: str, warmup: int = 0) -> Samples:
        self.blocks += 1
        time.sleep(self.seconds)
        if self.blocks == self.dies:
            raise SideFailed("candidate", "runtime_error", "it died")
        values: list[float | None] = [1.0] * launches
        if self.blocks == self.fails:
            values[0] = None
        return Samples(values=values, unit="ms", timer=timer)


class Bench:
    def __init__(self, folder: Path, **candidate: Any) -> None:
        self.path = folder / "pairs.jsonl"
        self.log = PairLog(self.path)
        self.runner = PairRunner("s", Timing("host", 3, 0), "seed", self.log)
        self.taken: list[Pair] = []
        self.asked = 0
        self.says: list[str | None] = []
        baseline: Any = Played(candidate.get("seconds", 0.0))
        other: Any = Played(**candidate)
        self.sides = Compared(baseline, other, self.taken.append)

    def watch(self) -> str | None:
        self.asked += 1
        return self.says.pop(0) if self.says else None

    def run(self, most: int) -> None:
        self.runner.run(self.sides, self.watch, "screen", 0, most=most)

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.path.read_text().splitlines()]


@pytest.fixture
def benches(tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def make(**candidate: Any) -> Bench:
        made.append(Bench(tmp_path, **candidate))
        return made[-1]

    yield make
    for bench in made:
        bench.log.close()


def test_short_pairs_are_watched_together(benches: Callable[..., Bench]) -> None:
    bench = benches()
    bench.run(4)
    assert len(bench.taken) == len(bench.lines()) == 4
    assert bench.asked == 2  # before the first and after the last
    bench.run(3)
    assert (len(bench.taken), bench.asked) == (7, 3)  # the last answer is still fresh


def test_long_pairs_are_watched_one_by_one(benches: Callable[..., Bench]) -> None:
    bench = benches(seconds=0.03)
    bench.run(4)
    assert len(bench.taken) == 1
    assert bench.asked == 2


def test_what_is_disturbed_is_all_that_was_not_watched_apart(benches: Callable[..., Bench]) -> None:
    bench = benches()
    bench.says = [None, "thermal for 0.1 s"]
    bench.run(3)
    bench.run(2)
    assert [pair.void for pair in bench.taken] == ["thermal for 0.1 s"] * 3 + [None] * 2
    assert [line["void"] for line in bench.lines()] == [pair.void for pair in bench.taken]


def test_pairs_before_a_failure_are_kept(benches: Callable[..., Bench]) -> None:
    bench = benches(dies=3)
    with pytest.raises(SideFailed, match="it died"):
        bench.run(5)
    assert len(bench.taken) == len(bench.lines()) == 2
    assert all(pair.void is None for pair in bench.taken)


def test_nothing_is_asked_after_a_failure_without_pairs(benches: Callable[..., Bench]) -> None:
    bench = benches(dies=1)
    with pytest.raises(SideFailed):
        bench.run(5)
    assert (bench.taken, bench.lines(), bench.asked) == ([], [], 1)
    bench.run(1)
    assert bench.asked == 3  # what happened meanwhile is no pair's


def test_a_failed_launch_ends_the_stretch(benches: Callable[..., Bench]) -> None:
    """It may decide: no pair is measured that could be one too many."""
    bench = benches(fails=2)
    bench.run(5)
    assert [pair.failures for pair in bench.taken] == [(0, 0), (0, 1)]


def test_each_pair_has_its_own_time_in_the_log(benches: Callable[..., Bench]) -> None:
    bench = benches(seconds=0.005)
    before = time.time()
    bench.run(3)
    times = [line["at"] for line in bench.lines()]
    assert before < times[0] < times[1] < times[2] < time.time()
