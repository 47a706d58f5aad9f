"""The machine and the candidates that the simulated workload plays; standard library only.

The machine's noise (ramps, sticky clocks, AR(1)) is a function of the system's monotonic clock and the seed
alone: all processes of one experiment meet the same machine at the same moment, as two sides on one GPU do.
What each launch adds (jitter, outliers) is fresh. A candidate is known by ``BOOSTERRUN_ACF_ID``; without it
this is the baseline.
"""

from __future__ import annotations

import fnmatch
import math
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, fields
from statistics import NormalDist

BUILD_FAILURES = ("compile_error", "crash_build", "hang_build", "slow_build")
RUN_FAILURES = (
    "crash_run",
    "exit",
    "hang_run",
    "ignore_sigterm",
    "error",
    "flaky",
    "daemon",
    "garbage_stdout",
)
OUTPUT_FAILURES = ("wrong", "stale", "nan")
FAILURES = (*BUILD_FAILURES, *RUN_FAILURES, *OUTPUT_FAILURES)

_GARBAGE = b'\xff\x00{"id": 1, "ok": true}\r\nnan inf\n' * 4096
_NORMAL = NormalDist()


@dataclass(frozen=True)
class Noise:
    """Noise of a machine; all sizes are fractions of the launch time, all zero by default.

    Attributes: sigma: standard deviation of each launch, log-normal. outlier: chance that a launch takes 1.2
    to 3 times as long. ramp: slow-down over ``ramp_seconds``, linear, then from the start again; negative
    speeds up. slow_share, slow_gap, slow_stay: share of the time in a slow clock state, how much slower it
    is, and the chance to stay in it from one tick to the next. ar, ar_sd: coefficient and standard deviation
    of a first-order autoregression over ticks. process_sd: standard deviation between processes.
    tick_seconds: the time step of the last two.
    """

    sigma: float = 0.0
    outlier: float = 0.0
    ramp: float = 0.0
    ramp_seconds: float = 30.0
    slow_share: float = 0.0
    slow_gap: float = 0.05
    slow_stay: float = 0.97
    ar: float = 0.0
    ar_sd: float = 0.0
    process_sd: float = 0.0
    tick_seconds: float = 0.01

    def __post_init__(self) -> None:
        for field in fields(self):
            if not isinstance(getattr(self, field.name), int | float):
                raise TypeError(f"noise.{field.name} must be a number")
        if not (0 <= self.ar < 1 and 0 <= self.slow_share < 1 and self.slow_share <= self.slow_stay < 1):
            raise ValueError("noise: 0 <= ar < 1 and 0 <= slow_share <= slow_stay < 1 are needed")
        if not (self.tick_seconds > 0 and self.ramp_seconds > 0 and self.ramp > -1 and self.slow_gap > -1):
            raise ValueError("noise: times must be positive, and ramp and slow_gap greater than -1")


@dataclass(frozen=True)
class Behaviour:
    """What one candidate does.

    Attributes:
        gain: how much faster than the baseline, as baseline / candidate - 1.
        tail: chance that a launch takes 1.3 times as long.
        fail: one of `FAILURES`.
        after: launches that go well first.
        seconds: how long ``slow_build`` takes.
        code: exit code of ``exit``.
    """

    gain: float = 0.0
    tail: float = 0.0
    fail: str | None = None
    after: int = 0
    seconds: float = 5.0
    code: int = 3

    def __post_init__(self) -> None:
        if self.fail is not None and self.fail not in FAILURES:
            raise ValueError(f"fail: {self.fail} is unknown; use one of {', '.join(FAILURES)}")
        if self.gain <= -1:
            raise ValueError("gain must be greater than -1")


def behaviour(table: dict[str, dict[str, object]], acf_id: str | None) -> Behaviour:
    """Return the behaviour of the first glob in ``table`` that matches the id; a baseline (None) just works.

    Raises ValueError for an unknown key or failure anywhere in the table.
    """
    known = {field.name for field in fields(Behaviour)}
    chosen = None
    for glob, keys in table.items():
        if unknown := set(keys) - known:
            names, allowed = ", ".join(sorted(unknown)), ", ".join(sorted(known))
            raise ValueError(f"behaviours.{glob}: unknown {names}; use {allowed}")
        made = Behaviour(**keys)  # type: ignore[arg-type]
        if chosen is None and acf_id is not None and fnmatch.fnmatchcase(acf_id, glob):
            chosen = made
    return chosen or Behaviour()


def _uniform(seed: int, stream: int, tick: int) -> float:
    """Return a number in (0, 1) that depends on nothing but the arguments (SplitMix64)."""
    mask = (1 << 64) - 1
    z = (seed * 0x9E3779B97F4A7C15 + stream * 0xD1B54A32D192ED03 + tick * 0x8CB92BA72F3D8DD7) & mask
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z = ((z ^ (z >> shift)) * factor) & mask
    return ((z ^ (z >> 31)) + 0.5) / 2**64


class Machine:
    """The noise that all processes share; ``at`` must be called with times that do not go back."""

    def __init__(self, noise: Noise, seed: int) -> None:
        self.noise = noise
        self._seed = seed
        self._tick: int | None = None
        self._ar = 0.0
        self._slow = False
        # Chance per tick that the clock state is drawn anew; gives slow_stay and slow_share.
        self._redraw = (1 - noise.slow_stay) / (1 - noise.slow_share)
        forget = [math.log(1e-4) / math.log(rate) for rate in (noise.ar, 1 - self._redraw) if 0 < rate < 1]
        self._memory = math.ceil(max(forget, default=1.0))

    def at(self, now: float) -> float:
        """Return the logarithm of the slow-down at a time in seconds of the monotonic clock."""
        noise = self.noise
        log = math.log1p(noise.ramp) * (now % noise.ramp_seconds) / noise.ramp_seconds
        tick = int(now / noise.tick_seconds)
        if noise.ar_sd or noise.slow_share:
            # Far enough back, the state no longer depends on where one begins: all processes agree.
            first = tick - self._memory
            start = first if self._tick is None else max(self._tick + 1, first)
            for step in range(start, tick + 1):
                self._advance(step)
            self._tick = tick
        return log + self._ar + (math.log1p(noise.slow_gap) if self._slow else 0.0)

    def _advance(self, tick: int) -> None:
        noise = self.noise
        if noise.ar_sd:
            shock = _NORMAL.inv_cdf(_uniform(self._seed, 1, tick)) * noise.ar_sd
            self._ar = noise.ar * self._ar + math.sqrt(1 - noise.ar**2) * shock
        if noise.slow_share and _uniform(self._seed, 2, tick) < self._redraw:
            self._slow = _uniform(self._seed, 3, tick) < noise.slow_share


class Simulation:
    """One process of the simulated program: how long each launch takes, and what goes wrong when.

    Args:
        base_ms: time of an undisturbed baseline launch in ms.
        noise: keys of `Noise`. behaviours: glob of ACF ids -> keys of `Behaviour`. seed: of the machine.
        launches: launches that earlier processes of this side have made.

    Raises ValueError for unknown or senseless keys.
    """

    def __init__(
        self,
        base_ms: float,
        noise: dict[str, float],
        behaviours: dict[str, dict[str, object]],
        seed: int,
        launches: int = 0,
    ) -> None:
        if unknown := set(noise) - {field.name for field in fields(Noise)}:
            raise ValueError(f"noise: unknown {', '.join(sorted(unknown))}")
        if not base_ms > 0:
            raise ValueError("base_ms must be positive")
        self.base_ms = base_ms
        self.machine = Machine(Noise(**noise), seed)
        self.behaviour = behaviour(behaviours, os.environ.get("BOOSTERRUN_ACF_ID"))
        self.launches = launches
        self._random = random.Random(f"{os.getpid()}-{time.time_ns()}")  # noqa: S311 - not a secret # nosec B311
        self._offset = self._random.gauss(0.0, self.machine.noise.process_sd)

    @property
    def failing(self) -> str | None:
        """The failure that is due now, if any."""
        return self.behaviour.fail if self.launches >= self.behaviour.after else None

    def milliseconds(self) -> float:
        """Return how long a launch that begins now takes."""
        noise = self.machine.noise
        log = self.machine.at(time.monotonic()) + self._offset + self._random.gauss(0.0, noise.sigma)
        if self._random.random() < noise.outlier:
            log += math.log(self._random.uniform(1.2, 3.0))
        if self._random.random() < self.behaviour.tail:
            log += math.log(1.3)
        return self.base_ms * math.exp(log) / (1 + self.behaviour.gain)

    def build(self) -> None:
        """Do what the compiler does with this candidate: nothing, fail, crash, hang, or take its time."""
        fail = self.behaviour.fail
        if fail == "compile_error":
            raise RuntimeError("ptxas error   : (simulated) this kernel does not compile")
        if fail == "crash_build":
            _crash()
        if fail == "hang_build":
            _hang()
        if fail == "slow_build":
            time.sleep(self.behaviour.seconds)

    def launch(self) -> bool:
        """Count a launch and let it go wrong if it is due; return False for a launch that left no time.

        May not return: crash, exit, hang. Raises RuntimeError for ``error``.
        """
        fail = self.failing
        self.launches += 1
        if fail == "crash_run":
            _crash()
        elif fail == "exit":
            os._exit(self.behaviour.code)
        elif fail == "hang_run":
            _hang()
        elif fail == "ignore_sigterm":
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            _daemon()
            _hang()
        elif fail == "error":
            raise RuntimeError("CUDA error: (simulated) an illegal memory access was encountered")
        elif fail == "daemon":
            _daemon()
        elif fail == "garbage_stdout":
            for descriptor in (1, 2):
                os.write(descriptor, _GARBAGE)
        return not (fail == "flaky" and self.launches % 3 == 0)


def spin(milliseconds: float, since: float) -> None:
    """Wait until ``milliseconds`` have passed since a time of ``time.perf_counter``."""
    end = since + milliseconds / 1e3
    if (nap := end - time.perf_counter() - 2e-3) > 0:
        time.sleep(nap)
    while time.perf_counter() < end:
        pass


def _crash() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)
    time.sleep(60)  # the signal may take a moment


def _hang() -> None:
    while True:
        time.sleep(60)


def _daemon() -> None:
    """Leave a process behind that has a session of its own, ignores signals and keeps everything open."""
    code = "import signal, time; [signal.signal(n, signal.SIG_IGN) for n in (1, 2, 15)]; time.sleep(600)"
    # This very Python, with our own code.
    subprocess.Popen([sys.executable, "-c", code], start_new_session=True, close_fds=False)  # nosec B603
