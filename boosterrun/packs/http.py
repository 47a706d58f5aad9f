"""GET over HTTP as a mirror of GitHub needs it: patient, bounded, and careful with the token."""

from __future__ import annotations

import email.utils
import http.client
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import urljoin, urlsplit

import requests
import urllib3
from requests.auth import AuthBase

from boosterrun import __version__
from boosterrun.errors import RunError, UsageError
from boosterrun.packs.names import printable

T = TypeVar("T")
_MAX_REDIRECTS = 6
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_OFFLINE = "Check the network and the proxy, or copy the release here and use --from DIR"


@dataclass(frozen=True)
class Patience:
    """How long to try; all times in seconds.

    Attributes:
        attempts: how often one file is tried. backoff: wait after the first failure; doubles each time.
        longest_wait: a server that asks for more is not waited for. connect, read: silence that is a failure.
        slow_rate, slow_seconds: bytes per second that, over that time, are too few.
    """

    attempts: int = 5
    backoff: float = 1.0
    longest_wait: float = 60.0
    connect: float = 10.0
    read: float = 30.0
    slow_rate: float = 1024.0
    slow_seconds: float = 20.0


class TransientError(Exception):
    """Something that may work the next time; ``wait`` is what the server asked for, in seconds."""

    def __init__(self, reason: str, wait: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.wait = wait


class NotFoundError(Exception):
    """The server has nothing at this address, or does not show it to us."""


class TooLargeError(Exception):
    """A body is longer than it may be."""


class Client:
    """GET requests to one API and to wherever it redirects; the token goes to the API's own origin only."""

    def __init__(self, base_url: str, token: str | None, patience: Patience) -> None:
        self.base_url = base_url.rstrip("/")
        self.patience = patience
        self._origin = _origin(self.base_url)
        self._token = token
        self._session = requests.Session()
        self._session.headers["User-Agent"] = f"boosterrun/{__version__}"
        # What is asked for is checked by size and sum: nothing may be recoded on the way.
        self._session.headers["Accept-Encoding"] = "identity"

    def insist(self, what: str, action: Callable[[], T]) -> T:
        """Return what ``action`` returns, trying again after each TransientError.

        Raises RunError, about ``what``, after the last attempt or if the server wants too long a wait.
        """
        patience = self.patience
        for attempt in range(1, patience.attempts + 1):
            try:
                return action()
            except TransientError as failure:
                wait = failure.wait
                if wait is None:
                    # Not all at the same moment: several jobs may have failed together.
                    wait = patience.backoff * 2 ** (attempt - 1) * random.uniform(0.5, 1.0)  # noqa: S311 - no secret # nosec B311
                if wait > patience.longest_wait:
                    until = time.strftime("%H:%M:%S UTC", time.gmtime(time.time() + wait))
                    when = f"try again in {_duration(wait)}, at {until}"
                    raise RunError(f"{what}: {failure.reason}: {when}", self._remedy()) from None
                if attempt == patience.attempts:
                    tries = f"{attempt} attempts" if attempt > 1 else "1 attempt"
                    raise RunError(f"{what}: {failure.reason} (after {tries})", _OFFLINE) from None
                time.sleep(wait)
        raise AssertionError("attempts is at least 1")

    @contextmanager
    def open(
        self, url: str, headers: Mapping[str, str], allowed: frozenset[int] = frozenset({200})
    ) -> Iterator[requests.Response]:
        """GET ``url``, follow redirects, and give the answer, whose body is not read yet.

        Raises:
            TransientError: worth another attempt. NotFoundError: 404 and 410.
            RunError: any other status that is not in ``allowed``.
        """
        response = self._follow(url, headers)
        try:
            if response.status_code not in allowed:
                raise self._refusal(response)
            yield response
        finally:
            response.close()

    def body(self, response: requests.Response, limit: int) -> Iterator[bytes]:
        """The pieces of a body as they come. Raises TransientError; TooLargeError beyond ``limit`` bytes."""
        patience = self.patience
        if response.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise RunError(f"{_host(response.url)} recodes what it sends", "Give another pack.base_url")
        total, since, recent = 0, time.monotonic(), 0
        while True:
            try:
                piece = response.raw.read1(1 << 16)
            except (urllib3.exceptions.HTTPError, http.client.HTTPException, OSError) as error:
                raise TransientError(f"{_host(response.url)} broke off: {_reason(error)}") from error
            if not piece:
                return
            total, recent = total + len(piece), recent + len(piece)
            if total > limit:
                raise TooLargeError
            yield piece
            elapsed = time.monotonic() - since
            if elapsed >= patience.slow_seconds:
                if recent < patience.slow_rate * elapsed:
                    raise TransientError(
                        f"{_host(response.url)} sends {recent / elapsed:.0f} bytes per second"
                    )
                since, recent = time.monotonic(), 0

    def content(self, url: str, headers: Mapping[str, str], limit: int, what: str) -> bytes:
        """The whole body at ``url``, insisted on. Raises as open and insist do, and TooLargeError."""

        def attempt() -> bytes:
            with self.open(url, headers) as response:
                return b"".join(self.body(response, limit))

        return self.insist(what, attempt)

    def _follow(self, url: str, headers: Mapping[str, str]) -> requests.Response:
        for _ in range(_MAX_REDIRECTS):
            response = self._get(url, headers)
            target = response.headers.get("Location")
            if response.status_code not in _REDIRECTS or target is None:
                return response
            response.close()
            target = urljoin(url, target)
            if urlsplit(target).scheme not in {"https", urlsplit(url).scheme}:
                raise RunError(f"{_host(url)} redirects to {printable(target)}", "Give another pack.base_url")
            url = target
        raise RunError(f"{_host(self.base_url)} redirects without an end", "Give another pack.base_url")

    def _get(self, url: str, headers: Mapping[str, str]) -> requests.Response:
        timeout = (self.patience.connect, self.patience.read)
        try:
            return self._session.get(
                url,
                headers=dict(headers),
                auth=_Bearer(self._token if _origin(url) == self._origin else None),
                allow_redirects=False,
                stream=True,
                timeout=timeout,
            )
        except requests.exceptions.SSLError as error:
            advice = "Set REQUESTS_CA_BUNDLE to your company's certificates if it has its own"
            raise RunError(f"{_host(url)}: no trusted TLS connection: {_reason(error)}", advice) from error
        except (
            requests.exceptions.ConnectionError,
            requests.exceptions.Timeout,
            requests.exceptions.ChunkedEncodingError,
        ) as error:
            raise TransientError(f"{_host(url)} cannot be reached: {_reason(error)}") from error
        except (OSError, ValueError, urllib3.exceptions.HTTPError) as error:
            raise RunError(f"cannot ask {_host(url)}: {_reason(error)}", _OFFLINE) from error

    def _refusal(self, response: requests.Response) -> Exception:
        status, host = response.status_code, _host(response.url)
        if status in {404, 410}:
            return NotFoundError(response.url)
        wait = _wait(response)
        if status == 429 or (status == 403 and wait is not None):
            return TransientError(f"{host} allows no more requests (HTTP {status})", wait)
        if status in {408, 500, 502, 503, 504}:
            return TransientError(f"{host} answers HTTP {status}", wait)
        advice = "Check GITHUB_TOKEN" if status in {401, 403} and self._token else _OFFLINE
        return RunError(f"{host} answers HTTP {status} {printable(response.reason or '')}".rstrip(), advice)

    def _remedy(self) -> str:
        return "Wait, or use --from DIR" if self._token else "Wait, or set GITHUB_TOKEN to be allowed more"


class _Bearer(AuthBase):
    """Sends the token, or nothing: with an ``auth`` of its own, requests looks for none in ~/.netrc."""

    def __init__(self, token: str | None) -> None:
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._token is not None:
            request.headers["Authorization"] = f"Bearer {self._token}"
        return request


def check_base_url(url: str, token: str | None) -> str:
    """Return ``url`` if it can be the root of an API. Raises UsageError."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise UsageError(
            f"pack.base_url '{printable(url)}': {error}", "Write it like https://host/api/v3"
        ) from None
    if (
        parts.scheme not in {"http", "https"}
        or not parts.hostname
        or parts.query
        or parts.fragment
        or port == 0
    ):
        raise UsageError(
            f"pack.base_url '{printable(url)}' is no address", "Write it like https://host/api/v3"
        )
    if parts.username is not None or parts.password is not None:
        raise UsageError("pack.base_url has a password in it", "Leave it out and set GITHUB_TOKEN")
    if token is not None and parts.scheme == "http" and parts.hostname not in _LOOPBACK:
        raise UsageError(
            f"GITHUB_TOKEN would be sent to {parts.hostname} unencrypted", "Use https, or unset GITHUB_TOKEN"
        )
    return url.rstrip("/")


def _wait(response: requests.Response) -> float | None:
    """Seconds that the server asks to wait, or None if it does not say that it limits us."""
    now = _http_time(response.headers.get("Date")) or time.time()
    after = response.headers.get("Retry-After")
    if after is not None:
        if after.isascii() and after.isdecimal():
            return min(float(after), 1e6)
        moment = _http_time(after)
        if moment is not None:
            return max(0.0, moment - now)
    reset = response.headers.get("X-RateLimit-Reset", "")
    if response.headers.get("X-RateLimit-Remaining") == "0" and reset.isascii() and reset.isdecimal():
        return min(max(0.0, float(reset) - now), 1e6)
    return None


def _http_time(text: str | None) -> float | None:
    try:
        return email.utils.parsedate_to_datetime(text).timestamp() if text else None
    except (ValueError, OverflowError):
        return None


def _origin(url: str) -> tuple[str, str | None, int | None]:
    try:
        parts = urlsplit(url)
        port = parts.port or {"https": 443, "http": 80}.get(parts.scheme)
    except ValueError:
        return "", None, None
    return parts.scheme, parts.hostname, port


def _host(url: str) -> str:
    return printable(urlsplit(url).netloc.rpartition("@")[2] or url)


def _reason(error: BaseException) -> str:
    """The innermost cause: what requests and urllib3 say around it is about their own workings."""
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return printable(" ".join(str(text).split()))


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
