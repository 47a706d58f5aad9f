"""The result of one job: ``result.json``, its schema (``schema/result-v1.json``), writing and reading it."""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from boosterrun.errors import BoosterrunError
from boosterrun.results.fastschema import Predicate, predicate
from boosterrun.system import redact
from boosterrun.system.atomic import replacing

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator

SCHEMA_VERSION = 1
FILENAME = "result.json"
SIZE_LIMIT = 64 * 2**20
"""Bytes; a result that is larger is refused on both ways, so that a damaged one cannot exhaust the memory."""

KEPT = "KEPT"
REASONS = (
    "no_gain",
    "regression",
    "inconclusive",
    "fat_tail",
    "no_difference",
    "identical_code",
    "acf_not_applied",
    "acf_invalid",
    "toolchain_mismatch",
    "unsupported_stage",
    "not_applicable",
    "compile_error",
    "compile_timeout",
    "compiler_crash",
    "runtime_error",
    "runtime_timeout",
    "wrong_result",
)
"""Why a candidate can be rejected: a decision is ``KEPT`` or ``REJECTED:<reason>``."""

_PROBLEMS_SHOWN = 20
_DEPTH_LIMIT = 100


class InvalidResult(BoosterrunError):  # noqa: N818  (says what it is)
    """A result that cannot be read, or does not say what a result must say."""


def rejected(reason: str) -> str:
    """The decision for one of `REASONS`; raises ValueError for anything else."""
    if reason not in REASONS:
        raise ValueError(f"not a reason for a rejection: {reason!r}")
    return f"REJECTED:{reason}"


@cache
def schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a result."""
    path = Path(__file__).parents[1] / "schema" / "result-v1.json"
    loaded: dict[str, Any] = json.loads(path.read_bytes())
    return loaded


def validate(result: object) -> list[str]:
    """Say what is wrong with a result, each as ``path: problem``; an empty list means valid."""
    problems = list(_not_json(result, "$"))
    if not problems:
        errors = sorted(_validator().iter_errors(result), key=lambda error: [str(key) for key in error.path])
        problems = [f"{error.json_path}: {_short(error.message)}" for error in errors]
    if not problems:
        problems = list(_contradictions(result))
    hidden = len(problems) - _PROBLEMS_SHOWN
    return problems[:_PROBLEMS_SHOWN] + ([f"$: {hidden} more problems"] if hidden > 0 else [])


def write(result: Mapping[str, Any], folder: Path) -> Path:
    """Write ``result.json`` into an existing folder, as a whole or not at all, and return its path.

    Secrets (:mod:`boosterrun.system.redact`) are hidden, whoever put them there.

    Raises:
        InvalidResult: the result does not follow the schema; nothing is written.
        RunError: the file cannot be written; a file that was there before is untouched.
    """
    path = folder / FILENAME
    result = redact.tree(dict(result))
    problems = validate(result)
    if problems:
        raise InvalidResult(f"{path} is not written, the result is not valid: {'; '.join(problems)}")
    text = json.dumps(result, ensure_ascii=False, allow_nan=False, indent=1) + "\n"
    # Bytes that are no UTF-8 (in a path, in a compiler's output) reach us as lone surrogates. JSON has them
    # as backslash escapes, so they survive.
    data = text.encode("utf-8", "backslashreplace")
    if len(data) > SIZE_LIMIT:
        raise InvalidResult(f"{path} is not written: {len(data)} bytes are more than {SIZE_LIMIT}")
    with replacing(path) as stream:
        stream.write(data)
    return path


def load(path: Path) -> dict[str, Any]:
    """Read a result and check it.

    Raises:
        InvalidResult: it cannot be read, is not complete, has a duplicate key, or breaks the schema. The
            message is the reason alone, in one short line without the path.
    """
    try:
        data = _read(path)
    except OSError as error:
        raise InvalidResult(f"cannot be read: {error.strerror or error}") from error
    try:
        result = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_unique_keys,
            parse_constant=_not_finite,
            parse_float=_finite,
        )
    except UnicodeDecodeError as error:
        raise InvalidResult(f"not UTF-8 at byte {error.start}") from error
    except json.JSONDecodeError as error:
        raise InvalidResult(f"not complete JSON: {error}") from error
    except RecursionError as error:
        raise InvalidResult("nested too deeply") from error
    except ValueError as error:  # an integer of thousands of digits
        raise InvalidResult(f"not readable JSON: {error}") from error
    if not isinstance(result, dict):
        raise InvalidResult("not a JSON object")
    version = result.get("schema_version")
    if version != SCHEMA_VERSION or isinstance(version, bool):
        raise InvalidResult(f"schema version {_short(repr(version))}, only {SCHEMA_VERSION} is known")
    problems = list(_contradictions(result)) if _accepts()(result) else validate(result)
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise InvalidResult(f"breaks the schema: {problems[0]}{more}")
    return result


@cache
def _validator() -> Draft202012Validator:
    from jsonschema import Draft202012Validator  # noqa: PLC0415  (100 ms, and most commands need none)

    return Draft202012Validator(schema())


@cache
def _accepts() -> Predicate:
    return predicate(schema())


def _read(path: Path) -> bytes:
    if path.is_symlink():
        raise InvalidResult("a symbolic link")
    # Not blocking: a named pipe in the place of a result must not stop a merge.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise InvalidResult("not a regular file")
        with open(descriptor, "rb", closefd=False) as stream:
            data = stream.read(SIZE_LIMIT + 1)
    finally:
        os.close(descriptor)
    if len(data) > SIZE_LIMIT:
        raise InvalidResult(f"larger than {SIZE_LIMIT} bytes")
    return data


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise InvalidResult(f"the key {_short(repr(twice))} is there twice")
    return made


def _not_finite(constant: str) -> NoReturn:
    raise InvalidResult(f"{constant} is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise InvalidResult(f"{_short(text)} is out of range")
    return number


def _not_json(value: object, path: str, depth: int = 0) -> Iterator[str]:
    """What JSON cannot say, or would say differently when read back."""
    if value is None or isinstance(value, str | int):
        return
    if isinstance(value, float):
        if not math.isfinite(value):
            yield f"{path}: {value} is not a JSON number"
    elif depth >= _DEPTH_LIMIT:
        yield f"{path}: nested too deeply"
    elif isinstance(value, dict):
        for key, item in value.items():
            if isinstance(key, str):
                yield from _not_json(item, f"{path}.{key}", depth + 1)
            else:
                yield f"{path}: the key {_short(repr(key))} is not a string"
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _not_json(item, f"{path}[{index}]", depth + 1)
    else:
        yield f"{path}: a {type(value).__name__} is no JSON value"


def _contradictions(result: Any) -> Iterator[str]:
    """What a JSON Schema cannot express."""
    names: set[str] = set()
    for index, shape in enumerate(result["shapes"]):
        if shape["name"] in names:
            yield f"$.shapes[{index}].name: {_short(repr(shape['name']))} is there twice"
        names.add(shape["name"])
        interval = shape.get("interval")
        if interval and interval[0] > interval[1]:
            yield f"$.shapes[{index}].interval: the lower end is above the upper"


def _short(text: str, limit: int = 160) -> str:
    return text if len(text) <= limit else f"{text[: limit - 20]}...{text[-17:]}"
