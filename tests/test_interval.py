import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boosterrun.decision.interval import hodges_lehmann, prediction_interval, t_quantile

values = st.lists(st.floats(-1, 1), min_size=1, max_size=12)


@pytest.mark.parametrize(
    ("df", "expected"), [(1, 12.7062), (2, 4.3027), (10, 2.2281), (11, 2.2010), (30, 2.0423), (120, 1.9799)]
)
def test_t_quantile_agrees_with_the_tables(df, expected):
    assert t_quantile(df) == pytest.approx(expected, abs=1e-3)


@given(values)
def test_hodges_lehmann_is_the_median_of_all_means_of_two(x):
    means = [(a + b) / 2 for i, a in enumerate(x) for b in x[i:]]
    assert hodges_lehmann(x) == pytest.approx(float(np.median(means)))


@given(values, st.floats(-1, 1))
def test_hodges_lehmann_moves_with_the_data(x, shift):
    assert hodges_lehmann([v + shift for v in x]) == pytest.approx(hodges_lehmann(x) + shift, abs=1e-9)
    assert hodges_lehmann([-v for v in x]) == pytest.approx(-hodges_lehmann(x), abs=1e-12)


@given(st.lists(st.lists(st.floats(-0.1, 0.1), min_size=1, max_size=6), min_size=2, max_size=5))
@settings(deadline=None)
def test_the_interval_holds_its_own_estimate(sessions):
    low, high = prediction_interval(sessions, 0.0, 0, 0.003)
    assert low <= hodges_lehmann([x for s in sessions for x in s]) <= high


def test_sessions_that_disagree_widen_the_interval():
    agree = prediction_interval([[0.02, 0.021, 0.019]] * 3, 0.001, 9, 0.003)
    differ = prediction_interval(
        [[0.01, 0.011, 0.009], [0.02, 0.021, 0.019], [0.03, 0.031, 0.029]], 0.001, 9, 0.003
    )
    assert differ[1] - differ[0] > 5 * (agree[1] - agree[0])


def test_one_session_alone_allows_for_other_processes():
    low, high = prediction_interval([[0.02, 0.0201, 0.0199, 0.02]], 1e-4, 9, 0.003)
    assert high - low > 2 * 1.96 * 0.003


@pytest.mark.parametrize(
    ("offset_sd", "noise_sd"), [(0.0, 0.01), (0.003, 0.001), (0.005, 0.007), (0.009, 0.001)]
)
def test_a_repetition_in_new_processes_falls_inside_nine_times_of_ten(offset_sd, noise_sd):
    rng = np.random.default_rng(7)

    def measure():
        return [rng.normal(rng.normal(0.03, offset_sd), noise_sd, 5) for _ in range(3)]

    inside = 0
    for _ in range(400):
        low, high = prediction_interval(measure(), noise_sd, 9, 0.003)
        inside += low <= hodges_lehmann(np.concatenate(measure())) <= high
    assert inside / 400 >= 0.9
    assert math.isfinite(low)
