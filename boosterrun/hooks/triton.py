"""Inside a worker that runs Triton: is its ptxas the one asked for, and what did it really compile?"""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import Any, TextIO

import triton
from triton import knobs
from triton.backends.nvidia.compiler import CUDAOptions

from boosterrun.errors import RunError
from boosterrun.hooks import DefaultHooks, triton_once

_TOOLS = {"TRITON_PTXAS_PATH": "ptxas", "TRITON_PTXAS_BLACKWELL_PATH": "ptxas_blackwell"}
_HOST_CODE = "BOOSTERRUN_HOST_CODE"
_LOG = "ptxas info"


class _Tee(io.TextIOBase):
    """Passes text on, but keeps what ``ptxas -v`` says: Triton prints it after each compilation."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._kept = ""

    def write(self, text: str) -> int:
        if text.startswith(_LOG):
            self._kept = text
            return len(text)
        return self._stream.write(text)

    def flush(self) -> None:
        self._stream.flush()

    def fileno(self) -> int:
        return self._stream.fileno()

    def isatty(self) -> bool:
        return self._stream.isatty()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._stream.encoding

    def reconfigure(self, **how: Any) -> None:
        self._stream.reconfigure(**how)  # type: ignore[attr-defined]

    def take(self) -> str:
        """Return what ptxas said last, once."""
        kept, self._kept = self._kept, ""
        return kept


class TritonHooks(DefaultHooks):
    """Listens to Triton's compiler. What Triton takes from the environment was fixed before the case came."""

    def __init__(self, work: Path) -> None:
        super().__init__(work)
        self._asked = {name: os.environ.get(name) for name in (*_TOOLS, "TRITON_CACHE_DIR")}
        self._kernels: dict[str, dict[str, Any]] = {}
        self._tee = _Tee(sys.stdout)
        sys.stdout = self._tee
        self._before: Any = None
        _require_options()
        self._verify()
        triton_once.forget_installation()
        if (shared := os.environ.get(_HOST_CODE)) is not None:
            triton_once.share_host_code(Path(shared))

    def before_build(self) -> None:
        """Listen, and let a listener of the user's case listen as well."""
        if knobs.compilation.listener != self._listen:
            self._before = knobs.compilation.listener
            knobs.compilation.listener = self._listen
        self._tee.take()

    def versions(self) -> dict[str, str]:
        """Return the usual versions and that of Triton."""
        return {**super().versions(), "triton": triton.__version__}

    def artifacts(self) -> list[str]:
        """Return the cubins of all builds so far: what an earlier shape compiled is not compiled again.

        Raises RunError when the case chose another ptxas or another cache than this side was given.
        """
        self._verify()
        mine = {str(path) for path in self._work.rglob("*.cubin") if path.is_file()}
        return sorted(mine | set(self._kernels))

    def kernels(self) -> list[dict[str, Any]]:
        """Describe every compilation seen here, in seconds; ``foreign`` if it is not in this side's cache."""
        return list(self._kernels.values())

    def _listen(self, **event: Any) -> None:
        if self._before is not None:
            self._before(**event)
        log, metadata = self._tee.take(), event["metadata"]
        cubin = next((str(p) for name, p in event["metadata_group"].items() if name.endswith(".cubin")), None)
        if cubin is None or cubin in self._kernels:
            return
        self._kernels[cubin] = {
            "cubin": cubin,
            "options": metadata.get("ptx_options"),
            "shared_bytes": metadata.get("shared"),
            "compile_seconds": dict(event["times"].lowering_stages).get("cubin", 0) / 1e6,
            "foreign": not Path(cubin).resolve().is_relative_to(self._work.resolve()),
            # What another thread compiled meanwhile is not about this kernel.
            "log": log if f"entry function '{metadata['name']}'" in log else None,
        }

    def _verify(self) -> None:
        """Triton falls back to its own ptxas without a word: ask it which one it takes."""
        for name, tool in _TOOLS.items():
            asked, taken = self._asked[name], getattr(knobs.nvidia, tool, None)
            if asked is not None and taken is not None and not _same_file(taken.path, asked):
                raise RunError(
                    f"Triton takes {taken.path} ({taken.version}) instead of {asked}",
                    f"See that nothing in the case sets {name} or triton.knobs.nvidia.{tool}",
                )
        cache = self._asked["TRITON_CACHE_DIR"]
        if cache is not None and not _same_file(knobs.cache.dir, cache):
            raise RunError(
                f"Triton's cache is {knobs.cache.dir}, not this side's own",
                "See that nothing in the case sets TRITON_CACHE_DIR or triton.knobs.cache.dir",
            )
        if knobs.runtime.interpret:
            raise RunError("Triton interprets its kernels, so nothing is compiled", "Unset TRITON_INTERPRET")


def _require_options() -> None:
    """Triton reads the options once, at its import: that must have been in this side's environment."""
    asked, taken = os.environ.get("PTXAS_OPTIONS"), CUDAOptions().ptx_options
    if (asked or None) != (taken or None):
        raise RunError(
            f"Triton was imported with the ptxas options {taken!r}, before this side's {asked!r} were set",
            "See that nothing imports triton before the worker does (sitecustomize, a preloaded module)",
        )


def _same_file(one: str, other: str) -> bool:
    return Path(one).resolve() == Path(other).resolve()


def worker_hooks(work: Path) -> TritonHooks:
    """Return the hooks of a worker whose folder is ``work``."""
    return TritonHooks(work)
