"""The sdist makes a wheel, and the wheel runs the demo sweep from any folder."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from boosterrun.results.csvlog import read_log

ROOT = Path(__file__).parents[1]


def run(argv: list[str], **options: Any) -> str:
    done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=240, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from the sdist, so that both are proven at once."""
    folder = tmp_path_factory.mktemp("dist")
    run([sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)])
    (sdist,) = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"README.md", "CHANGELOG.md", "Makefile", "tests/test_packaging.py", "docs/columns.md"} <= names
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_runs_the_demo_sweep_from_another_folder(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(site), str(wheel)])
    assert (site / "boosterrun" / "shipped" / "packs" / "LICENSE-NVIDIA-ACF.txt").is_file()
    work = tmp_path / "elsewhere"
    work.mkdir()
    main = "import boosterrun.cli as c; print(c.__file__); raise SystemExit(c.main())"
    env = {**os.environ, "PYTHONPATH": str(site)}
    out = run([sys.executable, "-c", main, "-m", "acf=glob(0*)", "workload=ptxas"], cwd=work, env=env)
    assert out.startswith(str(site))
    log = read_log(Path(out.rpartition("log: ")[2].strip()))
    assert len(log) == 27
    assert log["decision"].str.match(r"KEPT|REJECTED:\w+").all()
