from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import made_sweeps
import pytest

from boosterrun import cli, report
from boosterrun.results.collect import collect


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    return made_sweeps.sweep(tmp_path / "sweep", 4, 1)


def test_the_page_goes_into_the_folder_and_the_log_stays(
    sweep: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = collect([sweep]).csv
    before = log.read_bytes()
    assert cli.main(["report", str(sweep)]) == 0
    assert capsys.readouterr().out == f"{sweep}/report.html\n"
    assert (sweep / "report.html").read_text().startswith("<!doctype html>")
    assert log.read_bytes() == before
    assert collect([sweep]).rows == 4


def test_summary_and_lines_go_to_the_output_or_a_file(
    sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for form in ("md", "jsonl"):
        assert cli.main(["report", str(sweep), "--format", form]) == 0
        printed = capsys.readouterr().out
        out = tmp_path / "out"
        assert cli.main(["report", str(sweep), "--format", form, "--out", str(out)]) == 0
        assert capsys.readouterr().out == f"{out}\n"
        assert out.read_text() == printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "no such folder: nowhere"),
        ([".", "--format", "gif"], "invalid choice: 'gif'"),
        ([".", "--shape", "x"], "--shape is for"),
        ([".", "--format", "md", "--open"], "--open is for"),
        ([".", "--out", "nowhere/x.html"], "no such folder"),
        (["."], "no result.json below"),
        ([], "the following arguments are required: DIR"),
    ],
)
def test_mistakes_are_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["report", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_open_starts_the_browser_on_the_file(sweep: Path, tmp_path: Path) -> None:
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > {tmp_path}/opened\n')
    browser.chmod(0o755)
    main = "from boosterrun.cli import main; raise SystemExit(main())"
    done = subprocess.run(
        [sys.executable, "-c", main, "report", str(sweep), "--open"],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "BROWSER": f"{browser} %s"},
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "opened").read_text() == (sweep / "report.html").as_uri()


def test_after_a_sweep_the_report_is_written(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report.after_sweep(sweep)
    assert capsys.readouterr().out == f"report: {sweep}/report.html\n"
    assert (sweep / "report.html").is_file()


def test_a_report_that_fails_is_one_warning(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (sweep / "report.html").mkdir()
    report.after_sweep(sweep)
    error = capsys.readouterr().err
    assert error.startswith("boosterrun: warning: no report could be written: ")
    assert error.count("\n") == 1


def test_the_command_line_starts_without_what_only_a_report_needs() -> None:
    heavy = ("jinja2", "numpy", "vl_convert")
    code = f"import boosterrun.cli, boosterrun.report, sys; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"
