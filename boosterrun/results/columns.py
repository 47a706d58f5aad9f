"""The columns of the log, in order, and how a result fills them; ``docs/columns.md`` says what they mean."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple


class Entry(NamedTuple):
    """What a row is about: a valid result, one of its shapes (empty when it has none), and where it lies."""

    result: dict[str, Any]
    shape: dict[str, Any]
    where: str


@dataclass(frozen=True, slots=True)
class Column:
    """One column: `kind` is text, number, integer or boolean; `unit` "unit" stands for the row's own unit."""

    name: str
    kind: str
    unit: str
    value: Callable[[Entry], Any]
    per_shape: bool = False
    """Whether rows of the same job can differ in it: the others are made once per job."""


def _get(value: Any, *keys: str) -> Any:
    for key in keys:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


def _text(value: Any) -> str | None:
    """Free-form blocks (environment, config) may hold anything."""
    return None if value is None or isinstance(value, dict | list) else str(value)


def _of_result(*keys: str) -> Callable[[Entry], Any]:
    return lambda entry: _get(entry.result, *keys)


def _of_shape(*keys: str) -> Callable[[Entry], Any]:
    return lambda entry: _get(entry.shape, *keys)


def _candidate(key: str) -> Callable[[Entry], Any]:
    """From the configuration where the job ended before its ACF was read."""
    return lambda entry: (
        _get(entry.result, "acf", key)
        if entry.result["acf"]
        else _text(_get(entry.result, "config", "acf", key))
    )


def _pack_release(entry: Entry) -> str | None:
    pack = entry.result["pack"] or {}
    manifest = pack.get("manifest_sha256")
    return (
        pack.get("release_tag")
        or pack.get("catalog_version")
        or (f"manifest {manifest}" if manifest else None)
    )


def _gpu(entry: Entry) -> Any:
    """The snapshot before the measurement, where there are two."""
    gpu = entry.result["environment"].get("gpu")
    return _get(gpu, "before") or gpu


def _gpu_model(entry: Entry) -> str | None:
    gpu = _gpu(entry)
    devices = _get(gpu, "devices")
    found = [_text(_get(one, "name")) for one in (devices if isinstance(devices, list) else [gpu])]
    return " + ".join(dict.fromkeys(name for name in found if name)) or None


def _framework(entry: Entry) -> str | None:
    framework = _get(entry.result, "toolchain", "framework")
    if framework is None:
        return None
    commit = framework["commit"]
    words = (framework["name"], framework["version"], f"({commit})" if commit else None)
    return " ".join(word for word in words if word)


def _input_shape(entry: Entry) -> str | None:
    if not entry.shape:
        return None
    params = ", ".join(
        f"{key}={value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for key, value in entry.shape["params"].items()
    )
    name: str = entry.shape["name"]
    return f"{name} ({params})" if params else name


def _decision(entry: Entry) -> str | None:
    if entry.result["status"] != "decided":
        return None
    decision: str = (entry.shape or entry.result)["decision"]
    return decision


def _error(entry: Entry) -> str | None:
    error = entry.result.get("error")
    if error is None:
        return None
    advice = f". {error['advice']}" if error["advice"] else ""
    return f"{error['kind']}: {error['message']}{advice}"


def _correctness(entry: Entry) -> str | None:
    if entry.shape:
        return str(entry.shape["correctness"])
    return "not_checked" if entry.result["status"] == "decided" else None


def _metric(key: str) -> Callable[[Entry], Any]:
    return lambda entry: _get(entry.shape, key) or _get(entry.result, "objective", key)


def _interval(end: int) -> Callable[[Entry], Any]:
    def value(entry: Entry) -> Any:
        interval = entry.shape.get("interval")
        return interval[end] if interval else None

    return value


def _integer(value: Callable[[Entry], Any]) -> Callable[[Entry], int | None]:
    """JSON may write an integer as 3.0."""

    def whole(entry: Entry) -> int | None:
        number = value(entry)
        return None if number is None else int(number)

    return whole


def _arch(entry: Entry) -> str | None:
    found = (kernel["arch"] for kernel in entry.shape.get("kernels", ()))
    return " + ".join(dict.fromkeys(arch for arch in found if arch)) or None


def _commit(entry: Entry) -> str | None:
    experiment = entry.result["environment"].get("experiment")
    commit = _text(_get(experiment, "git_commit"))
    return f"{commit}-dirty" if commit and _get(experiment, "git_dirty") is True else commit


COLUMNS: tuple[Column, ...] = (
    Column("acf_filename", "text", "", _candidate("filename")),
    Column("acf_sha256", "text", "", _candidate("sha256")),
    Column("pack_release", "text", "", _pack_release),
    Column(
        "benchmark_command",
        "text",
        "",
        lambda entry: shlex.join(entry.result["workload"]["benchmark_command"]),
    ),
    Column("gpu_model", "text", "", _gpu_model),
    Column(
        "driver_version",
        "text",
        "",
        lambda entry: _text(_get(_gpu(entry), "driver_version")),
    ),
    Column("cuda_version", "text", "", _of_result("toolchain", "cuda_version")),
    Column("nvcc_path", "text", "", _of_result("toolchain", "nvcc", "path")),
    Column("nvcc_version", "text", "", _of_result("toolchain", "nvcc", "version")),
    Column("ptxas_path", "text", "", _of_result("toolchain", "ptxas", "path")),
    Column("ptxas_version", "text", "", _of_result("toolchain", "ptxas", "version")),
    Column("framework_version", "text", "", _framework),
    Column("input_shape", "text", "", _input_shape, per_shape=True),
    Column("baseline_mean", "number", "unit", _of_shape("baseline", "mean"), per_shape=True),
    Column("baseline_std", "number", "unit", _of_shape("baseline", "std"), per_shape=True),
    Column("candidate_mean", "number", "unit", _of_shape("candidate", "mean"), per_shape=True),
    Column("candidate_std", "number", "unit", _of_shape("candidate", "std"), per_shape=True),
    Column("correctness", "text", "", _correctness, per_shape=True),
    Column("decision", "text", "", _decision, per_shape=True),
    Column(
        "reason_detail", "text", "", lambda entry: (entry.shape or entry.result)["message"], per_shape=True
    ),
    Column("job_decision", "text", "", _of_result("decision")),
    Column("status", "text", "", _of_result("status")),
    Column("error", "text", "", _error),
    Column("gain", "number", "fraction", _of_shape("gain"), per_shape=True),
    Column("gain_low", "number", "fraction", _interval(0), per_shape=True),
    Column("gain_high", "number", "fraction", _interval(1), per_shape=True),
    Column("metric", "text", "", _metric("metric"), per_shape=True),
    Column("unit", "text", "", _metric("unit"), per_shape=True),
    Column("better", "text", "", _of_result("objective", "better")),
    Column("evidence", "text", "", _of_result("evidence")),
    Column("timer", "text", "", _of_shape("timer"), per_shape=True),
    Column("baseline_n", "integer", "samples", _integer(_of_shape("baseline", "n")), per_shape=True),
    Column("candidate_n", "integer", "samples", _integer(_of_shape("candidate", "n")), per_shape=True),
    Column("pairs_screen", "integer", "pairs", _integer(_of_shape("pairs", "screen")), per_shape=True),
    Column("pairs_confirm", "integer", "pairs", _integer(_of_shape("pairs", "confirm")), per_shape=True),
    Column("pairs_voided", "integer", "pairs", _integer(_of_shape("pairs", "voided")), per_shape=True),
    Column("pairs_failed", "integer", "pairs", _integer(_of_shape("pairs", "failed")), per_shape=True),
    Column("applied", "text", "", _of_shape("application", "applied"), per_shape=True),
    Column("code_identical", "boolean", "", _of_shape("application", "code_identical"), per_shape=True),
    Column("acf_id", "text", "", _candidate("id")),
    Column("pack_id", "text", "", _of_result("pack", "pack_id")),
    Column("pack_manifest_sha256", "text", "", _of_result("pack", "manifest_sha256")),
    Column("workload", "text", "", _of_result("workload", "name")),
    Column("workload_sha256", "text", "", _of_result("workload", "source_sha256")),
    Column("adapter", "text", "", _of_result("workload", "adapter")),
    Column("shape", "text", "", _of_shape("name"), per_shape=True),
    Column("arch", "text", "", _arch, per_shape=True),
    Column("protocol", "text", "", lambda entry: _text(_get(entry.result, "config", "protocol", "name"))),
    Column("sweep_candidates", "integer", "", _integer(_of_result("job", "sweep_candidates"))),
    Column("seed", "integer", "", _integer(_of_result("job", "seed"))),
    Column("timestamp", "text", "", _of_result("job", "finished_at")),
    Column("seconds", "number", "s", _of_result("job", "seconds")),
    Column("experiment_commit", "text", "", _commit),
    Column("boosterrun_version", "text", "", _of_result("job", "boosterrun_version")),
    Column("result", "text", "", lambda entry: entry.where),
)
