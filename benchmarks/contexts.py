"""How many processes a second can have a CUDA context: what bounds a sweep that starts fresh ones.

    python benchmarks/contexts.py --out benchmarks/results/h200_contexts.json

A process that has imported torch forks others, so many at a time, which initialise CUDA, make a context, run
a few operations, and end. Measured: the time from the first fork to the last end, by their number; and what
each step took. With several GPUs the processes take them in turn.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import time
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from boosterrun.gpus import cards, gpu

ONE_QUEUE = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
STEPS = ("initialise", "context", "operations")


def life(environment: Mapping[str, str], steps: int, report: int) -> None:
    """One process: its steps, and how long each took."""
    os.environ.update(environment)
    times = [time.monotonic()]
    torch.cuda.is_available()
    times.append(time.monotonic())
    if steps > 1:
        torch.cuda.synchronize()
        times.append(time.monotonic())
    if steps > 2:
        x = torch.randn(1 << 20, device="cuda")
        (x * 2 + 1).to(torch.bfloat16).float().sum().item()
        times.append(time.monotonic())
    seconds = [b - a for a, b in pairwise(times)]
    os.write(report, f"{json.dumps(seconds)}\n".encode())
    os._exit(0)


def run(
    uuids: list[str], at_once: int, count: int, environment: Mapping[str, str], steps: int
) -> dict[str, Any]:
    """``count`` processes, ``at_once`` of them alive."""
    read, write = os.pipe()
    alive: set[int] = set()
    begun = time.monotonic()
    for number in range(count):
        if len(alive) >= at_once:
            alive.discard(os.wait()[0])
        device = {"CUDA_VISIBLE_DEVICES": uuids[number % len(uuids)]}
        pid = os.fork()
        if pid == 0:
            life({**environment, **device}, steps, write)
        alive.add(pid)
    while alive:
        alive.discard(os.wait()[0])
    seconds = time.monotonic() - begun
    os.close(write)
    with os.fdopen(read) as stream:
        lives = [json.loads(line) for line in stream]
    means = [1e3 * sum(step) / len(lives) for step in zip(*lives, strict=True)]
    return {
        "gpus": len(uuids),
        "queues": int(environment.get("CUDA_DEVICE_MAX_CONNECTIONS", 8)),
        "at_once": at_once,
        "processes": count,
        "steps": list(STEPS[:steps]),
        "ms_each": round(1e3 * seconds / count),
        "mean_ms_of_steps": dict(zip(STEPS, map(round, means), strict=False)),
    }


def main() -> None:
    """Run all that there are GPUs for, and write the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    found, why = cards.listed()
    uuids = [str(card["uuid"]) for card in found[:2]]
    if not uuids:
        raise SystemExit(f"a GPU is needed: {why}")
    run(uuids, 1, 2, ONE_QUEUE, 3)  # the first ones read libraries from disk
    one = uuids[:1]
    plans: list[tuple[list[str], int, int, Mapping[str, str], int]] = [
        (one, 1, 4, ONE_QUEUE, 3),
        (one, 12, 24, {}, 3),
        (one, 12, 36, ONE_QUEUE, 3),
        (one, 12, 36, ONE_QUEUE, 2),
        (one, 12, 36, ONE_QUEUE, 1),
        (one, 4, 24, ONE_QUEUE, 3),
    ]
    if len(uuids) > 1:
        plans += [(uuids, 24, 72, ONE_QUEUE, steps) for steps in (3, 2, 1)]
    report = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "gpu": found[0]["name"],
        "driver": gpu.snapshot([])["driver_version"],
        "cpus": len(os.sched_getaffinity(0)),
        "torch": torch.__version__,
        "runs": [run(*plan) for plan in plans],
    }
    text = json.dumps(report, indent=1)
    print(text)
    if options.out:
        options.out.write_text(f"{text}\n")


if __name__ == "__main__":
    main()
