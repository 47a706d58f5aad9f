"""What came out, for people: one line per job, and at the end a table and what to do next."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from boosterrun.results.record import KEPT
from boosterrun.sweeps.resume import Earlier
from boosterrun.system.visible import one_line, visible

_SHOWN = 20
_SHIP = "ship"


@dataclass(frozen=True)
class Row:
    """One shape on which a candidate was kept; ``gain`` and ``interval`` are fractions."""

    gain: float
    interval: tuple[float, float] | None
    acf: str
    workload: str
    shape: str
    evidence: str
    protocol: str

    @property
    def name(self) -> str:
        """Candidate, workload and shape."""
        return visible(f"{self.acf}  {self.workload}/{self.shape}")


def percent(fraction: float) -> str:
    """A gain for people."""
    return f"{fraction:+.2%}"


def rows(result: Mapping[str, Any]) -> list[Row]:
    """The shapes on which a candidate that was kept has gained."""
    if result["decision"] != KEPT:
        return []
    return [
        Row(
            shape["gain"],
            tuple(shape["interval"]) if shape["interval"] else None,
            result["job"]["id"],
            result["workload"]["name"],
            shape["name"],
            result["evidence"],
            str(result["config"].get("protocol", {}).get("name", "")),
        )
        for shape in result["shapes"]
        if shape["decision"] == KEPT
    ]


def report(number: int, jobs: int, result: Mapping[str, Any]) -> str:
    """One line about one finished job."""
    width = len(str(jobs))
    verdict = result["decision"] if result["status"] == "decided" else "UNDECIDED"
    message = one_line(str(result["message"]))
    name = visible(f"{result['job']['id']}  {verdict}  {result['workload']['name']}")
    when = " (done before)" if isinstance(result, Earlier) else ""
    return f"[{number:>{width}}/{jobs}] {name}{when}: {message}"


def table(kept: Sequence[Row], judged: int, folder: Path) -> list[str]:
    """The kept candidates of ``judged`` decided jobs in ``folder``, best first, and what to do next."""
    if not judged:
        return []
    best = sorted(kept, key=lambda row: -row.gain)
    width = max((len(row.name) for row in best[:_SHOWN]), default=0)
    lines = [
        f"  {percent(row.gain):>8}  {row.name:<{width}}{_interval(row)}".rstrip() for row in best[:_SHOWN]
    ]
    if len(best) > _SHOWN:
        lines.append(f"  and {len(best) - _SHOWN} more, see the log")
    return [*(["kept, by gain:"] if lines else []), *lines, f"next: {_advice(best, folder)}"]


def _interval(row: Row) -> str:
    if row.interval is None:
        return ""
    return f"  repeated: {percent(row.interval[0])} to {percent(row.interval[1])}"


def _advice(best: Sequence[Row], folder: Path) -> str:
    if not best:
        return "no ACF of this sweep helps this workload; search for one made for it with CompileIQ"
    if best[0].evidence == "static":
        ids = ",".join(dict.fromkeys(row.acf for row in best[:3]))
        return f"nothing was timed; time the winners on a GPU with a timed workload: -m acf={ids}"
    if best[0].protocol != _SHIP:
        command = shlex.join(["boosterrun", "ship", str(folder), "-o", "kept"])
        return f"before shipping, measure what was kept once more, on every shape: {command}"
    return "ship the best; measure again when the compiler, the kernel or the GPU changes"


def merge(
    folder: Path,
    kept: Sequence[Row] = (),
    judged: int = 0,
    *,
    report: bool = False,
    expected: Sequence[str] = (),
) -> int:
    """Write the log of all results below ``folder`` and say what came out.

    ``kept`` and ``judged`` are of this run, for its table; ``expected``: names of the folders of its jobs.
    Returns 0 if every job was decided, else 1. Raises RunError if the log cannot be written.
    """
    from boosterrun.results.collect import collect  # noqa: PLC0415 - not needed before the first job

    merged = collect([folder], allow_empty=True, expected=expected)
    for decision, count in sorted(merged.decisions.items()):
        sys.stdout.write(f"{count:>6}  {decision}\n")
    if merged.undecided:
        sys.stdout.write(
            f"{merged.undecided:>6}  undecided: no fault of the candidate, see the error column\n"
        )
    if merged.invalid:
        sys.stdout.write(f"{merged.invalid:>6}  without a valid result: {merged.rejects}\n")
    for line in table(kept, judged, folder):
        sys.stdout.write(f"{line}\n")
    if report:
        from boosterrun.report import after_sweep  # noqa: PLC0415 - see above

        after_sweep(folder)
    sys.stdout.write(f"log: {merged.csv}\n")
    sys.stdout.flush()
    return 1 if merged.undecided or merged.invalid else 0
