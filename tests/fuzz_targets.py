"""Everything that boosterrun reads from elsewhere, as functions of bytes: for hypothesis and for atheris.

A target returns, or raises what a user is told in one line (`told`); anything else is a bug. Each begins with
the seeds below ``data/fuzz/<target>/``, and keeps to the folder that it is given.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import made_results
import made_sweeps

from boosterrun.compilers import nvbench
from boosterrun.config import ScoreConfig
from boosterrun.errors import BoosterrunError
from boosterrun.hydra_ext import remembered
from boosterrun.measure import protocol, takeover
from boosterrun.packs import candidates, catalog, manifest, names, reader
from boosterrun.programs import score
from boosterrun.report import model, page, text, traces
from boosterrun.results import cells, collect, csvlog, record, redecide
from boosterrun.sweeps import canary
from boosterrun.system import redact, visible

SEEDS = Path(__file__).parent / "data" / "fuzz"
Target = Callable[[bytes, Path], None]
TARGETS: dict[str, Target] = {}


def target(function: Target) -> Target:
    TARGETS[function.__name__] = function
    return function


@contextlib.contextmanager
def told() -> Iterator[None]:
    """Errors for the user pass, if they can be shown in one line."""
    try:
        yield
    except (BoosterrunError, protocol.ProtocolError, protocol.WorkerError, redecide.NotAgain) as error:
        shown = visible.one_line(redact.text(str(error)))
        assert shown
        assert "\n" not in shown


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """A folder that is the current one; nothing may appear beside it."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as made:
        inside = Path(made, "inside")
        inside.mkdir()
        os.chdir(inside)
        try:
            yield inside
        finally:
            os.chdir(before)
        assert os.listdir(made) == ["inside"]  # noqa: PTH208


def run(name: str, data: bytes) -> None:
    """Run a target once in a folder of its own."""
    with folder() as place, contextlib.redirect_stdout(io.StringIO()), told():
        TARGETS[name](data, place)


@target
def pack_manifest(data: bytes, place: Path) -> None:
    found: list[Exception] = []
    manifest.check(data, "here", found.append)
    manifest.parse(data, "here")
    assert not found


@target
def pack_catalog(data: bytes, place: Path) -> None:
    with told():
        catalog.parse_sums(data, "here")
    catalog.parse_catalog(data, "here").find("sample")


@target
def pack_zip(data: bytes, place: Path) -> None:
    (place / "pack.zip").write_bytes(data)
    found: list[Exception] = []
    reader.inspect(place / "pack.zip", found.append)
    reader._opened.clear()
    pack = reader.open_pack(place / "pack.zip")
    assert not found
    for acf in pack.acfs:
        pack.read(acf)


@target
def acf_name(data: bytes, place: Path) -> None:
    """A file of any name in a folder: it gets an id of its own that Hydra takes, or is refused."""
    name = data.decode(errors="surrogateescape")
    manifest.filename_problem(name)
    made = names.option_id(f"{name}.acf")
    assert names.option_id(f"{made}.acf") == made
    assert "/" not in made
    (place / "pack").mkdir()
    if "/" not in name:
        with contextlib.suppress(OSError, ValueError):  # not a name that a disk takes
            Path("pack", f"{name}.acf").write_bytes(b"x")
    for acf in reader.open_pack(place / "pack").acfs:
        assert acf.id == made
        assert visible.visible(acf.filename) == acf.filename


@target
def result(data: bytes, place: Path) -> None:
    """Merge it, with the log read back, and show it."""
    (place / "out" / "job").mkdir(parents=True)
    (place / "out" / "job" / record.FILENAME).write_bytes(data)
    merged = collect.collect([place / "out"])
    if merged.invalid:
        return
    assert len(csvlog.read_log(merged.csv)) == merged.rows
    shown = model.read(place / "out")
    page.render(shown, place / "out")
    text.markdown(shown)
    list(text.json_lines(place / "out"))


@target
def pairs(data: bytes, place: Path) -> None:
    path = place / "pairs.jsonl"
    path.write_bytes(data)
    list(takeover._lines(path))
    traces.read(place, made_results.result(shapes=[made_results.timed()], evidence="timed"))
    redecide._read(path)


@target
def log(data: bytes, place: Path) -> None:
    path = place / csvlog.FILENAME
    path.write_bytes(data)
    with told():
        csvlog.read_log(path)
    candidates.gather([path], top=3, maximise=False, packs=[])


@target
def cell(data: bytes, place: Path) -> None:
    words = data.decode(errors="surrogateescape")
    assert cells.unguard(cells.guard(words)) == words
    line = cells.cell(words)
    assert "\n" not in line
    assert "\r" not in line
    redact.text(words)
    visible.one_line(words)


@target
def message(data: bytes, place: Path) -> None:
    """What a worker sends: cut into lines, decoded, validated as each kind of answer."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.write(write, data[: 1 << 15])
    os.close(write)
    lines = protocol.Lines(read)
    try:
        with contextlib.suppress(protocol.Ended):
            while (line := lines.next()) is not None:
                with told():
                    _answer(line)
    finally:
        os.close(read)


def _answer(line: bytes) -> None:
    found = protocol.decode(line)
    number = found.get("id")
    answer = protocol.result_of(found, number if isinstance(number, int) else 1)
    for validate in (protocol.hello, protocol.built, protocol.checked, lambda a: protocol.samples(a, 1.0)):
        with told():
            validate(answer)


SCORES = [
    ScoreConfig(regex=r"time: (\S+)", unit="ms"),
    ScoreConfig(regex=r"(?P<value>[\d.e+-]+)\s*(?P<unit>\w+)", unit="us", select="last"),
    ScoreConfig(regex=r"((?:a|aa)+)b", unit="ms", select="first"),
    ScoreConfig(json_path="results[*].time", unit="s"),
    ScoreConfig(json_path="[-1]['odd.key']", unit="1/s", select="last"),
]


@target
def score_text(data: bytes, place: Path) -> None:
    (place / "score").write_bytes(data)
    words = score.read(place / "score")
    for config in SCORES:
        with told():
            assert all(0 < value < float("inf") for value in score.parse(words, config, deadline=1.0))


@target
def nvbench_result(data: bytes, place: Path) -> None:
    path = place / "result.json"
    path.write_bytes(data)
    nvbench.samples(path, place)


@target
def state(data: bytes, place: Path) -> None:
    """What a sweep leaves for the next one: ``command.json``, ``canary.json``, ``identity.json``."""
    for name in (remembered.COMMAND, canary.FILE):
        (place / name).write_bytes(data)
    with told():
        remembered._remembered(place)
    canary._load(place)


@target
def yaml(data: bytes, place: Path) -> None:
    """An experiment: composed, or refused."""
    (place / "experiments").mkdir()
    (place / "experiments" / "mine.yaml").write_bytes(data)
    _compose("experiment=mine")


@target
def override(data: bytes, place: Path) -> None:
    _compose(data.decode(errors="replace"))


def _compose(word: str) -> None:
    from boosterrun.hydra_ext import arguments, plan
    from boosterrun.hydra_ext.setup import set_up

    set_up()
    plan.make(arguments.parse([word, "acf=none"]), may_fetch=False)


def seeds(name: str) -> list[bytes]:
    """The seeds of a target, in the order of their names."""
    return [path.read_bytes() for path in sorted((SEEDS / name).iterdir())]


def make_seeds() -> None:
    """Write the seeds again: ``python tests/fuzz_targets.py``."""
    from releases import SAMPLE, real

    shutil.rmtree(SEEDS, ignore_errors=True)
    import zipfile

    with zipfile.ZipFile(SAMPLE) as file:
        full = json.loads(file.read(f"booster-pack-sample/{manifest.MANIFEST_NAME}"))
    small: dict[str, Any] = {**full, "acfs": full["acfs"][:2]}
    whole = json.loads(real()[catalog.CATALOG_NAME])
    for each in whole["packs"]:
        each["acfs"], each["acf_count"] = each["acfs"][:2], 2
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file, zipfile.ZipFile(SAMPLE) as source:
        file.writestr(zipfile.ZipInfo(f"p/{manifest.MANIFEST_NAME}"), json.dumps(small))
        for entry in small["acfs"]:
            name = f"booster-pack-sample/{entry['filename']}"
            file.writestr(zipfile.ZipInfo(f"p/{entry['filename']}"), source.read(name))
    timed, lines = made_sweeps.timed_result(1, ["s"])
    few = "".join(f"{line}\n" for line in lines.splitlines()[:3])
    entry = json.loads(lines.splitlines()[0])
    with_launches = json.dumps({**entry, "launches": 10, "sides": "x"}) + "\n"
    static = made_sweeps.static_result(2)
    table = "\n".join([csvlog.header(), *csvlog.lines(static, "job/result.json")]) + "\n"
    answers = [
        {"id": 1, "ok": True, "result": {"versions": {"a": "1"}, "device": None, "pid": 1}},
        {
            "id": 2,
            "ok": True,
            "result": {"seconds": 1.0, "artifacts": [], "kernels": [{}], "versions": {}, "detail": {}},
        },
        {"id": 3, "ok": True, "result": {"values": [1.5, None], "timer": "host", "detail": {}}},
        {"id": 4, "ok": True, "result": {"passed": True, "detail": {}}},
        {
            "id": 5,
            "ok": False,
            "error": {"kind": "runtime_error", "message": "m", "traceback": "", "fatal": True},
        },
    ]
    bench = {"benchmarks": [{"name": "b", "states": [{"name": "s", "summaries": []}]}]}
    made: dict[str, list[str | bytes]] = {
        "pack_manifest": [json.dumps(small)],
        "pack_catalog": [json.dumps(whole), real()[catalog.SUMS_NAME]],
        "pack_zip": [packed.getvalue()],
        "acf_name": ["01-sample_1-12d486f9268b", "é\u0301 \u202egnp", "CON", "1e5", "..", "a=b,c{d}"],
        "result": [json.dumps(static), json.dumps(timed)],
        "pairs": [few, with_launches],
        "log": [table, "params,score_1,generation\n" + '"[""00ff"", {""a"": 1}]",1.5,2\n'],
        "cell": ["=cmd|' /C calc'!A0", "a;=1+1", "\ufeff-1", "https://a:b@c/ TOKEN=x", "é\x1b[31m\u202e"],
        "message": ["".join(json.dumps(answer) + "\n" for answer in answers)],
        "score_text": [
            "time: 1.5 ms\n",
            '{"results": [{"time": 1e-3}]}\n[{"odd.key": 5}]\n',
            "aaaaaaaaaaaaaaaaaaac",
        ],
        "nvbench_result": [json.dumps(bench)],
        "state": [
            json.dumps({"argv": ["-m", "acf=none"], "cwd": "/"}),
            json.dumps({"schema_version": 1, "canaries": {"k": {"state": "passed"}}}),
        ],
        "yaml": [
            "# @package _global_\ndefaults: [override /workload: ptxas, override /gpu: auto]\nseed: 1\n",
            "# @package _global_\nworkload: {shapes: {s: {a: 1}}, env: {A: '${oc.env:HOME}'}}\nhydra: {}\n",
        ],
        "override": [
            "workload.shapes.s.a=1",
            "seed=1,2",
            "acf=glob(*,exclude=[a*])",
            "+workload.env={A: 'b\\'c'}",
        ],
    }
    for name, contents in made.items():
        (SEEDS / name).mkdir(parents=True)
        for number, content in enumerate(contents):
            data = content if isinstance(content, bytes) else content.encode()
            (SEEDS / name / f"{number}").write_bytes(data)


if __name__ == "__main__":
    make_seeds()
