"""Packs made of loose files, of what a sweep kept, and of what a search found; each verifies, and sweeps."""

from __future__ import annotations

import csv
import hashlib
import json
import math
import shutil
import zipfile
from pathlib import Path
from typing import Any

import command
import made_results
import pytest
import releases
from hypothesis import given, settings
from hypothesis import strategies as st

from boosterrun.errors import BoosterrunError, PackError, UsageError
from boosterrun.packs import open_pack
from boosterrun.packs.candidates import gather
from boosterrun.packs.gathered import Gathered
from boosterrun.packs.make import NOTICE, Label, write
from boosterrun.packs.verify import verify
from boosterrun.results import collect, record

PACK = open_pack(releases.SAMPLE)
ACFS = [PACK.read(acf) for acf in PACK.acfs]
CUDA = Label(cuda_version="13.3")


def loose(root: Path, count: int = 3) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    for acf, data in zip(PACK.acfs[:count], ACFS, strict=False):
        (root / acf.filename).write_bytes(data)
    return root


def collected(
    *sources: Path, top: int = 24, maximise: bool = False, packs: tuple[Path, ...] = ()
) -> Gathered:
    return gather(sources, top=top, maximise=maximise, packs=packs)


def results(path: Path, rows: list[dict[str, Any]]) -> Path:
    """The CSV as CompileIQ writes it: ``params`` is JSON text."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, columns)
        writer.writeheader()
        writer.writerows({**row, "params": json.dumps(row["params"])} for row in rows)
    return path


def row(score: object, params: object, generation: int = 0, **more: object) -> dict[str, Any]:
    return {"metadata": "", "generation": generation, "score_1": score, "params": params, **more}


def good(path: Path) -> Path:
    findings = verify(path)
    assert [str(problem) for problem in findings.problems] == findings.warnings == []
    return path


def test_loose_files(tmp_path: Path) -> None:
    folder = loose(tmp_path / "in")
    (folder / "notes.txt").write_text("not an ACF")
    found = collected(folder, *sorted(folder.glob("*.acf"))[:1])
    assert found.left_out == {"the same as another": 1}
    made = open_pack(good(write(tmp_path / "booster-pack-mine.zip", found.candidates, CUDA)))
    assert [acf.filename for acf in made.acfs] == [acf.filename for acf in PACK.acfs[:3]]
    assert [made.read(acf) for acf in made.acfs] == ACFS[:3]
    assert (made.pack_id, made.display_name, made.cuda_version) == ("mine", "mine", "13.3")
    assert made.notice == NOTICE == PACK.notice
    assert {acf.compiler_stages for acf in made.acfs} == {("ptxas",)}


@pytest.mark.parametrize(("stage", "stages"), [("nvcc", ("nvcc",)), ("both", ("nvcc", "ptxas"))])
def test_what_is_said_of_it(tmp_path: Path, stage: str, stages: tuple[str, ...]) -> None:
    label = Label("My pack", "what it is", "13.3.1", stage, ("H200", "sm_100+"), "mine")
    made = open_pack(good(write(tmp_path / "x.zip", collected(loose(tmp_path / "in")).candidates, label)))
    assert (made.display_name, made.cuda_version, made.controls_stage) == ("My pack", "13.3.1", stage)
    assert (made.supported_gpus, made.notice) == (("H200", "sm_100+"), "mine")
    assert {acf.compiler_stages for acf in made.acfs} == {stages}


def test_the_same_bytes_every_time(tmp_path: Path) -> None:
    one = write(tmp_path / "a/x.zip", collected(loose(tmp_path / "in")).candidates, CUDA)
    for path in (tmp_path / "in").iterdir():
        path.touch()
    shutil.copytree(tmp_path / "in", tmp_path / "elsewhere")
    two = write(tmp_path / "b/x.zip", collected(tmp_path / "elsewhere").candidates, CUDA)
    assert one.read_bytes() == two.read_bytes()
    with zipfile.ZipFile(one) as file:
        assert {info.date_time for info in file.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_one_name_for_two_contents(tmp_path: Path) -> None:
    for folder, data in (("a", ACFS[0]), ("b", ACFS[1])):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "best.acf").write_bytes(data)
    found = collected(tmp_path / "a", tmp_path / "b")
    second = f"best-{hashlib.sha256(ACFS[1]).hexdigest()[:12]}.acf"
    assert [each.filename for each in found.candidates] == ["best.acf", second]
    good(write(tmp_path / "x.zip", found.candidates, CUDA))


def test_the_best_of_a_search(tmp_path: Path) -> None:
    rows = [
        row(0.5, ACFS[0].hex()),
        row(0.2, ACFS[1].hex(), 3),
        row("*", ACFS[2].hex()),
        row("nan", ACFS[3].hex()),
        row("inf", ACFS[4].hex()),
        row(1e10, ACFS[5].hex()),
        row("", ACFS[6].hex()),
        row(0.4, ACFS[1].hex().upper()),
        row(0.3, {}),
        row(0.3, "xyz"),
        row(0.3, "abc"),
        row(0.3, [ACFS[1].hex(), ACFS[2].hex()]),
        row(0.7, ACFS[7].hex()),
        row(0.6, ACFS[8].hex()),
    ]
    path = results(tmp_path / "my results.csv", rows)
    found = collected(path, top=3)
    assert [each.data for each in found.candidates] == [ACFS[1], ACFS[0], ACFS[8]]
    assert found.left_out == {
        "an invalid score": 5,
        "no single ACF in params": 4,
        "the same as a better one": 1,
        "worse than the best 3": 1,
    }
    first = found.candidates[0]
    assert first.filename == f"01-my_results-{hashlib.sha256(ACFS[1]).hexdigest()[:12]}.acf"
    assert first.description == "CompileIQ search my results.csv: score_1 0.2, rank 1 of 4, generation 3"
    assert [each.data for each in collected(path, top=2, maximise=True).candidates] == [ACFS[7], ACFS[8]]
    made = open_pack(good(write(tmp_path / "booster-pack-found.zip", found.candidates, CUDA)))
    assert made.acfs[0].id.startswith("01-my_results-")


def test_older_results(tmp_path: Path) -> None:
    path = tmp_path / "old.csv"
    path.write_text(f"generation,score,params\n0,2,{ACFS[0].hex()}\n1,1,{ACFS[1].hex()}\n1,3,1234\n")
    assert [each.data for each in collected(path).candidates] == [ACFS[1], ACFS[0], b"\x12\x34"]


def test_several_objectives_and_normalized_scores(tmp_path: Path) -> None:
    rows = [
        row(3, ACFS[0].hex(), score_2=1, norm_score_1=1.5),
        row(2, ACFS[1].hex(), score_2="*", norm_score_1=1.5),
        row(1, ACFS[2].hex(), score_2=1, norm_score_1="*"),
        row(4, ACFS[3].hex(), score_2=1, norm_score_1=""),
    ]
    found = collected(results(tmp_path / "x.csv", rows))
    assert [each.data for each in found.candidates] == [ACFS[0], ACFS[3]]


def test_a_mixed_search_space(tmp_path: Path) -> None:
    rows = [
        row(1, [{"config_idx": 3}, ACFS[0].hex()]),
        row(2, [{"config_idx": 4}, ACFS[0].hex()]),
        row(3, [ACFS[1].hex(), {"a": 1}, {"b": 2}]),
        row(4, ACFS[2].hex()),
    ]
    rows[3]["user_space"] = '{"block": 128}'
    found = collected(results(tmp_path / "x.csv", rows))
    path = good(write(tmp_path / "p.zip", found.candidates, CUDA))
    with zipfile.ZipFile(path) as file:
        beside = {
            name.split("/")[1]: json.loads(file.read(name))
            for name in file.namelist()
            if "user_space" in name
        }
    names = [each.filename for each in found.candidates]
    assert beside == {
        f"{names[0]}.user_space.json": {"config_idx": 3},
        f"{names[1]}.user_space.json": [{"a": 1}, {"b": 2}],
        f"{names[2]}.user_space.json": {"block": 128},
    }


def test_what_a_real_sweep_kept(tmp_path: Path) -> None:
    """From sweep to log to pack to sweep, with the real ptxas."""
    ids = [PACK.acfs[number].id for number in (1, 7, 10)]
    ran = command.run("-m", f"acf={','.join(ids)}", "workload=ptxas/matmul64", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    (log,) = tmp_path.glob("outputs/*/*/booster-pack-log.csv")
    out = tmp_path / "booster-pack-kept.zip"
    ran = command.run("pack", "make", str(out), str(log), cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == f"{out}: 2 ACFs\nleft out: 1 (not kept)\n"
    made = open_pack(good(out))
    assert [made.read(acf) for acf in made.acfs] == [ACFS[7], ACFS[10]]
    assert made.cuda_version == "13.3.0"
    assert "kept: +1.36% (static; matmul64, default; no GPU)" in made.acfs[0].description
    ran = command.run("pack", "verify", str(out), cwd=tmp_path)
    assert ran.stdout == f"{out}: good; 1 packs, 2 ACFs\n"
    ran = command.run("-m", "acf=glob(*)", f"pack={out}", "workload=ptxas/matmul64", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("KEPT  matmul64") == 2


def test_a_log_whose_pack_is_elsewhere(tmp_path: Path) -> None:
    acf = PACK.acfs[4]
    known = {"id": acf.id, "filename": acf.filename, "sha256": acf.sha256, "size_bytes": acf.size_bytes}
    for number in (1, 2):
        made = made_results.result()
        made["acf"] |= known
        made["pack"]["location"] = str(tmp_path / "gone.zip")
        folder = tmp_path / f"jobs/{number}"
        folder.mkdir(parents=True)
        record.write(made, folder)
    log = collect.collect([tmp_path / "jobs"]).csv
    with pytest.raises(
        PackError, match=r"the kept ACF '05-.*' of pack 'booster-pack-helion' is not at hand. Give its"
    ):
        collected(log)
    found = collected(log, packs=(tmp_path / "no.zip", releases.SAMPLE))
    assert [(each.data, each.cuda_version, each.gpu) for each in found.candidates] == [
        (ACFS[4], "13.3.0", "NVIDIA H200")
    ]
    shutil.copy(releases.SAMPLE, tmp_path / "gone.zip")
    assert len(collected(log).candidates) == 1
    made = open_pack(good(write(tmp_path / "x.zip", found.candidates, Label())))
    assert made.supported_gpus == ("NVIDIA H200",)


def test_mistakes(tmp_path: Path) -> None:
    folder = loose(tmp_path / "in")
    candidates = collected(folder).candidates
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty.acf").write_bytes(b"")
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    (tmp_path / "bad.csv").write_bytes(b"\xff\xfe")
    (tmp_path / "none.csv").write_text("params,score_1\nab,*\n")
    (tmp_path / "noscore.csv").write_text("params,x\nab,1\n")
    (tmp_path / "there.zip").write_bytes(b"")
    for source, reason in {
        "absent.acf": "cannot be read: No such file",
        "absent.csv": "cannot be read: No such file",
        "empty": "no .acf file in it",
        "empty.acf": "has no bytes",
        "other.csv": "neither a booster-pack-log.csv nor results",
        "bad.csv": "cannot be read: 'utf-8'",
        "none.csv": "no row has a valid score and an ACF",
        "noscore.csv": "has no column score_1 or score",
    }.items():
        with pytest.raises(BoosterrunError) as caught:
            collected(tmp_path / source)
        assert reason in str(caught.value)
        assert caught.value.advice
        assert caught.value.exit_code == 2
    for out, label, reason in (
        ("x.tar", CUDA, "is no name for a pack"),
        ("a b.zip", CUDA, "is no name for a pack"),
        ("there.zip", CUDA, "is there already"),
        ("x.zip", Label(), "nothing says for which CUDA"),
        ("x.zip", Label(cuda_version="13"), "is no CUDA version"),
    ):
        with pytest.raises(UsageError, match=reason):
            write(tmp_path / out, candidates, label)
    assert not (tmp_path / "x.zip").exists()
    write(tmp_path / "there.zip", candidates, CUDA, replace=True)
    good(tmp_path / "there.zip")


def test_a_pack_that_could_not_be_read_back_replaces_nothing(tmp_path: Path) -> None:
    candidates = collected(loose(tmp_path / "in")).candidates
    (tmp_path / "x.zip").write_bytes(b"old")
    with pytest.raises(PackError, match="display_name"):
        write(tmp_path / "x.zip", candidates, Label(display_name="a\nb", cuda_version="13.3"), replace=True)
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["x.zip"]
    assert (tmp_path / "x.zip").read_bytes() == b"old"


CELL = st.one_of(
    st.floats().map(repr), st.text(max_size=6), st.sampled_from(["*", "1e10", "ab", '"ab"', '["ab", {}]'])
)


@given(
    st.lists(st.fixed_dictionaries({"score_1": CELL, "params": CELL, "generation": CELL}), max_size=8),
    st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_any_table_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Any], up: bool
) -> None:
    path = tmp_path_factory.mktemp("any") / "x.csv"
    with path.open("w", newline="", encoding="utf-8", errors="surrogatepass") as stream:
        writer = csv.DictWriter(stream, ["score_1", "params", "generation"])
        writer.writeheader()
        writer.writerows(rows)
    try:
        found = collected(path, maximise=up)
    except UsageError as error:
        assert str(error).isprintable()
        return
    scores = [float(each.description.split("score_1 ")[1].split(",")[0]) for each in found.candidates]
    assert all(math.isfinite(score) for score in scores)
    assert scores == sorted(scores, reverse=up)
    assert len({each.sha256 for each in found.candidates}) == len(found.candidates)
