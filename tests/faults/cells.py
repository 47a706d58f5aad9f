"""The fault matrix: what must come of each fault in each phase, or why the question makes no sense.

What is expected, in the words of the table: ``same``: the decision of an undisturbed sweep; a reason: the
candidate is rejected for it; ``none``: no decision, told in one line, and the same command decides later;
``stopped``: the sweep ends with one line before it has decided anything, and the same command does all later;
``resumed``: the run is gone, and going on ends with the decisions of an undisturbed sweep.
"""

from __future__ import annotations

from dataclasses import dataclass

PHASES = {
    "pack": "pack read",
    "canary": "canary",
    "build": "build",
    "check": "check",
    "calibrate": "calibrate",
    "pairs": "pairs",
    "confirm": "confirm",
    "write": "write",
    "merge": "merge",
}
FAULTS = {
    "exit": "exits",
    "crash": "crashes by a signal",
    "hang": "hangs",
    "ignore_sigterm": "hangs and ignores SIGTERM",
    "daemon": "leaves a daemon that keeps the pipe",
    "flood": "prints 1 GiB",
    "memory": "allocates until it is killed",
    "disk_full": "fills the disk",
    "folder_deleted": "deletes its folder",
    "writes_elsewhere": "writes into other jobs' folders",
    "fake_messages": "prints fake messages",
    "nan": "returns NaN",
    "negative": "returns negative numbers",
    "zero": "returns zeros",
    "huge": "returns 1e308",
    "clock": "the clock jumps by days",
    "runner_killed": "the runner gets SIGKILL",
    "truncated": "what is on the disk is cut in half",
    "csv_locked": "the log is open and locked elsewhere",
}
SIDES = ("build", "check", "calibrate", "pairs", "confirm")


@dataclass(frozen=True)
class Cell:
    """``expected``: outcomes that are right, by adapter where they differ. ``reason``: why there is none."""

    expected: dict[str, tuple[str, ...]]
    reason: str = ""

    def right(self, adapter: str, got: str) -> bool:
        """Whether this is what must come of it."""
        return got in self.expected.get(adapter, self.expected["*"])


def _is(*expected: str, **by_adapter: str) -> Cell:
    return Cell({"*": expected, **{name: (word,) for name, word in by_adapter.items()}})


def _none(reason: str) -> Cell:
    return Cell({}, reason)


_NO_CODE = "no foreign code runs: the runner itself reads the pack"
_OVER = "both sides have ended before a result is written"
_NO_WORKER = "no worker is left when results are merged"
_NO_NUMBERS = "nothing is returned that is a number"
_NO_LOG = "the log is only opened by the merge"
_PACK_MEMORY = "archives are read within limits: tests/test_packs_archive.py"


def _side(build: str, run: str, **by_adapter: str) -> dict[str, Cell]:
    """A candidate's fault; in the calibration the baseline's, which is no candidate's fault."""
    cells = {phase: _is(run) for phase in ("check", "pairs", "confirm")}
    return {"build": _is(build, **by_adapter), "calibrate": _is("same" if run == "same" else "none"), **cells}


def _phases(
    sides: dict[str, Cell], canary: str, pack: str = "", write: str = "", merge: str = ""
) -> dict[str, Cell]:
    return {
        "pack": _is(pack) if pack else _none(_NO_CODE),
        "canary": _is(canary),
        **sides,
        "write": _is(write) if write else _none(_OVER),
        "merge": _is(merge) if merge else _none(_NO_WORKER),
    }


def _all(outcome: str) -> dict[str, Cell]:
    return {phase: _is(outcome) for phase in SIDES}


def _numbers() -> dict[str, Cell]:
    return {
        **{
            phase: _none(_NO_CODE if phase == "pack" else _NO_NUMBERS)
            for phase in ("pack", "canary", "build")
        },
        "check": _is("wrong_result"),
        "calibrate": _is("none"),
        "pairs": _is("runtime_error"),
        "confirm": _is("runtime_error"),
        "write": _none(_OVER),
        "merge": _none(_NO_WORKER),
    }


CELLS: dict[str, dict[str, Cell]] = {
    "exit": _phases(_side("compile_error", "runtime_error"), "stopped"),
    "crash": _phases(_side("compile_error", "runtime_error", ptxas="compiler_crash"), "stopped"),
    "hang": _phases(_side("compile_timeout", "runtime_timeout"), "stopped", pack="stopped"),
    "ignore_sigterm": _phases(_side("compile_timeout", "runtime_timeout"), "stopped"),
    "daemon": _phases(_side("same", "same"), "same"),
    "flood": _phases(_side("same", "same"), "same", pack="stopped"),
    "memory": {
        **_phases(_side("compile_error", "runtime_error", ptxas="compiler_crash"), "stopped"),
        "pack": _none(_PACK_MEMORY),
    },
    "disk_full": _phases(_all("none"), "stopped", pack="stopped", write="none", merge="none"),
    "folder_deleted": _phases(
        {**_all("none"), "calibrate": _is("same")}, "stopped", pack="stopped", write="none", merge="none"
    ),
    "writes_elsewhere": _phases(_all("same"), "same"),
    "fake_messages": _phases(_all("same"), "same"),
    "nan": _numbers(),
    "negative": _numbers(),
    "zero": _numbers(),
    "huge": _numbers(),
    "clock": _phases(_all("same"), "same", pack="same", write="same", merge="same"),
    "runner_killed": _phases(_all("resumed"), "resumed", pack="resumed", write="resumed", merge="resumed"),
    "truncated": _phases(_all("resumed"), "stopped", pack="stopped", write="none", merge="none"),
    "csv_locked": {**{phase: _none(_NO_LOG) for phase in PHASES}, "merge": _is("same")},
}


def cell(fault: str, phase: str) -> Cell:
    """What is expected; raises KeyError for a cell that nobody has thought of."""
    return CELLS[fault][phase]
