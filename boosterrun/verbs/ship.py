"""``boosterrun ship DIR -o kept/``: measure what a sweep kept once more, and write what reappears."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from boosterrun.errors import UsageError
from boosterrun.verbs.parser import Parser

_OURS = {"acf", "protocol", "hydra.sweep.dir"}
_FLAGS = {"-r", "--run", "-m", "--multirun"}
_ABOUT = """\
Measure what the sweep in DIR kept once more: protocol ship, new processes, every shape. The sweep for that
goes to DIR-ship; where it was done already, its verdicts stand. Candidates that are kept again go into a new
folder, with their results and a note on how to apply them; the others are refused. Overrides are added to the
command of DIR."""


def run(argv: Sequence[str]) -> int:
    """Do what ``argv`` says. Returns 0, or 1 if a candidate was refused. Raises BoosterrunError."""
    parser = Parser("boosterrun ship", description=_ABOUT)
    parser.add_argument("dir", metavar="DIR", type=Path, help="folder of a timed sweep")
    parser.add_argument("-o", "--out", required=True, type=Path, help="folder to make, ready to commit")
    parser.add_argument("overrides", metavar="OVERRIDE", nargs="*", help="such as gpu.wait=600")
    options = parser.parse_intermixed_args(argv)

    from boosterrun.hydra_ext import launch  # noqa: PLC0415 - for Hydra
    from boosterrun.sweeps import apply_note, ship  # noqa: PLC0415

    changed = {ship.key_of(override) for override in options.overrides}
    if changed & _OURS:
        raise UsageError(
            f"ship sets {' and '.join(sorted(changed & _OURS))} by itself", "Leave it out of the command"
        )
    # The command of DIR is run where it was run: nothing may be relative to here any more.
    folder, out = options.dir.resolve(), options.out.absolute()
    measured = folder.with_name(f"{folder.name}-ship")
    ship.check_place(out, folder, measured)
    before, refused = ship.kept(folder)
    ids = list(dict.fromkeys(one.result["acf"]["id"] for one in before))
    sys.stdout.write(f"ship: measuring {len(ids)} kept candidates once more, in {measured}\n")
    sys.stdout.flush()
    launch.run(_command(folder, options.overrides, ids, measured))
    shipped, gone = ship.again(before, measured, changed)
    refused += gone
    if shipped:
        ship.write(out, shipped, apply_note.note(shipped, folder, measured))
        sys.stdout.write(f"shipped: {len(shipped)} of {len(before)} kept candidates, see {out / ship.NOTE}\n")
    for line in refused:
        sys.stdout.write(f"not shipped: {' '.join(line.split())}\n")
    if not shipped:
        sys.stdout.write("nothing reappeared: no folder was written\n")
    return 1 if refused else 0


def _command(folder: Path, more: Sequence[str], ids: Sequence[str], measured: Path) -> list[str]:
    """The command line of the sweep in ``folder``, for these candidates, with protocol ship."""
    from boosterrun.hydra_ext import arguments, remembered  # noqa: PLC0415
    from boosterrun.sweeps.ship import key_of  # noqa: PLC0415

    if not (folder / remembered.COMMAND).is_file():
        raise UsageError(f"no run was started in {folder}", "Name the output folder of a sweep")
    words = [
        word
        for word in remembered.command(str(folder), ())
        if word not in _FLAGS and ("=" not in word or key_of(word) not in _OURS)
    ]
    place = f"hydra.sweep.dir={arguments.quoted(str(measured))}"
    return ["-m", *words, *more, f"acf={','.join(ids)}", "protocol=ship", place]
