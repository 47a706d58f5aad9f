import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boosterrun.decision.evidence import (
    Wealth,
    bet,
    from_log,
    most_log_evidence,
    noise_scale,
    sign_p,
    signed_rank_p,
    timer_step,
)

sizes = st.lists(st.floats(0.0, 5.0), min_size=1, max_size=8)


def evidence_paths(magnitudes):
    """The e-value after each pair, for every pattern of signs that the coin may draw."""
    for signs in itertools.product((-1.0, 1.0), repeat=len(magnitudes)):
        wealth, path = Wealth(), []
        for sign, size in zip(signs, magnitudes, strict=True):
            wealth.add(bet(sign * size, 1.0))
            path.append(math.exp(wealth.log))
        yield path


@given(sizes)
@settings(max_examples=30, deadline=None)
def test_under_the_coin_the_evidence_is_one_on_average(magnitudes):
    ends = [path[-1] for path in evidence_paths(magnitudes)]
    assert np.mean(ends) == pytest.approx(1.0)


@given(sizes, st.sampled_from((1.5, 2.0, 5.0, 20.0)))
@settings(max_examples=30, deadline=None)
def test_the_evidence_ever_reaches_a_bound_no_more_often_than_it_may(magnitudes, bound):
    ever = [max(path) >= bound for path in evidence_paths(magnitudes)]
    assert np.mean(ever) <= 1 / bound


@given(st.floats(-50, 50), st.floats(1e-3, 10), st.floats(0, 50))
def test_a_bet_is_odd_bounded_and_monotone(x, scale, more):
    assert bet(-x, scale) == -bet(x, scale)
    assert -1 <= bet(x, scale) <= bet(x + more, scale) <= 1


def test_the_most_evidence_is_that_of_pairs_which_all_win():
    wealth = Wealth()
    for _ in range(7):
        wealth.add(1.0)
    assert most_log_evidence(7) == pytest.approx(wealth.log)


@given(st.lists(st.floats(-1, 1), max_size=12), st.floats(0.1, 12))
def test_the_soonest_end_is_that_of_scores_which_are_all_one(scores, log):
    wealth, ahead = Wealth(), Wealth()
    for score in scores:
        wealth.add(score)
        ahead.add(score)
    count = wealth.soonest(log)
    for _ in range(count - 1):
        ahead.add(1.0)
    assert count == 1 or ahead.log < log
    ahead.add(1.0)
    assert ahead.log >= log


def test_evidence_stays_finite_for_json():
    assert math.isfinite(from_log(1e6))
    assert from_log(math.log(20.0)) == pytest.approx(20.0)


def rank_p_by_enumeration(values):
    magnitudes = np.abs(values)
    ranks = np.array([(np.sum(magnitudes < m) + np.sum(magnitudes <= m) + 1) / 2 for m in magnitudes])
    observed = ranks[np.array(values) > 0].sum()
    patterns = list(itertools.product((0, 1), repeat=len(values)))
    return sum(float(np.dot(p, ranks)) >= observed - 1e-9 for p in patterns) / len(patterns)


@given(st.lists(st.integers(-4, 4), min_size=1, max_size=9))
@settings(max_examples=60, deadline=None)
def test_signed_rank_p_counts_the_sign_patterns_also_with_ties_and_zeros(values):
    assert signed_rank_p(values) == pytest.approx(rank_p_by_enumeration(values))


def test_signed_rank_p_of_nothing_and_of_many():
    assert signed_rank_p([]) == 1.0
    assert signed_rank_p([0.01 + 1e-5 * i for i in range(100)]) == pytest.approx(2.0**-100)


@given(st.integers(0, 12), st.integers(0, 12))
def test_sign_p_is_the_share_of_coin_patterns(wins, losses):
    n = wins + losses
    heads = np.array([bin(i).count("1") for i in range(2 ** min(n, 12))])
    if n <= 12:
        assert sign_p(wins, losses) == pytest.approx(np.mean(heads >= wins))
    assert 0 < sign_p(wins, losses) <= 1


def test_noise_scale_is_robust_and_has_a_floor():
    rng = np.random.default_rng(0)
    clean = rng.normal(0.0, 0.01, 400)
    dirty = np.concatenate([clean, np.full(40, 1.0)])
    assert noise_scale(clean) == pytest.approx(0.01, rel=0.15)
    assert noise_scale(dirty) == pytest.approx(0.01, rel=0.35)
    assert noise_scale([0.0] * 10) > 0
    assert noise_scale(clean, step=0.05) == 0.05
    assert noise_scale(clean, step=math.inf) == noise_scale(clean)


def test_timer_step_finds_the_grid_of_a_coarse_timer():
    rng = np.random.default_rng(1)
    true = rng.normal(13.3e-3, 1e-4, 60)
    ticks = np.round(true / 2.048e-3) * 2.048e-3
    assert timer_step([*ticks, ticks[0] + 2.048e-3, *ticks]) == pytest.approx(
        2.048e-3 / np.median(ticks), rel=1e-6
    )
    assert timer_step([1.0, 1.0 + 1e-9, 1.1, 1.1 - 1e-9] * 5) == pytest.approx(0.1 / 1.05)


def test_timer_step_of_equal_samples_is_unknown_and_few_samples_tell_nothing():
    assert timer_step([0.5] * 20) == math.inf
    assert timer_step([0.5] * 7) is None


@given(st.integers(0, 10_000), st.sampled_from((8, 40, 400)), st.floats(1e-3, 0.05))
@settings(max_examples=50)
def test_timer_step_sees_none_in_continuous_samples(seed, n, sigma):
    assert timer_step(np.exp(np.random.default_rng(seed).normal(0, sigma, n))) is None
