"""What a check found: good, worth knowing, or in the way of a run; each with its fix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """How bad a finding is. Only FAIL is in the way of a run."""

    PASS = "PASS"  # noqa: S105 - no password # nosec B105
    WARN = "WARN"
    FAIL = "FAIL"


@dataclass(frozen=True)
class Finding:
    """One line of the screen. ``fix`` says what to do, and is empty when there is nothing to do."""

    status: Status
    subject: str
    detail: str
    fix: str = ""


def passed(subject: str, detail: str) -> Finding:
    """As it should be."""
    return Finding(Status.PASS, subject, detail)


def warning(subject: str, detail: str, fix: str) -> Finding:
    """A run works, but its results may be worse, fewer or slower than they could be."""
    return Finding(Status.WARN, subject, detail, fix)


def failure(subject: str, detail: str, fix: str) -> Finding:
    """A run cannot work, or would not measure what it says."""
    return Finding(Status.FAIL, subject, detail, fix)


def worst(findings: Sequence[Finding]) -> Status:
    """The worst status among ``findings``; PASS when there are none."""
    order = list(Status)
    return max((finding.status for finding in findings), key=order.index, default=Status.PASS)
