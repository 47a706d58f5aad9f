import json
import math
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boosterrun.decision.pairs import Pair, Protocol
from boosterrun.errors import UsageError


@pytest.mark.parametrize("bad", [None, math.nan, math.inf, -math.inf, 0.0, -1.0, 1e308, 5e-324])
def test_a_sample_that_is_no_time_is_a_failed_launch(bad):
    pair = Pair("screen", 0, "bc", (1.0, bad, 1.0), (2.0, 2.0, 2.0))
    assert pair.baseline == (1.0, None, 1.0)
    assert pair.failures == (1, 0)


def test_a_block_without_samples_failed():
    assert Pair("screen", 0, "bc", (), (1.0,)).failures == (1, 0)


def test_a_failed_launch_is_slower_than_any_and_never_dropped():
    half = Pair("screen", 0, "bc", (1.0, 1.0, 1.0), (1.0, None, None))
    assert half.log_ratio == -10.0
    assert Pair("screen", 0, "bc", (None,), (1.0,)).log_ratio == 10.0
    assert Pair("screen", 0, "bc", (None,), (None,)).log_ratio == 0.0
    assert Pair("screen", 0, "bc", (1.0, 1.0, 1.0), (0.5, None, 0.5)).log_ratio == pytest.approx(math.log(2))


@given(
    st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=9),
    st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=9),
)
def test_swapping_the_sides_flips_the_sign(a, b):
    assert Pair("screen", 0, "bc", a, b).log_ratio == pytest.approx(-Pair("screen", 0, "cb", b, a).log_ratio)


def test_a_pair_survives_json():
    pair = Pair("confirm", 2, "cb", (1.0, math.nan), (0.25,), void="throttled")
    again = Pair(**json.loads(json.dumps(asdict(pair), allow_nan=False)))
    assert again == pair


@pytest.mark.parametrize(("phase", "order"), [("warmup", "bc"), ("screen", "ab")])
def test_an_unknown_phase_or_order_is_refused(phase, order):
    with pytest.raises(UsageError, match="phase"):
        Pair(phase, 0, order, (1.0,), (1.0,))


@pytest.mark.parametrize(
    "wrong",
    [
        {"method": "welch"},
        {"min_gain": 0.0},
        {"min_gain": 1.0},
        {"alpha": 5.0},
        {"calibration_pairs": 3},
        {"min_pairs": 0},
        {"min_pairs": 61},
        {"confirm_sessions": 0},
        {"confirm_max_pairs": 9},
        {"confirm_sessions": 31},
        {"max_voids": -1},
        {"max_failures": -1},
        {"process_spread": -0.1},
        {"screen_evidence": 1.0},
        {"futility_evidence": 0.5},
    ],
)
def test_a_protocol_without_sense_names_the_key(wrong):
    with pytest.raises(UsageError, match=rf"protocol\..*{next(iter(wrong))}"):
        Protocol(**wrong)


def test_a_config_node_becomes_a_protocol_without_the_keys_of_the_measuring_side():
    assert Protocol.from_mapping({"name": "x", "block_seconds": 0.005, "trials": 50}) == Protocol(trials=50)


def test_counts_that_can_never_decide_are_told():
    assert Protocol(method="fixed", trials=9).unreachable(30) is not None
    assert Protocol(method="fixed", trials=10).unreachable(30) is None
    assert Protocol(max_pairs=6).unreachable(1) is not None
    assert Protocol().unreachable(100_000) is None
    assert Protocol(max_pairs=10, confirm_max_pairs=10, confirm_min_pairs=5).unreachable(10**9) is not None
    assert Protocol(method="quick", trials=3).unreachable(10**9) is None
