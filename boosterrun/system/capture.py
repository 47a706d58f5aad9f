"""Drain the pipes of a child without limit, but keep only a bounded part of what comes."""

from __future__ import annotations

import os
import selectors
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Protocol

_CHUNK = 1 << 16
_PRIVATE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC


class Sink(Protocol):
    """Takes the bytes of one stream."""

    def write(self, data: bytes) -> None:
        """Take the next bytes; never blocks for long and never raises."""

    def close(self) -> None:
        """The stream has ended or is given up."""


class Capture:
    """Keep the first and the last half of ``limit`` bytes in memory."""

    def __init__(self, limit: int) -> None:
        self._half = max(1, limit // 2)
        self._head = bytearray()
        self._tail = bytearray()
        self.dropped = 0

    def write(self, data: bytes) -> None:
        """Take the next bytes."""
        room = self._half - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        excess = len(self._tail) - self._half
        if excess > 0:
            del self._tail[:excess]
            self.dropped += excess

    def close(self) -> None:
        """Nothing to do."""

    def text(self) -> str:
        """Return what was kept, with a note in place of what was dropped; bytes not in UTF-8 are replaced."""
        note = f"\n[... {self.dropped} bytes dropped ...]\n".encode() if self.dropped else b""
        return bytes(self._head + note + self._tail).decode(errors="replace")


class CappedFile:
    """Write at most ``limit`` bytes to a file, note that the rest is dropped, and remember the last words."""

    def __init__(self, path: Path, limit: int, tail: int = 4096) -> None:
        self.path = path
        self._left = limit
        self._stream: IO[bytes] | None = os.fdopen(os.open(path, _PRIVATE, 0o600), "wb", buffering=0)
        self._tail = bytearray()
        self._tail_limit = tail

    def write(self, data: bytes) -> None:
        """Take the next bytes. A full disk ends the file, not the run."""
        self._tail += data
        del self._tail[: -self._tail_limit]
        if self._stream is None:
            return
        try:
            self._stream.write(data[: self._left])
            if len(data) > self._left:
                self._stream.write(b"\n[the rest of the output was dropped]\n")
                self.close()
        except OSError:
            self.close()
        self._left -= len(data)

    def close(self) -> None:
        """Close the file; later bytes are only remembered as last words."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def tail(self) -> str:
        """Return the last words of the stream, dropped ones included."""
        return bytes(self._tail).decode(errors="replace")


class Drain:
    """A thread that reads streams into sinks until they end or :meth:`finish` gives up. It owns them."""

    def __init__(self, streams: Mapping[IO[bytes], Sink]) -> None:
        self._streams = dict(streams)
        self._wake_read, self._wake_write = os.pipe()
        self._thread = threading.Thread(target=self._run, name="boosterrun-drain", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            for stream in self._streams:
                selector.register(stream, selectors.EVENT_READ)
            selector.register(self._wake_read, selectors.EVENT_READ)
            while len(selector.get_map()) > 1:
                for key, _ in selector.select():
                    if key.fd == self._wake_read:
                        return
                    data = os.read(key.fd, _CHUNK)
                    if data:
                        self._streams[key.fileobj].write(data)  # type: ignore[index]
                    else:
                        selector.unregister(key.fileobj)

    def finish(self, patience: float) -> bool:
        """Wait up to ``patience`` seconds for the streams to end, close them, return whether all had ended.

        A descendant that nobody can kill may keep a pipe open for ever: it is not waited for.
        """
        self._thread.join(patience)
        complete = not self._thread.is_alive()
        if not complete:
            os.write(self._wake_write, b"x")
            self._thread.join()
        os.close(self._wake_read)
        os.close(self._wake_write)
        for stream, sink in self._streams.items():
            stream.close()
            sink.close()
        return complete
