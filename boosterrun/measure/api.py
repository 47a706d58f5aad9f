"""What the two sides of a measurement offer, whatever runs behind them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Protocol, Self

SideName = Literal["baseline", "candidate"]
FailureKind = Literal[
    "compile_error", "compile_timeout", "runtime_error", "runtime_timeout", "start_error", "protocol_error"
]


@dataclass(frozen=True)
class Hello:
    """A side is ready. ``versions`` maps names to version strings; ``device`` is None without a GPU."""

    versions: Mapping[str, str]
    device: Mapping[str, Any] | None
    pid: int | None


@dataclass(frozen=True)
class Built:
    """A shape is compiled, has run once, and is kept for timing.

    Attributes:
        seconds: making the inputs, compiling and the first run.
        artifacts: files of compiled code that this build made (cubins, shared objects).
        kernels: JSON-ready descriptions of the kernels, where the framework knows them.
        versions: versions of what the build imported.
        sources: the user's files that it is made of (:mod:`boosterrun.measure.imported`).
        detail: anything else worth recording; ``timer`` is the timer that ``auto`` means for this case.
    """

    seconds: float
    artifacts: list[str] = field(default_factory=list)
    kernels: list[dict[str, Any]] = field(default_factory=list)
    versions: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Checked:
    """The outputs against the reference. ``passed`` None: this workload has no check."""

    passed: bool | None
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Samples:
    """Raw samples of one block, in order; None is a launch that failed. ``timer`` names what really timed."""

    values: list[float | None]
    unit: str
    timer: str
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class SideSpec:
    """One side: its ACF (None: baseline), its fresh folder, and its environment (None removes a variable).

    ``case`` and ``options`` are for sides that run Python cases; ``adapter`` names the framework's hooks.
    ``preload``: modules that a warm process may have imported for the worker; None: a process of its own.
    """

    name: SideName
    acf: Path | None
    acf_id: str | None
    work: Path
    env: Mapping[str, str | None] = field(default_factory=dict)
    case: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    adapter: str = "python"
    preload: tuple[str, ...] | None = None


class Timeouts(Protocol):
    """Deadlines of the requests in seconds; ``grace`` lies between interrupt, terminate and kill."""

    start: float
    build: float
    check: float
    sample: float
    grace: float


class SideFailed(Exception):  # noqa: N818 - a result about a side, not an error of ours
    """A side died, hung, broke a rule, or its code raised an exception.

    Attributes:
        alive: the side can still be used (its code raised an exception); else it is closed.
        exit_code, signal: how its process ended, where that is what went wrong.
        output_tail: the last words on its standard output and standard error.
        traceback: short traceback of an exception in the user's code.
    """

    def __init__(
        self,
        side: str,
        kind: FailureKind,
        message: str,
        *,
        exit_code: int | None = None,
        signal: int | None = None,
        output_tail: str = "",
        traceback: str = "",
        alive: bool = False,
    ) -> None:
        super().__init__(message)
        self.side = side
        self.kind = kind
        self.message = message
        self.exit_code = exit_code
        self.signal = signal
        self.output_tail = output_tail
        self.traceback = traceback
        self.alive = alive

    def __str__(self) -> str:
        return f"{self.side}: {self.kind}: {self.message}"


class Closing:
    """A side that ends with its ``with`` block."""

    def close(self) -> None:
        """End the side and everything it started."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Side(Protocol):
    """One side of a measurement. Every method but ``close`` may raise SideFailed and is bounded in time."""

    @property
    def spec(self) -> SideSpec:
        """What this side was made from."""
        ...

    def start(self) -> Hello:
        """Start whatever runs the workload."""
        ...

    def build(self, shape: str, params: Mapping[str, Any]) -> Built:
        """Compile one shape, run it once, keep it for timing. ``params`` are its keyword arguments."""
        ...

    def check(self, shape: str, seed: int) -> Checked:
        """Compare the outputs for fresh inputs made from ``seed`` with the reference."""
        ...

    def check_timed(self, shape: str) -> Checked:
        """Poison the outputs of the very case that is timed, run it, and compare with the reference."""
        ...

    def sample(self, shape: str, launches: int, timer: str, warmup: int = 0) -> Samples:
        """Time one block: ``warmup`` launches that are dropped, then ``launches`` that are kept."""
        ...

    def close(self) -> None:
        """End the side and everything it started. Never raises; may be called twice."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
