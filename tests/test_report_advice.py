from __future__ import annotations

import shlex
from pathlib import Path

import made_sweeps

from boosterrun.report import advice, model


def steps(folder: Path) -> list[tuple[str, str]]:
    return advice.next_steps(model.read(folder))


def test_kept_candidates_are_to_be_measured_again(tmp_path: Path) -> None:
    made_sweeps.sweep(tmp_path, 40, 1)
    ((sentence, command),) = steps(tmp_path)
    assert "once more" in sentence
    assert command == shlex.join(["boosterrun", "ship", str(tmp_path), "-o", "kept"])


def test_a_static_screen_is_no_validation(tmp_path: Path) -> None:
    made_sweeps.write(tmp_path, made_sweeps.static_result(1))
    ((sentence, _),) = steps(tmp_path)
    assert "not a validation" in sentence


def test_all_failed(tmp_path: Path) -> None:
    made_sweeps.write(tmp_path, made_sweeps.crash(1))
    ((sentence, command),) = steps(tmp_path)
    assert sentence.startswith("Every candidate failed")
    assert command == "boosterrun doctor"


def test_nothing_kept_and_a_job_that_was_killed(tmp_path: Path) -> None:
    made_sweeps.write(tmp_path, made_sweeps.static_result(1, "no_gain", gain=0.0))
    (tmp_path / "dead" / ".hydra").mkdir(parents=True)
    first, second = steps(tmp_path)
    assert first[0].startswith("1 result is missing")
    assert second[0].startswith("No candidate was kept")
