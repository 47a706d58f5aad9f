import importlib.util
import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boosterrun.decision.decide import Decider, Pair, Protocol, decide
from boosterrun.errors import UsageError

H200 = json.loads((Path(__file__).parent / "data" / "h200_pairs.json").read_text())["runs"]


class Machine:
    """Draws blocks of log-normal launches; the candidate is faster by ``gain``, and what else it may do."""

    def __init__(self, seed, gain=0.0, sigma=0.005, launches=10, spoil=None):
        self.rng = np.random.default_rng(seed)
        self.gain, self.sigma, self.launches, self.spoil = gain, sigma, launches, spoil

    def block(self, gain):
        return tuple(np.exp(self.rng.normal(0, self.sigma, self.launches)) / (1 + gain))

    def pair(self, phase, session):
        order = "bc" if self.rng.random() < 0.5 else "cb"
        gain = 0.0 if phase == "calibrate" else self.gain
        pair = Pair(phase, session, order, self.block(0.0), self.block(gain))
        return self.spoil(pair, self.rng) if self.spoil else pair


def run(machine, protocol=None, candidates=30, shapes=1, at_most=400):
    """Measure until final, as a runner would; gives the pairs and the decision."""
    decider, pairs = Decider(protocol or Protocol(), candidates, shapes), []
    while (decision := decider.decision()).state != "final":
        pairs.append(machine.pair(decision.phase, decision.session))
        decider.add(pairs[-1])
        assert len(pairs) < at_most
    return pairs, decision


@pytest.mark.parametrize(
    ("gain", "reason"),
    [
        (0.2, "KEPT"),
        (0.05, "KEPT"),
        (0.02, "KEPT"),
        (0.0, "no_gain"),
        (0.003, "no_gain"),
        (-0.05, "regression"),
    ],
)
def test_verdicts_on_a_quiet_machine(gain, reason):
    for seed in range(5):
        pairs, decision = run(Machine(seed, gain))
        assert decision.reason == reason, decision.message
        assert decision.gain == pytest.approx(gain, abs=0.006)
        assert decision.interval[0] <= decision.gain <= decision.interval[1]
        assert len(pairs) < 40


def test_kept_needs_three_fresh_process_pairs_of_equal_weight():
    pairs, decision = run(Machine(1, 0.05))
    sessions = decision.statistics["sessions"]
    assert [s["session"] for s in sessions] == [1, 2, 3]
    assert {s["pairs"] for s in sessions} == {decision.statistics["session_pairs"]}
    assert decision.statistics["gain_from"] == "confirm"
    fresh = [p.log_ratio for p in pairs if p.phase == "confirm"]
    means = [(a + b) / 2 for i, a in enumerate(fresh) for b in fresh[i:]]
    assert decision.gain == pytest.approx(math.expm1(float(np.median(means))))


def test_a_few_fresh_pairs_do_not_yet_stand_for_the_gain():
    pairs, _ = run(Machine(1, 0.05))
    first = next(i for i, p in enumerate(pairs) if p.phase == "confirm")
    assert decide(pairs[: first + 3], Protocol(), 30).statistics["gain_from"] == "screen"
    assert decide(pairs[: first + 4], Protocol(), 30).statistics["gain_from"] == "confirm"


def test_a_new_session_is_asked_for_as_confirm():
    pairs, _ = run(Machine(1, 0.05))
    states = [decide(pairs[:n], Protocol(), 30) for n in range(len(pairs) + 1)]
    asked = [(s.phase, s.session) for s in states if s.state == "confirm"]
    assert asked == [("confirm", 1), ("confirm", 2), ("confirm", 3)]
    assert (states[0].state, states[0].phase) == ("continue", "calibrate")
    assert {s.reason for s in states[:-1]} == {None}
    for state, pair in zip(states, pairs, strict=False):
        assert (state.phase, state.session) == (pair.phase, pair.session)


@given(st.integers(0, 10**6), st.sampled_from((-0.03, 0.0, 0.012, 0.04)), st.sampled_from((0.003, 0.03)))
@settings(max_examples=15, deadline=None)
def test_replay_gives_the_same_to_the_bit_and_a_final_decision_stays(seed, gain, sigma):
    machine = Machine(seed, gain, sigma, launches=3)
    pairs, decision = run(machine)
    assert decide(pairs, Protocol(), 30) == decision
    assert decide(pairs[:-1], Protocol(), 30).state != "final"
    late = [machine.pair("screen", 9), machine.pair("calibrate", 0)]
    assert decide([*pairs, *late], Protocol(), 30) == decision
    json.dumps(decision.statistics, allow_nan=False)


@given(st.integers(0, 10**6), st.sampled_from((0.0, 0.04)), st.floats(1e-3, 1e3), st.integers(-8, 8))
@settings(max_examples=15, deadline=None)
def test_the_unit_and_the_order_labels_do_not_matter(seed, gain, unit, power):
    pairs, decision = run(Machine(seed, gain, 0.01, launches=3))

    def scaled(factor, order=None):
        return [
            replace(
                p,
                order=order or p.order,
                baseline=tuple(v * factor for v in p.baseline),
                candidate=tuple(v * factor for v in p.candidate),
            )
            for p in pairs
        ]

    assert decide(scaled(2.0**power, "bc"), Protocol(), 30) == decision  # exact: powers of two lose no bit
    other = decide(scaled(unit), Protocol(), 30)
    assert (other.state, other.reason) == (decision.state, decision.reason)
    assert other.gain == pytest.approx(decision.gain, abs=1e-9)


@given(st.integers(0, 10**6), st.floats(-0.2, 0.2))
@settings(max_examples=25, deadline=None)
def test_swapping_the_sides_flips_the_sign_of_the_gain(seed, gain):
    protocol = Protocol(method="quick", trials=6, confirm_sessions=1)
    pairs, decision = run(Machine(seed, gain), protocol)
    swapped = decide([replace(p, baseline=p.candidate, candidate=p.baseline) for p in pairs], protocol)
    assert math.log1p(swapped.gain) == pytest.approx(-math.log1p(decision.gain), abs=1e-12)
    assert math.log1p(swapped.interval[0]) == pytest.approx(-math.log1p(decision.interval[1]), abs=1e-12)


def test_a_larger_family_needs_more_evidence():
    pairs, one = run(Machine(3, 0.03, 0.02), candidates=1)
    many = decide(pairs, Protocol(), candidates=500, shapes=20)
    assert one.reason == "KEPT"
    assert many.state != "final"
    assert many.statistics["e_needed"] == pytest.approx(10_000 * one.statistics["e_needed"])
    assert decide(pairs, Protocol(), 6, 5).statistics["family"] == 30


def fail(side, chance):
    def spoil(pair, rng):
        if pair.phase == "calibrate" or rng.random() >= chance:
            return pair
        return replace(pair, **{side: (*getattr(pair, side)[1:], math.nan)})

    return spoil


def test_a_failed_launch_of_the_candidate_rejects_it():
    _, decision = run(Machine(1, 0.5, spoil=fail("candidate", 0.3)))
    assert decision.reason == "runtime_error"
    assert decision.statistics["candidate_failures"] == 1
    assert "1 launches of the candidate failed" in decision.message


def test_a_failed_launch_of_the_baseline_leaves_no_verdict():
    _, decision = run(Machine(1, 0.5, spoil=fail("baseline", 0.3)))
    assert decision.state == "final" and decision.reason is None
    assert decision.statistics["baseline_failures"] == 1


def test_tolerated_failures_count_as_slow_and_a_candidate_that_fails_often_is_never_kept():
    tolerant = Protocol(max_failures=1000)
    assert run(Machine(1, 0.5, spoil=fail("candidate", 0.1)), tolerant)[1].reason == "KEPT"
    broken = Machine(2, 0.5, launches=1, spoil=fail("candidate", 0.5))
    assert run(broken, tolerant)[1].reason != "KEPT"


def voided(share):
    return lambda pair, rng: replace(pair, void="throttled") if rng.random() < share else pair


def test_voided_pairs_count_only_as_voided():
    pairs, decision = run(Machine(4, 0.05, spoil=voided(0.2)))
    counted = [p for p in pairs if p.void is None]
    assert decision.reason == "KEPT"
    assert decision.statistics["voids"] == len(pairs) - len(counted) > 0
    assert decide(counted, Protocol(), 30).gain == decision.gain


def test_a_machine_that_is_disturbed_all_the_time_is_inconclusive():
    pairs, decision = run(Machine(4, 0.05, spoil=voided(1.0)))
    assert decision.reason == "inconclusive"
    assert "disturbed" in decision.message
    assert len(pairs) == Protocol().max_voids + 1


def test_pairs_dropped_for_a_change_of_timer_are_no_disturbance():
    pairs = [Pair("calibrate", 0, "bc", (1.0,), (1.0,), void="timer")] * 50
    decision = decide(pairs, Protocol())
    assert (decision.state, decision.statistics["voids"]) == ("continue", 0)


def coarse(step):
    def spoil(pair, rng):
        sides = {
            s: tuple(np.round(np.array(getattr(pair, s)) / step) * step) for s in ("baseline", "candidate")
        }
        return replace(pair, **sides)

    return spoil


@pytest.mark.parametrize("gain", [0.0, 0.03, 0.2])
def test_a_timer_too_coarse_asks_for_batches_and_never_keeps(gain):
    pairs, decision = run(Machine(5, gain, 0.02, spoil=coarse(0.02)))
    assert decision.statistics["needs_batching"]
    assert decide(pairs[:10], Protocol()).statistics["needs_batching"]
    assert decision.reason == "inconclusive", decision.message


def test_equal_samples_hide_the_timers_step():
    _, decision = run(Machine(5, 0.0, sigma=0.0))
    assert decision.reason == "inconclusive"
    assert decision.statistics["needs_batching"] and decision.statistics["timer_step"] is None


def test_a_fine_timer_does_not_matter():
    _, decision = run(Machine(5, 0.03, 0.02, spoil=coarse(0.0005)))
    assert decision.reason == "KEPT"
    assert not decision.statistics["needs_batching"]


def test_a_coarse_timer_still_shows_a_regression():
    assert run(Machine(5, -0.3, 0.02, spoil=coarse(0.02)))[1].reason == "regression"


def tail(pair, rng):
    if pair.phase == "calibrate":
        return pair
    slow = np.where(rng.random(len(pair.candidate)) < 0.2, 1.3, 1.0)
    return replace(pair, candidate=tuple(np.array(pair.candidate) * slow))


def test_a_faster_median_with_a_fat_tail_is_not_kept():
    _, decision = run(Machine(6, 0.05, spoil=tail))
    assert decision.reason == "fat_tail"
    assert decision.statistics["tail"]["slow_candidate"] > 5 > decision.statistics["tail"]["slow_baseline"]


def test_too_much_noise_is_told_as_such():
    ends = [run(Machine(seed, 0.0, sigma=0.1, launches=1))[1] for seed in range(12)]
    assert sum(d.reason == "inconclusive" for d in ends) >= 11
    assert any("drowns in the noise" in d.message for d in ends)
    assert min(d.statistics["smallest_detectable_gain"] for d in ends) > 0.02


def test_no_verdict_before_the_least_number_of_pairs():
    _, decision = run(Machine(1, 0.0), Protocol(min_pairs=12))
    assert decision.statistics["pairs"]["screen"] == 12
    _, decision = run(Machine(1, 0.3), Protocol(min_pairs=12))
    assert decision.statistics["pairs"]["screen"] == 12


def test_a_session_cut_short_is_followed_by_another():
    pairs, decision = run(Machine(8, 0.05))
    quota = decision.statistics["session_pairs"]
    first = next(i for i, p in enumerate(pairs) if p.phase == "confirm")
    cut = [*pairs[: first + quota - 1], *(replace(p, session=p.session) for p in pairs[first + quota :])]
    state = decide(cut, Protocol(), 30)
    assert (state.state, state.phase, state.session) == ("confirm", "confirm", 4)
    more = [replace(p, session=4) for p in pairs[first : first + quota]]
    assert decide([*cut, *more], Protocol(), 30).reason == "KEPT"


@pytest.mark.parametrize(("phase", "session"), [("screen", 0), ("confirm", 1)])
def test_a_pair_that_is_not_due_is_refused(phase, session):
    with pytest.raises(UsageError, match="is due"):
        decide([Pair(phase, session, "bc", (1.0,), (1.0,))], Protocol())


def test_a_protocol_that_cannot_decide_is_refused_at_once():
    with pytest.raises(UsageError, match="trials=8"):
        decide([], Protocol(method="fixed", trials=8), candidates=30)


@pytest.mark.parametrize(
    ("gain", "reason"),
    [(0.05, "KEPT"), (0.02, "KEPT"), (0.0, "no_gain"), (-0.05, "regression"), (0.005, "no_gain")],
)
def test_fixed_counts_then_decides_once(gain, reason):
    protocol = Protocol(method="fixed", trials=30)
    pairs, decision = run(Machine(9, gain), protocol)
    assert decision.reason == reason, decision.message
    assert [(p.phase, p.session) for p in pairs] == [("confirm", s) for s in (1, 2, 3) for _ in range(10)]
    assert decision.statistics["p_value"] <= 1
    assert decide(pairs[:29], protocol, 30).state != "final"


def test_fixed_with_a_remainder_takes_the_count_in_all():
    pairs, _ = run(Machine(9, 0.05), Protocol(method="fixed", trials=31))
    assert len(pairs) == 31


def test_a_count_takes_all_its_sessions_even_when_there_are_few_pairs():
    pairs, _ = run(Machine(9, 0.05), Protocol(method="quick", trials=4))
    assert {p.session for p in pairs} == {1, 2, 3}


def test_fixed_in_too_much_noise_is_inconclusive():
    reasons = {run(Machine(s, 0.01, 0.05, launches=1), Protocol(method="fixed"))[1].reason for s in range(6)}
    assert "inconclusive" in reasons and "KEPT" not in reasons


def test_quick_says_that_it_controls_nothing():
    protocol = Protocol(method="quick", trials=5, confirm_sessions=1)
    pairs, decision = run(Machine(9, 0.05), protocol)
    assert (decision.reason, len(pairs)) == ("KEPT", 5)
    assert "controls no error rate" in decision.message


def h200(acf=None):
    runs = {}
    for r in H200:
        if acf is None or (r["acf"] == "none") == (acf == "none"):
            runs.setdefault((r["kernel"], r["acf"]), []).append(r["pairs"])
    return runs


def replay(sessions, noise):
    """Feed recorded sessions (first: the screen) to a decision for as long as it asks; the last decision."""
    decider = Decider(Protocol(), candidates=1)
    left = [list(enumerate(s)) for s in ([*noise], *sessions)]
    while (decision := decider.decision()).state != "final":
        number = {"calibrate": 0, "screen": 1}.get(decision.phase, 1 + decision.session)
        if number >= len(left) or not left[number]:
            return decision
        i, (b, c) = left[number].pop(0)
        decider.add(Pair(decision.phase, decision.session, "cb" if i % 2 else "bc", (b,), (c,)))
    return decision


def test_no_baseline_against_baseline_run_of_an_h200_is_kept():
    replayed = finished = 0
    for runs in h200("none").values():
        for shift in range(len(runs)):
            turned = runs[shift:] + runs[:shift]
            decision = replay(turned[1:], noise=turned[0])
            assert decision.reason != "KEPT", decision.message
            replayed += 1
            finished += decision.state == "final"
    assert (replayed, finished) == (16, 16)


def test_no_single_process_pair_of_an_h200_can_be_kept():
    noise = {kernel: runs[0] for (kernel, _), runs in h200("none").items()}
    seen = set()
    for (kernel, _), runs in h200().items():
        for r in runs:
            decision = replay([r], noise[kernel])
            seen.add(decision.reason or decision.state)
    assert "KEPT" not in seen
    assert seen >= {"no_gain", "regression"}


@pytest.fixture(scope="module")
def benchmark():
    path = Path(__file__).parents[1] / "benchmarks" / "decision_rates.py"
    spec = importlib.util.spec_from_file_location("decision_rates", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up there
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("noise", ["iid 2%", "kitchen sink", "process offsets sd 0.5%, s=0.5%"])
def test_the_simulation_agrees_with_decide_and_keeps_no_null(benchmark, noise):
    rates = benchmark.rates(benchmark.NOISES[noise], Protocol(), sweeps=20, seed=11, sample=40)
    assert rates["replayed_through_decide"] >= 100
    assert rates["false_keep_per_null_sweep"] <= 0.05
    assert rates["kept"]["0.05"] == rates["kept"]["0.2"] == 1.0
    assert max(rates["launches_null"], rates["launches_mix"]) <= 75


def guarded(gain, count=12, void=0):
    """A shape whose screen showed nothing, then pairs in fresh processes that gain so much."""
    decider = Decider(Protocol())
    for pair in run(Machine(5, sigma=0.002))[0]:
        decider.add(pair)
    assert decider.reason == "no_gain"
    machine = Machine(6, gain, sigma=0.002)
    for number in range(count):
        pair = machine.pair("guard", 1 + number // 4)
        decider.add(replace(pair, void="throttle") if number < void else pair)
    return decider


@pytest.mark.parametrize(("gain", "reason"), [(-0.02, "regression"), (0.0, "no_gain"), (0.02, "no_gain")])
def test_a_shape_that_did_not_gain_is_looked_at_for_a_loss_in_fresh_processes(gain, reason):
    decision = guarded(gain).decision()
    assert decision.reason == reason
    assert decision.gain == pytest.approx(gain, abs=0.003)
    assert decision.statistics["gain_from"] == "guard"
    assert decision.statistics["pairs"]["guard"] == 12


def test_a_guard_counts_whole_or_not_at_all_and_no_pair_of_it_twice():
    decider = guarded(-0.02, count=11)
    assert decider.reason == "no_gain"
    assert decider.decision().statistics["gain_from"] == "screen"
    # What was cut short in session 3 may be made up for in other processes.
    assert [decider.guards(session) for session in (0, 1, 2, 3, 4)] == [False, False, False, True, True]
    assert guarded(-0.02, count=12, void=1).reason == "no_gain"
    whole = guarded(-0.02, count=12)
    assert not any(whole.guards(session) for session in range(5))
    before = whole.decision()
    whole.add(Pair("guard", 3, "bc", (1.0,), (9.0,)))
    assert whole.decision() == before


def test_a_launch_that_fails_in_a_guard_rejects_the_candidate_or_leaves_no_verdict():
    for failed, reason in (((1.0,), (None,)), "runtime_error"), (((None,), (1.0,)), None):
        decider = guarded(0.0, count=3)
        decider.add(Pair("guard", 1, "bc", *failed))
        assert decider.decision().state == "final"
        assert decider.reason == reason


def test_only_what_was_screened_without_a_gain_is_guarded():
    open_still, kept = Decider(Protocol()), Decider(Protocol())
    assert not open_still.guards(1)
    with pytest.raises(UsageError):
        open_still.add(Pair("guard", 1, "bc", (1.0,), (1.0,)))
    for pair in run(Machine(7, 0.05))[0]:
        kept.add(pair)
    assert kept.reason == "KEPT"
    assert not kept.guards(1)


PROTOCOLS = [
    Protocol(),
    Protocol(method="fixed", trials=12),
    Protocol(method="fixed", trials=40),
    Protocol(method="quick", trials=4, confirm_sessions=1),
    Protocol(max_voids=2),
    Protocol(futility_evidence=1.5),
]


@settings(max_examples=150, deadline=None)
@given(
    protocol=st.sampled_from(PROTOCOLS),
    gains=st.lists(st.sampled_from([-0.3, -0.01, 0.0, 0.012, 0.05, 0.3]), min_size=1, max_size=8),
    voids=st.sampled_from([0.0, 0.1, 0.6]),
    renewed=st.integers(0, 60),
    seed=st.integers(0, 99),
)
def test_no_pair_before_the_next_look_is_one_too_many(protocol, gains, voids, renewed, seed):
    """Whatever a candidate does from pair to pair, and though the processes be renewed."""
    machine = Machine(seed)
    decider, count = Decider(protocol, 5), 0
    while decider.decision().state != "final" and count < 300:
        due, wanted = (decider.phase, decider.session), decider.certain()
        assert wanted >= 1
        for number in range(wanted):
            assert not decider.final
            assert number == 0 or (decider.phase, decider.session) == due
            machine.gain = gains[count % len(gains)]
            pair = machine.pair(*due)
            void = "disturbed" if machine.rng.random() < voids else None
            decider.add(replace(pair, void=void))
            count += 1
        if count >= renewed > 0:
            decider.renew()
            renewed = 0


def test_a_look_comes_after_as_many_pairs_as_can_be():
    decider, looks = Decider(Protocol(), 30), []
    machine = Machine(0, 0.2)
    while (decision := decider.decision()).state != "final":
        looks.append((decision.phase, decider.certain()))
        for _ in range(looks[-1][1]):
            decider.add(machine.pair(decision.phase, decision.session))
    assert decider.reason == "KEPT"
    assert looks[:2] == [("calibrate", 10), ("screen", 4)]
    assert [most for phase, most in looks if phase == "confirm"] == [decider.quota] * 3
