import pytest

from boosterrun.decision.policy import policy
from boosterrun.errors import UsageError


@pytest.mark.parametrize(
    ("shapes", "overall", "every"),
    [
        (["KEPT"], "KEPT", "KEPT"),
        (["KEPT", "no_gain"], "KEPT", "no_gain"),
        (["KEPT", "inconclusive"], "KEPT", "inconclusive"),
        (["KEPT", "identical_code"], "KEPT", "identical_code"),
        (["KEPT", "regression"], "regression", "regression"),
        (["KEPT", "fat_tail"], "fat_tail", "fat_tail"),
        (["KEPT", "wrong_result"], "wrong_result", "wrong_result"),
        (["regression", "runtime_error"], "runtime_error", "runtime_error"),
        (["KEPT", None], None, None),
        (["regression", None], None, None),
        (["wrong_result", None], "wrong_result", "wrong_result"),
        (["no_gain", "inconclusive"], "inconclusive", "inconclusive"),
        (["no_gain", "identical_code"], "no_gain", "no_gain"),
        (["identical_code", "identical_code"], "identical_code", "identical_code"),
        (["acf_not_applied", "compile_timeout"], "compile_timeout", "compile_timeout"),
    ],
)
def test_one_decision_from_those_of_the_shapes(shapes, overall, every):
    decisions = {f"s{i}": reason for i, reason in enumerate(shapes)}
    backwards = dict(reversed(decisions.items()))
    assert policy(decisions).reason == policy(backwards).reason == overall
    assert policy(decisions, every_shape=True).reason == every


def test_the_message_names_the_shapes():
    assert "s1" in policy({"s0": "KEPT", "s1": "regression"}).message
    assert "every shape" in policy({"s0": "KEPT", "s1": "KEPT"}).message


@pytest.mark.parametrize("decisions", [{}, {"s0": "continue"}])
def test_what_cannot_be_merged_is_refused(decisions):
    with pytest.raises(UsageError):
        policy(decisions)
