"""The log for people and programs, ``booster-pack-log.csv``: its lines, and how to read it back."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from boosterrun.errors import UsageError
from boosterrun.results.cells import cell, unguard
from boosterrun.results.columns import COLUMNS, Entry
from boosterrun.system import reading

if TYPE_CHECKING:
    import pandas as pd

FILENAME = "booster-pack-log.csv"
LOG_LIMIT = 2 << 30


def header() -> str:
    """The first line of a log, without its end."""
    return ",".join(column.name for column in COLUMNS)


def lines(result: dict[str, Any], where: str) -> Iterator[str]:
    """The rows of a valid result that lies at `where`, without their ends: one per shape, one if it has none.

    A row is never more than one physical line.
    """
    cells: list[str] = []
    for shape in result["shapes"] or [{}]:
        entry = Entry(result, shape, where)
        if cells:
            for index in _PER_SHAPE:
                cells[index] = cell(COLUMNS[index].value(entry))
        else:
            cells = [cell(column.value(entry)) for column in COLUMNS]
        yield ",".join(cells)


def read_log(path: Path) -> pd.DataFrame:
    """Read a log with the values that were written: exact numbers, typed columns, apostrophes undone.

    Numbers are float64, integers Int64, truth values boolean, text string; an empty cell is a missing value.

    Raises:
        UsageError: there is no such file, or it is not a log of this version.
    """
    import pandas as pd  # noqa: PLC0415  (slow, and only needed here)

    try:
        # As text first: how pandas parses numbers differs between its versions, and is not always exact.
        text = io.BytesIO(reading.content(path, LOG_LIMIT))
        log = pd.read_csv(text, dtype=object, keep_default_na=False, na_values=[""], encoding="utf-8")
        missing = [column.name for column in COLUMNS if column.name not in log.columns]
        if missing:
            raise UsageError(f"{path} is no log: it has no column {missing[0]}", _ADVICE)
        for column in COLUMNS:
            parse, dtype = _KINDS[column.kind]
            log[column.name] = log[column.name].map(parse, na_action="ignore").astype(dtype)
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read as a log: {error}", _ADVICE) from error
    return log


def _truth(text: str) -> bool:
    if text not in {"true", "false"}:
        raise ValueError(f"neither true nor false: {text!r}")
    return text == "true"


_PER_SHAPE = [index for index, column in enumerate(COLUMNS) if column.per_shape]
_ADVICE = f"Name a {FILENAME}"
_KINDS: dict[str, tuple[Callable[[str], object], Any]] = {
    "text": (unguard, "string"),
    "number": (float, "float64"),
    "integer": (int, "Int64"),
    "boolean": (_truth, "boolean"),
}
