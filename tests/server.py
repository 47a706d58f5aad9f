"""Two real HTTP servers on loopback that behave like GitHub: the Releases API, and the host of the files."""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

FILES_HOST = "127.0.0.2"  # another host than the API's, as for GitHub
ALLOWANCE = 60


@dataclass
class Published:
    """A release on the server; ``files`` may be changed at any time."""

    tag: str
    files: dict[str, bytes]
    draft: bool = False
    prerelease: bool = False


@dataclass
class Request:
    """What was asked, and what was answered."""

    host: str
    path: str
    headers: dict[str, str]
    status: int = 0


@dataclass
class GitHub:
    """The servers; used as a context. ``faults`` maps a part of a path to what goes wrong there, in order."""

    releases: list[Published]
    repository: str = "NVIDIA/CompileIQ"
    page_size: int = 100
    token: str | None = None
    faults: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    requests: list[Request] = field(default_factory=list)

    def __enter__(self) -> GitHub:
        self.files = _Server((FILES_HOST, 0), _Files, self)
        self.api = _Server(("127.0.0.1", 0), _Api, self)
        return self

    def __exit__(self, *_: object) -> None:
        for server in (self.api, self.files):
            server.shutdown()
            server.server_close()
            server.thread.join()

    @property
    def url(self) -> str:
        """The base URL of the API, with a path as GitHub Enterprise has one."""
        return f"http://127.0.0.1:{self.api.server_port}/api/v3"

    def assets(self) -> dict[int, tuple[Published, str]]:
        """Number of a file -> its release and name."""
        listed = [(release, name) for release in self.releases for name in release.files]
        return {1000 + number: each for number, each in enumerate(listed)}

    def fault(self, path: str) -> str | None:
        """The next thing to go wrong for a path, if any."""
        for part, waiting in self.faults.items():
            if part in path and waiting:
                return waiting.pop(0)
        return None

    def seen(self, host: str = "", path: str = "") -> list[Request]:
        """The requests to a host, or with this in their path."""
        return [each for each in self.requests if host in each.host and path in each.path]


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler], hub: GitHub) -> None:
        super().__init__(address, handler)
        self.hub = hub
        self.thread = threading.Thread(target=self.serve_forever, args=(0.02,))
        self.thread.start()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is part of the game."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        hub = self.server.hub
        if self.path.startswith("http://"):  # asked as a proxy
            self.path = self.path.removeprefix(f"http://{self.headers['Host']}")
        self.request_seen = Request(self.headers["Host"], self.path, dict(self.headers))
        hub.requests.append(self.request_seen)
        fault = hub.fault(self.path)
        if fault is None or not self.refuse(fault):
            self.answer(fault)

    def refuse(self, fault: str) -> bool:
        """Answer with an error; False if the fault is one of the body."""
        match fault.split(":"):
            case ["drop"]:
                self.close_connection = True
                self.connection.close()
            case ["limit", seconds]:
                reset = int(time.time() + float(seconds))
                headers = {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(reset)}
                self.send(403, b'{"message": "API rate limit exceeded"}', headers)
            case ["429", seconds]:
                self.send(429, b"", {"Retry-After": seconds})
            case ["429 date", seconds]:
                self.send(429, b"", {"Retry-After": formatdate(time.time() + float(seconds), usegmt=True)})
            case ["redirect", target]:
                self.send(302, b"", {"Location": target.replace("%", ":")})
            case [status] if status.isdecimal():
                self.send(int(status), b"")
            case _:
                return False
        return True

    def answer(self, fault: str | None) -> None:
        raise NotImplementedError

    def send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.request_seen.status = status
        self.send_response(status)
        for key, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """The requests are kept instead."""


class _Api(_Handler):
    def answer(self, fault: str | None) -> None:
        hub = self.server.hub
        if hub.token is not None and self.headers.get("Authorization") != f"Bearer {hub.token}":
            self.send(401, b'{"message": "Bad credentials"}')
            return
        url = urlsplit(self.path)
        root = f"/api/v3/repos/{hub.repository}/releases"
        if fault == "nonsense":
            self.send(200, b"<html>Please log in</html>")
        elif url.path == root:
            self.page(parse_qs(url.query))
        elif match := re.fullmatch(rf"{re.escape(root)}/tags/([^/]+)", url.path):
            found = [each for each in hub.releases if each.tag == match[1] and not each.draft]
            self.json(self.describe(found[0]) if found else None)
        elif match := re.fullmatch(rf"{re.escape(root)}/assets/(\d+)", url.path):
            if int(match[1]) not in hub.assets():
                self.json(None)
            elif self.headers.get("Accept") == "application/octet-stream":
                port = hub.files.server_port
                target = f"http://{FILES_HOST}:{port}/{match[1]}?signature=secret"
                self.send(302, b"", {"Location": target})
            else:
                self.json({"id": int(match[1])})
        else:
            self.json(None)

    def page(self, query: dict[str, list[str]]) -> None:
        hub = self.server.hub
        size = min(int(query["per_page"][0]), hub.page_size)
        number = int(query.get("page", ["1"])[0])
        shown = hub.releases[(number - 1) * size : number * size]
        headers = {}
        if number * size < len(hub.releases):
            headers["Link"] = f'<{hub.url}/repos/{hub.repository}/releases?page={number + 1}>; rel="next"'
        self.json([self.describe(each) for each in shown], headers)

    def describe(self, release: Published) -> dict[str, Any]:
        hub = self.server.hub
        return {
            "tag_name": release.tag,
            "draft": release.draft,
            "prerelease": release.prerelease,
            "created_at": "2020-01-01T00:00:00Z",
            "assets": [
                {"id": id, "name": name, "size": len(release.files[name]), "state": "uploaded"}
                for id, (owner, name) in hub.assets().items()
                if owner is release
            ],
        }

    def json(self, document: Any, headers: dict[str, str] | None = None) -> None:
        if document is None:
            self.send(404, b'{"message": "Not Found"}')
            return
        body = json.dumps(document).encode()
        etag = f'W/"{hashlib.sha256(body).hexdigest()}"'
        if self.headers.get("If-None-Match") == etag:
            self.request_seen.status = 304
            self.send_response(304)
            self.send_header("ETag", etag)
            self.end_headers()
        else:
            self.send(200, body, {"ETag": etag, **(headers or {})})


class _Files(_Handler):
    def answer(self, fault: str | None) -> None:
        release, name = self.server.hub.assets()[int(urlsplit(self.path).path.strip("/"))]
        body = release.files[name]
        etag = f'"{hashlib.sha256(body).hexdigest()}"'
        headers = {"ETag": etag}
        status, start = 200, 0
        match = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if match and self.headers.get("If-Range", etag) == etag and fault != "no range":
            status, start = 206, int(match[1])
            headers["Content-Range"] = f"bytes {start}-{len(body) - 1}/{len(body)}"
            if start >= len(body):
                self.send(416, b"")
                return
        if fault == "huge":
            self.endless(2 << 30)
        elif fault == "huge chunked":
            self.endless(None)
        elif fault == "wrong bytes":
            self.send(status, bytes(len(body) - start), headers)
        elif fault == "short":
            self.send(status, body[start:-1], headers)
        elif fault in {"truncate", "truncate without etag", "stall", "trickle"}:
            if "without" in fault:
                del headers["ETag"]
            self.begin(status, body[start:], headers, fault)
        else:
            self.send(status, body[start:], headers)

    def endless(self, length: int | None) -> None:
        """Send zeros: as many as ``length``, or in chunks without an end."""
        self.request_seen.status = 200
        self.send_response(200)
        self.send_header(*(("Content-Length", str(length)) if length else ("Transfer-Encoding", "chunked")))
        self.end_headers()
        self.sent = 0
        piece = bytes(1 << 16)
        while length is None or self.sent < length:
            self.wfile.write(piece if length else b"10000\r\n" + piece + b"\r\n")
            self.sent += len(piece)
            self.request_seen.headers["sent"] = str(self.sent)

    def begin(self, status: int, body: bytes, headers: dict[str, str], fault: str) -> None:
        """Send a half of the body, and then nothing, or byte by byte."""
        self.close_connection = True
        self.request_seen.status = status
        self.send_response(status)
        for key, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(key, value)
        self.end_headers()
        half = len(body) // 2
        self.wfile.write(body[:half])
        self.wfile.flush()
        if fault == "stall":
            time.sleep(2)
        if fault == "trickle":
            for number in range(half, len(body)):
                self.wfile.write(body[number : number + 1])
                time.sleep(0.01)
