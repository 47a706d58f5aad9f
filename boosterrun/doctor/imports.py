"""Import what a workload's workers would import, in a process of its own, and say what came of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from boosterrun.errors import RunError
from boosterrun.system import process

_MARK = "boosterrun-import "
# One line as soon as it is known: a later import may end the process.
_SCRIPT = f"""
import importlib, json, sys, time
for name in sys.argv[1:]:
    begun = time.monotonic()
    try:
        module = importlib.import_module(name)
        found = {{"version": str(getattr(module, "__version__", "unknown")), "error": None}}
        if name == "torch":
            found["cuda"] = module.version.cuda
            found["sees_gpu"] = bool(module.cuda.is_available())
    except (Exception, SystemExit) as error:
        found = {{"version": None, "error": f"{{type(error).__name__}}: {{error}}"}}
    found["seconds"] = time.monotonic() - begun
    print("\\n" + {_MARK!r} + json.dumps({{name: found}}), flush=True)
"""


@dataclass(frozen=True)
class Imported:
    """One module. ``error`` is None if it was imported; ``cuda`` and ``sees_gpu`` are torch's."""

    version: str | None
    error: str | None
    seconds: float = 0.0
    cuda: str | None = None
    sees_gpu: bool | None = None


def attempt(modules: Sequence[str], timeout: float) -> dict[str, Imported]:
    """Import ``modules`` in this order, all within ``timeout`` seconds. Never raises."""
    try:
        done = process.run([sys.executable, "-c", _SCRIPT, *modules], timeout=timeout, grace=0.5)
    except RunError as error:
        return {name: Imported(None, error.message) for name in modules}
    found: dict[str, Imported] = {}
    for line in done.stdout.splitlines():
        if line.startswith(_MARK):
            found |= {k: Imported(**v) for k, v in json.loads(line.removeprefix(_MARK)).items()}
    if done.timed_out:
        ending = f"not imported within {timeout:.0f} s"
    elif done.signal is not None:
        ending = f"the import was ended by signal {done.signal}"
    else:
        ending = f"the import ended the process with exit code {done.returncode}"
    for name in modules:
        found.setdefault(name, Imported(None, ending))
    return found
