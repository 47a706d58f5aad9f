"""A program's output against a reference."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boosterrun.programs.outputs import difference


@pytest.mark.parametrize(
    ("found", "expected", "words"),
    [
        (b"sum 1.00001\n", b"sum 1.0", None),
        (b"a=1,b=2", b"a=1, b=2\n", None),
        (b"[1, 2, 3]", b"[1.0, 2.0, 3.0]", None),
        (b"0 1e-5", b"0.0 0", None),
        (b"\xff\x00\x01", b"\xff\x00\x01", None),
        (b"sum 1.1", b"sum 1.0", "word 2 of the output is 1.1, the reference has 1.0"),
        (b"sum 1.0", b"max 1.0", "word 1 of the output is 'sum'"),
        (b"sum x", b"sum 1.0", "word 2 of the output is 'x'"),
        (b"sum", b"sum 1.0", "has 1 words, the reference 2"),
        (b"sum 1 2", b"sum 1", "has 3 words, the reference 2"),
        (b"", b"1", "has 0 words"),
        (b"nan", b"1", "word 1"),
        (b"nan", b"nan", "word 1"),
        (b"inf", b"inf", "word 1"),
        (b"0.1", b"0", "word 1"),
        (b"1", b"", "reference is empty"),
        (b"", b"", "reference is empty"),
        (b"\xff\x00\x02", b"\xff\x00\x01", "at byte 2"),
        (b"\xff\x00", b"\xff\x00\x01", "2 bytes, not 3"),
        (b"1.0", b"\xff\x00\x01", "at byte 0"),
    ],
)
def test_differences_are_told(found: bytes, expected: bytes, words: str | None) -> None:
    said = difference(found, expected, 1e-4)
    assert said is None if words is None else said is not None and words in said


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1), st.data())
def test_numbers_within_the_tolerance_pass_and_others_do_not(
    numbers: list[float], data: st.DataObject
) -> None:
    text = "\n".join(map(repr, numbers)).encode()
    assert difference(text, text, 0.0) is None
    index = data.draw(st.integers(0, len(numbers) - 1))
    worse = [*numbers]
    worse[index] = worse[index] * 0.5 or 1.0
    if worse[index] != numbers[index]:
        said = difference("\n".join(map(repr, worse)).encode(), text, 1e-3)
        assert said is not None
        assert f"word {index + 1} " in said
