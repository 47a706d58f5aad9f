"""Coverage-guided fuzzing of every target, each for `BOOSTERRUN_FUZZ_SECONDS`: `make test-fuzz`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import fuzz_targets
import pytest

pytest.importorskip("atheris", reason="needs make test-fuzz")

HERE = Path(__file__).parent
SECONDS = int(os.environ.get("BOOSTERRUN_FUZZ_SECONDS", "0"))
# One input may take this long, in seconds: a page of a report on a busy machine.
PATIENCE = 25


@pytest.mark.skipif(SECONDS == 0, reason="needs make test-fuzz")
@pytest.mark.parametrize("name", fuzz_targets.TARGETS)
def test_no_input_breaks_a_target(name: str, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for number, data in enumerate(fuzz_targets.seeds(name)):
        (corpus / f"{number}").write_bytes(data)
    limits = [
        f"-max_total_time={SECONDS}",
        f"-timeout={PATIENCE}",
        "-rss_limit_mb=4096",
        "-max_len=20000",
        "-seed=1",
    ]
    done = subprocess.run(
        [sys.executable, HERE / "fuzz_atheris.py", name, corpus, *limits, "-print_final_stats=1"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{HERE.parent}:{HERE}"},
        check=False,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=SECONDS + 300,
    )
    words = done.stdout + done.stderr
    assert done.returncode == 0, words[-6000:]
    executed = next(line for line in words.splitlines() if "number_of_executed_units" in line).split()[-1]
    print(f"{name}: {executed} inputs")
    assert int(executed) > len(fuzz_targets.seeds(name)), words[-2000:]
