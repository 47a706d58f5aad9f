"""What came of each fault, one line of JSON per cell: the table is made from these."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from faults import cells
from faults.harness import Outcome, Sweep

RECORD = "BOOSTERRUN_TEST_FAULTS"
"""Folder for the lines; with it, the whole matrix is tested."""
ALL = RECORD in os.environ
whole_matrix = pytest.mark.skipif(not ALL, reason="only make test-faults runs the whole matrix")

_wrong: list[dict[str, Any]] = []


def note(
    sweep: Sweep,
    fault: str,
    phase: str,
    got: str,
    *runs: Outcome,
    leftovers: Sequence[str] = (),
    others: str = "",
    seconds: float | None = None,
) -> None:
    """Write the line of a cell; :func:`settle` checks.

    ``runs``: the one with the fault, and those after it. ``leftovers``: scratch, parts of files and locks.
    ``others``: what of the other jobs is not as undisturbed. ``seconds``: default those of the first run.
    """
    cell = cells.cell(fault, phase)
    orphans = sum(run.orphans for run in runs)
    line = {
        "phase": phase,
        "fault": fault,
        "adapter": sweep.adapter,
        "expected": list(cell.expected.get(sweep.adapter, cell.expected["*"])),
        "got": got,
        "right": cell.right(sweep.adapter, got) and not orphans and not leftovers and not others,
        "seconds": round(runs[0].seconds if seconds is None else seconds, 2),
        "orphans": orphans,
        "leftovers": list(leftovers),
        "others": others,
    }
    if ALL:
        folder = Path(os.environ[RECORD])
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / f"{os.getpid()}.jsonl").open("a") as stream:
            stream.write(json.dumps(line) + "\n")
    if not line["right"]:
        _wrong.append(line)


def settle() -> None:
    """Fail for the cells noted since the last call that are not as they should be."""
    wrong = [json.dumps(line) for line in _wrong]
    _wrong.clear()
    if wrong:
        pytest.fail("\n".join(wrong), pytrace=False)
