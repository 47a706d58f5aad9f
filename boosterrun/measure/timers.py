"""Times blocks of launches. Every timer returns raw samples in milliseconds and is used on both sides alike.

=========  ==========================================================================================
own        the case's own ``sample``
host       ``perf_counter`` around ``run`` and ``sync``: for cases on the CPU
events     a pair of CUDA events around each launch, L2 flushed before it
graph      the same inside one CUDA graph: no launch cost of the CPU in the samples
batch      the mean of 100 launches between one pair of events, warm L2: when no graph can be captured
=========  ==========================================================================================
"""

from __future__ import annotations

import contextlib
import gc
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

# Bound before any case is imported: whoever replaces time.perf_counter_ns changes nothing here.
from time import perf_counter_ns
from typing import Any

from boosterrun.case import Case
from boosterrun.decision.pairs import is_time
from boosterrun.measure.arrays import leaves

BATCH = 100
_FLUSH_BYTES = 256 << 20
_CAPTURE_WARMUP = 3


class TimerError(Exception):
    """The timer asked for cannot time this case; the message says which can."""


@dataclass(frozen=True)
class Block:
    """The kept samples of one block in ms (None: a failed launch), and the timer that took them."""

    values: list[float | None]
    timer: str
    detail: dict[str, Any]


def on_gpu(value: Any) -> bool:
    """Return whether any array in ``value`` is a CUDA tensor."""
    return any(getattr(array, "is_cuda", False) for _, array in leaves(value))


def wait(case: Case) -> None:
    """Wait until the outputs of the last run are complete."""
    if case.sync is not None:
        case.sync()
        return
    wait_for_gpu()


def wait_for_gpu() -> None:
    """Wait until everything that torch launched is complete, if it uses a GPU."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()


class Timers:
    """The timers of one case. ``gpu`` says whether its outputs are on a GPU."""

    def __init__(self, case: Case, gpu: bool) -> None:
        self._case = case
        self._gpu = gpu
        self._buffer: Any = None
        self._graph: tuple[int, Any, list[Any], list[Any]] | None = None
        self._uploaded = False  # the first replay does it

    @property
    def default(self) -> str:
        """What ``auto`` means for this case."""
        if self._case.sample is not None:
            return "own"
        return "events" if self._gpu else "host"

    def sample(self, timer: str, launches: int, warmup: int) -> Block:
        """Time ``launches`` launches after ``warmup`` launches that are dropped.

        ``timer`` is a name above or ``auto``. Raises TimerError, and whatever the case raises.
        """
        name = self.default if timer == "auto" else timer
        methods: dict[str, Callable[[int], list[float]]] = {
            "own": self._own,
            "host": self._host,
            "events": self._events,
            "graph": self._replay,
            "batch": self._batch,
        }
        if name not in methods:
            raise TimerError(f"there is no timer {name!r}; the timers are auto, {', '.join(methods)}")
        if name in ("events", "graph", "batch") and not self._gpu:
            raise TimerError(f"timer {name} needs outputs on a GPU; this case is on the CPU: use host")
        values = methods[name](warmup + launches)
        # A case's own sample() may bring its own warm-up and return fewer than it was asked for.
        kept = values[min(warmup, len(values) - 1) :]
        return Block([_valid(value, name) for value in kept], name, self._detail(name))

    def ready(self, timer: str, count: int) -> None:
        """Do what the first block of ``count`` launches needs, without running any. Raises TimerError."""
        if timer == "graph" and self._gpu and (self._graph is None or self._graph[0] != count):
            self._graph = None  # frees the memory of the last one first
            self._graph = (count, *self._capture(sys.modules["torch"], count))
            self._uploaded = False

    def _detail(self, name: str) -> dict[str, Any]:
        if name in ("events", "graph"):
            return {"l2": "flushed", "flush_bytes": self._flush().numel()}
        return {"l2": "warm", "launches_per_value": BATCH} if name == "batch" else {}

    def _own(self, count: int) -> list[float]:
        if self._case.sample is None:
            raise TimerError("timer own needs a case with sample(n); this one has none: use auto")
        values = [float(value) for value in self._case.sample(count)]
        if not values:
            raise TimerError("the case's sample(n) returned no times")
        return values

    def _host(self, count: int) -> list[float]:
        case, values = self._case, []
        wait(case)
        for _ in range(count):
            start = perf_counter_ns()
            case.run()
            wait(case)
            values.append((perf_counter_ns() - start) / 1e6)
        return values

    def _flush(self) -> Any:
        """Return a buffer larger than the L2 cache: writing it leaves nothing of the inputs there."""
        if self._buffer is None:
            torch = sys.modules["torch"]
            properties = torch.cuda.get_device_properties(torch.cuda.current_device())
            size = max(_FLUSH_BYTES, 2 * int(getattr(properties, "L2_cache_size", 0)))
            self._buffer = torch.empty(size, dtype=torch.int8, device="cuda")
        return self._buffer

    def _events(self, count: int) -> list[float]:
        torch, run, buffer = sys.modules["torch"], self._case.run, self._flush()
        starts, ends = _event_pairs(torch, count)
        torch.cuda.synchronize()
        for start, end in zip(starts, ends, strict=True):
            buffer.zero_()
            start.record()
            run()
            end.record()
        torch.cuda.synchronize()
        return _elapsed(starts, ends)

    def _replay(self, count: int) -> list[float]:
        torch = sys.modules["torch"]
        self.ready("graph", count)
        assert self._graph is not None  # noqa: S101 - for the type checker
        _, graph, starts, ends = self._graph
        if not self._uploaded:
            graph.replay()
            torch.cuda.synchronize()
            self._uploaded = True
        graph.replay()
        torch.cuda.synchronize()
        return _elapsed(starts, ends)

    def _capture(self, torch: Any, count: int) -> tuple[Any, list[Any], list[Any]]:
        run, buffer = self._case.run, self._flush()
        graph = torch.cuda.CUDAGraph()
        try:
            # Lazy initialisation (library handles, allocations) is not allowed while capturing.
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(_CAPTURE_WARMUP):
                    run()
            torch.cuda.current_stream().wait_stream(stream)
            torch.cuda.synchronize()
            # External events become nodes of the graph, so each launch inside it is timed by itself.
            starts, ends = _event_pairs(torch, count, external=True)
            # torch.cuda.graph would empty the allocator's cache first: each allocation after that asks the
            # driver, which takes long while other processes start.
            with torch.cuda.stream(stream), _no_collection():
                graph.capture_begin()
                try:
                    for start, end in zip(starts, ends, strict=True):
                        buffer.zero_()
                        start.record()
                        run()
                        end.record()
                finally:
                    graph.capture_end()
        except Exception as error:
            words = f"{type(error).__name__}: {error}"
            raise TimerError(f"this case fits no CUDA graph: use timer batch ({words})") from error
        return graph, starts, ends

    def _batch(self, count: int) -> list[float]:
        torch, run = sys.modules["torch"], self._case.run
        starts, ends = _event_pairs(torch, count)
        torch.cuda.synchronize()
        for start, end in zip(starts, ends, strict=True):
            start.record()
            for _ in range(BATCH):
                run()
            end.record()
        torch.cuda.synchronize()
        return [value / BATCH for value in _elapsed(starts, ends)]


def gpu_memory() -> dict[str, int] | None:
    """Bytes that are ``free`` on the GPU, and what this ``side`` may come to take; None without torch's CUDA.

    A check makes inputs, reference and outputs a second time.
    """
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return None
    return {"free": torch.cuda.mem_get_info()[0], "side": 2 * torch.cuda.memory_reserved()}


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """What a collection frees may wait for the GPU, which a capture does not survive."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _event_pairs(torch: Any, count: int, **options: bool) -> tuple[list[Any], list[Any]]:
    def make() -> list[Any]:
        return [torch.cuda.Event(enable_timing=True, **options) for _ in range(count)]

    return make(), make()


def _elapsed(starts: list[Any], ends: list[Any]) -> list[float]:
    return [float(start.elapsed_time(end)) for start, end in zip(starts, ends, strict=True)]


def _valid(value: float, timer: str) -> float | None:
    if math.isnan(value):
        return None
    if not is_time(value):
        raise TimerError(f"timer {timer} returned {value} ms, which is no time")
    return value
