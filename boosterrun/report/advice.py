"""What to do now, from what came out."""

from __future__ import annotations

import shlex
from pathlib import Path

from boosterrun.report.jobs import Job
from boosterrun.report.model import Report
from boosterrun.system.visible import visible


def next_steps(report: Report) -> list[tuple[str, str]]:
    """Sentences for people, the most important first, each with a command to run or an empty string."""
    jobs = report.jobs
    kept = [job for job in jobs if job.status == "kept"]
    failed = [job for job in jobs if job.status == "failed"]
    undecided = [job for job in jobs if job.status == "undecided"]
    steps: list[tuple[str, str]] = []
    if report.rejects:
        count = len(report.rejects)
        what = "1 result is" if count == 1 else f"{count} results are"
        steps.append((f"{what} missing or not valid, see the end of this report. Run these jobs again.", ""))
    if undecided:
        what = "1 job has" if len(undecided) == 1 else f"{len(undecided)} jobs have"
        why = undecided[0].advice or undecided[0].message
        steps.append((f"{what} no verdict, through no fault of the candidate: {why}", ""))
    if jobs and len(failed) == len(jobs):
        steps.append(
            ("Every candidate failed: read their messages and check the toolchain.", "boosterrun doctor")
        )
    elif kept and report.evidence == "static":
        steps.append(
            (
                "This is a screen of the compiled code, not a validation: fewer spills or instructions need "
                "not be faster, and no result was checked. Time what was kept in a workload that runs it.",
                "",
            )
        )
    elif kept:
        steps.append(
            (
                "Measure what was kept once more before you use it: a gain must reappear in new processes.",
                _again(kept),
            )
        )
    elif jobs and len(failed) + len(undecided) < len(jobs):
        steps.append(("No candidate was kept: leave the kernel as it is, or try another pack.", ""))
    return steps


def _again(kept: list[Job]) -> str:
    """The command that measures again what the first one's sweep kept."""
    folder = Path(kept[0].where).parent.parent
    if folder.is_relative_to(Path.cwd()):
        folder = folder.relative_to(Path.cwd())
    return shlex.join(["boosterrun", "ship", visible(str(folder)), "-o", "kept"])
