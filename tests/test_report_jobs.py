from __future__ import annotations

import unicodedata

import made_results as made
import made_sweeps
import pytest
from hypothesis import given
from hypothesis import strategies as st

from boosterrun.report.jobs import OUTPUT_LIMIT, STATUSES, job, status_of
from boosterrun.results import record
from boosterrun.system.visible import visible


def test_every_decision_has_a_status() -> None:
    for reason in record.REASONS:
        assert status_of(record.rejected(reason)) in STATUSES
    assert status_of("KEPT") == "kept"
    assert status_of(None) == "undecided"
    assert status_of("REJECTED:wrong_result") == "failed"
    assert status_of("REJECTED:fat_tail") == "slower"
    assert status_of("REJECTED:identical_code") == "neutral"


@given(st.text())
def test_visible_text_has_no_character_that_hides_or_reorders(text: str) -> None:
    shown = visible(text)
    for letter in shown:
        assert letter in "\n\t" or unicodedata.category(letter) not in {"Cc", "Cs"}
        assert unicodedata.bidirectional(letter) not in {
            "LRE",
            "RLE",
            "LRO",
            "RLO",
            "PDF",
            "LRI",
            "RLI",
            "FSI",
            "PDI",
        }


def test_visible_leaves_ordinary_text_alone() -> None:
    assert visible("Größe 漢字 שלום <b>'\"") == "Größe 漢字 שלום <b>'\""
    assert visible("a\u202eb") == "a\\u202eb"


def test_a_row_holds_what_the_result_says_of_both_sides() -> None:
    one = job(made.result(made.timed()), "x/result.json", {})
    (row,) = one.rows
    assert (row.gain, row.low, row.high) == (0.0729, 0.071, 0.0748)
    assert row.registers == (128, None)
    assert row.spills == (352, 300)
    assert row.seconds == (0.25, 0.25)
    assert (row.pairs, row.voided) == (50, 1)
    assert row.details["commands"]["candidate"] == ["ptxas", "a b.ptx"]
    assert one.facts["GPU"] == "NVIDIA H200"


def test_overrides_that_only_name_the_candidate_make_no_variant() -> None:
    result = made.result()
    result["job"]["overrides"] = ["acf=x", "sweep.candidates=3", "workload=ptxas", "gpu=h200", "seed=2"]
    assert job(result, "", {}).overrides == ("gpu=h200", "seed=2")


def test_a_job_without_shapes_has_one_row() -> None:
    one = job(made.undecided(), "", {})
    (row,) = one.rows
    assert (row.shape, row.status, one.status) == (None, "undecided", "undecided")
    assert row.details["message"] == "the disk is full"
    assert one.advice == "Free some space"


def test_long_compiler_output_is_cut_with_a_word() -> None:
    one = job(made_sweeps.crash(1, "x" * 100_000), "", {})
    shown = one.rows[0].details["outputs"]["candidate"]
    assert len(shown) < OUTPUT_LIMIT + 100
    assert "result.json" in shown


def test_times_with_nine_digits_are_read() -> None:
    result = made.result()
    result["job"]["finished_at"] = "2026-11-30T08:00:01.123456789Z"
    one = job(result, "", {})
    assert one.finished - one.started == pytest.approx(1.123456, abs=1e-6)


def test_health_is_read_at_both_ends_of_a_job_and_throttling_is_their_difference() -> None:
    result, _ = made_sweeps.timed_result(3, ["m"])
    before, after = job(result, "", {}).health
    assert (before["clock"], after["clock"]) == (1980, 1965 - 45)
    assert after["throttled"] == 0.006
    assert "throttled" not in before


def test_nothing_is_known_of_a_machine_without_nvml() -> None:
    result = made.result()
    empty = {"driver_version": None, "devices": [], "error": "NVML: not found"}
    result["environment"]["gpu"] = {"before": empty, "after": empty}
    one = job(result, "", {})
    assert one.health == []
    assert "GPU" not in one.facts
    assert one.facts["NVML"] == "NVML: not found"
    for gpu in (None, {}):
        result["environment"]["gpu"] = gpu
        assert job(result, "", {}).health == []
    result["environment"] = {}
    assert job(result, "", {}).health == []
