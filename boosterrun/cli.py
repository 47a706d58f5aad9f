"""The command: verbs, else what Hydra makes of the overrides."""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from boosterrun.errors import BoosterrunError, UsageError
from boosterrun.system import redact
from boosterrun.system.visible import one_line
from boosterrun.verbs.parser import Parser

INTERRUPTED = 130


@dataclass(frozen=True)
class Verb:
    """What is not a run: ``act`` gets the arguments after the verb and returns the exit code."""

    summary: str
    act: Callable[[Sequence[str]], int]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Returns its exit code: 0 all decided, 1 not all, 2 bad input, 3 a canary failed."""
    words = list(sys.argv[1:] if argv is None else argv)
    redact.argv(words)  # from here on errors name no secret of the command line
    try:
        return _dispatch(words)
    except BoosterrunError as error:
        if os.environ.get("HYDRA_FULL_ERROR") == "1":
            sys.stderr.write(redact.text(traceback.format_exc()))
        sys.stderr.write(f"boosterrun: error: {one_line(redact.text(str(error)))}\n")
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED


def _dispatch(argv: Sequence[str]) -> int:
    if argv and re.fullmatch(r"[A-Za-z][\w-]*", argv[0]):
        verb = VERBS.get(argv[0])
        if verb is None:
            raise UsageError(
                f"unknown verb '{argv[0]}'", f"Verbs are: {', '.join(VERBS)}; a run takes key=value"
            )
        return verb.act(argv[1:])
    from boosterrun.hydra_ext import launch  # noqa: PLC0415 - verbs must not wait for Hydra

    return launch.run(argv, {name: verb.summary for name, verb in VERBS.items()})


def _collect(argv: Sequence[str]) -> int:
    parser = Parser("boosterrun collect", description="Merge every result below DIR into one CSV.")
    parser.add_argument("dirs", metavar="DIR", nargs="+", type=Path)
    parser.add_argument(
        "--out", type=Path, help="folder for the CSV (default: DIR if it is the only one, else here)"
    )
    options = parser.parse_args(argv)

    from boosterrun.results.collect import collect  # noqa: PLC0415

    merged = collect(options.dirs, options.out)
    sys.stdout.write(f"log: {merged.csv} ({merged.rows} rows)\n")
    if merged.invalid:
        sys.stdout.write(f"{merged.invalid} invalid results: {merged.rejects}\n")
    return 1 if merged.invalid or merged.undecided else 0


def _canary(argv: Sequence[str]) -> int:
    from boosterrun.hydra_ext import canary  # noqa: PLC0415

    return canary.run(argv)


def _pack(argv: Sequence[str]) -> int:
    from boosterrun.verbs import pack  # noqa: PLC0415

    return pack.run(argv)


def _doctor(argv: Sequence[str]) -> int:
    from boosterrun.hydra_ext import doctor  # noqa: PLC0415

    return doctor.run(argv)


def _resume(argv: Sequence[str]) -> int:
    from boosterrun.hydra_ext import again  # noqa: PLC0415

    return again.resume(argv)


def _report(argv: Sequence[str]) -> int:
    from boosterrun.report import command  # noqa: PLC0415

    return command.run(argv)


def _compare(argv: Sequence[str]) -> int:
    from boosterrun.report import compare  # noqa: PLC0415

    return compare.run(argv)


def _ship(argv: Sequence[str]) -> int:
    from boosterrun.verbs import ship  # noqa: PLC0415

    return ship.run(argv)


def _plan(argv: Sequence[str]) -> int:
    from boosterrun.hydra_ext import preview  # noqa: PLC0415

    return preview.run(argv)


VERBS = {
    "plan": Verb("say what a run would do and how long it may take; runs nothing: plan -m ...", _plan),
    "resume": Verb("go on with a sweep that was stopped; what is done stands: resume DIR", _resume),
    "collect": Verb("merge the results of one or many sweeps into one CSV: collect DIR...", _collect),
    "report": Verb("show the results of a sweep to people: report DIR", _report),
    "compare": Verb("say what changed between two sweeps: compare DIR_A DIR_B", _compare),
    "ship": Verb("measure what was kept once more, and write what reappears: ship DIR -o kept/", _ship),
    "pack": Verb("get, look at, check and make packs: pack list|show|fetch|verify|make", _pack),
    "canary": Verb("see that ACFs reach the compiler of a workload: canary workload=NAME", _canary),
    "doctor": Verb("say what is in the way of a run on this machine: doctor workload=NAME", _doctor),
}
