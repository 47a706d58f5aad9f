from __future__ import annotations

from pathlib import Path
from typing import Any

import made_results as made
import made_sweeps
import pytest

from boosterrun import cli
from boosterrun.report.compare import compare, markdown


def timed(number: int, gain: float, reason: str = "KEPT", half: float = 0.01, **gpu: Any) -> dict[str, Any]:
    decision = reason if reason == "KEPT" else f"REJECTED:{reason}"
    shape = made.timed() | {"decision": decision, "gain": gain, "interval": [gain - half, gain + half]}
    result = made_sweeps.named(number, shapes=[shape], decision=decision, evidence="timed")
    result["environment"] = result["environment"] | {"gpu": made_sweeps.gpu() | gpu}
    return result


@pytest.fixture
def sweeps(tmp_path: Path) -> tuple[Path, Path]:
    before, after = tmp_path / "before", tmp_path / "after"
    for result in (
        timed(1, 0.05),
        timed(2, 0.05),
        timed(3, 0.002, "no_gain"),
        timed(4, 0.20),
        timed(5, 0.001, "no_gain"),
        timed(6, 0.03),
    ):
        made_sweeps.write(before, result)
    for result in (
        timed(1, 0.055, driver_version="590.1"),
        timed(2, -0.04, "regression", driver_version="590.1"),
        timed(3, 0.04, driver_version="590.1"),
        timed(4, 0.10, driver_version="590.1"),
        timed(5, 0.001, "inconclusive", driver_version="590.1"),
        timed(7, 0.03, driver_version="590.1"),
    ):
        made_sweeps.write(after, result)
    return before, after


def test_who_kept_lost_and_flipped(sweeps: tuple[Path, Path]) -> None:
    found = compare(*sweeps)
    assert {one.candidate[:3]: one.change for one in found.both} == {
        "001": "same",
        "002": "lost",
        "003": "won",
        "004": "slower",
        "005": "changed",
    }
    assert [one.change for one in found.both] == ["lost", "won", "slower", "changed", "same"]
    assert [[text[:3] for text in only] for only in found.only] == [["006"], ["007"]]
    assert found.facts == [("driver", "580.159.04", "590.1")]


def test_the_other_way_round_is_the_mirror_image(sweeps: tuple[Path, Path]) -> None:
    there, back = compare(*sweeps), compare(*reversed(sweeps))
    for one, other in (("lost", "won"), ("slower", "faster"), ("same", "same"), ("changed", "changed")):
        assert there.count(one) == back.count(other)
        assert there.count(other) == back.count(one)
    assert there.only == back.only[::-1]
    assert [(name, b, a) for name, a, b in there.facts] == back.facts


def test_the_text(sweeps: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["compare", *map(str, sweeps)]) == 0
    text = capsys.readouterr().out
    assert text.startswith(
        "5 candidates and shapes in both sweeps: 1 lost, 1 won, 1 slower, 1 changed, 1 same.\n"
    )
    assert "| lost | 002-candidate-" in text
    assert "| same |" not in text
    assert "| driver | 580.159" in text
    assert "Only in A: 006-candidate-" in text
    assert cli.main(["compare", *map(str, sweeps), "--all"]) == 0
    assert "| same | 001-candidate-" in capsys.readouterr().out


def test_a_sweep_against_itself_differs_in_nothing(tmp_path: Path) -> None:
    made_sweeps.sweep(tmp_path, 8, 2)
    found = compare(tmp_path, tmp_path)
    assert found.count("same") == len(found.both) == 16
    assert "Nothing recorded" in markdown(found)


def test_static_gains_repeat_exactly(tmp_path: Path) -> None:
    made_sweeps.write(tmp_path / "a", made_sweeps.static_result(1, gain=0.10))
    made_sweeps.write(tmp_path / "b", made_sweeps.static_result(1, gain=0.11))
    assert [one.change for one in compare(tmp_path / "a", tmp_path / "b").both] == ["faster"]


@pytest.mark.parametrize("names", [("a", "b"), ("a", "nowhere"), ("a", "broken")])
def test_what_cannot_be_compared_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], names: tuple[str, str]
) -> None:
    made_sweeps.write(tmp_path / "a", made_sweeps.static_result(1))
    made_sweeps.write(tmp_path / "b", made_sweeps.static_result(2))
    (tmp_path / "broken" / "job" / ".hydra").mkdir(parents=True)
    assert cli.main(["compare", *(str(tmp_path / name) for name in names)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
