"""Folders of results as sweeps leave them, for tests that read whole sweeps."""

from __future__ import annotations

import copy
import json
import math
import random
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import made_results as made

from boosterrun.decision.decide import Decider, Protocol
from boosterrun.decision.pairs import Pair
from boosterrun.results import record

PROTOCOL = Protocol()
NOISE = 0.004
FAMILY = 5000


@lru_cache(maxsize=64)
def measured(gain: float, seed: int) -> tuple[str, str]:
    """A real decision on simulated pairs: (shape block, lines of pairs.jsonl with the shape's name open)."""
    dice = random.Random(seed)
    decider = Decider(PROTOCOL, FAMILY, 1)
    pairs: list[Pair] = []
    while decider.decision().state != "final":
        now = decider.decision()
        true = 0.0 if now.phase == "calibrate" else math.log1p(gain)
        base = [0.1 * math.exp(dice.gauss(0, NOISE)) for _ in range(10)]
        other = [0.1 * math.exp(dice.gauss(0, NOISE) - true) for _ in range(10)]
        pair = Pair(now.phase, now.session, dice.choice(["bc", "cb"]), tuple(base), tuple(other))
        pairs.append(pair)
        decider.add(pair)
    final = decider.decision()
    kept = final.reason == "KEPT"
    used = [p for p in pairs if p.phase == "confirm"] or [p for p in pairs if p.phase == "screen"]
    shape = made.timed() | {
        "decision": "KEPT" if kept else f"REJECTED:{final.reason}",
        "message": final.message,
        "baseline": made_summary([v for p in used for v in p.baseline if v]),
        "candidate": made_summary([v for p in used for v in p.candidate if v]),
        "gain": final.gain,
        "interval": list(final.interval or (0.0, 0.0)),
        "statistics": dict(final.statistics),
    }
    count = {phase: sum(p.phase == phase for p in pairs) for phase in ("screen", "confirm")}
    shape["pairs"] = {"file": "pairs.jsonl", **count, "voided": 0, "failed": 0}
    lines = [
        {
            "shape": "{}",
            "phase": p.phase,
            "session": p.session,
            "order": p.order,
            "baseline": p.baseline,
            "candidate": p.candidate,
            "void": None,
            "unit": "ms",
            "timer": "events",
            "at": 1.8e9 + n,
        }
        for n, p in enumerate(pairs)
    ]
    return json.dumps(shape), "".join(json.dumps(line) + "\n" for line in lines)


def made_summary(values: Sequence[float]) -> dict[str, Any]:
    """Mean, deviation and number of samples."""
    mean = math.fsum(values) / len(values)
    return {"mean": mean, "std": 0.001, "n": len(values)}


def write(root: Path, result: dict[str, Any], pairs: str = "") -> Path:
    """One job's folder, named by the job's id."""
    folder = root / result["job"]["id"]
    (folder / ".hydra").mkdir(parents=True)
    (folder / "pairs.jsonl").write_text(pairs)
    # Reading checks it against the schema, and is faster.
    (folder / record.FILENAME).write_text(json.dumps(result))
    return folder


def named(number: int, name: str | None = None, **changes: Any) -> dict[str, Any]:
    """A result of its own candidate, later than those of lower numbers."""
    name = name or f"{number:03}-candidate-{number * 7919:012x}"
    result = copy.deepcopy(made.result() | changes)
    result["job"] |= {
        "id": f"{number:03}-job",
        "overrides": [f"acf={name}", "workload=triton/attn"],
        "started_at": f"2026-11-30T{8 + number // 360:02}:{number // 6 % 60:02}:{number % 6 * 10:02}Z",
        "finished_at": f"2026-11-30T{8 + number // 360:02}:{number // 6 % 60:02}:{number % 6 * 10 + 9:02}Z",
    }
    result["acf"] |= {"id": name, "filename": f"{name}.acf", "sha256": f"{number:064x}"}
    return result


def gpu(clock: int = 1980, capped: int = 0) -> dict[str, Any]:
    """A snapshot of one card."""
    device = {
        "index": 0,
        "uuid": "GPU-0",
        "name": "NVIDIA H200",
        "clocks_mhz": {"sm": clock, "sm_max": 1980},
        "power_w": {"draw": 412.5, "limit": 700.0},
        "temperature_c": 51,
        "counters_ns": {"sw_power_cap": capped, "thermal": 0},
    }
    return {"driver_version": "580.159.04", "devices": [device], "error": None}


def timed_result(number: int, shapes: Sequence[str], seed: int = 0) -> tuple[dict[str, Any], str]:
    """A timed result over some shapes with its pairs; most candidates gain nothing, some fail."""
    dice = random.Random(seed * 1000 + number)
    blocks, pairs = [], ""
    for name in shapes:
        block, lines = measured(dice.choice([-0.05, -0.02, 0.0, 0.0, 0.003, 0.03, 0.08]), dice.randrange(6))
        blocks.append(json.loads(block) | {"name": name})
        pairs += lines.replace('"{}"', json.dumps(name))
    if number % 6 == 5:
        reason = dice.choice(["wrong_result", "runtime_error", "compile_error"])
        blocks[0] |= {
            "decision": f"REJECTED:{reason}",
            "gain": None,
            "interval": None,
            "baseline": None,
            "candidate": None,
            "correctness": "failed" if reason == "wrong_result" else "not_checked",
            "message": f"shape {shapes[0]}: {reason}",
        }
    reasons = [b["decision"] for b in blocks]
    order = ["REJECTED:wrong_result", "REJECTED:runtime_error", "REJECTED:compile_error"]
    order += ["REJECTED:regression", "REJECTED:fat_tail", "KEPT", "REJECTED:inconclusive", "REJECTED:no_gain"]
    decision = next(d for d in order if d in reasons)
    slow = {"before": gpu(1980, 0), "after": gpu(1965 - number % 9 * 15, 2_000_000 * (number % 4))}
    message = f"{decision} on some shapes"
    result = named(number, shapes=blocks, evidence="timed", decision=decision, message=message)
    result["environment"] = result["environment"] | {"gpu": slow}
    result["objective"] = {"metric": "time", "unit": "ms", "better": "lower", "tie_breakers": []}
    return result, pairs


def sweep(root: Path, candidates: int, shapes: int, seed: int = 0) -> Path:
    """A timed sweep of that size."""
    names = [f"M{64 << n}_N4096" for n in range(shapes)]
    for number in range(candidates):
        write(root, *timed_result(number, names, seed))
    return root


def static_result(number: int, reason: str = "KEPT", **shape: Any) -> dict[str, Any]:
    """A result of a static screen of one shape."""
    decision = reason if reason == "KEPT" else f"REJECTED:{reason}"
    return named(number, shapes=[made.shape(decision=decision) | shape], decision=decision)


def crash(number: int, output: str = "ptxas fatal : Internal error\n") -> dict[str, Any]:
    """A candidate that the compiler died of."""
    result = static_result(
        number,
        "compiler_crash",
        gain=None,
        baseline=None,
        candidate=None,
        kernels=[],
        message="ptxas crashed",
    )
    result["shapes"][0]["compile"]["candidate"] |= {"output": output, "returncode": None, "signal": 11}
    return result
