"""Run a sweep in which something goes wrong, see what is left of it, and note what came of each fault."""

from __future__ import annotations

import contextlib
import csv
import fcntl
import functools
import json
import os
import shlex
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from command import SAMPLE, environment, executable

from boosterrun import packs

HERE = Path(__file__).parent
ACFS = [acf.id for acf in packs.open_pack(SAMPLE).acfs]
SHA256 = {acf.sha256: acf.id for acf in packs.open_pack(SAMPLE).acfs}
# Two that are undisturbed: one is kept, one does nothing. Those that misbehave come between them.
WINNER, LOSER, *OTHERS = ACFS
GAIN = 0.3
ROOM_MB = 24
BOUND = 240.0

_PROTOCOL = (
    "{min_gain: 0.1, calibration_pairs: 4, confirm_sessions: 1, checks: 1, require_proof: false, "
    "max_baseline_failures: 0}"
)
_WORKLOADS = {
    "python": "{override /workload: python}",
    "command": "{override /workload: command}",
    "ptxas": "{override /workload: ptxas/softmax}",
}


@dataclass(frozen=True)
class Fault:
    """``who``: the id of an ACF, baseline or canary. ``times``: how often it happens."""

    who: str
    phase: str
    fault: str
    times: int = 1


@dataclass
class Outcome:
    """What a run has left. ``decisions``: by job; ``none`` without one. ``seconds``: of the run."""

    code: int
    stdout: str
    stderr: str
    seconds: float
    decisions: dict[str, str]
    job_seconds: dict[str, float] = field(default_factory=dict)
    orphans: int = 0

    @property
    def words(self) -> str:
        """Everything it said."""
        return f"exit {self.code}\n{self.stdout}\n{self.stderr}\n{self.decisions}"


class Sweep:
    """A sweep in ``folder`` whose jobs are ``acfs``, with faults; its own cache, locks and temporary files.

    ``window``: the numbers of the baseline's samples that count as its calibration. ``state``: where faults
    are counted, if not there.
    """

    def __init__(
        self,
        folder: Path,
        adapter: str,
        acfs: Sequence[str],
        faults: Sequence[Fault] = (),
        *,
        gains: Mapping[str, float] | None = None,
        deadline: float = 60.0,
        window: Sequence[int] = (3,),
        report: bool = False,
        pack: str = "",
        state: Path | None = None,
    ) -> None:
        self.folder, self.adapter, self.acfs = folder, adapter, list(acfs)
        self.token = str(folder)
        self.state = state or folder / "state"
        for place in (self.state, *(folder / name for name in ("experiments", "tmp", "cache", "locks"))):
            place.mkdir(parents=True, exist_ok=True)
        self.out = folder / "out"
        self.clock = self.state / "clock"
        self.clock.write_bytes(struct.pack("q", 0))
        self.window = list(window)
        self._write_plan(faults)
        self._write_experiment({WINNER: GAIN, **(gains or {})}, deadline, report)
        self.args = ["-m", f"acf={','.join(self.acfs)}", "experiment=faults", "hydra.sweep.dir=out"]
        self.args += [f"pack={pack}"] if pack else []

    def _write_plan(self, faults: Sequence[Fault]) -> None:
        plan = {
            "state": str(self.state),
            "out": str(self.out),
            "disk": str(self.folder / "tmp" / "fill"),
            "others": [name for name in self.acfs if name not in {f.who for f in faults}],
            "acfs": SHA256,
            "window": self.window,
            "faults": [vars(fault) for fault in faults],
        }
        (self.state / "plan.json").write_text(json.dumps(plan))

    def _write_experiment(self, gains: Mapping[str, float], deadline: float, report: bool) -> None:
        program = [sys.executable, "-I", "-S", str(HERE / "program.py")]
        arguments = ["{work}", "{seed}", json.dumps(gains).replace("{", "{{").replace("}", "}}")]
        workload: dict[str, Any] = {
            "python": {"case": f"{HERE / 'case.py'}:make", "shapes": {"s": {}}, "options": {"gains": gains}},
            "command": {
                "shapes": {"s": {}},
                "score": {"select": "last"},
                **{key: [*program, action, *arguments] for key, action in _ACTIONS.items()},
            },
            "ptxas": {},
        }[self.adapter]
        lines = [
            f"defaults: [{_WORKLOADS[self.adapter]}]",
            f"workload: {json.dumps(workload)}",
            f"protocol: {_PROTOCOL}",
            f"timeouts: {{start: 60, build: {deadline}, check: {deadline}, sample: {deadline}, grace: 0.2}}",
            "sweep: {build_ahead: 0}",
            f"report: {str(report).lower()}",
        ]
        if self.adapter == "ptxas":
            lines.append(f"toolchain: {{ptxas: {_wrapper(self.state)}}}")
        (self.folder / "experiments" / "faults.yaml").write_text("\n".join(lines) + "\n")

    def environment(self, **extra: str) -> dict[str, str]:
        """Of the runner: everything that it writes lies in the sweep's folder."""
        return environment(
            FAULT_PLAN=str(self.state / "plan.json"),
            FAULT_PTXAS=_real_ptxas(),
            FAULT_TOKEN=self.token,
            TMPDIR=str(self.folder / "tmp"),
            XDG_CACHE_HOME=str(self.folder / "cache"),
            BOOSTERRUN_LOCKS=str(self.folder / "locks"),
            **extra,
        )

    def run(
        self, args: Sequence[str] | None = None, *, clock: bool = False, at: str = "", do: str = ""
    ) -> Outcome:
        """Run to the end. ``do``: a command for sh once the runner has opened a path with ``at`` in it."""
        extra = {"FAULT_CLOCK": str(self.clock)} if clock else {}
        if do:
            extra |= {"FAULT_MAIN": ".bin/boosterrun", "FAULT_OPEN": at, "FAULT_DO": do}
        if extra:
            extra["LD_PRELOAD"] = str(shim())
        begun = time.monotonic()
        with subprocess.Popen(
            [executable(self.folder / ".bin"), *(args or self.args)],
            cwd=self.folder,
            env=self.environment(PYTHONWARNINGS="", **extra),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            (self.state / "runner.pid").write_text(str(process.pid))
            try:
                stdout, stderr = process.communicate(timeout=BOUND)
            except subprocess.TimeoutExpired:
                process.kill()
                stdout, stderr = process.communicate()
                pytest.fail(f"still running after {BOUND:g} s: {stdout}\n{stderr}")
        seconds = time.monotonic() - begun
        decisions, each = self.read()
        outcome = Outcome(process.returncode, stdout, stderr, seconds, decisions, each, self.orphans())
        assert "Traceback" not in outcome.stderr, outcome.words
        return outcome

    def again(self) -> Outcome:
        """Run the same command once more, without any fault."""
        self._write_plan(())
        return self.run()

    def read(self, out: Path | None = None) -> tuple[dict[str, str], dict[str, float]]:
        """What the log says of each job, and the seconds that it took."""
        out = out or self.out
        decisions = dict.fromkeys(self.acfs, "none")
        seconds: dict[str, float] = {}
        log = out / "booster-pack-log.csv"
        if log.exists():
            with log.open(newline="") as file:
                for row in csv.DictReader(file):
                    job = Path(row["result"]).parent.name
                    decisions[job] = row["decision"].removeprefix("REJECTED:") or "none"
        for job in self.acfs:
            with contextlib.suppress(OSError, ValueError, KeyError):
                seconds[job] = json.loads((out / job / "result.json").read_text())["job"]["seconds"]
        return decisions, seconds

    def orphans(self) -> int:
        """Processes of the run that are left some seconds after its end; they are ended then."""
        deadline = time.monotonic() + 20
        while (found := _marked(self.token)) and time.monotonic() < deadline:
            time.sleep(0.05)
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(found)

    def leftovers(self) -> list[str]:
        """Parts of files, scratch folders and locks that nobody will ever clear away."""
        found = [str(p) for p in self.folder.rglob(".*.tmp")]
        found += [str(p) for p in (self.folder / "cache").rglob("canary-*")]
        found += [str(p) for p in (self.folder / "cache").rglob(".new-*")]
        found += [str(p) for p in (self.folder / "tmp").glob("boosterrun-baseline-*")]
        for path in [*self.out.rglob("*"), self.out, *(self.folder / "locks").iterdir()]:
            with contextlib.suppress(OSError):
                descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    found.append(f"a lock on {path}")
                finally:
                    os.close(descriptor)
        return found


_ACTIONS = {"build": "build", "command": "run", "check": "check"}


def undisturbed(adapter: str, acfs: Sequence[str], winners: Sequence[str] = ()) -> dict[str, str]:
    """The decisions of a sweep without faults."""
    everyone = _undisturbed(adapter)
    return {acf: everyone[WINNER if acf in winners and adapter != "ptxas" else acf] for acf in acfs}


@functools.cache
def _undisturbed(adapter: str) -> dict[str, str]:
    with tempfile.TemporaryDirectory() as folder:
        sweep = Sweep(Path(folder), adapter, ACFS if adapter == "ptxas" else [WINNER, LOSER])
        done = sweep.run()
        assert done.code == 0, done.words
        found = dict(done.decisions)
        if adapter != "ptxas":
            assert (found[WINNER], found[LOSER]) == ("KEPT", "no_gain"), done.words
            found |= dict.fromkeys(OTHERS, found[LOSER])
        return found


@functools.cache
def shim() -> Path:
    """The library that is loaded into a runner (shim.c), built once a process."""
    path = Path(tempfile.mkdtemp(prefix="boosterrun-shim-")) / "shim.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", path, HERE / "shim.c"], check=True)
    return path


@functools.cache
def _real_ptxas() -> str:
    from boosterrun.compilers.toolchain import find_ptxas

    return str(find_ptxas(None, os.environ).path)


def _wrapper(folder: Path) -> Path:
    path = folder / "ptxas"
    words = shlex.join([sys.executable, "-I", "-S", str(HERE / "ptxas.py")])
    path.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    path.chmod(0o755)
    return path


def _marked(token: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if f"FAULT_TOKEN={token}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found
