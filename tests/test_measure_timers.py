"""Timers on the CPU; those that need a GPU are marked."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import pytest

from boosterrun.case import Case
from boosterrun.measure.timers import BATCH, TimerError, Timers, on_gpu


def case(**fields: Any) -> Case:
    return Case(**{"run": lambda: np.ones(1), "reference": lambda: np.ones(1), **fields})


def test_host_waits_for_the_end_of_each_launch() -> None:
    log: list[str] = []
    sleeper = case(run=lambda: log.append("run"), sync=lambda: (log.append("sync"), time.sleep(0.003)))
    block = Timers(sleeper, gpu=False).sample("auto", 3, 2)
    assert block.timer == "host"
    assert len(block.values) == 3
    assert all(value is not None and value >= 3.0 for value in block.values)
    assert log == ["sync"] + ["run", "sync"] * 5


def test_own_samples_are_used_and_the_warm_up_dropped() -> None:
    block = Timers(case(sample=lambda n: [float(i + 1) for i in range(n)]), gpu=True).sample("auto", 4, 2)
    assert block.timer == "own"
    assert block.values == [3.0, 4.0, 5.0, 6.0]


def test_own_samples_with_their_own_warm_up_are_kept() -> None:
    assert Timers(case(sample=lambda n: [5.0]), gpu=False).sample("own", 4, 2).values == [5.0]


def test_a_failed_launch_is_none() -> None:
    values = [1.0, math.nan, 2.0]
    assert Timers(case(sample=lambda n: values), gpu=False).sample("own", 3, 0).values == [1.0, None, 2.0]


@pytest.mark.parametrize("value", [0.0, -1.0, math.inf])
def test_what_is_no_time_is_refused(value: float) -> None:
    with pytest.raises(TimerError, match="no time"):
        Timers(case(sample=lambda n: [value]), gpu=False).sample("own", 1, 0)


@pytest.mark.parametrize(
    ("timer", "words"),
    [
        ("events", "needs outputs on a GPU"),
        ("graph", "GPU"),
        ("batch", "GPU"),
        ("own", "sample"),
        ("sun", "no timer"),
    ],
)
def test_a_timer_that_does_not_fit_says_which_does(timer: str, words: str) -> None:
    with pytest.raises(TimerError, match=words):
        Timers(case(), gpu=False).sample(timer, 1, 0)


def test_no_times_are_refused() -> None:
    with pytest.raises(TimerError, match="no times"):
        Timers(case(sample=lambda n: []), gpu=False).sample("own", 1, 0)


def test_default_timer_follows_the_case() -> None:
    assert Timers(case(), gpu=False).default == "host"
    assert Timers(case(), gpu=True).default == "events"
    assert Timers(case(sample=lambda n: [1.0]), gpu=True).default == "own"
    assert not on_gpu([np.ones(2), 3.0])


@pytest.fixture
def gpu_case() -> Case:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    x = torch.randn(1 << 22, device="cuda")
    y = torch.empty_like(x)
    return case(run=lambda: torch.mul(x, 2.0, out=y), outputs=[y])


@pytest.mark.gpu
@pytest.mark.parametrize("timer", ["events", "graph", "batch"])
def test_gpu_timers_agree_on_a_copy(gpu_case: Case, timer: str) -> None:
    timers = Timers(gpu_case, gpu=on_gpu(gpu_case.outputs))
    for _ in range(2):
        block = timers.sample(timer, 10, 2)
        assert block.timer == timer
        assert len(block.values) == 10
        # 32 MiB moved: 5 us at 6.7 TB/s from L2, a few hundred at most from any memory
        assert all(value is not None and 0.002 < value < 0.5 for value in block.values)


@pytest.mark.gpu
def test_a_graph_that_cannot_be_captured_leaves_the_case_usable(gpu_case: Case) -> None:
    run = gpu_case.run
    gpu_case.run = lambda: run().sum().item()
    timers = Timers(gpu_case, gpu=True)
    with pytest.raises(TimerError, match="use timer batch"):
        timers.sample("graph", 5, 0)
    assert len(timers.sample("batch", 2, 0).values) == 2
    assert BATCH == 100
