from boosterrun.decision.pairs import Pair
from boosterrun.decision.tail import slow_tail


def block(slow, size=10):
    return (1.5,) * slow + (1.0,) * (size - slow)


def test_one_disturbed_block_is_no_tail():
    steady = [Pair("screen", 0, "bc", (1.0,) * 10, (1.0,) * 10)] * 12
    burst = Pair("screen", 0, "bc", (1.0,) * 10, (1.5,) * 10)
    assert slow_tail([*steady, burst]) == {"p": 0.5, "slow_baseline": 0, "slow_candidate": 10}


def test_slow_launches_in_many_blocks_of_the_candidate_are_a_tail():
    pairs = [Pair("screen", 0, "bc", block(0), block(i % 2)) for i in range(16)]
    assert slow_tail(pairs) == {"p": 2.0**-8, "slow_baseline": 0, "slow_candidate": 8}
    assert slow_tail([Pair("screen", 0, "bc", p.candidate, p.baseline) for p in pairs])["p"] == 1.0


def test_each_session_and_side_has_its_own_median_and_calibration_does_not_count():
    slower = [Pair("confirm", n, "bc", block(0), tuple(3.0 * n * v for v in block(0))) for n in (1, 2)] * 8
    assert slow_tail(slower)["slow_candidate"] == 0
    assert slow_tail([Pair("calibrate", 0, "bc", block(0), block(4))] * 9)["slow_candidate"] == 0


def test_a_failed_launch_is_a_slow_one():
    pairs = [Pair("screen", 0, "bc", (1.0,) * 5, (1.0, 1.0, 1.0, 1.0, None))] * 6
    assert slow_tail(pairs)["slow_candidate"] == 6
