"""What is put off is done, in order where that matters, and whatever it raises."""

from __future__ import annotations

import threading
import time

from boosterrun.system import closer


def test_what_is_put_off_is_done_beside_the_caller() -> None:
    go, done = threading.Event(), threading.Event()

    def slow() -> None:
        go.wait(60)
        done.set()

    closer.later(slow)
    assert not done.is_set()
    go.set()
    closer.finish()
    assert done.is_set()


def test_the_last_comes_after_all_before_it() -> None:
    order: list[int] = []

    def slow(number: int) -> None:
        time.sleep(0.05 * (5 - number))
        order.append(number)

    for number in range(5):
        closer.later(lambda number=number: slow(number))
    closer.later(lambda: order.append(99), last=True)
    closer.finish()
    assert order[-1] == 99
    assert sorted(order) == [0, 1, 2, 3, 4, 99]


def test_an_error_harms_nobody() -> None:
    done: list[int] = []
    closer.later(lambda: 1 // 0)
    closer.later(lambda: done.append(1), last=True)
    closer.finish()
    assert done == [1]
