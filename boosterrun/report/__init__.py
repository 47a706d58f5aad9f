"""Results that people look at: one HTML file, pictures, a summary."""

from __future__ import annotations

import sys
from pathlib import Path


def after_sweep(folder: Path) -> None:
    """Write ``report.html`` into the folder of a sweep; a report that fails is one warning line."""
    try:
        from boosterrun.report import model, page  # noqa: PLC0415 - nothing of it before the first job

        written = page.write(model.read(folder), folder / "report.html")
    except Exception as error:  # whatever it is, the sweep's results are safe and must not seem lost
        words = " ".join(f"{type(error).__name__}: {error}".split())
        sys.stderr.write(f"boosterrun: warning: no report could be written: {words}\n")
    else:
        sys.stdout.write(f"report: {written}\n")
