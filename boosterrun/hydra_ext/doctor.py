"""``boosterrun doctor workload=...``: the overrides of a run, and what is in the way of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from boosterrun.doctor import examine
from boosterrun.doctor.finding import Finding, Status, failure, passed, worst
from boosterrun.doctor.setup import Setup
from boosterrun.errors import BoosterrunError
from boosterrun.hydra_ext.arguments import Arguments
from boosterrun.hydra_ext.setup import set_up
from boosterrun.verbs.parser import Parser

_ABOUT = """Say whether this machine is ready for a run, with a fix for whatever is not: the same overrides as
a run. Only what concerns the chosen workload is examined. Exit code: 0 no FAIL, 1 a FAIL, 2 bad usage."""
# What chooses the workload when the command line as a whole makes no config.
_CHOOSING = ("workload=", "gpu=", "toolchain.", "hydra.sweep.dir=")


def run(argv: Sequence[str]) -> int:
    """Print what was found. Returns 0, or 1 when a finding is FAIL.

    Raises UsageError for arguments that are neither a flag nor an override; a config that cannot be composed
    is a finding.
    """
    parser = Parser("boosterrun doctor", description=_ABOUT, allow_abbrev=False)
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    parser.epilog = "Anything else is an override or a flag of a run: workload=triton pack=./my-pack"
    options, rest = parser.parse_known_args(argv)
    set_up()
    from boosterrun.hydra_ext import arguments  # noqa: PLC0415

    composed, setups = _compose(arguments.parse(rest))
    found = [finding for setup in setups for finding in examine(setup)]
    findings = list(dict.fromkeys([*composed, *found]))  # of several configs, most findings are the same
    findings += _first_check(setups, findings)
    _print(findings, " ".join(["boosterrun doctor", *rest]), as_json=options.json)
    return 1 if worst(findings) is Status.FAIL else 0


def _compose(parsed: Arguments) -> tuple[list[Finding], list[Setup]]:
    """What the command line means; if it means nothing, at least the workload that it names."""
    from boosterrun.hydra_ext import plan  # noqa: PLC0415

    try:
        planned = plan.make(parsed)
        setups = _setups(planned)
    except Exception as error:  # whatever is wrong with a config is what the user wants to hear
        findings = [_refused(error)]
    else:
        pack = planned.pack
        names = ", ".join(f"{s.config.workload.name} (adapter {s.adapter})" for s in setups if s.config)
        words = f"workload {names}; pack {pack.display_name}, {len(pack.acfs)} ACFs"
        return [passed("config", words)], setups
    try:
        choosing = [o for o in parsed.overrides if o.startswith(_CHOOSING) and "," not in o]
        parsed.flags.multirun = False
        setups = _setups(plan.make(Arguments(parsed.flags, [*choosing, "acf=none"])), with_pack=False)
    except Exception:  # the first error is the one to tell
        setups = [Setup(None, None, None, Path("outputs"), os.environ)]
    return findings, setups


def _setups(planned: object, *, with_pack: bool = True) -> list[Setup]:
    from boosterrun.config import typed  # noqa: PLC0415
    from boosterrun.hydra_ext.plan import Plan  # noqa: PLC0415

    assert isinstance(planned, Plan)  # noqa: S101 - for the type checker
    pack = planned.pack if with_pack else None
    # What is not there yet will be on its parent's file system, and that has no date in its name.
    folder = planned.folder if planned.folder.is_dir() else planned.folder.parent
    return [Setup(typed(raw), pack, raw, folder, os.environ) for raw in planned.configs]


def _refused(error: Exception) -> Finding:
    if isinstance(error, BoosterrunError):
        return failure("config", error.message, error.advice)
    return failure("config", f"{type(error).__name__}: {error}", "Look at it with boosterrun --cfg job")


def _first_check(setups: Sequence[Setup], findings: Sequence[Finding]) -> list[Finding]:
    """The check that a run begins with, unless what it would say was said."""
    from boosterrun.sweeps import app  # noqa: PLC0415

    said = {finding.detail for finding in findings if finding.status is Status.FAIL}
    for setup in setups:
        if setup.raw is None or setup.pack is None:
            return []
        if setup.pack.acfs:  # any will do: it is the pack that must suit the compiler
            setup.raw.acf.id = setup.pack.acfs[0].id
        try:
            app.preflight(setup.raw)
        except BoosterrunError as error:
            return [] if error.message in said else [failure("first check", error.message, error.advice)]
        except Exception as error:
            return [_refused(error)]
    return [passed("first check", "the one that each run begins with passes")]


def _print(findings: Sequence[Finding], title: str, *, as_json: bool) -> None:
    from boosterrun.doctor import screen  # noqa: PLC0415

    if as_json:
        sys.stdout.write(screen.document(findings, title))
        return
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    sys.stdout.write(screen.text(findings, colour=colour))
