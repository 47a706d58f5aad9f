"""What is kept of a stream, and what is said about the rest."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boosterrun.system.capture import CappedFile, Capture, Drain


@given(st.lists(st.binary(max_size=40), max_size=20), st.integers(2, 60))
def test_capture_keeps_both_ends_and_counts_the_rest(chunks: list[bytes], limit: int) -> None:
    capture = Capture(limit)
    for chunk in chunks:
        capture.write(chunk)
    data, half = b"".join(chunks), limit // 2
    if len(data) <= 2 * half:
        assert capture.dropped == 0
        assert capture.text() == data.decode(errors="replace")
    else:
        assert capture.dropped == len(data) - 2 * half
        assert capture.text().startswith(data[:half].decode(errors="replace"))
        assert f"{capture.dropped} bytes dropped" in capture.text()


@given(st.lists(st.binary(max_size=40), max_size=20), st.integers(0, 60))
def test_capped_file_never_grows_beyond_its_limit(
    tmp_path_factory: pytest.TempPathFactory, chunks: list[bytes], limit: int
) -> None:
    path = tmp_path_factory.mktemp("capped") / "out.log"
    file = CappedFile(path, limit, tail=16)
    for chunk in chunks:
        file.write(chunk)
    file.close()
    data = b"".join(chunks)
    written = path.read_bytes()
    assert written[:limit] == data[:limit]
    assert (b"dropped" in written[limit:]) == (len(data) > limit)
    assert file.tail() == data[-16:].decode(errors="replace")


def test_capped_file_survives_a_full_disk() -> None:
    file = CappedFile(Path("/dev/full"), 100)
    file.write(b"words")
    file.write(b" more")
    assert file.tail() == "words more"


def test_drain_gives_up_on_a_pipe_that_stays_open() -> None:
    read, write = os.pipe()
    capture = Capture(100)
    drain = Drain({os.fdopen(read, "rb"): capture})
    os.write(write, b"data")
    start = time.monotonic()
    assert not drain.finish(0.2)
    assert time.monotonic() - start < 5
    assert capture.text() == "data"
    os.close(write)
