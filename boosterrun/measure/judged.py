"""What the shapes of a job say together: the judgement, for the record."""

from __future__ import annotations

from collections.abc import Sequence

from boosterrun.adapters.base import Job, Judgement
from boosterrun.decision import policy
from boosterrun.errors import RunError
from boosterrun.measure.phases import Phases
from boosterrun.measure.trial import METRIC, UNIT, Trial
from boosterrun.results.record import KEPT, rejected


class BaselineFailed(RunError):  # noqa: N818 - names what happened
    """The baseline broke: no candidate's fault, so no decision."""


def judgement(job: Job, trials: Sequence[Trial], phases: Phases) -> Judgement:
    """Put the trials together.

    Raises BaselineFailed for a shape without a verdict, and RunError for a self-test that failed.
    """
    failed = next((t for t in trials if t.rejected and t.rejected.reason != "identical_code"), None)
    reasons: dict[str, str | None] = {}
    messages: dict[str, str] = {}
    for trial in trials:
        reasons[trial.name], messages[trial.name] = trial.reason(), trial.message()
        if failed is not None and failed.rejected is not None and trial.open:
            reasons[trial.name] = failed.rejected.reason
            messages[trial.name] = f"not measured to the end: rejected at shape {failed.name}"
    if job.acf is None:
        overall = _self_test(reasons, messages)
        reasons = dict.fromkeys(reasons, overall.reason)
    else:
        overall = policy.policy(reasons, job.config.protocol.every_shape)
    if overall.reason is None:
        broken = next(name for name, reason in reasons.items() if reason is None)
        advice = "Run the workload by hand without an ACF and mend it"
        raise BaselineFailed(f"shape {broken}: {messages[broken]}", advice)
    said = next((messages[n] for n, r in reasons.items() if r == overall.reason), overall.message)
    return Judgement(
        decision=_word(overall.reason),
        message=said if len(reasons) == 1 or failed is not None else f"{overall.message} {said}",
        shapes=[t.record(_word(reasons[t.name] or ""), messages[t.name]) for t in trials],
        objective={"metric": METRIC, "unit": UNIT, "better": "lower", "tie_breakers": []},
        phases={name: round(seconds, 6) for name, seconds in phases.seconds.items()},
        versions=dict(phases.hello.versions) if phases.hello else {},
        stages=phases.stages.readings,
    )


def _word(reason: str) -> str:
    return KEPT if reason == KEPT else rejected(reason)


def _self_test(reasons: dict[str, str | None], messages: dict[str, str]) -> policy.Overall:
    """The baseline against itself may only end as "no difference"."""
    for shape, reason in reasons.items():
        if reason not in ("no_gain", "inconclusive"):
            raise RunError(
                f"self-test failed: the baseline against itself is {reason} on {shape}: {messages[shape]}",
                "Trust nothing measured here before it passes; look for other users of the GPU",
            )
    return policy.Overall("no_difference", "The baseline does not differ from itself: no difference.")
