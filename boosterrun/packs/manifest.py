"""The manifest of a Booster Pack: JSON text in, checked values out; no file is read but the schema."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from boosterrun.errors import PackError
from boosterrun.packs.names import SUFFIX, is_one_line, printable, same_file
from boosterrun.packs.report import Report, stop

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

MANIFEST_NAME = "booster-pack-manifest.json"
SCHEMA_VERSION = 1
_FOR_PEOPLE = ("description", "created_by", "caveats", "validation_summary", "notice")
STAGES = {"nvcc": ("nvcc",), "ptxas": ("ptxas",), "both": ("nvcc", "ptxas")}


@dataclass(frozen=True)
class ManifestAcf:
    """One entry of ``acfs``; ``compiler_stages`` comes from ``controls_stage`` where the entry has none."""

    filename: str
    sha256: str
    size_bytes: int
    compiler_stages: tuple[str, ...]
    description: str


@dataclass(frozen=True)
class Manifest:
    """A manifest that passed every check which needs no file besides it; ``sha256`` is that of its bytes.

    Texts that only people read may be absent from a manifest; they are empty here, and listed in ``absent``.
    """

    sha256: str
    pack_id: str
    pack_type: str
    display_name: str
    description: str
    created_by: str
    release_tag: str
    catalog_version: str
    controls_stage: str
    cuda_version: str
    supported_gpus: tuple[str, ...]
    caveats: tuple[str, ...]
    validation_summary: dict[str, Any] | list[Any] | str
    notice: str | None
    acfs: tuple[ManifestAcf, ...]
    absent: tuple[str, ...]


def parse(data: bytes, where: str) -> Manifest:
    """Return the manifest whose bytes are ``data``; ``where`` names it in errors.

    Raises:
        PackError: not UTF-8, no JSON, of another schema version, a key missing or of the wrong type or
            value (told with its path inside the JSON), or two entries with one file name.
    """
    manifest = check(data, where, stop)
    assert manifest is not None  # noqa: S101 (for the type checker: a problem has been raised)
    return manifest


def known(data: bytes, where: str, schema: str, advice: str, report: Report) -> dict[str, Any] | None:
    """Return the JSON document in ``data`` if it is of the version that we know and follows ``schema``.

    ``advice`` is for a document of another version. Hands every problem to ``report``; then returns None.
    """
    try:
        document = load_json(data, where)
    except PackError as unreadable:
        report(unreadable)
        return None
    version = document.get("schema_version")
    if isinstance(version, int) and version != SCHEMA_VERSION:
        problem = f"$.schema_version is {printable(str(version))}, and only {SCHEMA_VERSION} is known"
        report(PackError(f"{where}: {problem}", advice))
        return None
    return document if conforms(document, schema, where, report) else None


def check(data: bytes, where: str, report: Report) -> Manifest | None:
    """Return the manifest, after handing every problem of ``data`` to ``report``; None if it is of no use."""
    advice = "Use a newer boosterrun, or an older release of the pack"
    document = known(data, where, "pack-manifest.json", advice, report)
    if document is None:
        return None
    _check_names(document, where, report)
    return Manifest(
        sha256=hashlib.sha256(data).hexdigest(),
        **{
            key: document[key]
            for key in (
                "pack_id",
                "pack_type",
                "display_name",
                "release_tag",
                "catalog_version",
                "controls_stage",
                "cuda_version",
            )
        },
        description=document.get("description", ""),
        created_by=document.get("created_by", ""),
        validation_summary=document.get("validation_summary", ""),
        notice=document.get("notice"),
        supported_gpus=tuple(document["supported_gpus"]),
        caveats=tuple(document.get("caveats", ())),
        acfs=_acfs(document),
        absent=tuple(key for key in _FOR_PEOPLE if key not in document),
    )


def filename_problem(name: str) -> str | None:
    """Say what makes ``name`` unfit to be an ACF's file name, or return None."""
    if name in ("", ".", "..") or "/" in name or "\\" in name:
        return "is a path, not a plain file name"
    if name[1:2] == ":" and name[0].isalpha():
        return "begins with a drive letter"
    if not is_one_line(name):
        return "has control characters in its name"
    if len(name.encode()) > 255:
        return "is longer than 255 bytes"
    if name[-len(SUFFIX) :].lower() != SUFFIX or len(name) == len(SUFFIX):
        return f"does not end in {SUFFIX}"
    return None


def load_json(data: bytes, where: str) -> dict[str, Any]:
    """Return the JSON object that is ``data``; PackError for anything else, doubled keys and NaN included."""
    try:
        document = json.loads(data.decode(), object_pairs_hook=_unique_keys, parse_constant=_no_constant)
        # Lone surrogates, written as escapes, could be put into no result and no log.
        json.dumps(document, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        reason = printable(str(error)) or type(error).__name__
        raise PackError(f"{where}: not valid JSON: {reason}", "Get the pack again") from None
    if not isinstance(document, dict):
        raise PackError(f"{where}: $ is not a JSON object", "Get the pack again")
    return document


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in found if keys.count(key) > 1)
        raise ValueError(f"key {twice!r} appears twice in one object")
    return found


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


@cache
def _validator(schema: str) -> Validator:
    from jsonschema import Draft202012Validator  # noqa: PLC0415 (0.1 s, only where a manifest is read)

    text = files("boosterrun").joinpath("schema", schema).read_text(encoding="utf-8")
    return Draft202012Validator(json.loads(text))


def conforms(document: dict[str, Any], schema: str, where: str, report: Report) -> bool:
    """Tell whether ``document`` follows the shipped ``schema``; report each place where it does not."""
    good = True
    for error in _validator(schema).iter_errors(document):
        good = False
        reason = printable(error.message) if len(error.message) < 500 else f"fails {error.validator!r}"
        report(
            PackError(
                f"{where}: {printable(error.json_path)}: {reason}",
                "The pack breaks its format: get it again or tell its maker",
            )
        )
    return good


def _check_names(document: dict[str, Any], where: str, report: Report) -> None:
    seen: dict[str, int] = {}
    for index, entry in enumerate(document["acfs"]):
        name = entry["filename"]
        at = f"{where}: $.acfs[{index}]"
        if problem := filename_problem(name):
            report(PackError(f"{at}.filename: '{printable(name)}' {problem}", "Tell the maker of the pack"))
        first = seen.setdefault(same_file(name), index)
        if first != index:
            twice = f"'{printable(name)}' is listed twice (also as $.acfs[{first}])"
            report(PackError(f"{at}.filename: {twice}", "Tell the maker of the pack"))


def _acfs(document: dict[str, Any]) -> tuple[ManifestAcf, ...]:
    """The entries whose names are fit to be looked for."""
    default = STAGES[document["controls_stage"]]
    return tuple(
        ManifestAcf(
            filename=entry["filename"],
            sha256=entry["sha256"],
            size_bytes=int(entry["size_bytes"]),
            compiler_stages=tuple(entry.get("compiler_stages", default)),
            description=entry.get("description", ""),
        )
        for entry in document["acfs"]
        if filename_problem(entry["filename"]) is None
    )
