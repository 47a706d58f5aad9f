"""Ids of ACFs: whatever a file is called, Hydra takes its id as that very string."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import example, given, settings
from hypothesis import strategies as st

from boosterrun.packs.names import MAX_LENGTH, is_acf, is_one_line, option_id, printable, same_file

PARSER = OverridesParser.create()

AS_THEY_ARE = [
    "21-recompute_w_u_fwd_2-48fb75d9d1aa",
    "ptxas_opt0",
    "01-sample_1-12d486f9268b",
    "A.b-C_d",
    "_x",
    "0x",
    "nullable",
    "none-",
    "e3",
    "1.2.3a",
    "infinity",
]
ODD = [
    "a b",
    "a,b",
    "a=b",
    "${x}",
    "$x",
    "é",
    "核",
    "1e3",
    "1E-3",
    "1_000",
    "10",
    "01",
    "1.5",
    "0x1f",
    "-a",
    ".a",
    "a.",
    "a..b",
    "a/b",
    "a\\b",
    "a'b",
    'a"b',
    "a(b)",
    "[a]",
    "{a}",
    "~a",
    "a#b",
    "a;b",
    "a&b",
    "a!b",
    "a<b",
    "a:b",
    "a@b",
    "a\tb",
    "a\nb",
    "null",
    "None",
    "TRUE",
    "false",
    "on",
    "Off",
    "yes",
    "no",
    "nan",
    "inf",
    "x.yaml",
    "x.YML",
    "_self_",
    "_global_",
    "",
    "x" * 200,
]


def parsed(identifier: str) -> object:
    override = PARSER.parse_override(f"acf={identifier}")
    assert not override.is_sweep_override()
    return override.value()


@pytest.mark.parametrize("stem", AS_THEY_ARE)
def test_a_name_that_hydra_takes_stays(stem: str) -> None:
    assert option_id(f"{stem}.acf") == option_id(f"{stem}.ACF") == stem
    assert parsed(stem) == stem


@pytest.mark.parametrize("stem", ODD)
def test_an_odd_name_gets_a_readable_part_and_six_digits(stem: str) -> None:
    found = option_id(f"{stem}.acf")
    assert found != stem
    assert re.fullmatch(r"[A-Za-z0-9_.-]+-[0-9a-f]{6}", found)
    assert parsed(found) == found


def test_the_readable_part_is_that_of_the_name() -> None:
    assert option_id("fast kernel,2.acf").startswith("fast-kernel-2-")
    assert option_id("Größe.acf").startswith("Groe-") or option_id("Größe.acf").startswith("Gro-e-")
    assert option_id("1e3.acf").startswith("1e3-")


# Its digits are all decimal: without care, "1e-<digits>" would be a number again.
DECIMAL = next(name for name in (f"1e {' ' * n}.acf" for n in range(500)) if option_id(name)[-6:].isdecimal())


@example("x")
@example(DECIMAL)
@example("\ud800")
@given(st.text(max_size=40) | st.from_regex(r"[0-9eExX_.+-]{1,8}(\.acf)?", fullmatch=True))
@settings(max_examples=400, deadline=None)
def test_any_name_parses_to_its_own_id(name: str) -> None:
    found = option_id(name)
    value = parsed(found)
    assert isinstance(value, str)
    assert value == found
    assert len(found) <= MAX_LENGTH
    assert option_id(found) == found, "an id is the id of itself"


def test_a_slug_that_reads_as_a_number_is_marked() -> None:
    assert option_id(DECIMAL).startswith("acf-1e-")


def test_these_names_have_ids_of_their_own() -> None:
    ids = [option_id(f"{stem}.acf").casefold() for stem in [*AS_THEY_ARE, *ODD]]
    assert len(set(ids)) == len(ids)


def test_hydra_composes_each_option(tmp_path: Path) -> None:
    group = tmp_path / "acf"
    group.mkdir()
    (tmp_path / "config.yaml").write_text("defaults: [_self_, {acf: null}]\n")
    ids = [option_id(f"{stem}.acf") for stem in [*AS_THEY_ARE, *ODD[::5]]]
    for each in ids:
        (group / f"{each}.yaml").write_text(f"id: '{each}'\n")
    with initialize_config_dir(str(tmp_path), version_base=None):
        for each in ids:
            assert compose("config", overrides=[f"acf={each}"]).acf.id == each


def test_hidden_files_are_no_acfs() -> None:
    assert is_acf("a.acf")
    assert is_acf("dir/A.ACF")
    assert not is_acf("__MACOSX/._a.acf")
    assert not is_acf(".acf")
    assert not is_acf("a.acf.txt")


@given(st.text(max_size=300))
def test_printable_is_one_line(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    assert len(shown) <= 200
    shown.encode()


def test_names_that_some_disk_takes_for_one_file() -> None:
    composed, apart = "caf\u00e9.acf", "cafe\u0301.acf"
    assert composed != apart
    assert same_file(composed) == same_file(apart) == same_file("CAFE\u0301.ACF")
    assert same_file("a.acf") != same_file("\u00e0.acf")


@pytest.mark.parametrize("name", ["gnp.\u202efca.acf", "a\u2066b.acf", "a\u200fb.acf"])
def test_a_name_that_is_shown_as_another_has_control_characters(name: str) -> None:
    assert not is_one_line(name)
    assert is_one_line("caf\u00e9 \u05d0\u05d1.acf")
