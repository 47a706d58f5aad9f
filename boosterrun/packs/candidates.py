"""ACFs on their way into a new pack, and where they come from: loose files, packs, a log, a search."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

from boosterrun.errors import PackError, UsageError
from boosterrun.packs.gathered import Candidate, Gathered
from boosterrun.packs.names import is_acf, printable, same_file
from boosterrun.packs.pack import MAX_ACF
from boosterrun.system import reading

# Rows of a search hold whole ACFs as text; csv takes 128 KiB a cell if it is not told otherwise.
_MAX_CELL = 4 * MAX_ACF
_MAX_TABLE = 1 << 30


def gather(sources: Sequence[Path], *, top: int, maximise: bool, packs: Sequence[Path]) -> Gathered:
    """Read every source: an ``.acf`` file, a folder of them, a log of sweeps, or the results of a search.

    Args:
        top: how many of a search's results, best first. maximise: its higher scores are the better ones.
        packs: where to look for the ACFs that a log names, besides where they were.
    Raises UsageError or PackError for a source that cannot be used.
    """
    found = Gathered()
    for source in sources:
        if source.is_dir():
            files = sorted(path for path in source.iterdir() if is_acf(path.name) and path.is_file())
            if not files:
                raise UsageError(f"{printable(str(source))}: no .acf file in it", "Name files or a CSV")
            found.candidates += [_loose(path) for path in files]
        elif is_acf(source.name):
            found.candidates.append(_loose(source))
        else:
            _table(source, found, top, maximise, packs)
    return _distinct(found)


def read_rows(path: Path) -> tuple[list[str], Iterator[dict[str, str]]]:
    """The columns and rows of a CSV. Raises UsageError when there is no such file, or no table in it."""
    csv.field_size_limit(_MAX_CELL)
    try:
        text = reading.content(path, _MAX_TABLE).decode("utf-8-sig")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(
            f"{printable(str(path))}: cannot be read: {reason}", "Name a CSV or .acf files"
        ) from None
    # Without NULs: csv of Python 3.11 and later differ in what they make of them.
    reader = csv.DictReader(text.replace("\0", "").splitlines(keepends=True))
    try:
        columns = list(reader.fieldnames or ())
        rows = [{key: value or "" for key, value in row.items() if isinstance(key, str)} for row in reader]
    except csv.Error as error:
        raise UsageError(f"{printable(str(path))}: is no CSV: {error}", "Name a CSV or .acf files") from None
    return columns, iter(rows)


def _table(path: Path, found: Gathered, top: int, maximise: bool, packs: Sequence[Path]) -> None:
    from boosterrun.packs import kept, search  # noqa: PLC0415 (each only for its own kind of table)

    columns, rows = read_rows(path)
    if {"acf_sha256", "decision"} <= set(columns):
        kept.read(path, packs, found)
    elif "params" in columns:
        search.read(path, columns, rows, found, top=top, maximise=maximise)
    else:
        raise UsageError(
            f"{printable(str(path))}: neither a booster-pack-log.csv nor results of a CompileIQ search",
            "A log has the columns acf_sha256 and decision, results have params and score_1",
        )


def _loose(path: Path) -> Candidate:
    try:
        data = reading.content(path, MAX_ACF)
    except OSError as error:
        raise PackError(
            f"{printable(str(path))}: cannot be read: {error.strerror}", "Check the path"
        ) from None
    if not 0 < len(data) <= MAX_ACF:
        raise PackError(f"{printable(str(path))}: has no bytes, or more than {MAX_ACF}", "Leave it out")
    return Candidate(path.name, data, "")


def _distinct(found: Gathered) -> Gathered:
    """Drop equal contents, the first stays; give a name that two contents have to the first of them only."""
    contents: set[str] = set()
    names: set[str] = set()
    distinct = Gathered(left_out=found.left_out)
    for candidate in found.candidates:
        if candidate.sha256 in contents:
            distinct.leave_out("the same as another")
            continue
        contents.add(candidate.sha256)
        name = candidate.filename
        if same_file(name) in names:
            stem = name[: -len(".acf")]
            name = f"{stem}-{candidate.sha256[:12]}.acf"
            beside = {name + key[len(candidate.filename) :]: value for key, value in candidate.beside.items()}
            candidate = Candidate(  # noqa: PLW2901
                name,
                candidate.data,
                candidate.description,
                candidate.stages,
                candidate.cuda_version,
                candidate.gpu,
                beside,
            )
        names.add(same_file(name))
        distinct.candidates.append(candidate)
    return distinct
