"""Make the example of the docs from the results of a sweep: ``python docs/example/make.py FOLDER``.

Copies each ``result.json`` and ``pairs.jsonl`` below FOLDER into ``sweep/``, without what tells whose machine
it was, and writes the report, the S-curve and the summary of the copy beside it.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from boosterrun.report import model, page, picture, text
from boosterrun.report.load import results
from boosterrun.results import record

HERE = Path(__file__).parent
KEPT_VARIABLES = re.compile("(CUDA|NVCC|PTXAS|TRITON|HELION|FLASHINFER)_")
FIELDS = {
    "hostname": "gpu-host",
    "uuid": "GPU-00000000-0000-0000-0000-000000000000",
    "python_executable": "python",
}
# The order counts: what lies in the package or in a home is named by that.
PATTERNS = [
    (re.compile(r"/[^\s:'\",=]*?/(?=boosterrun/shipped/)"), ""),
    (re.compile(r"(/root|/home/[^/\s]+)(?=/)"), "~"),
    (re.compile(r"/[^\s:'\",=]*/site-packages(?=[/\s\"']|$)"), "site-packages"),
]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="output folder of a sweep, or of several")
    parser.add_argument("--out", type=Path, default=HERE, help="where to write (default: beside this file)")
    parser.add_argument("--replace", metavar="OLD=NEW", action="append", default=[], help="one more text")
    options = parser.parse_args(argv)
    more = [tuple(pair.split("=", 1)) for pair in options.replace]
    sweep: Path = options.out / "sweep"
    if sweep.exists():
        shutil.rmtree(sweep)
    for path, content in results(options.folder):
        if isinstance(content, str):
            sys.stderr.write(f"left out: {path}: {content}\n")
            continue
        target = sweep / path.parent.relative_to(options.folder.resolve())
        target.mkdir(parents=True)
        record.write(neutral(content, more), target)
        pairs = path.parent / "pairs.jsonl"
        if pairs.is_file() and pairs.stat().st_size:
            shutil.copyfile(pairs, target / "pairs.jsonl")
    report = model.read(sweep)
    page.write(report, options.out / "report.html")
    (options.out / "s-curve.svg").write_bytes(picture.draw(report, "svg"))
    (options.out / "summary.md").write_text(text.markdown(report), encoding="utf-8")
    return 0


def neutral(result: dict[str, Any], more: Sequence[tuple[str, ...]] = ()) -> dict[str, Any]:
    """The result without names of hosts, homes and devices, and without variables that no compiler reads."""
    made: dict[str, Any] = _neutral(result, more)
    variables = made["environment"].get("variables") or {}
    made["environment"]["variables"] = {k: v for k, v in variables.items() if KEPT_VARIABLES.match(k)}
    host = made["environment"].get("host") or {}
    if host.get("kernel"):
        host["kernel"] = re.match(r"[\d.]*", host["kernel"])[0]  # type: ignore[index]
    if made["job"]["command"]:
        made["job"]["command"][0] = "boosterrun"
    return made


def _neutral(value: Any, more: Sequence[tuple[str, ...]], name: str = "") -> Any:
    if isinstance(value, dict):
        return {key: _neutral(item, more, key) for key, item in value.items()}
    if isinstance(value, list):
        return [_neutral(item, more) for item in value]
    if not isinstance(value, str):
        return value
    if name in FIELDS:
        return FIELDS[name]
    for old, new in more:
        value = value.replace(old, new)
    for pattern, new in PATTERNS:
        value = pattern.sub(new, value)
    return value


if __name__ == "__main__":
    raise SystemExit(main())
