#!/usr/bin/env python3
"""The simulated workload as a program that prints scores; standard library only, so that any python3 runs it.

simulated_program.py --base-ms 20 --behaviour '01-*:gain=0.05' --behaviour '02-*:fail=crash_run,after=3'
simulated_program.py --check FILE      # exit 0 if FILE holds the right output for --seed
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import time
from pathlib import Path

from simulation import Simulation, spin  # type: ignore[import-not-found]  # its neighbour


def _softmax(seed: int, count: int = 256) -> list[float]:
    rng = random.Random(seed)  # noqa: S311 - inputs, not secrets # nosec B311
    powers = [math.exp(rng.gauss(0.0, 1.0)) for _ in range(count)]
    total = math.fsum(powers)
    return [power / total for power in powers]


def _keys(text: str) -> dict[str, object]:
    """Read ``key=value,key=value``; values are numbers where they can be."""
    found: dict[str, object] = {}
    for item in filter(None, text.split(",")):
        key, _, value = item.partition("=")
        try:
            found[key] = int(value) if value.isdecimal() else float(value)
        except ValueError:
            found[key] = value
    return found


def _fail(reason: object, code: int = 1) -> int:
    sys.stderr.write(f"{reason}\n")
    return code


def _check(path: Path, seed: int) -> int:
    try:
        found = [float(word) for word in path.read_text().split()]
    except (OSError, ValueError) as error:
        return _fail(f"no output: {error}")
    right = _softmax(seed)
    if len(found) == len(right) and all(abs(a - b) <= 1e-9 for a, b in zip(found, right, strict=True)):
        return 0
    return _fail("the output differs from the reference")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--base-ms", type=float, default=20.0)
    parser.add_argument("--noise", type=_keys, default={}, metavar="KEY=VALUE,...")
    parser.add_argument("--behaviour", action="append", default=[], metavar="GLOB:KEY=VALUE,...")
    parser.add_argument("--clock", choices=("real", "virtual"), default="real")
    parser.add_argument("--repeat", type=int, default=1, help="scores per launch")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--state", type=Path, help="file that counts the launches of one side")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--build", action="store_true", help="only compile")
    parser.add_argument("--check", type=Path)
    return parser.parse_args()


def main() -> int:
    """Compile, check, or make one launch, as the arguments say."""
    arguments = _arguments()
    if arguments.check is not None:
        return _check(arguments.check, arguments.seed)
    launches = arguments.state.stat().st_size if arguments.state and arguments.state.exists() else 0
    table = {glob: _keys(keys) for glob, _, keys in (item.partition(":") for item in arguments.behaviour)}
    try:
        simulation = Simulation(arguments.base_ms, arguments.noise, table, 0, launches)
        if arguments.build:
            simulation.build()
            return 0
    except (ValueError, TypeError, RuntimeError) as error:
        return _fail(error, 255)
    try:
        return _launch(arguments, simulation)
    except RuntimeError as error:
        return _fail(error)


def _launch(arguments: argparse.Namespace, simulation: Simulation) -> int:
    began = time.perf_counter()
    fail, first = simulation.failing, simulation.launches == 0
    if arguments.state:
        with arguments.state.open("ab") as stream:
            stream.write(b"x")
    if not simulation.launch():
        return _fail("(simulated) this launch failed")
    if arguments.output and (first or fail != "stale"):
        values = _softmax(arguments.seed)
        if fail == "wrong":
            values[-1] *= 1.01
        if fail == "nan":
            values[0] = math.nan
        arguments.output.write_text("\n".join(map(repr, values)) + "\n")
    for _ in range(0 if fail == "garbage_stdout" else arguments.repeat):
        milliseconds = simulation.milliseconds()
        if arguments.clock == "real":
            spin(milliseconds, began)
            now = time.perf_counter()
            began, milliseconds = now, (now - began) * 1e3
        sys.stdout.write(f"time: {milliseconds:.6e} ms\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
