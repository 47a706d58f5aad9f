from __future__ import annotations

import csv
import io
import math
import re
import unicodedata

import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pandas._libs.parsers import STR_NA_VALUES

from boosterrun.results.cells import TEXT_LIMIT, cell, clean, guard, unguard

# Made of what matters here far more often than arbitrary text is.
TRICKY = st.text(
    st.sampled_from(list("=+-@;,'\" \t\n\rab10.eE|#NA/\u00a0\u200b\ufeff\uff1d\u2028\x00\ud800é"))
)
TEXT = TRICKY | st.text()


def runs(text: str) -> bool:
    """Whether a spreadsheet could take this cell for a formula; by character classes, not by our pattern."""
    for part in [text, *text.split(";")[1:]]:
        for char in part:
            if unicodedata.normalize("NFKC", char) in {"=", "+", "-", "@", "\N{MINUS SIGN}"}:
                return not re.fullmatch(r"[-+]?\d+(\.\d+)?([eE][-+]?\d+)?", text, re.ASCII)
            if not char.isspace() and unicodedata.category(char) != "Cf" and char != '"':
                break
            if char in "\t\r\n":
                return True
    return False


@pytest.mark.parametrize(
    "text",
    [
        "=1+1",
        "+A1",
        "-A1",
        "@SUM(1)",
        " =1",
        "\u00a0=1",
        "\u200b=1",
        '"=1"',
        "＝1",
        "﹢1",
        "-",
        "-1-1",
        "a;=1",
        'a; "@x',
    ],
)
def test_a_formula_is_guarded(text: str) -> None:
    assert runs(text)
    assert not runs(guard(clean(text)))
    assert unguard(guard(text)) == text


@pytest.mark.parametrize(
    "text", ["-5", "+1", "-1e-5", "1.5E+3", "0", "a=b", "x-y", "a; b", "21-a_b-48fb.acf", "none"]
)
def test_ordinary_text_and_numbers_stay(text: str) -> None:
    assert guard(text) == text
    assert unguard(text) == text


@example("'=1")
@example("''NA")
@example("'-5")
@example("a;'=1")
@example("\ufeff'=")
@given(TEXT)
def test_guard_is_undone_exactly_and_leaves_nothing_to_run(text: str) -> None:
    text = clean(text)
    assert unguard(guard(text)) == text
    assert not runs(guard(text))


@given(TEXT)
def test_a_text_cell_is_one_line_that_csv_and_pandas_read_back(text: str) -> None:
    made = cell(text)
    assert len(made.splitlines()) <= 1
    made.encode()
    ((read, end),) = csv.reader(io.StringIO(f"{made},x\n"), strict=True)
    assert end == "x"
    assert read == guard(clean(text))
    if read:  # an empty cell is a missing value
        frame = pd.read_csv(io.StringIO(f"text,end\n{made},x\n"), dtype=str)
        assert frame["text"].tolist() == [read]


@given(st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), max_size=50))
def test_printable_text_is_not_changed(text: str) -> None:
    assert clean(text) == text


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a\nb\r\nc\n", "a | b | c"),
        ("\n\n a\n \nb", " a | b"),
        ("a\u2028b\x85c\vd", "a | b | c | d"),
        ("tab\tnul\x00del\x7fcsi\x9b", "tab\\x09nul\\x00del\\x7fcsi\\x9b"),
        ("caf\udce9", "caf\\udce9"),
        ("x" * 20_000, "x" * (TEXT_LIMIT - 3) + "..."),
        (" ", " "),
        ("", ""),
    ],
)
def test_what_does_not_fit_into_a_line_is_written_another_way(text: str, line: str) -> None:
    assert clean(text) == line


@pytest.mark.parametrize("unit", ["a", ";=", "=", '"', "\U0001f600", ";\U0001f600=", "\x00"])
def test_a_cell_fits_into_a_spreadsheet(unit: str) -> None:
    assert len(guard(clean(unit * 40_000)).encode("utf-16-le")) // 2 <= 32_767


@pytest.mark.parametrize("word", sorted(STR_NA_VALUES - {""}))
def test_words_that_pandas_takes_for_nothing_are_kept(word: str) -> None:
    read = pd.read_csv(io.StringIO(f"text\n{cell(word)}\n"))["text"][0]
    assert read == f"'{word}"
    assert unguard(read) == word


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_float_is_read_back_exactly(number: float) -> None:
    read = float(cell(number))
    assert read == number
    assert math.copysign(1, read) == math.copysign(1, number)


def test_other_values() -> None:
    assert [cell(value) for value in (None, True, False, 3, 10**20)] == [
        "",
        "true",
        "false",
        "3",
        str(10**20),
    ]
