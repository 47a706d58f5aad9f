"""Workloads that cheat, judged by real workers: each is caught, or docs/limits.md says that it is not."""

from __future__ import annotations

import json
import os
from pathlib import Path

import cases_of_cheats as cheats
import numpy as np
import pytest

from boosterrun.adapters import base
from boosterrun.adapters.base import Job, Judgement, Toolchain
from boosterrun.config import AcfConfig, Config, ProtocolConfig, PythonWorkload, TimeoutsConfig
from boosterrun.errors import RunError
from boosterrun.measure import arrays
from boosterrun.measure.api import SideName, SideSpec
from boosterrun.measure.side import WorkerSide
from boosterrun.packs import Acf

ROOT = Path(__file__).parent.parent
ACF = Acf("01-x", "01-x.acf", "0" * 64, 1, ("ptxas",), "", "01-x.acf")
TIMEOUTS = TimeoutsConfig(start=60.0, build=60.0, check=60.0, sample=60.0, grace=0.3)


def judge(tmp_path: Path, cheat: str) -> Judgement:
    """What the shortest protocol says of it; a lie that it believes, longer ones believe as well."""
    for name in ("folder", "work"):
        (tmp_path / name).mkdir()
    workload = PythonWorkload(
        name="cheat",
        case=f"{cheats.__file__}:make",
        shapes={"one": {}},
        options={"cheat": cheat},
        env={"OPENBLAS_NUM_THREADS": "1"},
    )
    # What a busy machine does to six pairs is not half the time; what a cheat gains is more.
    protocol = ProtocolConfig(
        name="quick",
        method="quick",
        calibration_pairs=4,
        trials=6,
        confirm_sessions=1,
        checks=1,
        min_gain=0.5,
    )
    config = Config(AcfConfig(id="01-x"), workload=workload, protocol=protocol, timeouts=TIMEOUTS)
    work = tmp_path / "work"
    job = Job(config, ACF, tmp_path / "0.acf", tmp_path / "folder", work, Toolchain(), None)
    return base.load("python").judge(job)


CAUGHT = {
    "TheReferencesArray": "wrong_result",
    "ACopyOfTheReferencesArray": "wrong_result",
    "Once": "wrong_result",
    "SkipsWhileItIsTimed": "wrong_result",
    "ForgedAnswer": "runtime_error",
}
# What is kept though it is no faster, and the words of docs/limits.md that say so.
NOT_CAUGHT = {
    "AHiddenCopyOfTheAnswer": "leaves its answer where `run` finds it",
    "RepeatedInputs": "remembers its answer by its inputs",
    "LooksForTheFill": "looks for the NaN",
    "SleepingBaseline": "sleeps on the baseline",
    "OurClockSpeedsTheCandidate": "replaces functions of boosterrun",
    "OwnTimes": "Its own times (`own`, `launch`) are believed",
}
ELSEWHERE = {"Honest", "Clock", "OurClockSlowsTheBaseline", "ReferenceIsAnInput"}


@pytest.mark.parametrize("cheat", CAUGHT)
def test_these_are_caught(tmp_path: Path, cheat: str) -> None:
    judgement = judge(tmp_path, cheat)
    assert judgement.decision == f"REJECTED:{CAUGHT[cheat]}", judgement.message


@pytest.mark.parametrize("cheat", NOT_CAUGHT)
def test_these_are_not_and_the_docs_say_so(tmp_path: Path, cheat: str) -> None:
    assert judge(tmp_path, cheat).decision == "KEPT"
    limits = " ".join((ROOT / "docs" / "limits.md").read_text().split())
    assert NOT_CAUGHT[cheat] in limits


def test_every_cheat_is_tried() -> None:
    made = {name for name, kind in vars(cheats).items() if isinstance(kind, type) and name != "Case"}
    assert made == {*CAUGHT, *NOT_CAUGHT, *ELSEWHERE}


@pytest.mark.parametrize("cheat", ["Honest", "Clock"])
def test_an_honest_workload_and_a_replaced_clock_gain_nothing(tmp_path: Path, cheat: str) -> None:
    judgement = judge(tmp_path, cheat)
    assert judgement.decision != "KEPT"
    gain = judgement.shapes[0]["gain"]
    assert gain is None or gain < 1.0  # the clock would have made it 3.0


def test_a_clock_that_makes_the_baseline_slow_is_found(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="the clock of the worker is wrong"):
        judge(tmp_path, "OurClockSlowsTheBaseline")


def test_a_reference_that_is_an_input_is_told_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="must return a copy of it"):
        judge(tmp_path, "ReferenceIsAnInput")


def test_what_a_reference_returned_is_given_back_whatever_happens() -> None:
    strided = np.arange(6.0).reshape(2, 3)[:, ::2]
    golden = {"a": strided, "b": [np.arange(4), 3.5], "c": np.array([True, False])}
    kept = arrays.keep(golden)
    with arrays.withheld(golden, kept) as count:
        assert count == 3
        assert np.isnan(strided).all()
    with pytest.raises(KeyError), arrays.withheld(golden, kept):
        raise KeyError
    for array, copy in zip(arrays.look(golden), kept, strict=True):
        np.testing.assert_array_equal(array.data, copy.data)


def test_the_sides_differ_in_their_acf_alone(tmp_path: Path) -> None:
    """Not in their arguments or their folder: what a case may honestly look at is the same on both."""
    (tmp_path / "case.py").write_text(
        "import json, os, sys\nimport numpy as np\nfrom boosterrun import Case\n"
        "def make(*, seed):\n"
        "    print(json.dumps([sys.argv, os.getcwd(), dict(os.environ)]), flush=True)\n"
        "    return Case(run=lambda: np.ones(1), reference=lambda: np.ones(1))\n"
    )
    seen = []
    names: tuple[SideName, ...] = ("baseline", "candidate")
    for name in names:
        mine = name == "candidate"
        spec = SideSpec(
            name,
            tmp_path / "0.acf" if mine else None,
            "01-x" if mine else None,
            tmp_path / name,
            case=f"{tmp_path}/case.py:make",
        )
        with WorkerSide(spec, TIMEOUTS) as side:
            side.start()
            side.build("s", {})
        seen.append(json.loads((tmp_path / name / "stdout.log").read_text()))
    (argv, folder, before), (other_argv, other_folder, after) = seen
    assert (argv, folder) == (other_argv, other_folder)
    assert folder == os.getcwd()  # noqa: PTH109 - as the worker says it
    different = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
    assert different == {"BOOSTERRUN_ACF", "BOOSTERRUN_ACF_ID", "BOOSTERRUN_SPAWN"}
