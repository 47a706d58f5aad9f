"""One file of a known size and SHA-256 from a server: resumed where it broke off, never a byte too long."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import requests

from boosterrun.errors import PackError
from boosterrun.packs.http import Client, NotFoundError, TooLargeError, TransientError
from boosterrun.system.digest import sha256_of

Progress = Callable[[int, int], None]
_ALLOWED = frozenset({200, 206, 416})


class Download:
    """A download into ``partial``, which stays there, to be resumed later, when this process gives up."""

    def __init__(self, client: Client, url: str, headers: dict[str, str], partial: Path) -> None:
        self._client = client
        self._url = url
        self._headers = headers
        self._partial = partial
        self._etag = partial.with_name(f"{partial.name}.etag")

    def run(self, what: str, size: int, sha256: str, progress: Progress) -> None:
        """Complete the file; ``progress`` gets the bytes so far and in all.

        Raises:
            PackError: the server has something else; nothing is kept of it.
            RunError: it cannot be had now.  OSError: it cannot be written.
        """
        resumed = self._offset() > 0
        try:
            self._client.insist(what, lambda: self._attempt(what, size, progress))
            if sha256_of(self._partial) != sha256 and resumed:
                # What was there may have been another file's beginning.
                self.discard()
                self._client.insist(what, lambda: self._attempt(what, size, progress))
        except NotFoundError:
            raise PackError(f"{what}: is listed, but not there", "Try again later") from None
        except TooLargeError:
            self.discard()
            raise PackError(
                f"{what}: is larger than the {size} bytes of the catalog", "Tell its maker"
            ) from None
        if sha256_of(self._partial) != sha256:
            self.discard()
            raise PackError(f"{what}: has another SHA-256 than the catalog says", "Tell its maker")

    def discard(self) -> None:
        """Forget what was downloaded."""
        self._partial.unlink(missing_ok=True)
        self._etag.unlink(missing_ok=True)

    def _attempt(self, what: str, size: int, progress: Progress) -> None:
        offset = self._offset()
        if offset == size:
            return
        if offset > size:
            self.discard()
            offset = 0
        with self._client.open(self._url, self._headers | self._range(offset), _ALLOWED) as response:
            if response.status_code == 416 or (response.status_code == 206 and _start(response) != offset):
                self.discard()
                raise TransientError("the server cannot resume", wait=0.0)
            if response.status_code == 200:
                offset = 0
            self._remember(response.headers.get("ETag", ""))
            with self._partial.open("ab" if offset else "wb") as stream:
                done = offset
                for piece in self._client.body(response, size - offset):
                    stream.write(piece)
                    done += len(piece)
                    progress(done, size)
        if done < size:
            self.discard()
            raise PackError(f"{what}: has {done} bytes, but the catalog says {size}", "Tell its maker")

    def _range(self, offset: int) -> dict[str, str]:
        if not offset:
            return {}
        headers = {"Range": f"bytes={offset}-"}
        with suppress(OSError, UnicodeDecodeError):
            headers["If-Range"] = self._etag.read_text()
        return headers

    def _remember(self, etag: str) -> None:
        """Keep a strong ETag: with it a server sends the rest only if the file is still the same."""
        if re.fullmatch(r'"[!-~]{1,200}"', etag):
            self._etag.write_text(etag)
        else:
            self._etag.unlink(missing_ok=True)

    def _offset(self) -> int:
        try:
            return self._partial.stat().st_size
        except FileNotFoundError:
            return 0


def bar(name: str) -> Progress:
    """A progress bar on a terminal; nothing elsewhere."""
    if not sys.stderr.isatty():
        return lambda done, total: None

    def show(done: int, total: int) -> None:
        filled = "#" * (30 * done // total)
        # The cursor waits at the start of the line: an error overwrites an unfinished bar.
        end = "\n" if done == total else "\r"
        sys.stderr.write(f"{name} [{filled:<30}] {done / 1e6:.2f} of {total / 1e6:.2f} MB{end}")
        sys.stderr.flush()

    return show


def _start(response: requests.Response) -> int | None:
    match = re.match(r"bytes (\d{1,18})-", response.headers.get("Content-Range", ""))
    return int(match[1]) if match else None
