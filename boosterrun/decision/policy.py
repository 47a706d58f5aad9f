"""One decision on a candidate from the decisions on its shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from boosterrun.errors import UsageError

KEPT = "KEPT"
FAILURES = (
    "wrong_result",
    "runtime_error",
    "runtime_timeout",
    "compiler_crash",
    "compile_error",
    "compile_timeout",
    "acf_invalid",
    "toolchain_mismatch",
    "unsupported_stage",
    "acf_not_applied",
)
SLOWER = ("regression", "fat_tail")
NEUTRAL = ("inconclusive", "no_gain", "no_difference", "not_applicable", "identical_code")


class HasReason(Protocol):
    """Anything with a reason, as a Decision has."""

    @property
    def reason(self) -> str | None:
        """KEPT, the reason of a rejection, or None."""


@dataclass(frozen=True)
class Overall:
    """The decision over all shapes; ``reason`` None: a shape has no verdict for no fault of the candidate."""

    reason: str | None
    message: str


def policy(decisions: Mapping[str, HasReason | str | None], every_shape: bool = False) -> Overall:
    """One decision from those of the shapes (a Decision, or its reason).

    A failure on any shape rejects; else a shape without a verdict leaves the whole without one; else a
    regression or a fat tail on any shape rejects; else one shape that gained suffices (with ``every_shape``:
    all must have). Otherwise an inconclusive shape makes the whole inconclusive. Raises UsageError for a
    reason it does not know.
    """
    reasons = {k: d if d is None or isinstance(d, str) else d.reason for k, d in decisions.items()}
    known = (KEPT, None, *FAILURES, *SLOWER, *NEUTRAL)
    if not reasons or any(r not in known for r in reasons.values()):
        raise UsageError(f"cannot merge the decisions {reasons}", "Declare at least one shape")
    order: Sequence[str | None] = (*FAILURES, None, *SLOWER, KEPT, *NEUTRAL)
    if every_shape:
        order = (*FAILURES, None, *SLOWER, *NEUTRAL, KEPT)
    reason = next(r for r in order if r in reasons.values())
    found = _shapes([name for name, r in reasons.items() if r == reason], reasons)
    if reason == KEPT:
        return Overall(KEPT, f"Faster on {found}, slower on none.")
    return Overall(reason, f"{'No verdict' if reason is None else reason} on {found}.")


def _shapes(names: Sequence[str], of: Mapping[str, Any]) -> str:
    return "every shape" if len(names) == len(of) else "shape " + ", ".join(names)
