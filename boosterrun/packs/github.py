"""The public REST API of GitHub, as far as releases need it: list them, get one, download a file of one."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from boosterrun.errors import BoosterrunError, PackError, RunError, UsageError
from boosterrun.packs.http import Client, NotFoundError, TooLargeError
from boosterrun.packs.names import printable
from boosterrun.packs.release import Asset, Release, parse_release
from boosterrun.system.atomic import replacing

_MAX_PAGE = 32 << 20
_MAX_PAGES = 50
_JSON = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}
BYTES = {"Accept": "application/octet-stream", "X-GitHub-Api-Version": "2022-11-28"}
_REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,99}/[A-Za-z0-9_.-]{1,100}")


class Releases:
    """The releases of one repository. ``cache`` keeps answers: to ask for them again costs no allowance."""

    def __init__(self, client: Client, repository: str, cache: Path) -> None:
        self.client = client
        self.repository = repository
        self._cache = cache
        self._root = f"{client.base_url}/repos/{repository}/releases"

    def all(self) -> list[Release]:
        """Every published release of packs, from old to new. Raises PackError if there is none; RunError."""
        found: dict[str, Release] = {}
        for number in range(1, _MAX_PAGES + 1):
            document, more = self._json(f"{self._root}?per_page=100&page={number}")
            if not isinstance(document, list):
                raise self._nonsense()
            for element in document:
                release = parse_release(element)
                if release is not None:
                    found.setdefault(release.tag, release)
            if not more:
                break
        if not found:
            raise PackError(
                f"{self.repository} at {self.client.base_url} has no release called booster-packs-*",
                "Check pack.repository and pack.base_url",
            )
        return sorted(found.values(), key=lambda release: release.order)

    def tagged(self, tag: str) -> Release:
        """The release with this tag. Raises PackError if there is none, and RunError."""
        try:
            document, _ = self._json(f"{self._root}/tags/{tag}")
        except PackError:
            raise PackError(
                f"{self.repository} has no release {tag}", "See boosterrun pack list --remote"
            ) from None
        release = parse_release(document)
        if release is None or release.tag != tag:
            raise PackError(f"{tag} of {self.repository} is a draft or a prerelease", "Use another tag")
        return release

    def url(self, asset: Asset) -> str:
        """Where the file is downloaded: always at the configured host, which may redirect."""
        return f"{self._root}/assets/{asset.id}"

    def content(self, release: Release, name: str, limit: int) -> bytes:
        """A small file of a release as a whole. Raises PackError if it is not there, and RunError."""
        asset = self.asset(release, name)
        what = f"{name} of {release.tag}"
        try:
            return self.client.content(self.url(asset), BYTES, limit, what)
        except NotFoundError:
            raise PackError(f"{what}: is listed, but not there", "Try again later") from None
        except TooLargeError:
            raise PackError(f"{what}: is larger than {limit} bytes", "Tell its maker") from None

    def asset(self, release: Release, name: str) -> Asset:
        """The file called ``name``; PackError when the release has none."""
        if name not in release.assets:
            listed = ", ".join(sorted(release.assets)[:6]) or "nothing"
            problem = f"release {release.tag} of {self.repository} has no {printable(name)}"
            raise PackError(problem, f"It has {printable(listed)}")
        return release.assets[name]

    def _json(self, url: str) -> tuple[Any, bool]:
        """What ``url`` answers, and whether there is another page; PackError for "not found"."""
        path = self._cache / f"{hashlib.sha256(url.encode()).hexdigest()}.json"
        known = _known(path)
        try:
            body, more = self.client.insist(f"releases of {self.repository}", self._ask(url, path, known))
        except NotFoundError:
            raise PackError(
                f"{self.client.base_url} has no repository {self.repository}, or does not show it",
                "Check pack.repository, pack.base_url and GITHUB_TOKEN",
            ) from None
        except TooLargeError:
            raise self._nonsense() from None
        try:
            return json.loads(body), more
        except (ValueError, RecursionError):
            raise self._nonsense() from None

    def _ask(self, url: str, path: Path, known: dict[str, Any] | None) -> Callable[[], tuple[str, bool]]:
        headers = _JSON if known is None else {**_JSON, "If-None-Match": known["etag"]}

        def attempt() -> tuple[str, bool]:
            allowed = frozenset({200} if known is None else {200, 304})
            with self.client.open(url, headers, allowed) as response:
                if known is not None and response.status_code == 304:
                    return known["body"], known["more"]
                body = b"".join(self.client.body(response, _MAX_PAGE)).decode(errors="replace")
                more = "next" in response.links
                etag = response.headers.get("ETag")
            if etag:
                # A cache that cannot be written only costs requests.
                with suppress(OSError, BoosterrunError):
                    path.parent.mkdir(parents=True, exist_ok=True)
                    with replacing(path) as stream:
                        stream.write(json.dumps({"etag": etag, "more": more, "body": body}).encode())
            return body, more

        return attempt

    def _nonsense(self) -> RunError:
        return RunError(
            f"{self.client.base_url} does not answer like the API of GitHub",
            "Check pack.base_url, and whether a proxy asks for a login",
        )


def check_repository(repository: str) -> str:
    """Return ``repository`` if it is an owner and a name. Raises UsageError."""
    if not _REPOSITORY.fullmatch(repository) or repository.rpartition("/")[2] in {".", ".."}:
        raise UsageError(f"pack.repository '{printable(repository)}' is no repository", "Write it OWNER/NAME")
    return repository


def _known(path: Path) -> dict[str, Any] | None:
    try:
        known = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    kinds = {"etag": str, "more": bool, "body": str}
    good = isinstance(known, dict) and all(isinstance(known.get(key), kind) for key, kind in kinds.items())
    return known if good else None
