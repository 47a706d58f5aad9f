"""The Debug Pack's part of the canary: ``ptxas_opt0`` must be slow, ``ptxas_opt3`` must change nothing.

The other checks prove that an ACF reaches the compiler. These prove that what is timed is what was compiled,
with the pairs that judge a candidate, not with single runs.
"""

from __future__ import annotations

import copy
import os
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from boosterrun import packs
from boosterrun.adapters import base
from boosterrun.compilers.probe import Remedies
from boosterrun.config import Config
from boosterrun.errors import PackError, RunError, ToolchainError
from boosterrun.packs import find

SLOW, SAME = "ptxas_opt0", "ptxas_opt3"
LEAST = 0.05
"""What ``ptxas_opt0`` must cost at least, and ``ptxas_opt3`` may change at most: a fraction of the time."""

_STORED = {"path": f"{find.SCHEME}debug", "name": "debug"}


def at_hand(config: Config) -> packs.Pack | None:
    """The swept pack if it has both ACFs, else the newest Debug Pack in the store for this CUDA; or None."""
    stage = config.pack.stage.value if config.pack.stage is not None else None
    swept = packs.open_pack(
        Path(config.pack.path), cuda_version=config.pack.cuda_version, stage=stage, name=config.pack.name
    )
    if _both(swept):
        return swept
    where = {**asdict(config.pack), **_STORED, "tag": None, "sha256": None}
    try:
        stored = packs.open_pack(find.locate(where, config.toolchain.ptxas, os.environ, may_fetch=False))
    except (PackError, ToolchainError, RunError):
        return None
    return stored if _both(stored) else None


def _both(pack: packs.Pack) -> bool:
    return {SLOW, SAME} <= {acf.id for acf in pack.acfs}


@dataclass(frozen=True)
class Bench:
    """A workload that can be timed. ``adapter`` is the one that judges candidates."""

    config: Config
    adapter: base.Adapter
    toolchain: base.Toolchain
    remedies: Remedies

    def checks(self, folder: Path) -> list[tuple[str, bool, str, float]]:
        """Measure both ACFs on the first shape: name, whether it passed, why, and the seconds of each check.

        Nothing where the Debug Pack is not at hand, or nothing is timed; a workload that cannot be measured
        here is told on stderr. ``folder`` is scratch.
        """
        if self.adapter.evidence != "timed" or (pack := at_hand(self.config)) is None:
            return []
        found = []
        for name, judged in ((SLOW, _slow), (SAME, _same)):
            begun = time.monotonic()
            try:
                shape = self._measure(pack, name, folder / name)
            except RunError as error:
                words = f"canary: the Debug Pack was not measured: {error.message}"
                sys.stderr.write(f"boosterrun: warning: {words}\n")
                return []
            passed, why = judged(shape, self.remedies)
            found.append((name, passed, why, time.monotonic() - begun))
        return found

    def _measure(self, pack: packs.Pack, name: str, work: Path) -> dict[str, Any]:
        acf, mine = pack.get(name), copy.deepcopy(self.config)
        mine.acf.id, mine.acf.sha256 = acf.id, acf.sha256
        mine.workload.shapes = dict(list(self.config.workload.shapes.items())[:1])
        mine.sweep.candidates = 1  # no baseline of the sweep is used, and none is left for it
        (work / "work").mkdir(parents=True, exist_ok=True)
        controls = packs.materialise(pack.read(acf), acf.sha256)
        job = base.Job(mine, acf, controls, work, work / "work", self.toolchain, mine.gpu.arch)
        return self.adapter.judge(job).shapes[0]


def _slow(shape: dict[str, Any], remedies: Remedies) -> tuple[bool, str]:
    gain = shape["gain"]
    if gain is not None and gain <= 1 / (1 + LEAST) - 1:
        return True, f"{SLOW} makes it {1 / (1 + gain) - 1:.1%} slower"
    return False, (
        f"{SLOW} must make it {LEAST:.0%} slower or more, and does not ({_said(shape)}): ACFs reach the "
        f"compiler, but what is timed is something else; find a kernel that comes from elsewhere, or what "
        f"overrides {remedies.cache}"
    )


def _same(shape: dict[str, Any], remedies: Remedies) -> tuple[bool, str]:
    if shape["application"]["code_identical"]:
        return True, f"{SAME} leaves every kernel's code as it is"
    gain = shape["gain"]
    if gain is not None and abs(gain) <= LEAST:
        return True, f"{SAME} changes the code, and the time by {gain:+.1%}"
    return False, (
        f"{SAME} must stay within {LEAST:.0%}, and does not ({_said(shape)}): the sides differ by more than "
        f"their ACF; see that both take the same compiler ({remedies.compiler}) and the machine is quiet"
    )


def _said(shape: dict[str, Any]) -> str:
    gain = "" if shape["gain"] is None else f", {shape['gain']:+.1%}"
    return f"{shape['decision']}{gain}: {shape['message']}"
