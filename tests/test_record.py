from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from made_results import SHA, result, self_test, shape, timed, undecided

from boosterrun.errors import RunError
from boosterrun.results import fastschema, record

VALID = {
    "static": result(),
    "timed": result(timed("a"), timed("b"), evidence="timed"),
    "timed, one shape gains nothing": result(
        timed("a"), timed("b") | {"decision": "REJECTED:no_gain"}, evidence="timed"
    ),
    "rejected before any shape": result(shapes=[], decision="REJECTED:acf_invalid"),
    "undecided": undecided(),
    "undecided after a shape": undecided(shape("a"), shape("b", None)),
    "self-test": self_test(),
}


def changed(base: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy of `base` with another value at a dotted path; Ellipsis removes the key."""
    made = copy.deepcopy(base)
    *parents, last = (int(key) if key.isdigit() else key for key in path.split("."))
    target: Any = made
    for key in parents:
        target = target[key]
    if value is ...:
        del target[last]
    else:
        target[last] = value
    return made


def paths(value: Any, prefix: str = "") -> Iterator[str]:
    """Every dotted path in a result."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield f"{prefix}{key}"
        yield from paths(item, f"{prefix}{key}.")


def test_the_schema_is_valid_and_names_every_reason_once() -> None:
    Draft202012Validator.check_schema(record.schema())
    decisions = ["KEPT", *map(record.rejected, record.REASONS)]
    assert record.schema()["$defs"]["decision"]["enum"] == decisions
    assert record.schema()["$defs"]["nullable_decision"]["enum"] == [None, *decisions]


def test_every_object_in_the_schema_is_closed_but_the_free_ones() -> None:
    def open_objects(schema: Any, name: str) -> Iterator[str]:
        if isinstance(schema, dict):
            kinds = schema.get("type", ())
            if (kinds == "object" or "object" in kinds) and "additionalProperties" not in schema:
                yield name
            # What if/then/else adds is about objects that are closed elsewhere.
            for key, value in schema.items():
                if key not in {"allOf", "if", "then", "else"}:
                    yield from open_objects(value, key)

    assert sorted(set(open_objects(record.schema(), "$"))) == [
        "config",
        "correctness_detail",
        "details",
        "environment",
        "experiment",
        "gpu",
        "host",
        "packages",
        "params",
        "statistics",
    ]


@pytest.mark.parametrize("name", VALID)
def test_a_valid_result_comes_back_as_it_was_written(tmp_path: Path, name: str) -> None:
    assert record.validate(VALID[name]) == []
    path = record.write(VALID[name], tmp_path)
    assert path == tmp_path / "result.json"
    assert record.load(path) == VALID[name]
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]


@pytest.mark.parametrize(
    ("base", "path", "value", "problem"),
    [
        ("static", "schema_version", 2, "$.schema_version: 1 was expected"),
        ("static", "extra", 1, "$: Additional properties are not allowed ('extra' was unexpected)"),
        ("static", "job.extra", 1, "$.job: Additional properties"),
        ("static", "shapes.0.extra", 1, "$.shapes[0]: Additional properties"),
        ("static", "message", ..., "$: 'message' is a required property"),
        ("static", "decision", ..., "$: 'decision' is a required property"),
        ("static", "decision", None, "$.decision: None is not one of"),
        ("static", "decision", "REJECTED", "$.decision: 'REJECTED' is not one of"),
        ("static", "decision", "REJECTED:slow", "$.decision: 'REJECTED:slow' is not one of"),
        ("static", "decision", "KEPT\n", "$.decision: 'KEPT\\n' is not one of"),
        ("static", "error", undecided()["error"], "$.error: "),
        ("static", "objective", None, "$.objective: None is not of type 'object'"),
        ("static", "toolchain", None, "$.toolchain: None is not of type 'object'"),
        ("static", "pack", None, "$.pack: None is not of type 'object'"),
        ("static", "acf", None, "$.decision: 'KEPT' should not be valid"),
        ("static", "acf.sha256", SHA + "\n", "$.acf.sha256: "),
        ("static", "acf.compiler_stages", [], "$.acf.compiler_stages: "),
        ("static", "acf.compiler_stages", ["cicc"], "$.acf.compiler_stages[0]: 'cicc' is not one of"),
        ("static", "job.started_at", "2026-11-30 08:00:00", "$.job.started_at: "),
        ("static", "job.finished_at", "2026-11-30T08:00:00Z\n", "$.job.finished_at: "),
        ("static", "job.seconds", -1, "$.job.seconds: -1 is less than the minimum"),
        ("static", "job.seed", True, "$.job.seed: True is not of type 'integer'"),
        ("static", "job.seed", 0.5, "$.job.seed: 0.5 is not of type 'integer'"),
        ("static", "shapes", [], "$.shapes: [] does not contain items"),
        ("static", "shapes", {}, "$.shapes: {} is not of type 'array'"),
        ("static", "shapes.0.decision", None, "$.shapes[0].decision: None is not one of"),
        ("static", "shapes.0.decision", "REJECTED:no_gain", "$.shapes: "),
        ("static", "shapes.0.gain", None, "$.shapes[0].gain: None is not of type 'number'"),
        ("static", "shapes.0.gain", float("nan"), "$.shapes[0].gain: nan is not a JSON number"),
        ("static", "shapes.0.gain", 10**400, "$.shapes[0].gain: 1000"),
        ("static", "shapes.0.baseline", None, "$.shapes[0].baseline: None is not of type 'object'"),
        ("static", "shapes.0.baseline.n", 0, "$.shapes[0].baseline.n: 0 is less than the minimum of 1"),
        ("static", "shapes.0.correctness", "failed", "$.shapes[0].correctness: 'failed' is not one of"),
        ("static", "shapes.0.application.applied", "not_applied", "$.shapes[0].application.applied: "),
        ("static", "shapes.0.interval", [1.0], "$.shapes[0].interval: "),
        ("static", "shapes.0.interval", [2.0, 1.0], "$.shapes[0].interval: the lower end is above the upper"),
        ("static", "shapes.0.kernels.0.baseline.spills", "many", "$.shapes[0].kernels[0].baseline.spills: "),
        ("static", "phases.build", "long", "$.phases.build: 'long' is not of type 'number'"),
        ("static", "phases.build", float("inf"), "$.phases.build: inf is not a JSON number"),
        ("static", "config.deep", {"a": [float("-inf")]}, "$.config.deep.a[0]: -inf is not a JSON number"),
        ("static", "config.deep", {1: 2}, "$.config.deep: the key 1 is not a string"),
        ("static", "config.path", Path("/x"), "$.config.path: a PosixPath is no JSON value"),
        ("static", "config.pair", (1, 2), "$.config.pair: a tuple is no JSON value"),
        ("timed", "shapes.1.name", "a", "$.shapes[1].name: 'a' is there twice"),
        ("timed", "shapes.0.timer", None, "$.shapes[0].timer: None is not of type 'string'"),
        ("timed", "shapes.0.timer", ..., "$.shapes[0]: 'timer' is a required property"),
        ("timed", "shapes.0.pairs", None, "$.shapes[0].pairs: None is not of type 'object'"),
        ("undecided", "error", None, "$.error: None is not of type 'object'"),
        ("undecided", "error", ..., "$: 'error' is a required property"),
        ("undecided", "decision", "KEPT", "$.decision: 'KEPT' is not of type 'null'"),
        ("undecided", "status", "failed", "$.status: 'failed' is not one of"),
        ("self-test", "decision", "KEPT", "$.decision: 'KEPT' should not be valid"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(
    tmp_path: Path, base: str, path: str, value: Any, problem: str
) -> None:
    broken = changed(VALID[base], path, value)
    assert any(found.startswith(problem) for found in record.validate(broken)), record.validate(broken)
    record.write(VALID[base], tmp_path)
    with pytest.raises(record.InvalidResult, match="is not valid"):
        record.write(broken, tmp_path)
    assert record.load(tmp_path / "result.json") == VALID[base]


def test_only_a_self_test_says_no_difference() -> None:
    decision = "REJECTED:no_difference"
    assert record.validate(result(shape(decision=decision), decision=decision)) != []


def test_a_long_list_of_problems_is_cut() -> None:
    problems = record.validate(result(*(shape(str(i)) | {"gain": "x"} for i in range(50))))
    assert len(problems) == 21
    assert problems[-1].endswith("more problems")


@pytest.mark.parametrize("value", [None, [], "x", 1, {}, {"schema_version": 1}])
def test_anything_can_be_validated(value: Any) -> None:
    assert record.validate(value) != []


def nested(depth: int) -> dict[str, Any]:
    deep: dict[str, Any] = {}
    for _ in range(depth):
        deep = {"x": deep}
    return deep


def test_bottomless_nesting_is_a_problem_and_no_crash() -> None:
    problems = record.validate(result(config=nested(5_000)))
    assert [problem[-17:] for problem in problems] == ["nested too deeply"]


def test_a_rejection_needs_a_known_reason() -> None:
    assert record.rejected("no_gain") == "REJECTED:no_gain"
    with pytest.raises(ValueError, match="slow"):
        record.rejected("slow")


# Reading


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not complete JSON"),
        (b"\xff\xfe", "not UTF-8 at byte 0"),
        (b'{"a": 1, "a": 2}', "the key 'a' is there twice"),
        (b'{"a": {"b": 1, "c": 2, "b": 1}}', "the key 'b' is there twice"),
        (b'{"a": NaN}', "NaN is not a JSON number"),
        (b'{"a": -Infinity}', "-Infinity is not a JSON number"),
        (b'{"a": 1e999}', "1e999 is out of range"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not readable JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b"[]", "not a JSON object"),
        (b"{}", "schema version None, only 1 is known"),
        (b'{"schema_version": true}', "schema version True"),
        (b'{"schema_version": 2}', "schema version 2"),
        (b'{"schema_version": 1}', "breaks the schema: $: 'status' is a required property (and "),
    ],
)
def test_a_file_that_is_no_result_is_refused(tmp_path: Path, data: bytes, reason: str) -> None:
    path = tmp_path / "result.json"
    path.write_bytes(data)
    with pytest.raises(record.InvalidResult) as caught:
        record.load(path)
    assert str(caught.value).startswith(reason)


def test_a_result_without_its_last_byte_is_refused(tmp_path: Path) -> None:
    whole = record.write(result(message="größer"), tmp_path).read_bytes().rstrip()
    path = tmp_path / "cut.json"
    path.write_bytes(whole[:-1])
    with pytest.raises(record.InvalidResult, match=r"^not complete JSON: Expecting .*\)$"):
        record.load(path)


def test_what_is_no_regular_file_is_refused_and_never_waited_for(tmp_path: Path) -> None:
    record.write(result(), tmp_path)
    (tmp_path / "link").symlink_to("result.json")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name, reason in {
        "link": "a symbolic link",
        "folder": "not a regular file",
        "pipe": "not a regular file",
        "absent": "cannot be read: No such file or directory",
    }.items():
        with pytest.raises(record.InvalidResult, match=reason):
            record.load(tmp_path / name)


def test_a_huge_file_is_refused_without_reading_all_of_it(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    with path.open("wb") as stream:
        stream.truncate(record.SIZE_LIMIT + 1)
    with pytest.raises(record.InvalidResult, match="larger than"):
        record.load(path)


# Writing


def test_bytes_that_are_no_utf8_survive(tmp_path: Path) -> None:
    odd = result(message=os.fsdecode(b"caf\xe9 \xff") + " é \u2028")
    assert record.load(record.write(odd, tmp_path)) == odd


def test_a_folder_that_is_not_there_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"cannot write .*absent/result\.json: No such file"):
        record.write(result(), tmp_path / "absent")


def test_a_full_disk_leaves_the_old_result(tmp_path: Path) -> None:
    record.write(result(), tmp_path)
    program = (
        "import resource, sys, pathlib\n"
        "from boosterrun.results import record\nfrom made_results import result\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "record.write(result(message='new'), pathlib.Path(sys.argv[1]))\n"
    )
    done = run_python(program, str(tmp_path))
    assert "RunError: cannot write" in done.stderr
    assert "File too large" in done.stderr
    assert record.load(tmp_path / "result.json") == result()
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]


def test_importing_the_record_does_not_import_the_judge() -> None:
    done = run_python("import sys, boosterrun.results.record; print('jsonschema' in sys.modules)")
    assert done.stdout == "False\n"


def run_python(program: str, *args: str) -> subprocess.CompletedProcess[str]:
    here = Path(__file__).parent
    path = os.pathsep.join([str(here.parent), str(here)])
    return subprocess.run(
        [sys.executable, "-c", program, *args],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


# The fast predicate against the judge

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, 1, -1, 1.0, 0.5, 2**53, 2**70, 10**400, -1e308]),
    st.sampled_from(
        ["", "KEPT", "KEPT\n", "REJECTED:no_gain", "REJECTED:x", "decided", "undecided", "timed"]
    ),
    st.sampled_from(
        ["static", "ptxas", SHA, SHA + "\n", "2026-11-30T08:00:00Z", "passed", "failed", "proven"]
    ),
    st.text(max_size=3),
)
VALUES = st.one_of(
    SCALARS,
    st.lists(SCALARS, max_size=3),
    st.dictionaries(st.sampled_from(["name", "decision", "mean", "x"]), SCALARS, max_size=3),
)
PATHS = {name: sorted(paths(base)) for name, base in VALID.items()}


ACCEPTS = fastschema.predicate(record.schema())
JUDGE = Draft202012Validator(record.schema())


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_the_fast_predicate_agrees_with_jsonschema(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(VALID)))
    made = VALID[name]
    for _ in range(data.draw(st.integers(0, 3))):
        path = data.draw(st.sampled_from([*PATHS[name], "extra", "job.extra", "shapes"]))
        try:
            made = changed(made, path, data.draw(st.one_of(VALUES, st.just(...))))
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change took that place away
    made = json.loads(json.dumps(made))
    assert ACCEPTS(made) == JUDGE.is_valid(made)


@settings(max_examples=60, deadline=None)
@given(value=VALUES)
@pytest.mark.parametrize(
    "schema",
    [
        {"type": ["integer", "null"]},
        {"type": "number", "minimum": 0, "maximum": 1},
        {"enum": [None, 1, "KEPT"]},
        {"const": True},
        {"const": None},
        {"pattern": "^[A-Z]+$", "minLength": 2, "maxLength": 4},
        {"minItems": 1, "maxItems": 2, "items": {"type": "string"}},
        {"contains": {"const": 1}},
        {"not": {"type": "object"}},
        {"properties": {"x": {"type": "null"}}, "additionalProperties": {"type": "number"}},
        {"required": ["x"], "properties": {"x": {}}, "additionalProperties": False},
        {"if": {"type": "string"}, "then": {"minLength": 1}, "else": {"not": {"const": 1}}},
        {"if": {"type": "string"}, "then": {"const": None}},
        {"allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}], "$defs": {"a": {"type": "boolean"}}},
    ],
    ids=str,
)
def test_each_keyword_of_the_fast_predicate_agrees_with_jsonschema(
    schema: dict[str, Any], value: Any
) -> None:
    assert fastschema.predicate(schema)(value) == Draft202012Validator(schema).is_valid(value)


@pytest.mark.parametrize("keyword", ["anyOf", "oneOf", "uniqueItems", "format", "unevaluatedProperties"])
def test_a_keyword_that_the_fast_predicate_does_not_know_is_refused(keyword: str) -> None:
    with pytest.raises(NotImplementedError, match=keyword):
        fastschema.predicate({"properties": {"x": {keyword: []}}})
