"""Read what somebody else may have left: a pipe, a device or an endless file is refused, not waited for."""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any

LIMIT = 64 << 20


def content(path: Path, limit: int = LIMIT) -> bytes:
    """Return what is in a regular file. Raises OSError: not there, no file, or over ``limit`` bytes."""
    # Not blocking: opening a pipe would wait for a writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as stream:
        _require_regular(descriptor, path)
        data = stream.read(limit + 1)
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"larger than {limit} bytes", str(path))
    return data


def tail(path: Path, limit: int) -> bytes:
    """Return the last ``limit`` bytes of a regular file, or all of it. Raises OSError as :func:`content`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as stream:
        _require_regular(descriptor, path)
        stream.seek(max(0, os.fstat(descriptor).st_size - limit))
        return stream.read(limit)


def document(path: Path, limit: int = LIMIT) -> Any:
    """Return the JSON document in a file. Raises OSError as :func:`content`, and ValueError: it is none."""
    return parsed(content(path, limit))


def parsed(data: bytes) -> Any:
    """Return a JSON document. Raises ValueError, for one that is nested too deeply as well."""
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _require_regular(descriptor: int, path: Path) -> None:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
