"""``boosterrun report DIR``."""

from __future__ import annotations

import argparse
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path

from boosterrun.errors import UsageError
from boosterrun.system.atomic import replacing
from boosterrun.verbs.parser import Parser

FORMATS = ("html", "png", "svg", "md", "jsonl")
FILENAMES = {"html": "report.html", "png": "s-curve.png", "svg": "s-curve.svg"}


def run(argv: Sequence[str]) -> int:
    """Write what ``argv`` (after ``report``) asks for. Returns the exit code 0. Raises BoosterrunError."""
    options = _parser().parse_args(argv)
    root: Path = options.dir
    if options.shape is not None and options.format not in {"png", "svg"}:
        raise UsageError("--shape is for --format png or svg", "Choose the shape in the report")
    if options.open and options.format != "html":
        raise UsageError("--open is for --format html", "Leave it out")
    if not root.is_dir():
        raise UsageError(f"no such folder: {root}", "Name the output folder of a sweep")
    out: Path | None = options.out
    if out is None and options.format in FILENAMES:
        out = root / FILENAMES[options.format]
    if out is not None and not out.resolve().parent.is_dir():
        raise UsageError(f"no such folder: {out.resolve().parent}", "Make it, or choose another --out")
    _write(root, options.format, out, options.shape)
    if out is not None:
        sys.stdout.write(f"{out}\n")
    if options.open and out is not None and not webbrowser.open(out.resolve().as_uri()):
        sys.stderr.write("boosterrun: no browser could be started, open the file yourself\n")
    return 0


def _write(root: Path, form: str, out: Path | None, shape: str | None) -> None:
    if form == "jsonl":
        from boosterrun.report.text import json_lines  # noqa: PLC0415

        content = "".join(f"{line}\n" for line in json_lines(root)).encode()
    else:
        from boosterrun.report import model, page, picture, text  # noqa: PLC0415

        report = model.read(root)
        if form == "html" and out is not None:
            page.write(report, out)
            return
        content = text.markdown(report).encode() if form == "md" else picture.draw(report, form, shape)
    if out is None:
        sys.stdout.write(content.decode())
        return
    with replacing(out) as stream:
        stream.write(content)


def _parser() -> argparse.ArgumentParser:
    parser = Parser("boosterrun report", description="Show the results below DIR to people.")
    parser.add_argument("dir", metavar="DIR", type=Path, help="output folder of a sweep")
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default="html",
        help="png and svg: the S-curve alone; md: a short summary",
    )
    parser.add_argument(
        "--out", metavar="FILE", type=Path, help="default: in DIR; md and jsonl: standard output"
    )
    parser.add_argument("--shape", metavar="NAME", help="png and svg: one shape (default: over all)")
    parser.add_argument("--open", action="store_true", help="open the report in the browser")
    return parser
