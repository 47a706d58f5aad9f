"""The fault matrix: candidates, baselines and compilers that go wrong in each phase.

BOOSTERRUN_TEST_FAULTS=FOLDER runs all of it and leaves a line per cell there; else a part runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from faults import cells
from faults.harness import (
    GAIN,
    LOSER,
    OTHERS,
    WINNER,
    Fault,
    Outcome,
    Sweep,
    undisturbed,
)
from faults.lines import ALL, note, settle, whole_matrix

HANGS = ("hang", "ignore_sigterm")
ENDING = ("exit", "crash")
SILENT = ("daemon", "fake_messages")
COSTLY = ("flood", "memory") if ALL else ()
NUMBERS = ("negative", "zero", "huge", "nan")
# A deadline that must be missed is waited for; all others are long, for a busy machine.
SHORT = 3.0
SIDES = [(adapter, phase) for adapter in ("python", "command") for phase in cells.SIDES]


def some(every: Sequence[tuple[str, str]], part: Sequence[tuple[str, str]]) -> Sequence[tuple[str, str]]:
    return every if ALL else part


def came_of(sweep: Sweep, done: Outcome, fault: str, phase: str, acf: str, usual: str) -> str:
    """What came of a fault, in the words of the table; what has no decision must have one when run again."""
    got = done.decisions[acf]
    if got == "none":
        assert done.code == 1, done.words
        assert acf in done.stdout, done.words
    expected = cells.cell(fault, phase).expected
    return "same" if got == usual and got not in expected.get(sweep.adapter, expected["*"]) else got


def judge(
    sweep: Sweep, done: Outcome, found: Sequence[tuple[str, str, str]], winners: Sequence[str] = ()
) -> None:
    """Note each cell of ``found``: (fault, phase, the job that it should hit)."""
    usual = undisturbed(sweep.adapter, sweep.acfs, winners)
    hit = {acf for _, _, acf in found}
    others = "; ".join(
        f"{a}: {done.decisions[a]}" for a in sweep.acfs if a not in hit and done.decisions[a] != usual[a]
    )
    got = [came_of(sweep, done, fault, phase, acf, usual[acf]) for fault, phase, acf in found]
    leftovers = sweep.leftovers()
    if "none" in got:
        again = sweep.again()
        assert again.code == 0, again.words
        assert {acf: again.decisions[acf] for acf in hit if done.decisions[acf] == "none"} == {
            acf: usual[acf] for acf in hit if done.decisions[acf] == "none"
        }, again.words
    for (fault, phase, acf), came in zip(found, got, strict=True):
        seconds = done.job_seconds.get(acf, done.seconds)
        note(sweep, fault, phase, came, done, leftovers=leftovers, others=others, seconds=seconds)
    settle()


def between(faults: Sequence[str], phase: str) -> tuple[list[str], list[Fault], list[tuple[str, str, str]]]:
    """Jobs: one that wins, one for each fault, one that does not win."""
    chosen = OTHERS[: len(faults)]
    hits = [Fault(acf, phase, fault) for acf, fault in zip(chosen, faults, strict=True)]
    return [WINNER, *chosen, LOSER], hits, [(f.fault, phase, f.who) for f in hits]


def of_candidates(adapter: str, phase: str) -> tuple[str, ...]:
    numbers = NUMBERS if phase != "build" else ()
    return (*ENDING, *SILENT, *COSTLY, "folder_deleted", *numbers)


@pytest.mark.parametrize(
    ("adapter", "phase"),
    [side for side in some(SIDES, [("python", "pairs")]) if side[1] != "calibrate"],
)
def test_a_candidate_that_goes_wrong_harms_only_itself(tmp_path: Path, adapter: str, phase: str) -> None:
    acfs, faults, found = between(of_candidates(adapter, phase), phase)
    winners = [fault.who for fault in faults] if phase == "confirm" else []
    sweep = Sweep(tmp_path, adapter, acfs, faults, gains=dict.fromkeys(winners, GAIN))
    judge(sweep, sweep.run(), found, winners)


@pytest.mark.parametrize(
    ("adapter", "phase"),
    [side for side in some(SIDES, [("python", "build")]) if side[1] != "calibrate"],
)
def test_a_candidate_that_hangs_is_ended(tmp_path: Path, adapter: str, phase: str) -> None:
    acfs, faults, found = between(HANGS, phase)
    winners = [fault.who for fault in faults] if phase == "confirm" else []
    sweep = Sweep(tmp_path, adapter, acfs, faults, gains=dict.fromkeys(winners, GAIN), deadline=SHORT)
    judge(sweep, sweep.run(), found, winners)


@pytest.mark.parametrize("adapter", ["python", "command"] if ALL else ["python"])
def test_a_baseline_that_goes_wrong_once_costs_one_decision(tmp_path: Path, adapter: str) -> None:
    """Each job that meets a broken baseline is left undecided; the next ones are not."""
    failing = [*ENDING, *(["memory"] if ALL else []), *NUMBERS]  # the last ends its pair
    chosen = OTHERS[: len(failing)]
    faults = [Fault("baseline", "calibrate", fault) for fault in failing]
    # A process of the baseline may live on, and then the next fault is that of its next sample.
    window = range(3, 99) if adapter == "python" else [3]
    sweep = Sweep(tmp_path, adapter, [*chosen, WINNER, LOSER], faults, window=window)
    found = [(fault, "calibrate", acf) for fault, acf in zip(failing, chosen, strict=True)]
    judge(sweep, sweep.run(), found)


@whole_matrix
@pytest.mark.parametrize("adapter", ["python", "command"])
def test_a_baseline_that_hangs_once_costs_one_decision(tmp_path: Path, adapter: str) -> None:
    faults = [Fault("baseline", "calibrate", fault) for fault in HANGS]
    chosen = OTHERS[: len(HANGS)]
    sweep = Sweep(tmp_path, adapter, [*chosen, WINNER, LOSER], faults, deadline=SHORT)
    judge(sweep, sweep.run(), [(fault, "calibrate", acf) for fault, acf in zip(HANGS, chosen, strict=True)])


@whole_matrix
@pytest.mark.parametrize("adapter", ["python", "command"])
def test_a_baseline_that_babbles_costs_nothing(tmp_path: Path, adapter: str) -> None:
    """All in the calibration of the first job."""
    every = [*SILENT, "flood", "folder_deleted"]
    faults = [Fault("baseline", "calibrate", name) for name in every]
    sweep = Sweep(tmp_path, adapter, [OTHERS[0], WINNER, LOSER], faults, window=range(3, 3 + len(every)))
    judge(sweep, sweep.run(), [(name, "calibrate", OTHERS[0]) for name in every])


@pytest.mark.parametrize(("adapter", "phase"), some(SIDES, [("python", "pairs")]))
def test_what_writes_into_other_folders_changes_no_decision(tmp_path: Path, adapter: str, phase: str) -> None:
    """A result of an earlier job that is overwritten is missed; what lies in the way of a later one goes."""
    who = "baseline" if phase == "calibrate" else OTHERS[0]
    acfs = [WINNER, OTHERS[0], LOSER]
    if phase == "calibrate" and adapter == "python":  # the baseline of the first job is calibrated once
        acfs = [OTHERS[0], WINNER, LOSER]
    winners = [OTHERS[0]] if phase == "confirm" else []
    sweep = Sweep(
        tmp_path, adapter, acfs, [Fault(who, phase, "writes_elsewhere")], gains=dict.fromkeys(winners, GAIN)
    )
    spoils(sweep, phase, winners)


def spoils(sweep: Sweep, phase: str, winners: Sequence[str] = ()) -> None:
    usual = undisturbed(sweep.adapter, sweep.acfs, winners)
    done = sweep.run()
    earlier = [acf for acf in sweep.acfs if done.decisions[acf] == "none"]
    if earlier:  # they have no decision, and that is said
        assert done.code == 1, done.words
        rejects = (sweep.out / "booster-pack-rejects.csv").read_text()
        assert all(acf in rejects for acf in earlier), rejects
    wrong = [acf for acf in sweep.acfs if done.decisions[acf] not in ("none", usual[acf])]
    leftovers = sweep.leftovers()
    again = sweep.again()
    assert (again.code, again.decisions) == (0, usual), again.words
    came = "same" if done.decisions[OTHERS[0]] == usual[OTHERS[0]] else done.decisions[OTHERS[0]]
    note(sweep, "writes_elsewhere", phase, came, done, leftovers=leftovers, others="; ".join(wrong))
    settle()


def test_a_compiler_that_goes_wrong_harms_only_its_candidate(tmp_path: Path) -> None:
    acfs, faults, found = between((*ENDING, *SILENT, *COSTLY, "folder_deleted"), "build")
    sweep = Sweep(tmp_path, "ptxas", acfs, faults)
    judge(sweep, sweep.run(), found)


@whole_matrix
def test_a_compiler_that_hangs_is_ended(tmp_path: Path) -> None:
    acfs, faults, found = between(HANGS, "build")
    sweep = Sweep(tmp_path, "ptxas", acfs, faults, deadline=SHORT)
    judge(sweep, sweep.run(), found)


@whole_matrix
def test_a_compiler_that_writes_into_other_folders_changes_no_decision(tmp_path: Path) -> None:
    faults = [Fault(OTHERS[0], "build", "writes_elsewhere")]
    spoils(Sweep(tmp_path, "ptxas", [WINNER, OTHERS[0], LOSER], faults), "build")


@pytest.mark.parametrize(
    "fault",
    (*ENDING, *HANGS, *SILENT, *COSTLY, "folder_deleted", "writes_elsewhere") if ALL else ("exit",),
)
def test_a_compiler_that_goes_wrong_in_the_canary(tmp_path: Path, fault: str) -> None:
    """The canary passes in spite of it, or ends the sweep before it has begun, in one line."""
    acfs = [WINNER, OTHERS[0], LOSER]
    deadline = SHORT if fault in HANGS else 60.0
    sweep = Sweep(tmp_path, "ptxas", acfs, [Fault("canary", "canary", fault, times=99)], deadline=deadline)
    usual = undisturbed("ptxas", acfs)
    done = sweep.run()
    leftovers = sweep.leftovers()
    came = "same" if done.decisions == usual and done.code == 0 else "stopped"
    if came == "stopped":
        assert (done.code, done.stderr.count("boosterrun: error: ")) == (1, 1), done.words
        assert set(done.decisions.values()) == {"none"}, done.words
        again = sweep.again()
        assert (again.code, again.decisions) == (0, usual), again.words
    note(sweep, fault, "canary", came, done, leftovers=leftovers)
    settle()
