"""Read the results below a folder, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from boosterrun.errors import UsageError
from boosterrun.results import collect


def results(root: Path) -> Iterator[tuple[Path, dict[str, Any] | str]]:
    """Each job's absolute ``result.json`` and its content, or the reason why there is none.

    Raises UsageError: `root` does not exist, or there is no job below.
    """
    if not root.is_dir():
        raise UsageError(f"no such folder: {root}", "Name the output folder of a sweep")
    root = root.resolve()
    found = False
    for where, content in collect.results([root], root):
        found = True
        yield root / where, content
    if not found:
        raise UsageError(f"no result.json below {root}", "Name the output folder of a sweep")
