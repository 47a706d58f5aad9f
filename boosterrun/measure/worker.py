"""The child of a side: imports the user's case, then builds, checks and times it on request.

Started as ``python -m boosterrun.measure.worker``; it answers on its own descriptors, so that user code may
print what it likes. It ends when the requests end.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import os
import re
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from boosterrun import case as cases
from boosterrun import hooks
from boosterrun.case import Case
from boosterrun.errors import BoosterrunError
from boosterrun.measure import arrays, compare, imported, protocol, timers
from boosterrun.measure.api import FailureKind

_TEXT = 6000
_TRACEBACK = 4000
_NOT_ITS_OWN = (
    "the output is right only while the arrays that reference returned are left alone: "
    "run must not read them, and a reference that returns an input must return a copy of it"
)
# These leave the CUDA context unusable: every later call of the process fails with the same words.
_STICKY = re.compile(
    r"illegal memory access|misaligned address|illegal instruction|unspecified launch failure"
    r"|launch timed out|device-side assert|hardware stack error|invalid address space"
    r"|invalid program counter|uncorrectable ECC"
    r"|CUDA_ERROR_(ILLEGAL|MISALIGNED|LAUNCH_FAILED|LAUNCH_TIMEOUT|ASSERT|HARDWARE|INVALID_PC|ECC)",
    re.IGNORECASE,
)


@dataclass
class _Kept:
    """The case of a shape that is timed. ``output``: what its last run returned."""

    case: Case
    reference: list[arrays.Array]
    output: Any
    timers: timers.Timers


class Worker:
    """Answers requests; each method named like a request returns its result."""

    def __init__(self) -> None:
        self._function: Callable[..., Case]
        self._options: dict[str, Any] = {}
        self._hooks: hooks.Hooks
        self._params: dict[str, dict[str, Any]] = {}
        self._kept: dict[str, _Kept] = {}

    def hello(self, request: dict[str, Any]) -> dict[str, Any]:
        """Import the case and the framework's hooks."""
        self._hooks = hooks.load(request["adapter"], Path(request["work"]))
        self._function = cases.load(request["case"])
        imported.note()
        self._options = request["options"]
        return {"versions": self._hooks.versions(), "device": _device(), "pid": os.getpid()}

    def build(self, request: dict[str, Any]) -> dict[str, Any]:
        """Make the case of a shape, compute its reference, and run it once, which compiles it."""
        shape, params = request["shape"], request["params"]
        self._kept.pop(shape, None)
        self._hooks.before_build()
        start = time.perf_counter()
        case = cases.make(self._function, request["seed"], self._options, params)
        made = time.perf_counter()
        reference = arrays.keep(case.reference())
        timers.wait_for_gpu()
        ready = time.perf_counter()
        output = case.run()
        timers.wait(case)
        end = time.perf_counter()
        gpu = timers.on_gpu(case.outputs) or (output is not None and timers.on_gpu(output))
        kept = _Kept(case, reference, output, timers.Timers(case, gpu))
        self._params[shape], self._kept[shape] = params, kept
        return {
            "seconds": made - start + end - ready,
            "artifacts": self._hooks.artifacts(),
            "kernels": self._hooks.kernels(),
            "versions": self._hooks.versions(),
            "sources": imported.told(),
            "detail": {
                "timer": kept.timers.default,
                "gpu": gpu,
                "gpu_memory": timers.gpu_memory(),
                "reference_seconds": ready - made,
                "flops": case.flops,
                "bytes": case.bytes,
            },
        }

    def check(self, request: dict[str, Any]) -> dict[str, Any]:
        """Check fresh inputs: the reference comes first, so that a kernel gone astray cannot foul it."""
        case = cases.make(self._function, request["seed"], self._options, self._params[request["shape"]])
        # Both stay until the end: what is freed may come back as the output's memory, with the answer in it.
        answer = case.reference()
        reference = arrays.keep(answer)
        output = case.run()
        timers.wait(case)
        with arrays.withheld(answer, reference) as withheld:
            found, output = _checked(case, reference, output)
        if withheld and not found["passed"] and _checked(case, reference, output)[0]["passed"]:
            found["detail"]["message"] = _NOT_ITS_OWN
        return {**found, "seed": request["seed"]}

    def check_timed(self, request: dict[str, Any]) -> dict[str, Any]:
        """Check the case that is timed, with the reference of its first moment."""
        kept = self._kept[request["shape"]]
        answer, kept.output = _checked(kept.case, kept.reference, kept.output)
        return answer

    def ready(self, request: dict[str, Any]) -> dict[str, Any]:
        """Do what the first block needs, without running it."""
        timers = self._kept[request["shape"]].timers
        timers.ready(request["timer"], request["launches"] + request["warmup"])
        return {}

    def sample(self, request: dict[str, Any]) -> dict[str, Any]:
        """Time one block."""
        kept = self._kept[request["shape"]]
        block = kept.timers.sample(request["timer"], request["launches"], request["warmup"])
        return {"values": block.values, "timer": block.timer, "detail": block.detail}


def _checked(case: Case, reference: list[arrays.Array], last: Any) -> tuple[dict[str, Any], Any]:
    """Poison the outputs, run again and compare. Returns the answer and the new output."""
    poisoned = arrays.poison(case.outputs) + (arrays.poison(last) if last is not None else 0)
    timers.wait(case)
    output = case.run()
    timers.wait(case)
    result = case.outputs if output is None else output
    if case.post is not None:
        result = case.post(result)
    passed, detail = compare.compare(
        arrays.look(result), reference, tolerance=case.tolerance, rtol=case.rtol, atol=case.atol
    )
    return {"passed": passed, "detail": {**detail, "poisoned": poisoned}}, output


def _device() -> dict[str, Any] | None:
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return None
    torch.cuda.synchronize()  # makes the context now: that takes a tenth of a second, and the driver's lock
    index = torch.cuda.current_device()
    properties = torch.cuda.get_device_properties(index)
    return {
        "index": index,
        "name": properties.name,
        "compute_capability": f"{properties.major}.{properties.minor}",
        "memory_bytes": properties.total_memory,
        "uuid": str(getattr(properties, "uuid", "")) or None,
        "l2_bytes": getattr(properties, "L2_cache_size", None),
    }


def _words(error: BaseException) -> str:
    """Return what an exception and its causes say, a failed compiler's own output included."""
    parts: list[str] = []
    seen: BaseException | None = error
    while seen is not None and len(parts) < 5:
        parts.append(f"{type(seen).__name__}: {seen}")
        if isinstance(seen, subprocess.CalledProcessError):
            for stream in (seen.stderr, seen.stdout):
                parts.append(stream.decode(errors="replace") if isinstance(stream, bytes) else stream or "")
        seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)
    return _short("\n".join(part for part in parts if part), _TEXT)


def _short(text: str, limit: int) -> str:
    text = text.encode(errors="replace").decode()  # lone surrogates would not survive the pipe
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[... {len(text) - limit} characters dropped ...]\n{text[-half:]}"


def _context_lost(words: str) -> bool:
    """Return whether the CUDA context is gone: then nothing this process says later can be believed."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        try:
            torch.cuda.synchronize()
        except Exception:
            return True
    return _STICKY.search(words) is not None


def _error(operation: str, error: BaseException) -> dict[str, Any]:
    if isinstance(error, BoosterrunError | timers.TimerError):
        words, trace = str(error), ""
    else:
        words = _words(error)
        trace = _short("".join(traceback.format_exception(error, limit=-12)), _TRACEBACK)
    fatal = operation == "hello" or _context_lost(words)
    kind: FailureKind = "runtime_error"
    if operation == "hello":
        kind = "start_error"
    elif operation == "build" and not fatal:
        kind = "compile_error"
    return {"kind": kind, "message": words, "traceback": trace, "fatal": fatal}


def _answer(worker: Worker, request: dict[str, Any]) -> dict[str, Any]:
    number, operation = request["id"], request["op"]
    try:
        result = getattr(worker, operation)(request)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # also SystemExit: user code must not end the worker quietly
        return {"id": number, "ok": False, "error": _error(operation, error)}
    return {"id": number, "ok": True, "result": result}


def _send(descriptor: int, message: dict[str, Any]) -> None:
    try:
        line = protocol.encode(message)
    except protocol.ProtocolError as error:  # user code put something into the answer that cannot be sent
        details = {"kind": "protocol_error", "message": str(error), "traceback": "", "fatal": False}
        line = protocol.encode({"id": message["id"], "ok": False, "error": details})
    rest = memoryview(line)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            os.close(descriptor)


def _leave() -> NoReturn:
    """End at once, but run what user code registered for the end: taking a framework apart takes a second."""
    with contextlib.suppress(Exception):
        atexit._run_exitfuncs()
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(0)


def ignore_notices() -> None:
    """Ignore what a batch system sends to all processes of a job it is about to end: the runner ends us."""
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)


def main() -> None:
    """Serve requests until there are no more, or ``bye``."""
    ignore_notices()
    read, write = (int(text) for text in os.environ.pop(protocol.DESCRIPTORS).split(","))
    for descriptor in (read, write):
        os.set_inheritable(descriptor, False)
    os.register_at_fork(after_in_child=lambda: _close(read, write))
    faulthandler.enable()
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    worker = Worker()
    lines = protocol.Lines(read)
    while True:
        try:
            line = lines.next()
        except protocol.Ended:
            return
        if line is None:  # the descriptor blocks: this does not happen
            continue
        request = protocol.decode(line)
        if request["op"] == "bye":
            _send(write, {"id": request["id"], "ok": True, "result": {}})
            _leave()
        answer = _answer(worker, request)
        _send(write, answer)
        if not answer["ok"] and answer["error"]["fatal"]:
            os._exit(1)  # tearing down a broken CUDA context can hang


def run() -> None:
    """Serve as the main program of this process."""
    try:
        main()
    except KeyboardInterrupt:
        os._exit(130)


if __name__ == "__main__":
    run()
