"""Manifests: the shipped one is accepted, and each way to break it is told with its place in the JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from boosterrun.config import SHIPPED
from boosterrun.errors import PackError
from boosterrun.packs.manifest import check, filename_problem, parse

with ZipFile(SHIPPED / "packs/booster-pack-sample.zip") as _zip:
    SAMPLE = _zip.read("booster-pack-sample/booster-pack-manifest.json")
SCHEMA = Path(__file__).parent.parent / "boosterrun/schema/pack-manifest.json"


def sample() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(SAMPLE)
    return document


def parsed(document: object) -> Any:
    return parse(json.dumps(document).encode(), "here")


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(json.loads(SCHEMA.read_text()))


def test_the_shipped_manifest() -> None:
    manifest = parse(SAMPLE, "here")
    assert manifest.pack_id == "sample-pack"
    assert manifest.cuda_version == "13.3.0"
    assert manifest.notice == "© NVIDIA Corporation, 2026."
    assert manifest.validation_summary["status"] == "none"
    assert [acf.compiler_stages for acf in manifest.acfs] == [("ptxas",)] * 24


def test_unknown_keys_are_allowed() -> None:
    document = sample()
    document["new"] = {"a": [1]}
    document["acfs"][0]["new"] = None
    assert len(parsed(document).acfs) == 24


@pytest.mark.parametrize(("stage", "stages"), [("ptxas", ("ptxas",)), ("nvcc", ("nvcc",))])
def test_absent_stages_come_from_the_pack(stage: str, stages: tuple[str, ...]) -> None:
    document = sample()
    document["controls_stage"] = stage
    del document["acfs"][3]["compiler_stages"]
    assert parsed(document).acfs[3].compiler_stages == stages


def test_stages_are_required_when_the_pack_has_both() -> None:
    document = sample()
    document["controls_stage"] = "both"
    document["acfs"][0]["compiler_stages"] = ["nvcc", "ptxas"]
    assert parsed(document).acfs[0].compiler_stages == ("nvcc", "ptxas")
    del document["acfs"][3]["compiler_stages"]
    with pytest.raises(PackError, match=r"here: \$\.acfs\[3\]: 'compiler_stages' is a required property"):
        parsed(document)


FOR_PEOPLE = {"description", "created_by", "caveats", "validation_summary", "notice"}


@pytest.mark.parametrize("key", sorted(FOR_PEOPLE))
def test_what_only_people_read_may_be_absent(key: str) -> None:
    document = sample()
    del document[key]
    manifest = parsed(document)
    assert manifest.absent == (key,)
    assert not getattr(manifest, key)


def test_every_problem_is_reported() -> None:
    document = sample()
    document["cuda_version"] = "13"
    document["acfs"][1]["sha256"] = "x"
    document["acfs"][2]["size_bytes"] = 0
    found: list[PackError] = []
    assert check(json.dumps(document).encode(), "here", found.append) is None
    assert [problem.message.split(": ")[1] for problem in found] == [
        "$.cuda_version",
        "$.acfs[1].sha256",
        "$.acfs[2].size_bytes",
    ]
    document = sample()
    document["acfs"][1]["filename"] = "../x.acf"
    document["acfs"][3]["filename"] = document["acfs"][2]["filename"].upper()
    found = []
    manifest = check(json.dumps(document).encode(), "here", found.append)
    assert manifest is not None
    assert len(manifest.acfs) == 23
    assert ["path" in problem.message or "twice" in problem.message for problem in found] == [True, True]


@pytest.mark.parametrize("key", sorted(sample().keys() - FOR_PEOPLE))
def test_each_key_is_required(key: str) -> None:
    document = sample()
    del document[key]
    with pytest.raises(PackError, match=rf"here: \$: '{key}' is a required property"):
        parsed(document)


@pytest.mark.parametrize("key", ["filename", "sha256", "size_bytes"])
def test_each_key_of_an_acf_is_required(key: str) -> None:
    document = sample()
    del document["acfs"][5][key]
    with pytest.raises(PackError, match=rf"here: \$\.acfs\[5\]: '{key}' is a required property"):
        parsed(document)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("schema_version", "1"),
        ("schema_version", True),
        ("pack_id", ""),
        ("pack_id", "a\nb"),
        ("pack_id", "a\n"),
        ("pack_type", "fast"),
        ("controls_stage", "ptx"),
        ("cuda_version", 13.3),
        ("cuda_version", "13"),
        ("cuda_version", "13.3.0\n"),
        ("supported_gpus", "B200"),
        ("supported_gpus", [1]),
        ("caveats", [None]),
        ("validation_summary", 1),
        ("notice", None),
        ("acfs", []),
        ("acfs", {}),
    ],
)
def test_a_wrong_value_is_told_with_its_place(key: str, value: object) -> None:
    document = sample()
    document[key] = value
    with pytest.raises(PackError, match=rf"^here: \$\.{key}") as caught:
        parsed(document)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("sha256", "A" * 64),
        ("sha256", "a" * 63),
        ("sha256", "a" * 64 + "\n"),
        ("size_bytes", -1),
        ("size_bytes", 0),
        ("size_bytes", 2.5),
        ("size_bytes", True),
        ("size_bytes", 1 << 30),
        ("compiler_stages", []),
        ("compiler_stages", ["ptxas", "nvcc"]),
        ("compiler_stages", ["cicc"]),
        ("filename", "../x.acf"),
        ("filename", "/x.acf"),
        ("filename", "a\\x.acf"),
        ("filename", "C:x.acf"),
        ("filename", "x\0.acf"),
        ("filename", "x.acf\n"),
        ("filename", "x.bin"),
        ("filename", ".acf"),
        ("filename", "x" * 256 + ".acf"),
        ("filename", "01-SAMPLE_1-12d486f9268b.acf"),
        ("filename", 3),
    ],
)
def test_a_wrong_value_of_an_acf_is_told_with_its_place(key: str, value: object) -> None:
    document = sample()
    document["acfs"][2][key] = value
    with pytest.raises(PackError, match=rf"^here: \$\.acfs\[2\]\.{key}: ") as caught:
        parsed(document)
    assert str(caught.value).isprintable()


def test_another_schema_version() -> None:
    with pytest.raises(PackError, match=r"schema_version is 2, and only 1 is known\. Use a newer boosterrun"):
        parsed({"schema_version": 2, "all": "different"})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "Expecting value"),
        (b"\xff", "utf-8"),
        (b"[]", "not a JSON object"),
        (b"3", "not a JSON object"),
        (b'{"a": 1, "a": 2}', "'a' appears twice"),
        (b'{"a": NaN}', "NaN is not JSON"),
        (b'{"a": "\\ud800"}', "surrogates"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (SAMPLE[:-20], "not valid JSON"),
    ],
)
def test_what_is_no_json_object(text: bytes, reason: str) -> None:
    with pytest.raises(PackError, match=reason) as caught:
        parse(text, "here")
    assert str(caught.value).startswith("here: ")
    assert str(caught.value).isprintable()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def places(value: object, found: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """All (container, key) pairs of a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found.append((value, key))
        places(inner, found)
    return found


@given(data=st.data(), value=JSON)
@settings(max_examples=150, deadline=None)
def test_any_value_anywhere_is_accepted_or_refused_in_one_line(data: st.DataObject, value: object) -> None:
    document = sample()
    container, key = data.draw(st.sampled_from(places(document, [])))
    container[key] = value
    text = json.dumps(document).encode()
    refused_or_kept(lambda: parse(text, "here"))


@given(at=st.integers(0, len(SAMPLE)), cut=st.integers(0, 40), put=st.binary(max_size=8))
@settings(max_examples=150, deadline=None)
def test_any_change_of_bytes_is_accepted_or_refused_in_one_line(at: int, cut: int, put: bytes) -> None:
    refused_or_kept(lambda: parse(SAMPLE[:at] + put + SAMPLE[at + cut :], "here"))


def refused_or_kept(call: Callable[[], object]) -> None:
    try:
        call()
    except PackError as error:
        assert str(error).isprintable()
        assert len(str(error)) < 1000


@given(st.text(max_size=20))
def test_a_good_file_name_is_a_plain_one(name: str) -> None:
    if filename_problem(name + ".acf") is None:
        assert "/" not in name
        assert "\0" not in name
        (name + ".acf").encode()
