"""The messages between a side and its worker: JSON, one line each, capped, numbered, validated.

Request: ``{"id": 3, "op": "sample", ...}``. Answer: ``{"id": 3, "ok": true, "result": {...}}`` or
``{"id": 3, "ok": false, "error": {"kind", "message", "traceback", "fatal"}}``. What a worker sends is never
trusted: it runs foreign code.
"""

from __future__ import annotations

import json
import math
import os
import select
import time
from typing import Any, NoReturn, cast, get_args

from boosterrun.decision.pairs import is_time
from boosterrun.measure.api import Built, Checked, FailureKind, Hello, Samples

# Names of the two descriptors of the worker, "read,write", in its environment.
DESCRIPTORS = "BOOSTERRUN_DESCRIPTORS"
MAX_LINE = 8 << 20
# Of a message between a runner and the process that forks its workers.
MAX_PACKET = 1 << 20
_TIMER_NAME_LIMIT = 40
OWN_TIMER = "own"
# Two clocks (a GPU's and ours) need not agree better: a factor, and ms.
_CLOCKS_DIFFER = 1.01
_CLOCK_MARGIN = 1.0


class ProtocolError(Exception):
    """The other end broke a rule: garbage, an over-long line, a wrong number or type."""


def encode(message: dict[str, Any]) -> bytes:
    """Return a message as one line. Raises ProtocolError for what JSON cannot say (NaN), and for length."""
    try:
        line = json.dumps(message, allow_nan=False).encode() + b"\n"
    except (ValueError, TypeError, RecursionError) as error:
        raise ProtocolError(f"a message cannot be sent: {error}") from error
    if len(line) > MAX_LINE:
        raise ProtocolError(f"a message of {len(line)} bytes is longer than {MAX_LINE}")
    return line


def decode(line: bytes) -> dict[str, Any]:
    """Return the object in one line. Raises ProtocolError unless it is strict JSON with finite numbers."""
    try:
        message = json.loads(line, parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        start = line[:80].decode(errors="backslashreplace")
        raise ProtocolError(f"not a message: {start!r} ({error})") from error
    if not isinstance(message, dict):
        raise ProtocolError(f"a message is {type(message).__name__}, not an object")
    return message


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is too large")
    return value


class Ended(Exception):  # noqa: N818 - a state of a pipe
    """The other end of a pipe is closed."""


class Lines:
    """Cuts the bytes of a non-blocking descriptor into lines."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._buffer = bytearray()

    def next(self) -> bytes | None:
        """Return the next complete line that is there now, without waiting; None if there is none.

        Raises Ended at the end of the stream and ProtocolError when a line grows too long.
        """
        while True:
            line, newline, rest = self._buffer.partition(b"\n")
            if newline:
                self._buffer = rest
                return bytes(line)
            if len(self._buffer) > MAX_LINE:
                raise ProtocolError(f"a line is longer than {MAX_LINE} bytes")
            try:
                data = os.read(self._descriptor, 1 << 16)
            except BlockingIOError:
                return None
            if not data:
                raise Ended
            self._buffer += data


def send(descriptor: int, line: bytes, deadline: float) -> None:
    """Write a line to a non-blocking descriptor until ``deadline`` (monotonic seconds).

    Raises TimeoutError, and Ended when nobody can read it any more.
    """
    rest = memoryview(line)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError from None
            poll = select.poll()
            poll.register(descriptor, select.POLLOUT)
            poll.poll(left * 1e3)
        except OSError as error:
            raise Ended from error


def result_of(message: dict[str, Any], number: int) -> dict[str, Any]:
    """Return the result in the answer to request ``number``.

    Raises WorkerError with the worker's own words, and ProtocolError.
    """
    if message.get("id") != number or isinstance(message["id"], bool):
        raise ProtocolError(f"an answer to {message.get('id')!r}, the request was {number}")
    if message.get("ok") is True and isinstance(message.get("result"), dict):
        return cast(dict[str, Any], message["result"])
    error = message.get("error")
    if message.get("ok") is not False or not isinstance(error, dict):
        raise ProtocolError("an answer is neither a result nor an error")
    kind = _field(error, "kind", str)
    if kind not in get_args(FailureKind):
        raise ProtocolError(f"an error has the unknown kind {kind!r}")
    raise WorkerError(
        cast(FailureKind, kind),
        _field(error, "message", str),
        _field(error, "traceback", str),
        _field(error, "fatal", bool),
    )


class WorkerError(Exception):
    """What user code raised in the worker. ``fatal``: the worker has ended because of it."""

    def __init__(self, kind: FailureKind, message: str, traceback: str, fatal: bool) -> None:
        super().__init__(message)
        self.kind: FailureKind = kind
        self.message = message
        self.traceback = traceback
        self.fatal = fatal


def hello(result: dict[str, Any]) -> Hello:
    """Validate the answer to hello. Raises ProtocolError."""
    device = result.get("device")
    if device is not None and not isinstance(device, dict):
        raise ProtocolError("device is not an object")
    return Hello(_strings(result, "versions"), device, _field(result, "pid", int))


def built(result: dict[str, Any]) -> Built:
    """Validate the answer to build. Raises ProtocolError."""
    artifacts = _field(result, "artifacts", list)
    kernels = _field(result, "kernels", list)
    if not all(isinstance(path, str) for path in artifacts) or not all(isinstance(k, dict) for k in kernels):
        raise ProtocolError("artifacts or kernels have a wrong type")
    seconds = _number(result.get("seconds"), "seconds")
    sources = _strings(result, "sources") if "sources" in result else {}  # a CUDA program imports nothing
    versions, detail = _strings(result, "versions"), _field(result, "detail", dict)
    return Built(seconds, artifacts, kernels, versions, sources, detail)


def checked(result: dict[str, Any]) -> Checked:
    """Validate the answer to check and check_timed. Raises ProtocolError."""
    return Checked(_field(result, "passed", bool), _field(result, "detail", dict))


def samples(result: dict[str, Any], seconds: float) -> Samples:
    """Validate the answer to sample: times in ms, None for a failed launch.

    The block took ``seconds`` by our own clock: what was timed within it cannot have taken longer, unless the
    case says what a launch took (timer ``own``). Raises ProtocolError.
    """
    values = [None if v is None else _number(v, "a sample") for v in _field(result, "values", list)]
    if not values:
        raise ProtocolError("there are no samples")
    wrong = next((v for v in values if v is not None and not is_time(v)), None)
    if wrong is not None:
        raise ProtocolError(f"a sample of {wrong:g} ms is no time of a launch")
    timer = _field(result, "timer", str)
    if not timer or len(timer) > _TIMER_NAME_LIMIT:
        raise ProtocolError("the timer has no proper name")
    detail = _field(result, "detail", dict)
    launches = _number(detail.get("launches_per_value", 1), "launches_per_value")
    total = sum(v for v in values if v is not None) * launches
    if timer != OWN_TIMER and total > seconds * 1e3 * _CLOCKS_DIFFER + _CLOCK_MARGIN:
        took = f"{total:.6g} ms in a block that took {seconds * 1e3:.6g} ms"
        raise ProtocolError(f"the samples add up to {took}: the clock of the worker is wrong")
    return Samples(values, "ms", timer, detail)


def _field(source: dict[str, Any], name: str, kind: type) -> Any:
    value = source.get(name)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ProtocolError(f"{name} is {type(value).__name__}, not {kind.__name__}")
    return value


def _number(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ProtocolError(f"{name} is {type(value).__name__}, not a number")
    try:
        return float(value)
    except OverflowError as error:
        raise ProtocolError(f"{name} is too large") from error


def _strings(source: dict[str, Any], name: str) -> dict[str, str]:
    value = _field(source, name, dict)
    if not all(isinstance(item, str) for item in value.values()):
        raise ProtocolError(f"{name} has values that are not text")
    return cast(dict[str, str], value)
