"""A sweep is shipped: what reappears gets a folder, what does not is refused."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import made_sweeps
import pytest
from command import SAMPLE, results, run

from boosterrun import packs
from boosterrun.errors import RunError, UsageError
from boosterrun.results import collect, csvlog, record
from boosterrun.sweeps import apply_note, ship

ACFS = packs.open_pack(SAMPLE).acfs
EXPERIMENT = """\
defaults: [{override /workload: simulated}]
workload:
  shapes: {small: {size: 16}, large: {size: 24}}
  options: {noise: {sigma: 0.002}, behaviours: {01-*: {gain: 0.2}, 02-*: {gain: 0.1}}}
protocol: {require_proof: false}
"""


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished sweep that kept two of three; never changed, only copied."""
    folder = tmp_path_factory.mktemp("swept")
    (folder / "experiments").mkdir()
    (folder / "experiments" / "own.yaml").write_text(EXPERIMENT)
    ids = ",".join(acf.id for acf in ACFS[:3])
    done = run("-m", f"acf={ids}", "experiment=own", "hydra.sweep.dir=out", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [one["decision"] == "KEPT" for one in results(folder)] == [True, True, False]
    assert "boosterrun ship out -o kept" in done.stdout
    return folder


@pytest.fixture
def place(swept: Path, tmp_path: Path) -> Path:
    """A copy, whose command is run in the copy."""
    copy = tmp_path / "copy"
    shutil.copytree(swept, copy)
    command = copy / "out" / "command.json"
    command.write_text(command.read_text().replace(str(swept), str(copy)))
    return copy


def change(place: Path, old: str, new: str) -> None:
    path = place / "experiments" / "own.yaml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


def test_what_reappears_is_shipped_and_what_does_not_is_refused(place: Path) -> None:
    change(place, "02-*: {gain: 0.1}", "02-*: {gain: 0.0}")
    before = {path: path.read_bytes() for path in (place / "out").rglob("*") if path.is_file()}
    done = run("ship", "out", "-o", "new/kept", cwd=place)
    assert done.returncode == 1, done.stderr
    refused = [line for line in done.stdout.splitlines() if line.startswith("not shipped: ")]
    assert [line.split()[2] for line in refused] == [ACFS[1].id]
    assert "REJECTED:no_gain" in refused[0]

    kept = place / "new" / "kept"
    assert [path.name for path in kept.parent.iterdir()] == ["kept"]
    files = {str(path.relative_to(kept)) for path in kept.rglob("*") if path.is_file()}
    assert files == {
        "APPLY.md",
        "NOTICE.txt",
        "LICENSE-NVIDIA-ACF.txt",
        "booster-pack-log.csv",
        ACFS[0].filename,
        f"results/{ACFS[0].id}/result.json",
    }
    assert (kept / ACFS[0].filename).read_bytes() == packs.open_pack(SAMPLE).read(ACFS[0])
    assert "© NVIDIA Corporation" in (kept / "NOTICE.txt").read_text()
    result = record.load(kept / "results" / ACFS[0].id / "result.json")
    assert result["config"]["protocol"]["name"] == "ship"
    assert result["job"]["sweep_candidates"] == 2
    assert {shape["name"] for shape in result["shapes"]} == {"small", "large"}
    log = csvlog.read_log(kept / "booster-pack-log.csv")
    assert list(log["acf_id"]) == [ACFS[0].id] * 2
    assert all((kept / where).is_file() for where in log["result"])
    note = (kept / "APPLY.md").read_text()
    assert "Chosen among 3 candidates in the sweep `out`" in note
    assert "K = 2" in note
    assert ACFS[1].id not in note
    assert {path: path.read_bytes() for path in before} == before

    # A second attempt does not get a second draw.
    again = run("ship", "out", "-o", "other", cwd=place)
    assert again.returncode == 1
    assert again.stdout.count("(done before)") == 2
    assert (place / "other" / "APPLY.md").exists()


def test_nothing_is_written_where_nothing_reappears(place: Path) -> None:
    done = run("ship", "out", "-o", "kept", "protocol.require_proof=true", cwd=place)
    assert done.returncode == 1
    assert done.stdout.count("not shipped: ") == 2
    assert "no proof that the ACF was applied" in done.stdout
    assert not (place / "kept").exists()


def test_undecided_is_not_shipped(place: Path) -> None:
    change(place, "options: {", "options: {no_such_option: 1, ")
    done = run("ship", "out", "-o", "kept", cwd=place)
    assert done.returncode == 1
    assert done.stdout.count("not shipped: ") == 2
    assert done.stdout.count(": undecided: ") == 2
    assert not (place / "kept").exists()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["out", "-o", "full"], "no empty folder"),
        (["out", "-o", "out/kept"], "is inside"),
        (["out", "-o", "kept", "protocol=quick"], "ship sets protocol by itself"),
        (["nowhere", "-o", "kept"], "no such folder"),
        (["out"], "required"),
    ],
)
def test_what_cannot_be_shipped_is_told_before_anything_runs(
    place: Path, args: list[str], message: str
) -> None:
    (place / "full").mkdir()
    (place / "full" / "file").touch()
    done = run("ship", *args, cwd=place)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (place / "out-ship").exists()


def test_a_static_screen_is_not_shipped(tmp_path: Path) -> None:
    made_sweeps.write(tmp_path, made_sweeps.static_result(1))
    with pytest.raises(UsageError, match=r"never timed.*Time it first"):
        ship.kept(tmp_path)
    timed = [made_sweeps.timed_result(number, ["a"]) for number in range(20)]
    result, pairs = next(one for one in timed if one[0]["decision"] == "KEPT")
    result["job"]["id"] = "another"
    made_sweeps.write(tmp_path, result, pairs)
    found, refused = ship.kept(tmp_path)
    assert [one.result["evidence"] for one in found] == ["timed"]
    assert [line.partition(": ")[2] for line in refused] == ["a static screen, never timed"]


def test_nothing_kept(tmp_path: Path) -> None:
    made_sweeps.write(tmp_path, made_sweeps.static_result(1, "no_gain", gain=0.0))
    with pytest.raises(RunError, match="no candidate was kept"):
        ship.kept(tmp_path)


def test_a_folder_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    each = reappeared("triton")
    each.after.result["pack"] |= {"location": str(SAMPLE)}
    each.after.result["acf"] |= {"id": ACFS[0].id, "sha256": ACFS[0].sha256}
    out = tmp_path / "kept"
    with pytest.raises(RunError, match="cannot write"):  # its result is not there
        ship.write(out, [each], "note")
    assert list(tmp_path.iterdir()) == []


def test_another_content_under_the_same_name_has_not_reappeared(tmp_path: Path) -> None:
    result = made_sweeps.static_result(1)
    before = [ship.Found(tmp_path / "result.json", made_sweeps.static_result(1))]
    result["acf"]["sha256"] = "f" * 64
    made_sweeps.write(tmp_path, result)
    assert collect.collect([tmp_path]).rows == 1
    shipped, (why,) = ship.again(before, tmp_path, ())
    assert not shipped
    assert "another content" in why
    _, (why,) = ship.again(before, tmp_path, {"workload"})
    assert "another content" in why
    before[0].result["job"]["overrides"].append("seed=1")
    _, (why,) = ship.again(before, tmp_path, ())
    assert why.endswith("it has no result")


def reappeared(adapter: str, stages: tuple[str, ...] = ("ptxas",), **workload: Any) -> ship.Reappeared:
    result = made_sweeps.static_result(1) | {"evidence": "timed"}
    result["workload"] |= {"adapter": adapter}
    result["acf"] |= {"compiler_stages": list(stages)}
    rules = {"name": "ship", "min_gain": 0.01, "alpha": 0.05, "confirm_min_pairs": 100}
    result["config"] = {
        "protocol": rules | {"confirm_sessions": 5, "checks": 5},
        "workload": {"env": {}, **workload},
    }
    found = ship.Found(Path("/nowhere/job/result.json"), result)
    return ship.Reappeared(found, found, "01-a.acf")


def blocks(each: ship.Reappeared, language: str) -> str:
    note = apply_note.note([each], Path("/outputs/sweep"), Path("/outputs/sweep-ship"))
    return "\n".join(re.findall(rf"^````{language}\n(.*?)^````$", note, re.MULTILINE | re.DOTALL))


@pytest.mark.parametrize(
    ("each", "expected"),
    [
        (reappeared("triton"), "PTXAS_OPTIONS=--apply-controls={acf}"),
        (reappeared("triton"), "TRITON_PTXAS_BLACKWELL_PATH={bin}/ptxas"),
        (reappeared("helion"), "TRITON_PTXAS_PATH={bin}/ptxas"),
        (reappeared("flashinfer"), "FLASHINFER_EXTRA_CUDAFLAGS=-Xptxas --apply-controls={acf}"),
        (reappeared("flashinfer"), "CUDA_HOME={home}"),
        (reappeared("flashinfer", ("nvcc", "ptxas")), "FLASHINFER_EXTRA_CUDAFLAGS=--apply-controls={acf}"),
        (reappeared("nvcc"), "-Xptxas --apply-controls={acf} ..."),
        (reappeared("nvcc", ("nvcc", "ptxas")), "--apply-controls={acf} ..."),
        (reappeared("python", env={"MY": "it's {acf}", "NOT": "1"}), "MY=it's {acf}"),
    ],
)
def test_the_note_s_commands_work(tmp_path: Path, each: ship.Reappeared, expected: str) -> None:
    tools = tmp_path / "cuda" / "bin"
    tools.mkdir(parents=True)
    for name in ("ptxas", "nvcc"):
        (tools / name).write_text('#!/bin/sh\necho "$@"\n')
        (tools / name).chmod(0o755)
    (tmp_path / "01-a.acf").touch()
    script = f"set -eu\n{blocks(each, 'sh')}env\n"
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env={"PATH": f"{tools}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    words = {"acf": tmp_path / "01-a.acf", "bin": tools, "home": tmp_path / "cuda"}
    assert expected.format(**words) in done.stdout.splitlines()
    assert "NOT=" not in done.stdout


def test_the_note_on_helion_is_python_and_keeps_the_pinned_config() -> None:
    each = reappeared("helion", configs={"quant": {"block_sizes": [1], "num_warps": 4}})
    code = blocks(each, "python")
    compile(code, "note", "exec")
    assert "block_sizes=[1], num_warps=4, advanced_controls_file=" in code
    compile(blocks(reappeared("helion"), "python"), "note", "exec")


def test_the_note_on_a_command_shows_its_own_words() -> None:
    each = reappeared("command", command=["./run.sh", "{acf_flags}"], env={"A": "1", "B": "{acf}"})
    text = blocks(each, "yaml")
    assert 'command: ["./run.sh", "{acf_flags}"]' in text
    assert "B" in text
