"""Running the command as a user does: a process in a folder of its own, with packs of real ACFs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from boosterrun import packs
from boosterrun.config import SHIPPED

ROOT = Path(__file__).parent.parent
SAMPLE = SHIPPED / "packs" / "booster-pack-sample.zip"
HELION = "21-recompute_w_u_fwd_2-48fb75d9d1aa"
QUICK = "workload=ptxas/softmax"  # compiles in a tenth of a second


# As users run it: with warnings as errors, a file that a signal leaves half open would be told.
AS_USERS = {"PYTHONWARNINGS": ""}
MAIN = "import sys\nfrom boosterrun.cli import main\nsys.exit(main())\n"


def environment(**extra: str) -> dict[str, str]:
    """What a child needs to find this checkout, with every warning an error."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error", **extra}


def executable(folder: Path, body: str = MAIN) -> Path:
    """A ``boosterrun`` like the one that an installation puts on PATH; once there, it stays as it is."""
    script = folder / "boosterrun"
    if script.exists():  # never rewritten: another process may be reading it
        return script
    folder.mkdir(parents=True, exist_ok=True)
    script.write_text(f"#!{sys.executable}\n{body}")
    script.chmod(0o755)
    return script


def start(args: Sequence[str], cwd: Path, **extra: str) -> subprocess.Popen[str]:
    """The command in ``cwd``, running."""
    script = executable(cwd / ".bin")
    return subprocess.Popen(
        [script, *args],
        cwd=cwd,
        env=environment(**extra),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(*args: str, cwd: Path, **extra: str) -> subprocess.CompletedProcess[str]:
    """The command in ``cwd``, to its end."""
    with start(args, cwd, **extra) as process:
        stdout, stderr = process.communicate(timeout=240)
    return subprocess.CompletedProcess(args, process.returncode, stdout, stderr)


def loose_pack(folder: Path, names: Sequence[str]) -> Path:
    """A folder without a manifest: real ACFs under these names."""
    pack = packs.open_pack(SAMPLE)
    folder.mkdir(parents=True)
    for name, acf in zip(names, pack.acfs, strict=False):
        (folder / f"{name}.acf").write_bytes(pack.read(acf))
    return folder


def results(folder: Path) -> list[dict[str, Any]]:
    """Every result below ``folder``, by path."""
    return [json.loads(path.read_text()) for path in sorted(folder.rglob("result.json"))]
