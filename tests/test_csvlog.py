from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_results import SHA, result, self_test, shape, timed, undecided

from boosterrun.errors import UsageError
from boosterrun.results import csvlog, record
from boosterrun.results.cells import clean
from boosterrun.results.columns import COLUMNS

DOCS = Path(__file__).parent.parent / "docs" / "columns.md"

# What the log promises to its readers, in this order, ahead of everything else.
PROMISED = [
    "acf_filename",
    "acf_sha256",
    "pack_release",
    "benchmark_command",
    "gpu_model",
    "driver_version",
    "cuda_version",
    "nvcc_path",
    "nvcc_version",
    "ptxas_path",
    "ptxas_version",
    "framework_version",
    "input_shape",
    "baseline_mean",
    "baseline_std",
    "candidate_mean",
    "candidate_std",
    "correctness",
    "decision",
]


def rows(*results: dict[str, Any]) -> list[dict[str, str]]:
    """The rows of results, read by the standard library."""
    assert [record.validate(one) for one in results] == [[] for _ in results]
    lines = [csvlog.header()]
    for one in results:
        lines += csvlog.lines(one, "a/result.json")
    return list(csv.DictReader(lines, strict=True))


def written(folder: Path, *results: dict[str, Any]) -> Path:
    """A log of results."""
    path = folder / "booster-pack-log.csv"
    lines = [line for one in results for line in csvlog.lines(one, "a/result.json")]
    path.write_text("\n".join([csvlog.header(), *lines, ""]), encoding="utf-8", newline="")
    return path


def test_the_columns_are_documented_in_order() -> None:
    documented = re.findall(r"^\| `(\w+)` \| (\w+) \| (.*?) \| \S.* \|$", DOCS.read_text(), re.MULTILINE)
    assert documented == [
        (column.name, column.kind, "`unit`" if column.unit == "unit" else column.unit) for column in COLUMNS
    ]


def test_the_promised_columns_come_first_and_no_name_twice() -> None:
    names = [column.name for column in COLUMNS]
    assert names[: len(PROMISED)] == PROMISED
    assert len(set(names)) == len(names)
    assert {column.kind for column in COLUMNS} == {"text", "number", "integer", "boolean"}


def test_a_row_of_a_timed_result() -> None:
    assert rows(result(timed(), evidence="timed")) == [
        {
            "acf_filename": "21-recompute_w_u_fwd_2-48fb75d9d1aa.acf",
            "acf_sha256": SHA,
            "pack_release": "booster-packs-2026.05.27",
            "benchmark_command": "ptxas -arch sm_90a 'a b.ptx'",
            "gpu_model": "NVIDIA H200",
            "driver_version": "580.159",
            "cuda_version": "13.3",
            "nvcc_path": "/cuda/bin/nvcc",
            "nvcc_version": "13.3.70",
            "ptxas_path": "/cuda/bin/ptxas",
            "ptxas_version": "13.3.73",
            "framework_version": "triton 3.6.0 (9844da9)",
            "input_shape": "m4096 (maxrregcount=128)",
            "baseline_mean": "0.21280000000000002",
            "baseline_std": "0.0031",
            "candidate_mean": "0.19834567891234567",
            "candidate_std": "0.0029",
            "correctness": "passed",
            "decision": "KEPT",
            "reason_detail": "spill_bytes from 352 to 300",
            "job_decision": "KEPT",
            "status": "decided",
            "error": "",
            "gain": "0.0729",
            "gain_low": "0.071",
            "gain_high": "0.0748",
            "metric": "time",
            "unit": "ms",
            "better": "lower",
            "evidence": "timed",
            "timer": "events",
            "baseline_n": "300",
            "candidate_n": "300",
            "pairs_screen": "20",
            "pairs_confirm": "30",
            "pairs_voided": "1",
            "pairs_failed": "0",
            "applied": "proven",
            "code_identical": "false",
            "acf_id": "21-recompute_w_u_fwd_2-48fb75d9d1aa",
            "pack_id": "booster-pack-helion",
            "pack_manifest_sha256": SHA,
            "workload": "ptxas",
            "workload_sha256": SHA,
            "adapter": "ptxas",
            "shape": "m4096",
            "arch": "sm_90a",
            "protocol": "screen",
            "sweep_candidates": "24",
            "seed": "7",
            "timestamp": "2026-11-30T08:00:01.5Z",
            "seconds": "1.5",
            "experiment_commit": "a" * 40 + "-dirty",
            "boosterrun_version": "0.1.0",
            "result": "a/result.json",
        }
    ]


def test_a_row_per_shape_has_its_own_decision_beside_the_jobs() -> None:
    loser = shape("r160", "REJECTED:no_gain")
    found = rows(result(shape("r128"), loser))
    assert [(row["shape"], row["decision"], row["job_decision"]) for row in found] == [
        ("r128", "KEPT", "KEPT"),
        ("r160", "REJECTED:no_gain", "KEPT"),
    ]


def test_no_row_has_anything_of_another_shape() -> None:
    other = shape("b", "REJECTED:no_gain") | {"kernels": [], "params": {}}
    other["application"] = {"applied": "unproven", "code_identical": None, "detail": ""}
    shapes = [timed("a"), other | {"message": "", "metric": "x", "unit": "y", "baseline": None}, timed("c")]
    alone = [row for one in shapes for row in rows(result(one, decision="REJECTED:no_gain"))]
    assert rows(result(*shapes, decision="REJECTED:no_gain")) == alone
    differing = {name for name in alone[0] if len({row[name] for row in alone}) > 1}
    assert differing == {column.name for column in COLUMNS if column.per_shape}


def test_a_job_without_shapes_has_one_row_with_its_decision() -> None:
    (row,) = rows(result(shapes=[], decision="REJECTED:acf_invalid", message="ptxas refuses it"))
    assert (row["decision"], row["reason_detail"]) == ("REJECTED:acf_invalid", "ptxas refuses it")
    assert (row["shape"], row["input_shape"], row["correctness"]) == ("", "", "not_checked")
    assert (row["metric"], row["unit"]) == ("spill_bytes", "bytes")


def test_an_undecided_job_has_no_decision_but_an_error() -> None:
    (row,) = rows(undecided())
    assert (row["decision"], row["job_decision"], row["status"]) == ("", "", "undecided")
    assert row["error"] == "no_space: the disk is full. Free some space"
    assert (row["shape"], row["correctness"], row["cuda_version"]) == ("", "", "")
    found = rows(undecided(shape("a"), shape("b", None)))
    assert [(row["shape"], row["decision"], row["baseline_mean"]) for row in found] == [
        ("a", "", "352.0"),
        ("b", "", "352.0"),
    ]


def test_a_job_that_could_not_read_its_acf_still_names_it() -> None:
    named = {"acf": {"id": "a", "filename": "a.acf", "sha256": SHA}}
    (row,) = rows(undecided(acf=None, pack=None, config=named))
    assert (row["acf_id"], row["acf_filename"], row["acf_sha256"]) == ("a", "a.acf", SHA)


def test_the_driver_is_that_before_the_measurement() -> None:
    (row,) = rows(result(environment={"gpu": {"before": {"driver_version": "580.10"}, "after": None}}))
    assert row["driver_version"] == "580.10"


def test_a_self_test_names_no_file() -> None:
    (row,) = rows(self_test())
    assert (row["acf_id"], row["acf_filename"], row["acf_sha256"]) == ("none", "", "")
    assert row["decision"] == "REJECTED:no_difference"


def test_parameters_are_named_as_in_the_yaml() -> None:
    params = {"m": 4096, "dtype": "bf16", "causal": True, "dims": [1, 2], "bias": None, "scale": 0.5}
    (row,) = rows(result(shape("s") | {"params": params}))
    assert row["input_shape"] == "s (m=4096, dtype=bf16, causal=true, dims=[1, 2], bias=null, scale=0.5)"
    (row,) = rows(result(shape("s") | {"params": {}}))
    assert row["input_shape"] == "s"


@pytest.mark.parametrize(
    ("pack", "release"),
    [
        ({}, "booster-packs-2026.05.27"),
        ({"release_tag": None}, "2026.05.27"),
        ({"release_tag": None, "catalog_version": None}, f"manifest {SHA}"),
        ({"release_tag": None, "catalog_version": None, "manifest_sha256": None}, ""),
    ],
)
def test_the_release_is_the_best_that_is_known(pack: dict[str, Any], release: str) -> None:
    (row,) = rows(result(pack=result()["pack"] | pack))
    assert row["pack_release"] == release


@pytest.mark.parametrize(
    ("gpu", "model"),
    [
        (None, ""),
        ({"before": {"devices": [{"name": "A"}]}, "after": {"devices": []}}, "A"),
        ({"before": None, "after": None}, ""),
        ({"devices": [], "error": "no driver"}, ""),
        ({"devices": [{"name": "A"}, {"name": "B"}, {"name": "A"}, {"name": None}]}, "A + B"),
        ({"name": "A"}, "A"),
        ({"devices": "none", "name": ["odd"]}, ""),
    ],
)
def test_the_gpu_model_is_taken_from_what_there_is(gpu: Any, model: str) -> None:
    (row,) = rows(result(environment={"gpu": gpu}))
    assert (row["gpu_model"], row["experiment_commit"]) == (model, "")


def test_pandas_reads_a_log_back_to_the_same_values(tmp_path: Path) -> None:
    log = csvlog.read_log(written(tmp_path, result(timed(), evidence="timed"), undecided()))
    assert list(log.columns) == [column.name for column in COLUMNS]
    first, second = log.to_dict("records")
    assert (first["baseline_mean"], first["gain"]) == (0.21280000000000002, 0.0729)
    assert (first["driver_version"], first["cuda_version"]) == ("580.159", "13.3")
    assert (first["baseline_n"], first["code_identical"]) == (300, False)
    assert all(
        pd.isna(second[name]) for name in ("decision", "baseline_mean", "baseline_n", "code_identical")
    )
    plain = pd.read_csv(tmp_path / "booster-pack-log.csv")
    assert plain["candidate_mean"].tolist()[0] == pytest.approx(0.19834567891234567, rel=1e-15)
    assert plain["decision"].tolist()[0] == "KEPT"


TEXT = (
    st.text(st.sampled_from(list("=+-@;,'\" \n\tNAab1é\ud800"))) | st.text() | st.sampled_from(["NA", "null"])
)
NUMBER = st.floats(allow_nan=False, allow_infinity=False)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(message=TEXT, unit=TEXT, mean=NUMBER, gain=NUMBER, flag=st.none() | st.booleans())
def test_any_values_come_back(
    tmp_path: Path, message: str, unit: str, mean: float, gain: float, flag: bool | None
) -> None:
    made = shape() | {"message": message, "unit": unit, "gain": gain}
    made["baseline"] = {"mean": mean, "std": None, "n": 2.0}
    made["application"] = made["application"] | {"code_identical": flag}
    assert record.validate(result(made)) == []
    big = result(made)
    big["job"] = big["job"] | {"seed": 2**63 - 1}
    (row,) = csvlog.read_log(written(tmp_path, big)).to_dict("records")
    values = {name: None if pd.isna(value) else value for name, value in row.items()}
    assert values["reason_detail"] == (clean(message) or None)
    assert values["seed"] == 2**63 - 1
    assert values["unit"] == (clean(unit or "bytes") or None)
    assert (values["baseline_mean"], values["gain"], values["baseline_std"]) == (mean, gain, None)
    assert (values["baseline_n"], values["code_identical"]) == (2, flag)


@pytest.mark.parametrize(
    ("column", "value"), [("gain", "much"), ("baseline_n", "1.5"), ("code_identical", "maybe")]
)
def test_a_cell_of_another_type_is_refused(tmp_path: Path, column: str, value: str) -> None:
    path = tmp_path / "x.csv"
    path.write_text(
        ",".join(one.name for one in COLUMNS)
        + "\n"
        + ",".join(value if one.name == column else "" for one in COLUMNS)
        + "\n"
    )
    with pytest.raises(UsageError, match=f"cannot be read as a log.*{value}"):
        csvlog.read_log(path)


@pytest.mark.parametrize("content", [None, "", "a,b\n1,2\n", "\xff\xfe"])
def test_what_is_no_log_is_refused(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "x.csv"
    if content is not None:
        path.write_text(content, encoding="latin-1")
    with pytest.raises(UsageError, match=r"x\.csv (cannot be read as a log|is no log)"):
        csvlog.read_log(path)
