"""What a framework adds inside a worker: versions, and the files of compiled code that a build made.

``boosterrun/hooks/<adapter>.py`` may offer ``worker_hooks(work: Path) -> Hooks``. They are apart from the
adapters because a worker must not pay for what the parent imports.
"""

from __future__ import annotations

import importlib
import importlib.util
import platform
import sys
from pathlib import Path
from typing import Any, Protocol, cast

_MODULES = ("numpy", "torch", "triton")
_SUFFIXES = (".cubin", ".so")


class Hooks(Protocol):
    """Called in the worker. All may raise; then the request fails with their words."""

    def before_build(self) -> None:
        """Called before a shape is built."""

    def versions(self) -> dict[str, str]:
        """Return the versions of what has been imported so far."""

    def artifacts(self) -> list[str]:
        """Return the files of compiled code that were made so far."""

    def kernels(self) -> list[dict[str, Any]]:
        """Describe each kernel of the last build, JSON-ready, where the framework knows them."""


class DefaultHooks:
    """For plain Python: compiled code is each .cubin and .so below the side's folder (its caches)."""

    def __init__(self, work: Path) -> None:
        self._work = work

    def before_build(self) -> None:
        """Nothing to prepare."""

    def versions(self) -> dict[str, str]:
        """Return the versions of Python and of the usual packages, if imported."""
        found = {"python": platform.python_version()}
        for name in _MODULES:
            version = getattr(sys.modules.get(name), "__version__", None)
            if version is not None:
                found[name] = str(version)
        cuda = getattr(getattr(sys.modules.get("torch"), "version", None), "cuda", None)
        return {**found, "torch_cuda": str(cuda)} if cuda is not None else found

    def artifacts(self) -> list[str]:
        """Return the files of compiled code below the side's folder: it was empty, and no clock is asked."""
        found = (path for path in self._work.rglob("*") if path.suffix in _SUFFIXES)
        return sorted(str(path) for path in found if path.is_file())

    def kernels(self) -> list[dict[str, Any]]:
        """Plain Python knows nothing of its kernels."""
        return []


def load(adapter: str, work: Path) -> Hooks:
    """Return the hooks of an adapter, or the default ones when it has none."""
    name = f"{__name__}.{adapter}"
    if importlib.util.find_spec(name) is None:
        return DefaultHooks(work)
    return cast(Hooks, importlib.import_module(name).worker_hooks(work))
