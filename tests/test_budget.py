from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from boosterrun.decision.budget import confirm_quota, hopeful_gain, smallest_detectable_gain
from boosterrun.decision.pairs import Protocol


def test_what_can_be_detected_depends_on_noise_budget_and_family():
    protocol = Protocol()
    assert smallest_detectable_gain(0.001, 30, protocol) == protocol.min_gain
    base = smallest_detectable_gain(0.05, 30, protocol)
    assert smallest_detectable_gain(0.1, 30, protocol) > 1.9 * base
    assert smallest_detectable_gain(0.05, 3000, protocol) > base
    assert smallest_detectable_gain(0.05, 30, replace(protocol, max_pairs=300)) < base
    assert protocol.min_gain < hopeful_gain(0.05, 30, protocol) < base


@given(st.floats(3.0, 40.0), st.integers(4, 60), st.integers(1, 10_000), st.integers(1, 8))
def test_the_share_of_a_session_keeps_to_the_budget(log_plus, screened, family, sessions):
    protocol = Protocol(confirm_sessions=sessions)
    quota = confirm_quota(log_plus, screened, family, protocol)
    assert quota * sessions <= protocol.confirm_max_pairs
    assert quota * sessions >= protocol.confirm_min_pairs
