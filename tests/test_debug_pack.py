"""The canary with a Debug Pack: real ACFs under its names, and a case that is as slow as the test wants."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from compilers import controls
from omegaconf import OmegaConf
from triton_jobs import CASE, config

from boosterrun.config import Config, Stage
from boosterrun.errors import CanaryError
from boosterrun.sweeps import canary, debug_pack

SLOW_CASE = f"""
import importlib.util, os, random

def make(*, seed, opt0=0.2, opt3=0.0, **keys):
    spec = importlib.util.spec_from_file_location("compile_only", {str(CASE)!r})
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    case = module.make(seed=seed, **keys)
    acf = os.environ.get("BOOSTERRUN_ACF_ID", "")
    factor = 1 + (opt0 if "opt0" in acf else opt3 if "opt3" in acf else 0)
    draw = random.Random(os.getpid())
    case.sample = lambda count: [factor * draw.lognormvariate(0, 0.003) for _ in range(count)]
    return case
"""


def chosen(folder: Path, **options: Any) -> Config:
    pack = folder / "debug"
    pack.mkdir()
    for name, number in (("ptxas_opt0", 3), ("ptxas_opt3", 1), ("ptxas_regs", 2)):
        (pack / f"{name}.acf").write_bytes(controls(folder / "acf", number)[1].read_bytes())
    (folder / "case.py").write_text(SLOW_CASE)
    made = config(shapes={"one": {"block": 1024}, "two": {"block": 2048}}, **options)
    made.workload.case = f"{folder}/case.py:make"  # type: ignore[attr-defined]
    made.pack.path, made.pack.cuda_version, made.pack.stage = str(pack), "13.3", Stage.ptxas
    return made


def record(folder: Path) -> dict[str, Any]:
    [found] = json.loads((folder / canary.FILE).read_text())["canaries"].values()
    return dict(found)


def test_passes_where_opt0_is_slow_and_opt3_is_not(tmp_path: Path) -> None:
    canary.before_sweep([OmegaConf.structured(chosen(tmp_path))], tmp_path / "sweep")
    found = record(tmp_path / "sweep")
    assert found["state"] == "passed"
    checks = {check["name"]: check for check in found["checks"]}
    assert list(checks) == ["poison", "same_path", debug_pack.SLOW, debug_pack.SAME]
    assert re.search(r"ptxas_opt0 makes it (19|20)\.\d% slower", checks[debug_pack.SLOW]["words"])
    assert "ptxas_opt3 changes the code, and the time by" in checks[debug_pack.SAME]["words"]
    assert [path.name for path in (tmp_path / "sweep").iterdir()] == [canary.FILE]


@pytest.mark.parametrize(
    ("options", "failed", "words"),
    [
        ({"opt0": 0.02}, debug_pack.SLOW, "5% slower or more, and does not .*overrides TRITON_CACHE_DIR"),
        ({"opt3": 0.1}, debug_pack.SAME, "within 5%, and does not .*TRITON_PTXAS_PATH"),
        ({"opt3": -0.1}, debug_pack.SAME, "within 5%, and does not"),
    ],
)
def test_stops_where_what_is_timed_is_not_what_was_compiled(
    options: dict[str, float], failed: str, words: str, tmp_path: Path
) -> None:
    with pytest.raises(CanaryError, match=words) as raised:
        canary.before_sweep([OmegaConf.structured(chosen(tmp_path, **options))], tmp_path / "sweep")
    assert raised.value.exit_code == 3
    found = record(tmp_path / "sweep")
    assert [check["name"] for check in found["checks"] if not check["passed"]] == [failed]


def test_is_left_out_where_it_is_not_wanted_or_not_at_hand(tmp_path: Path) -> None:
    made = chosen(tmp_path)
    made.canary.debug = False
    canary.before_sweep([OmegaConf.structured(made)], tmp_path / "sweep")
    assert len(record(tmp_path / "sweep")["checks"]) == 2
    assert debug_pack.at_hand(made) is not None
    Path(made.pack.path, "ptxas_opt3.acf").unlink()
    assert debug_pack.at_hand(made) is None
