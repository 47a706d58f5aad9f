"""One result, reduced to what a report shows of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from boosterrun.decision.policy import FAILURES, KEPT, SLOWER
from boosterrun.report.facts import devices, facts
from boosterrun.system.visible import visible

OUTPUT_LIMIT = 4000
"""Characters of a compiler's output that the report shows; all of it is in ``result.json``."""

STATUSES = ("kept", "slower", "neutral", "failed", "undecided")
# What names a job's candidate, folder or sweep, and not what the job compiles and runs.
_NOT_A_VARIANT = re.compile(r"[+~]*(acf|workload|sweep\.|hydra[./]|report\b)")


@dataclass
class Row:
    """One shape of one job; ``shape`` None: the job ended before its first shape.

    ``gain``, ``low`` and ``high`` are fractions; ``registers``, ``spills`` (bytes) and ``seconds`` (of
    compilation) are pairs (baseline, candidate). ``details`` is what the report shows on demand.
    """

    shape: str | None
    status: str
    decision: str
    gain: float | None = None
    low: float | None = None
    high: float | None = None
    metric: str | None = None
    unit: str | None = None
    baseline: float | None = None
    candidate: float | None = None
    correctness: str = "not_checked"
    registers: tuple[float | None, float | None] = (None, None)
    spills: tuple[float | None, float | None] = (None, None)
    seconds: tuple[float | None, float | None] = (None, None)
    pairs: int | None = None
    voided: int | None = None
    details: dict[str, Any] = field(default_factory=dict)


@dataclass
class Job:
    """One result. ``overrides`` say what was compiled and run, but for the ACF; times: seconds since 1970."""

    candidate: str
    filename: str
    sha256: str
    where: str
    status: str
    decision: str
    message: str
    workload: str
    evidence: str
    overrides: tuple[str, ...]
    started: float
    finished: float
    rows: list[Row]
    facts: dict[str, str]
    min_gain: float | None
    health: list[dict[str, Any]]
    canary: dict[str, Any] | None
    advice: str


def status_of(decision: str | None) -> str:
    """One of `STATUSES` for a decision of a result or a shape."""
    if decision is None:
        return "undecided"
    if decision == KEPT:
        return "kept"
    reason = decision.partition(":")[2]
    return "failed" if reason in FAILURES else "slower" if reason in SLOWER else "neutral"


def job(result: Mapping[str, Any], where: str, traces: Mapping[str, Any]) -> Job:
    """Reduce a valid result that lies at `where`; ``traces`` are its pairs by shape (`traces.read`)."""
    acf = result["acf"] or result["config"].get("acf") or {}
    decided = result["status"] == "decided"
    decision = result["decision"] if decided else None
    error = result.get("error") or {}
    rows = [_row(shape, result, traces.get(shape["name"])) for shape in result["shapes"]]
    if not rows:
        again = {"message": visible(result["message"]), "again": _again(result)}
        rows = [Row(None, status_of(decision), decision or "undecided", details=again)]
    protocol = result["config"].get("protocol")
    min_gain = protocol.get("min_gain") if isinstance(protocol, dict) else None
    return Job(
        candidate=visible(str(acf.get("id") or "none")),
        filename=visible(str(acf.get("filename") or "")),
        sha256=str(acf.get("sha256") or ""),
        where=where,
        status=status_of(decision),
        decision=decision or "undecided",
        message=visible(result["message"]),
        workload=visible(result["workload"]["name"]),
        evidence=result["evidence"],
        overrides=tuple(visible(o) for o in result["job"]["overrides"] if not _NOT_A_VARIANT.match(o)),
        started=_seconds(result["job"]["started_at"]),
        finished=_seconds(result["job"]["finished_at"]),
        rows=rows,
        facts={name: visible(value) for name, value in facts(result).items()},
        min_gain=min_gain if isinstance(min_gain, float) and result["evidence"] == "timed" else None,
        health=_health(result),
        canary=result["environment"].get("canary"),
        advice=visible(str(error.get("advice") or "")),
    )


def _seconds(time: str) -> float:
    # Python reads six digits of a second, the schema allows nine.
    return datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", time)).timestamp()


def _row(shape: Mapping[str, Any], result: Mapping[str, Any], trace: dict[str, Any] | None) -> Row:
    decision = shape["decision"]
    low, high = shape.get("interval") or (None, None)
    kernels = shape.get("kernels") or []
    pairs = shape.get("pairs")
    build = shape.get("compile") or {}
    seconds = tuple((build.get(side) or {}).get("seconds") for side in ("baseline", "candidate"))
    return Row(
        shape=visible(shape["name"]),
        status=status_of(decision),
        decision=decision or "undecided",
        gain=shape["gain"],
        low=low,
        high=high,
        metric=shape["metric"],
        unit=shape["unit"],
        baseline=(shape["baseline"] or {}).get("mean"),
        candidate=(shape["candidate"] or {}).get("mean"),
        correctness=shape["correctness"],
        registers=_both(kernels, "registers", max),
        spills=_both(kernels, "spill_bytes", sum),
        seconds=(seconds[0], seconds[1]),
        pairs=None if pairs is None else pairs["screen"] + pairs["confirm"],
        voided=None if pairs is None else pairs["voided"],
        details=_details(shape, result, trace),
    )


def _both(
    kernels: Sequence[Mapping[str, Any]], metric: str, merge: Callable[[list[float]], float]
) -> tuple[float | None, float | None]:
    """A metric of both sides over the kernels of a shape."""
    found = []
    for side in ("baseline", "candidate"):
        values = [k[side][metric] for k in kernels if k[side] and k[side].get(metric) is not None]
        found.append(merge(values) if values else None)
    return found[0], found[1]


def _details(
    shape: Mapping[str, Any], result: Mapping[str, Any], trace: dict[str, Any] | None
) -> dict[str, Any]:
    statistics = shape.get("statistics") or {}
    build = shape.get("compile") or {}
    sides = {side: build.get(side) for side in ("baseline", "candidate")}
    checks = (shape.get("correctness_detail") or {}).get("checks")
    wrong = [
        f"{check.get('side')}: {check.get('message')}"
        for check in (checks if isinstance(checks, list) else [])
        if isinstance(check, dict) and check.get("passed") is False
    ]
    details = {
        "message": visible(shape["message"]),
        "again": _again(result),
        "application": visible(shape["application"]["detail"]),
        "applied": shape["application"]["applied"],
        "wrong": [visible(text) for text in wrong],
        "kernels": [
            [visible(k["name"]), k["arch"], k["baseline"], k["candidate"]] for k in shape.get("kernels") or []
        ],
        "commands": {s: [visible(a) for a in b["command"]] for s, b in sides.items() if b and b["command"]},
        "outputs": {s: visible(_cut(b["output"])) for s, b in sides.items() if b and b["output"].strip()},
        "benchmark": [visible(a) for a in result["workload"]["benchmark_command"]],
        "timer": shape.get("timer"),
        "spread": [(shape[side] or {}).get("std") for side in ("baseline", "candidate")],
        "samples": [(shape[side] or {}).get("n") for side in ("baseline", "candidate")],
        "sessions": _sessions(statistics.get("sessions")),
        "trace": trace,
    }
    return {key: value for key, value in details.items() if value not in (None, "", [], {}, [None, None])}


def _sessions(sessions: Any) -> list[list[Any]]:
    """Number, pairs and gain of each fresh process pair."""
    if not isinstance(sessions, list):
        return []
    return [[s.get("session"), s.get("pairs"), s.get("gain")] for s in sessions if isinstance(s, dict)]


def _again(result: Mapping[str, Any]) -> list[str]:
    """The overrides that run this job alone."""
    return [visible(o) for o in result["job"]["overrides"] if not o.startswith("sweep.candidates=")]


def _cut(text: str) -> str:
    return text if len(text) <= OUTPUT_LIMIT else f"{text[:OUTPUT_LIMIT]}\n[cut; all of it is in result.json]"


def _health(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Clock (MHz), power (W), temperature (C) and throttled seconds before and after the job, by device."""
    ends = (
        ("before", _seconds(result["job"]["started_at"])),
        ("after", _seconds(result["job"]["finished_at"])),
    )
    found: dict[str, list[dict[str, Any]]] = {}
    for end, time in ends:
        for device in devices(result, end):
            reading = {
                "time": time,
                "device": device.get("index"),
                "clock": (device.get("clocks_mhz") or {}).get("sm"),
                "power": (device.get("power_w") or {}).get("draw"),
                "temperature": device.get("temperature_c"),
                "counters": device.get("counters_ns") or {},
            }
            found.setdefault(str(device.get("uuid") or device.get("index")), []).append(reading)
    for readings in found.values():
        first, last = readings[0].pop("counters"), readings[-1].pop("counters", {})
        slowed = [max(0, last[k] - first[k]) / 1e9 for k in last if k in first and k != "sync_boost"]
        readings[-1]["throttled"] = round(max(slowed), 3) if slowed else None
    return [reading for readings in found.values() for reading in readings]
