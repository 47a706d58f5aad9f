"""Messages of a worker that cannot be trusted."""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boosterrun.measure import protocol
from boosterrun.measure.protocol import Ended, Lines, ProtocolError, WorkerError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
READERS = [protocol.hello, protocol.built, protocol.checked, lambda result: protocol.samples(result, 1.0)]


@given(st.dictionaries(st.text(), JSON, max_size=5))
def test_what_is_sent_arrives(message: dict[str, Any]) -> None:
    line = protocol.encode(message)
    assert line.count(b"\n") == 1
    assert protocol.decode(line) == message


@given(st.binary(max_size=200))
def test_garbage_is_a_message_or_a_protocol_error(line: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        assert isinstance(protocol.decode(line), dict)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[1]",
        b"NaN",
        b'{"a": NaN}',
        b'{"a": -Infinity}',
        b'{"a": 1e999}',
        b"[" * 100_000,
        b"\xff{}",
        b"{} {}",
    ],
)
def test_what_is_no_strict_object_is_refused(line: bytes) -> None:
    with pytest.raises(ProtocolError):
        protocol.decode(line)


@pytest.mark.parametrize("value", [math.nan, math.inf, object(), {1j}])
def test_what_json_cannot_say_is_not_sent(value: Any) -> None:
    with pytest.raises(ProtocolError, match="cannot be sent"):
        protocol.encode({"value": value})


@settings(max_examples=200)
@given(st.dictionaries(st.sampled_from(["values", "timer", "detail", "passed", "seconds", "pid"]), JSON))
def test_results_of_any_form_are_valid_or_refused(result: dict[str, Any]) -> None:
    for read in READERS:
        try:
            read(result)
        except ProtocolError:
            continue


@pytest.mark.parametrize(
    "values", [[], [True], ["1"], [0], [-1.0], [[1.0]], 5, None, [1, math.nan], [10**400], [1e300]]
)
def test_samples_must_be_times(values: Any) -> None:
    with pytest.raises(ProtocolError):
        protocol.samples({"values": values, "timer": "own", "detail": {}}, 1.0)


def test_a_failed_launch_is_none() -> None:
    samples = protocol.samples({"values": [1, None, 2.5], "timer": "host", "detail": {}}, 1.0)
    assert samples.values == [1.0, None, 2.5]
    assert samples.unit == "ms"


@pytest.mark.parametrize(
    ("timer", "detail", "milliseconds", "possible"),
    [
        ("host", {}, [400, None, 590], True),
        ("host", {}, [400, 700], False),
        ("batch", {"launches_per_value": 100}, [4, 5], True),
        ("batch", {"launches_per_value": 100}, [4, 7], False),
        ("own", {}, [400, 700], True),
    ],
)
def test_a_block_cannot_take_less_than_its_samples(
    timer: str, detail: dict[str, Any], milliseconds: list[float], possible: bool
) -> None:
    answer = {"values": milliseconds, "timer": timer, "detail": detail}
    if possible:
        assert protocol.samples(answer, 1.0).values == milliseconds
    else:
        with pytest.raises(ProtocolError, match="clock"):
            protocol.samples(answer, 1.0)


@pytest.mark.parametrize("change", [{"passed": 1}, {"passed": None}, {"detail": []}])
def test_checks_must_say_yes_or_no(change: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError):
        protocol.checked({"passed": True, "detail": {}, **change})


@pytest.mark.parametrize("number", [None, 1, 3, "2", 2.5, True, [2]])
def test_another_number_is_refused(number: Any) -> None:
    with pytest.raises(ProtocolError, match="the request was 2"):
        protocol.result_of({"id": number, "ok": True, "result": {}}, 2)


@pytest.mark.parametrize("answer", [{}, {"ok": True}, {"ok": False}, {"ok": 1, "result": {}}, {"ok": "no"}])
def test_an_answer_is_a_result_or_an_error(answer: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError):
        protocol.result_of({"id": 2, **answer}, 2)


def test_an_error_keeps_its_words() -> None:
    error = {"kind": "compile_error", "message": "m", "traceback": "t", "fatal": False}
    with pytest.raises(WorkerError) as caught:
        protocol.result_of({"id": 2, "ok": False, "error": error}, 2)
    assert (caught.value.kind, caught.value.message, caught.value.fatal) == ("compile_error", "m", False)
    with pytest.raises(ProtocolError, match="unknown kind"):
        protocol.result_of({"id": 2, "ok": False, "error": {**error, "kind": "no_gain"}}, 2)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int, Callable[[], None]]]:
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    open_ends = {read, write}

    def close_all() -> None:
        while open_ends:
            os.close(open_ends.pop())

    yield read, write, close_all
    close_all()


def test_lines_are_cut_wherever_they_come(pipe: tuple[int, int, Any]) -> None:
    read, write, _ = pipe
    lines = Lines(read)
    assert lines.next() is None
    os.write(write, b"one\ntw")
    assert lines.next() == b"one"
    assert lines.next() is None
    os.write(write, b"o\n\nend\n")
    assert [lines.next() for _ in range(4)] == [b"two", b"", b"end", None]


def test_an_endless_line_is_refused_before_memory_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "MAX_LINE", 1 << 20)
    lines = Lines(os.open("/dev/zero", os.O_RDONLY))
    with pytest.raises(ProtocolError, match="longer than"):
        lines.next()


def test_sending_to_a_reader_that_sleeps_ends_at_the_deadline(pipe: tuple[int, int, Any]) -> None:
    line = json.dumps("x" * 1_000_000).encode()
    start = time.monotonic()
    with pytest.raises(TimeoutError):
        protocol.send(pipe[1], line, time.monotonic() + 0.2)
    assert time.monotonic() - start < 5


def test_sending_to_nobody_is_told() -> None:
    read, write = os.pipe()
    os.close(read)
    with pytest.raises(Ended):
        protocol.send(write, b"x\n", time.monotonic() + 1)
    os.close(write)
