"""Files that somebody edits while they are measured."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from command import SAMPLE, environment, results, run
from hypothesis import given
from hypothesis import strategies as st

from boosterrun import packs
from boosterrun.measure import imported

IDS = [acf.id for acf in packs.open_pack(SAMPLE).acfs]
EXPERIMENT = """\
defaults: [{override /workload: python}]
workload: {name: own, case: ./case.py:make, shapes: {small: {size: 4}}}
protocol:
  {calibration_pairs: 4, min_pairs: 4, max_pairs: 8, confirm_sessions: 1, confirm_min_pairs: 4, min_gain: 0.2,
   block_launches: 3}
"""
CASE = """\
import os, time
from pathlib import Path
import numpy as np
import helper
from boosterrun import Case

def make(*, seed, size):
    out = np.zeros(size)
    def run_():
        time.sleep(helper.SECONDS)
        out[:] = seed
    if Path(os.environ.get("BOOSTERRUN_ACF", "")).name == EDITING:
        Path(helper.__file__).write_text("SECONDS = 0.001\\n")
    return Case(run=run_, reference=lambda: np.full(size, float(seed)), outputs=[out])
"""


def test_who_edits_a_kernel_while_a_sweep_runs_is_taken_for_no_acf(tmp_path: Path) -> None:
    editing = packs.open_pack(SAMPLE).acfs[1].sha256
    (tmp_path / "case.py").write_text(CASE.replace("EDITING", repr(f"{editing}.acf")))
    (tmp_path / "helper.py").write_text("SECONDS = 0.02\n")
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "own.yaml").write_text(EXPERIMENT)
    sweep = ["-m", f"acf={','.join(IDS[:3])}", "experiment=own", "sweep.build_ahead=0", "hydra.sweep.dir=out"]
    done = run(*sweep, cwd=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    first, second, third = results(tmp_path / "out")
    assert second["status"] == "undecided"
    assert second["message"] == f"{tmp_path / 'helper.py'} changed while own was measured"
    # The baseline of the first job is not that of the third: it is another kernel by now.
    for result, edited in ((first, False), (third, True)):
        assert result["decision"] not in (None, "KEPT"), result["message"]
        for side in ("baseline", "candidate"):
            assert (result["shapes"][0][side]["mean"] < 20) == edited
    again = run("resume", "out", cwd=tmp_path)
    assert again.returncode == 0, again.stdout + again.stderr
    assert {result["decision"] for result in results(tmp_path / "out")}.isdisjoint({None, "KEPT"})


SCRIPT = """
import json, os, sys
from pathlib import Path
from boosterrun.measure import imported
sys.path[:0] = [sys.argv[1], sys.argv[1] + "/target"]
import early, installed
imported.note()
import late
place = Path(sys.argv[1])
told = [imported.told()]
for name, text in json.loads(sys.argv[2]).items():
    text = f"A = 1 #{'x' * text}" if isinstance(text, int) else text
    (place / name).write_text(text) if text is not None else (place / name).unlink()
told.append(imported.told())
print(json.dumps(told))
"""


@pytest.mark.parametrize(
    ("change", "changed"),
    [
        ({}, set()),
        ({"early.py": "A = 2"}, {"early.py"}),
        ({"early.py": "A = 1", "late.py": "A = 3"}, {"late.py"}),  # written anew, but the same
        ({"early.py": None}, set()),  # whatever it was, it was made for the occasion
        ({"other.py": "A = 2", "target/installed.py": "A = 2"}, set()),
        ({"late.py": 5 << 20}, {"late.py"}),
    ],
)
def test_what_a_process_tells(tmp_path: Path, change: dict[str, str | int | None], changed: set[str]) -> None:
    (tmp_path / "target" / "installed-1.0.dist-info").mkdir(parents=True)  # as pip --target leaves it
    for name in ("early.py", "late.py", "other.py", "target/installed.py"):
        (tmp_path / name).write_text("A = 1")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path), json.dumps(change)],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    before, after = json.loads(done.stdout)
    # Neither Python's own modules, nor installed ones, nor ours.
    assert {Path(name).name for name in before} == {"early.py", "late.py"}
    assert {Path(name).name for name in after if not after[name]} == changed
    assert imported.current(before) == (not changed)
    assert imported.difference(before, after) == next(
        (str(tmp_path / name) for name in sorted(changed)), None
    )


@given(st.dictionaries(st.sampled_from("abc"), st.sampled_from(["", "1", "2"])), st.data())
def test_a_difference_is_seen_from_both_sides(one: dict[str, str], data: st.DataObject) -> None:
    other = data.draw(st.dictionaries(st.sampled_from("abc"), st.sampled_from(["", "1", "2"])))
    found = imported.difference(one, other)
    assert found == imported.difference(other, one)
    odd = {
        n
        for n in {*one, *other}
        if "" in (one.get(n), other.get(n)) or len({*(s[n] for s in (one, other) if n in s)}) > 1
    }
    assert found == min(odd, default=None)
