"""docs/reliability.md has what the committed run of the fault matrix has found, and that run was complete."""

from __future__ import annotations

import json

from faults import table

LINES = json.loads(table.RESULTS.read_text())


def test_every_cell_was_tested_and_as_it_should_be() -> None:
    assert table.problems(LINES) == []


def test_the_page_has_the_table_of_that_run() -> None:
    text = table.PAGE.read_text()
    assert table.page(text, table.render(LINES)) == text
