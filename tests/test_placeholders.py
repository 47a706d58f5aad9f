"""Placeholders: both sides, lists, strings and shells."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boosterrun.errors import UsageError
from boosterrun.programs.placeholders import Values


def values(acf: str = "/c/abc.acf", **params: Any) -> Values:
    return Values(
        "big", {"M": 64, **params}, acf, "01-x" if acf else "", 7, "/w", "candidate" if acf else "baseline"
    )


BASELINE, CANDIDATE = values(""), values()


@pytest.mark.parametrize(
    ("command", "baseline", "candidate"),
    [
        (["a", "{acf}"], ["a", ""], ["a", "/c/abc.acf"]),
        (["a", "--acf={acf}"], ["a", "--acf="], ["a", "--acf=/c/abc.acf"]),
        (
            ["nvcc", "{acf_flags}", "x"],
            ["nvcc", "x"],
            ["nvcc", "-Xptxas", "--apply-controls=/c/abc.acf", "x"],
        ),
        (
            ["nvcc", "-Xptxas", "--apply-controls={acf}", "x"],
            ["nvcc", "x"],
            ["nvcc", "-Xptxas", "--apply-controls=/c/abc.acf", "x"],
        ),
        (["ptxas", "--apply-controls={acf}"], ["ptxas"], ["ptxas", "--apply-controls=/c/abc.acf"]),
        (["ptxas", "--apply-controls", "{acf}"], ["ptxas"], ["ptxas", "--apply-controls", "/c/abc.acf"]),
        (
            ["make", "FLAGS={acf_flags} -O3"],
            ["make", "FLAGS= -O3"],
            ["make", "FLAGS=-Xptxas --apply-controls=/c/abc.acf -O3"],
        ),
        ("a 'b c' {M} {shape} {seed}", ["a", "b c", "64", "big", "7"], ["a", "b c", "64", "big", "7"]),
        (["a", "{work}/{acf_id}", 3, 2.5], ["a", "/w/", "3", "2.5"], ["a", "/w/01-x", "3", "2.5"]),
        (["a", "{side}"], ["a", "baseline"], ["a", "candidate"]),
        (["a", '{{"M": {M}}}'], ["a", '{"M": 64}'], ["a", '{"M": 64}']),
    ],
)
def test_arguments_of_both_sides(command: Any, baseline: list[str], candidate: list[str]) -> None:
    assert BASELINE.argv(command, "workload.command") == baseline
    assert CANDIDATE.argv(command, "workload.command") == candidate


@pytest.mark.parametrize(
    ("template", "baseline", "candidate"),
    [
        ("{acf}", None, "/c/abc.acf"),
        ("{acf_flags}", None, "-Xptxas --apply-controls=/c/abc.acf"),
        ("--apply-controls={acf}", None, "--apply-controls=/c/abc.acf"),
        ("-O3 -Xptxas --apply-controls={acf}", "-O3 ", "-O3 -Xptxas --apply-controls=/c/abc.acf"),
        ("-Xptxas=--apply-controls={acf}", None, "-Xptxas=--apply-controls=/c/abc.acf"),
        ("{M}", "64", "64"),
        ("", "", ""),
    ],
)
def test_variables_of_both_sides(template: str, baseline: str | None, candidate: str | None) -> None:
    assert BASELINE.variable(template, "workload.env.X") == baseline
    assert CANDIDATE.variable(template, "workload.env.X") == candidate


def test_a_shell_gets_quoted_values() -> None:
    odd = values(text="a b; $(rm) 'q' *")
    argv = odd.argv("printf '%s|' {text} {acf} {M} x{{1,2}}", "workload.command", shell=True)
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stdout == "a b; $(rm) 'q' *|/c/abc.acf|64|x1|x2|"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["a", "{K}"], r"unknown placeholder \{K\}.*\{shape\}.*\{M\}"),
        (["a", "{M:>9}"], r"unknown placeholder \{M:>9\}"),
        (["a", "{M!r}"], r"unknown placeholder \{M!r\}"),
        (["a", "{M.real}"], r"unknown placeholder \{M.real\}"),
        (["a", "{}"], r"unknown placeholder \{\}"),
        (["a", "{ print }"], "unknown placeholder"),
        (["a", "{M"], "literal braces twice"),
        (["a", "M}"], "literal braces twice"),
        (["a", {"acf": None}], "quote placeholders"),
        (["a", None], "not an argument"),
        ({"a": 1}, "must be a list"),
        (None, "must be a list"),
        ([], "is empty"),
        ("", "is empty"),
        (["{acf_flags}"], "is empty"),
        ("a 'b", "quotes"),
    ],
)
def test_commands_that_make_no_sense(command: Any, words: str) -> None:
    with pytest.raises(UsageError, match=rf"^workload\.command.*{words}"):
        BASELINE.argv(command, "workload.command")


def test_a_shell_needs_a_string_and_parameters_need_free_names() -> None:
    with pytest.raises(UsageError, match="must be a string"):
        BASELINE.argv(["a"], "workload.command", shell=True)
    with pytest.raises(UsageError, match=r"shapes\.big: seed is the name of a placeholder"):
        values(seed=3)


@given(st.text(max_size=30), st.text(max_size=30))
def test_any_value_arrives_as_one_argument_unchanged(value: str, literal: str) -> None:
    escaped = literal.replace("{", "{{").replace("}", "}}")
    assert values(text=value).argv(["a", escaped + "{text}"], "w") == ["a", literal + value]
