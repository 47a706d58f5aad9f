"""What Triton does anew for every fresh cache, and need not: no ACF has a part in it.

Each side has a cache of its own, which is what keeps code from being mixed up; but Triton also keeps things
there that are not made by ptxas. On an H200's host they take 1.2 of the 1.5 s that a small kernel's first
build takes, in each of the seventy processes of a sweep of 24 ACFs.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import triton
from triton import knobs
from triton.runtime import build, cache


def share_host_code(folder: Path) -> None:
    """Take what the C compiler makes for the host from ``folder``, or leave it there for the next process.

    Those are the driver's functions and a launcher for each signature. What Triton asks the compiler for is
    the key; a builder that a case sets (``knobs.build.impl``) is asked as ever.
    """
    original = getattr(build, "_build", None)
    if original is not None:
        build._build = functools.partial(_once, folder, original)


def forget_installation() -> None:
    """Leave out the digest of Triton's whole installation: it tells caches of two installations apart."""
    if hasattr(cache, "triton_key"):
        cache.triton_key = lambda: f"{triton.__version__} of one side"


def _once(
    folder: Path, original: Callable[..., str], name: str, src: str, srcdir: str, *args: Any, **options: Any
) -> str:
    if knobs.build.impl is not None:
        return original(name, src, srcdir, *args, **options)
    asked = [
        Path(src).read_text(encoding="utf-8"),
        args,
        options,
        os.environ.get("CC"),
        os.environ.get("PATH"),
    ]
    kept = folder / f"{name}-{hashlib.sha256(json.dumps(asked, default=str).encode()).hexdigest()}"
    if kept.exists():
        return str(kept)
    made = original(name, src, srcdir, *args, **options)
    with contextlib.suppress(OSError):
        folder.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as place:
            shutil.copyfile(made, Path(place, name))
            Path(place, name).rename(kept)
    return made
