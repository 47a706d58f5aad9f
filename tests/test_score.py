"""Scores: read beyond doubt, or refused."""

from __future__ import annotations

import json
import math
import signal
import threading
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boosterrun.config import ScoreConfig
from boosterrun.errors import UsageError
from boosterrun.programs import score
from boosterrun.programs.score import ScoreError

TIME = r"time: (\S+)"


def read(text: str, **keys: Any) -> list[float]:
    config = ScoreConfig(**keys)
    score.check(config)
    return score.parse(text, config)


@pytest.mark.parametrize(
    ("text", "keys", "expected"),
    [
        ("time: 5e-06", {"regex": TIME, "unit": "s"}, [5e-3]),
        ("time: 5E+1", {"regex": TIME}, [50.0]),
        ("time: .25\ntime: 3.", {"regex": TIME}, [0.25, 3.0]),
        ("time: 1.5\ntime: 2.5\ntime: 3.5", {"regex": TIME, "select": "first"}, [1.5]),
        ("time: 1.5\ntime: 2.5\ntime: 3.5", {"regex": TIME, "select": "last"}, [3.5]),
        ("time: nan\ntime: 2.5", {"regex": TIME, "select": "last"}, [2.5]),
        ("took 12 us", {"regex": r"took (?P<value>\S+) (?P<unit>\S+)"}, [0.012]),
        ("took 12 µs, 3 ms", {"regex": r"(?P<value>\d+) (?P<unit>\w+)"}, [0.012, 3.0]),
        (
            "took 7 or 8 s",
            {"regex": r"(?P<value>\d+)(?: (?P<unit>\w+)\b(?! 8))?", "unit": "s", "select": "last"},
            [8e3],
        ),
        ("took 12 us", {"regex": r"took (\d+)", "unit": "us"}, [0.012]),
        ("400 it/s", {"regex": r"(\d+) it", "unit": "1/s"}, [2.5]),
        ("run1: 5.0 ms", {"regex": r"run1: ([\d.]+)"}, [5.0]),
        ("0.1,0.2,0.3", {"regex": r"([\d.]+)"}, [0.1, 0.2, 0.3]),
        ("[0.1,0.2]", {"regex": r"([\d.]+)"}, [0.1, 0.2]),
        ("a 12:34 b 5", {"regex": r"b (\d+)"}, [5.0]),
    ],
)
def test_regex_scores(text: str, keys: dict[str, Any], expected: list[float]) -> None:
    assert read(text, **keys) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("text", "keys", "words"),
    [
        ("nothing here", {"regex": TIME}, "nothing matches"),
        ("time: fast", {"regex": TIME}, "not a number"),
        ("time: 1,234.5", {"regex": TIME}, "not a number"),
        ("time: 1_000", {"regex": TIME}, "not a number"),
        ("time: 0x10", {"regex": TIME}, "not a number"),
        ("time: nan", {"regex": TIME}, "not a finite positive"),
        ("time: inf", {"regex": TIME}, "not a finite positive"),
        ("time: 1e999", {"regex": TIME}, "not a finite positive"),
        ("time: 0", {"regex": TIME}, "not a finite positive"),
        ("time: -1", {"regex": TIME}, "not a finite positive"),
        ("time: 1\ntime: -1", {"regex": TIME}, "not a finite positive"),
        ("time: 5e-324", {"regex": TIME, "unit": "ns"}, "out of range"),
        ("time: 1e300", {"regex": TIME}, "out of range"),
        ("time: 5e-06", {"regex": r"time: ([\d.]+)"}, "cuts a number short"),
        ("time: 5e-06", {"regex": r"e-(\d+)"}, "cuts a number short"),
        ("time: 1,234.5 ms", {"regex": r"([\d.]+) ms"}, "cuts a number short"),
        ("time: 1,234.5 ms", {"regex": r"time: ([\d.]+)"}, "cuts a number short"),
        ("time: 1.25", {"regex": r"time: (\d+)"}, "cuts a number short"),
        ("time: 1.25", {"regex": r"\.(\d+)"}, "cuts a number short"),
        ("time: -5.0", {"regex": r"(\d\.\d)"}, "cuts a number short"),
        ("time: 1_234", {"regex": r"time: (\d)"}, "cuts a number short"),
        ("time: 5 us", {"regex": r"time: (\d)"}, "score.unit is ms"),
        ("5 hours", {"regex": r"(?P<value>\d) (?P<unit>\w+)"}, "'hours' of a score is unknown"),
    ],
)
def test_what_cannot_be_read_beyond_doubt_is_refused(text: str, keys: dict[str, Any], words: str) -> None:
    with pytest.raises(ScoreError, match=words):
        read(text, **keys)


DOCUMENT = {"results": [{"ms": 1.5, "odd.key": [4]}, {"ms": 2.5, "odd.key": [5]}], "p50": 3e-3}


@pytest.mark.parametrize(
    ("path", "keys", "expected"),
    [
        ("results[*].ms", {}, [1.5, 2.5]),
        ("$.results[*].ms", {"select": "last"}, [2.5]),
        ("results[-1].ms", {}, [2.5]),
        ("results[0]['odd.key'][0]", {}, [4.0]),
        ('results[*]["odd.key"][*]', {}, [4.0, 5.0]),
        ("p50", {"unit": "s"}, [3.0]),
    ],
)
@pytest.mark.parametrize("indent", [None, 2])
def test_json_scores(path: str, keys: dict[str, Any], expected: list[float], indent: int | None) -> None:
    text = f'[INFO] start\n{{"p50": 9}}\n{json.dumps(DOCUMENT, indent=indent)}\n[done]'
    assert read(text, json_path=path, **keys) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("text", "path", "words"),
    [
        ("no json", "a", "no JSON"),
        ('{"a": 1', "a", "no JSON"),
        ('{"a": 1}', "b", "finds nothing at 'b'"),
        ('{"a": [1]}', "a[3]", "finds nothing at 3"),
        ('{"a": 1}', "a[*]", r"finds nothing at \[\*\]"),
        ('{"a": []}', "a[*]", "empty list"),
        ('{"a": [1]}', "a", "selects a list"),
        ('{"a": "5"}', "a", "not a number"),
        ('{"a": true}', "a", "not a number"),
        ('{"a": null}', "a", "not a number"),
        ('{"a": NaN}', "a", "finite positive"),
        ('{"a": -Infinity}', "a", "finite positive"),
        ('{"a": 1' + "0" * 400 + "}", "a", "out of range"),
        ("[" * 100_000, "a", "no JSON"),
    ],
)
def test_json_without_a_score_is_refused(text: str, path: str, words: str) -> None:
    with pytest.raises(ScoreError, match=words):
        read(text, json_path=path)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({}, "either regex or json_path"),
        ({"regex": "(a)", "json_path": "a"}, "either regex or json_path"),
        ({"regex": "(a"}, "not a regular expression"),
        ({"regex": "a"}, "which group"),
        ({"regex": "(a)(b)"}, "which group"),
        ({"regex": "(?P<unit>a)"}, "which group"),
        ({"regex": "(a)", "unit": "hours"}, "unit=hours is unknown"),
        ({"regex": "(a)", "select": "best"}, "select=best is unknown"),
        ({"json_path": "a..b"}, "malformed at"),
        ({"json_path": "a[1:2]"}, "malformed at"),
        ({"json_path": "a[?(@.b)]"}, "malformed at"),
    ],
)
def test_a_score_block_that_cannot_work_is_a_usage_error(keys: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        score.check(ScoreConfig(**keys))
    assert caught.value.advice or "regular expression" in caught.value.message


def test_a_regex_that_never_ends_is_stopped_and_the_alarm_is_given_back() -> None:
    config = ScoreConfig(regex=r"^(?:a+)+(\d)$")
    pending = signal.setitimer(signal.ITIMER_REAL, 200)
    handler = signal.getsignal(signal.SIGALRM)
    try:
        started = time.monotonic()
        with pytest.raises(ScoreError, match=r"within 0\.3 s"):
            score.parse("a" * 60, config, deadline=0.3)
        assert time.monotonic() - started < 30
        assert signal.getsignal(signal.SIGALRM) is handler
        assert 100 < signal.getitimer(signal.ITIMER_REAL)[0] <= 200
    finally:
        signal.setitimer(signal.ITIMER_REAL, *pending)


def test_scores_are_read_in_other_threads_too() -> None:
    found: list[float] = []
    thread = threading.Thread(target=lambda: found.extend(read("time: 2", regex=TIME)))
    thread.start()
    thread.join()
    assert found == [2.0]


def test_only_the_end_of_a_flood_is_searched() -> None:
    text = "time: 1\n" + "x" * (1 << 20) + "\ntime: 2\n"
    assert read(text, regex=TIME) == [2.0]
    with pytest.raises(ScoreError, match="first"):
        read(text, regex=TIME, select="first")


@given(st.floats(min_value=1e-9, max_value=1e9), st.sampled_from(["ns", "us", "ms", "s"]))
def test_any_float_survives_printing(value: float, unit: str) -> None:
    factor = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3}[unit]
    for text in (repr(value), f"{value:.17e}"):
        assert read(f"time: {text} {unit}", regex=TIME, unit=unit) == pytest.approx(
            [value * factor], rel=1e-12
        )
    assert read(json.dumps({"t": value}, indent=1), json_path="t", unit=unit) == pytest.approx(
        [value * factor]
    )


@given(st.text(max_size=60))
def test_arbitrary_text_gives_positive_numbers_or_a_score_error(text: str) -> None:
    for keys in ({"regex": r"(\S+)"}, {"json_path": "a[*]"}):
        try:
            values = read(text, **keys)
        except ScoreError:
            continue
        assert values
        assert all(math.isfinite(value) and value > 0 for value in values)


def test_the_text_beside_the_scores_is_found_in_time_or_not_at_all() -> None:
    config = ScoreConfig(regex=r"time: (\S+) ms", unit="ms")
    assert score.without("a\ntime: 1.5 ms\nb\n", config) == "a\n\nb\n"
    started = time.monotonic()
    with pytest.raises(ScoreError, match="within"):
        score.without("a" * 60 + "c", ScoreConfig(regex="((?:a|aa)+)b", unit="ms"), deadline=0.2)
    assert time.monotonic() - started < 30
