"""Everything that is read from elsewhere, damaged: no traceback, no hang, nothing written elsewhere.

A few dozen inputs a target here; ``make test-fuzz`` has atheris look for more, for a minute a target.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import fuzz_targets
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

SLOW = {"yaml": 15, "override": 15, "result": 30}
PIECES = [b"\x00", b"\xff\xfe", b"{", b"[" * 2000, b'"', b"\n", b"1e999", b"-1", b"null", b"NaN", b"true"]
PIECES += [
    b"\xed\xa0\x80",
    b"\xe2\x80\xae",
    b"9" * 5000,
    b"../",
    b"\x1b[31m",
    b"&a *a",
    b"${",
    b"${oc.env:HOME}",
]
PIECES += [b"!!python/name:os.system"]


@st.composite
def damaged(draw: st.DrawFn, name: str) -> bytes:
    """A seed with some places overwritten, cut out, repeated or moved; sometimes anything at all."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=200))
    data = bytearray(draw(st.sampled_from(fuzz_targets.seeds(name))))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data)))
        to = min(len(data), at + draw(st.integers(0, 40)))
        data[at:to] = draw(st.sampled_from(PIECES) | st.binary(max_size=8) | st.just(bytes(data[at:to] * 2)))
    return bytes(data)


def test_every_target_has_seeds_and_the_seeds_are_good() -> None:
    assert {path.name for path in fuzz_targets.SEEDS.iterdir()} == set(fuzz_targets.TARGETS)
    for name in fuzz_targets.TARGETS:
        for data in fuzz_targets.seeds(name):
            fuzz_targets.run(name, data)


@pytest.mark.parametrize("name", fuzz_targets.TARGETS)
def test_damaged_input_is_refused_or_read(name: str) -> None:
    @settings(max_examples=SLOW.get(name, 120), deadline=None, suppress_health_check=list(HealthCheck))
    @given(damaged(name))
    def run(data: bytes) -> None:
        fuzz_targets.run(name, data)

    run()


def kinds(place: Path) -> dict[str, Callable[[Path], None]]:
    return {
        "a pipe": os.mkfifo,
        "a device without end": lambda path: path.symlink_to("/dev/zero"),
        "a loop": lambda path: path.symlink_to(path.name),
        "a folder": lambda path: path.mkdir(),
        "nothing": lambda path: path.symlink_to("nowhere"),
    }


def notes(path: Path, folder: str) -> Path:
    """The folder of a sweep whose notes of that name lie where ``path`` does."""
    (path.parent / folder).symlink_to(path.parent)
    return path.parent


@pytest.mark.parametrize("kind", kinds(Path()))
def test_what_is_no_file_is_never_waited_for(tmp_path: Path, kind: str) -> None:
    """In the place of each file that a folder of results, a program or a command line may hold."""
    from boosterrun.compilers import nvbench
    from boosterrun.errors import BoosterrunError
    from boosterrun.gpus import wedged
    from boosterrun.hydra_ext import remembered
    from boosterrun.measure import takeover
    from boosterrun.packs import candidates, reader
    from boosterrun.programs import score
    from boosterrun.report import traces
    from boosterrun.results import csvlog, record, redecide
    from boosterrun.sweeps import canary, estimate, resume

    make = kinds(tmp_path)[kind]
    calls: dict[str, Callable[[Path], object]] = {
        "result.json": record.load,
        "pairs.jsonl": redecide._read,
        "pairs.jsonl.old": lambda path: list(takeover._lines(path)),
        "traces": traces._lines,
        "command.json": lambda path: remembered._remembered(path.parent),
        canary.FILE: lambda path: canary._load(path.parent),
        "wedged.json": lambda path: wedged._notes(notes(path, wedged.FOLDER)),
        "estimate": lambda path: estimate.estimate(path.parent, "x", "timed", 1),
        "log.csv": csvlog.read_log,
        "table.csv": lambda path: candidates.gather([path], top=1, maximise=False, packs=[]),
        "one.acf": lambda path: candidates.gather([path], top=1, maximise=False, packs=[]),
        "pack.zip": reader.open_pack,
        "score": score.read,
        "nvbench.json": lambda path: nvbench.samples(path, path.parent),
    }
    assert resume.IDENTITY == "identity.json"
    done: list[str] = []

    def work() -> None:
        for name, call in calls.items():
            place = tmp_path / name.replace(".", "-")
            place.mkdir()
            make(place / name)
            try:
                call(place / name)
            except (BoosterrunError, redecide.NotAgain):
                pass
            except OSError as error:  # told by whoever asked
                raise AssertionError(name) from error
            done.append(name)

    thread = threading.Thread(target=work, daemon=True)
    began = time.monotonic()
    thread.start()
    thread.join(60)
    assert len(done) == len(calls), f"{[*calls][len(done)]}: waited {time.monotonic() - began:.0f} s"
