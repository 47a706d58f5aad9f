"""The user's files that a process has imported, by content: both sides must be made of the same.

An ACF is blamed, or praised, for whatever differs between two sides: whoever edits a kernel while a sweep
runs must not be taken for one. Installed packages and the standard library are left out: nobody edits them.
"""

from __future__ import annotations

import contextlib
import os
import sys
import sysconfig
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import boosterrun
from boosterrun.system.digest import sha256_of

_OURS = str(Path(boosterrun.__file__).parent) + os.sep
_SHIPPED = os.path.join(_OURS, "shipped", "")  # noqa: PTH118 - compared as text
_LIBRARY = tuple(os.path.join(sysconfig.get_path(name), "") for name in ("stdlib", "platstdlib"))  # noqa: PTH118
_INSTALLED = ("/site-packages/", "/dist-packages/")
# Bytes. To hash some hundred MiB in each process would take longer than to import them.
_LARGE = 4 << 20
# Content and when it was written, as first seen; a fork has imported what its parent has.
_seen: dict[str, tuple[str, tuple[int, int]]] = {}
_looked_at: set[str] = set()


def note() -> None:
    """Take down what has been imported since the last call, to be called right after an import."""
    new = sys.modules.keys() - _looked_at  # of thousands, where a framework is
    _looked_at.update(new)
    for key in new:
        name = getattr(sys.modules.get(key), "__dict__", {}).get("__file__")
        if isinstance(name, str) and name not in _seen and _edited(name) and (found := _look(name)):
            _seen[name] = found


def told() -> dict[str, str]:
    """What stands for the content of each imported file, by path; empty where it has changed since."""
    note()
    return {name: digest if _same(name, digest, written) else "" for name, (digest, written) in _seen.items()}


def current(sources: Mapping[str, str]) -> bool:
    """Whether each file is as it was imported. One that is gone was made for the occasion: no sign."""
    found = ((_look(name), digest) for name, digest in sources.items())
    return all(digest and (look is None or look[0] == digest) for look, digest in found)


def difference(*sides: Mapping[str, str]) -> str | None:
    """A file that was not the same on all sides, or has changed since; what one side alone has is its own."""
    for name in sorted({name for side in sides for name in side}):
        digests = {side[name] for side in sides if name in side}
        if len(digests) > 1 or "" in digests:
            return name
    return None


def _edited(name: str) -> bool:
    """Whether a module's file is one that a user may edit."""
    if name.startswith(_OURS):
        return name.startswith(_SHIPPED)
    if name.startswith(_LIBRARY) or any(part in name for part in _INSTALLED):
        return False
    return not any(name.startswith(place + os.sep) and _of_packages(place) for place in sys.path)


@cache
def _of_packages(place: str) -> bool:
    """Whether a folder of ``sys.path`` is one that pip fills, under whatever name (``--target``)."""
    with contextlib.suppress(OSError):
        return any(name.endswith(".dist-info") for name in os.listdir(place))  # noqa: PTH208 - names alone
    return False


def _look(name: str) -> tuple[str, tuple[int, int]] | None:
    try:
        written = _written(name)  # before it is read: a change meanwhile must show
        return _digest(name, written), written
    except OSError:
        return None


def _same(name: str, digest: str, written: tuple[int, int]) -> bool:
    try:
        now = _written(name)
        return now == written or _digest(name, now) == digest
    except OSError:  # made for the occasion
        return True


def _digest(name: str, written: tuple[int, int]) -> str:
    """Its sha256; for a large one, which a compiler has made, when it was written must do."""
    return sha256_of(Path(name)) if written[1] <= _LARGE else "{}-{}".format(*written)


def _written(name: str) -> tuple[int, int]:
    status = Path(name).stat()
    return status.st_mtime_ns, status.st_size
