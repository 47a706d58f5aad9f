"""The example of the docs: made by its script, and as it is committed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import chromium
import made_sweeps
import pytest

from boosterrun.results import record

EXAMPLE = Path(__file__).parents[1] / "docs" / "example"


def test_the_script_leaves_no_word_of_the_machine(tmp_path: Path) -> None:
    pytest.importorskip("vl_convert")
    result, pairs = made_sweeps.timed_result(1, ["a"])
    result["environment"] |= {
        "host": {
            "hostname": "secret-node",
            "kernel": "6.1.0-secret-amd64",
            "python_executable": "/home/jo/v/python",
        },
        "variables": {"PYTHONPATH": "/secret", "TRITON_PTXAS_PATH": "/opt/secret/ptxas"},
    }
    result["pack"]["location"] = "/srv/secret/boosterrun/shipped/packs/x.zip"
    result["shapes"][0]["message"] = (
        "see /home/jo/.cache/acf/x.acf, /v/lib/python3.11/site-packages/nvidia/ptxas"
    )
    result["environment"]["gpu"]["before"]["devices"][0]["uuid"] = "GPU-secret"
    made_sweeps.write(tmp_path / "sweep", result, pairs)
    out = tmp_path / "made"
    out.mkdir()
    command = [
        sys.executable,
        EXAMPLE / "make.py",
        tmp_path / "sweep",
        "--out",
        out,
        "--replace",
        "/opt/secret=/opt",
    ]
    done = subprocess.run(command, check=False, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    texts = {file.name: file.read_text() for file in out.rglob("*") if file.is_file()}
    assert set(texts) == {"report.html", "s-curve.svg", "summary.md", "result.json", "pairs.jsonl"}
    for text in texts.values():
        assert "secret" not in text
        assert "/home/jo" not in text
    copy = record.load(out / "sweep" / "001-job" / "result.json")
    assert copy["pack"]["location"] == "boosterrun/shipped/packs/x.zip"
    assert copy["shapes"][0]["message"] == "see ~/.cache/acf/x.acf, site-packages/nvidia/ptxas"
    assert copy["environment"]["variables"] == {"TRITON_PTXAS_PATH": "/opt/ptxas"}
    assert (out / "sweep" / "001-job" / "pairs.jsonl").read_text() == pairs


@pytest.mark.skipif(chromium.PATH is None, reason=chromium.MISSING)
@pytest.mark.parametrize("dark", [False, True])
def test_the_committed_example_opens(tmp_path: Path, dark: bool) -> None:
    with chromium.page(tmp_path) as tab:
        for width in (1440, 390):
            tab.open(EXAMPLE / "report.html", width=width, dark=dark)
            assert tab.js("document.querySelectorAll('#curve svg, #curve canvas').length") == 1
            assert tab.js("document.documentElement.scrollWidth") <= width
        assert tab.problems == []
        assert set(tab.requests) == {(EXAMPLE / "report.html").as_uri()}


def test_the_committed_example_is_valid() -> None:
    results = sorted((EXAMPLE / "sweep").rglob("result.json"))
    assert results
    for path in results:
        record.load(path)
