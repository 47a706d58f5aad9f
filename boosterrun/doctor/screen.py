"""Findings as one screen of text, or as JSON."""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Sequence

from boosterrun.doctor.finding import Finding, Status, worst

COLUMNS = 100
_STATUS = 6
_SUBJECT = 18
_COLOURS = {Status.PASS: "32", Status.WARN: "33", Status.FAIL: "31;1"}


def text(findings: Sequence[Finding], *, colour: bool) -> str:
    """The findings in aligned columns of 100 characters, and a line that counts them.

    A word that is longer than its column, such as a path, is not broken: it can be copied.
    """
    lines = [line for finding in findings for line in _lines(finding, colour)]
    counts = Counter(finding.status for finding in findings)
    lines.append(", ".join(f"{counts[status]} {status}" for status in reversed(Status)))
    return "\n".join(lines) + "\n"


def document(findings: Sequence[Finding], title: str) -> str:
    """The findings as JSON: schema_version, about, worst, findings."""
    listed = [
        {"status": f.status, "subject": f.subject, "detail": f.detail, "fix": f.fix or None} for f in findings
    ]
    content = {"schema_version": 1, "about": title, "worst": worst(findings), "findings": listed}
    return json.dumps(content, indent=1) + "\n"


def _lines(finding: Finding, colour: bool) -> list[str]:
    status = f"{finding.status:<{_STATUS}}"
    if colour:
        status = f"\x1b[{_COLOURS[finding.status]}m{status}\x1b[0m"
    subject = _plain(finding.subject)
    wide = len(subject) >= _SUBJECT
    margin = " " * (_STATUS + _SUBJECT)
    wrapped = _wrapped(_plain(finding.detail), "")
    first = [f"{status}{subject}"] if wide else []
    rest = [margin + line for line in wrapped]
    if not wide:
        rest[0] = f"{status}{subject:<{_SUBJECT}}{wrapped[0]}"
    fix = [margin + line for line in _wrapped(_plain(finding.fix), "-> ")] if finding.fix else []
    return [*first, *rest, *fix]


def _wrapped(words: str, mark: str) -> list[str]:
    width = COLUMNS - _STATUS - _SUBJECT
    return textwrap.wrap(
        words,
        width,
        initial_indent=mark,
        subsequent_indent=" " * len(mark),
        break_long_words=False,
        break_on_hyphens=False,
    ) or [mark]


def _plain(words: str) -> str:
    """One line without control characters: what a driver or a compiler says may hold any."""
    return " ".join("".join(c if c.isprintable() else " " for c in words).split())
