"""Inside a worker that runs Helion: pins the config of each kernel, adds the ACF to it, and does not tune."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

from boosterrun.errors import RunError
from boosterrun.hooks.triton import TritonHooks

_CONFIGS = "BOOSTERRUN_HELION_CONFIGS"
_SETTING = "advanced_controls_file"


class HelionHooks(TritonHooks):
    """Wraps what makes, compiles and tunes kernels, before the case is imported; the case needs no change."""

    def __init__(self, work: Path) -> None:
        super().__init__(work)
        self._helion: Any = importlib.import_module("helion")
        self._acf = os.environ.get("BOOSTERRUN_ACF")
        self._pinned: dict[str, dict[str, Any]] = json.loads(os.environ.get(_CONFIGS, "{}"))
        self._found: set[str] = set()
        bound = importlib.import_module("helion.runtime.kernel").BoundKernel
        _wrap(self._helion.Kernel, "__init__", self._make)
        _wrap(bound, "compile_config", self._compile)
        _wrap(bound, "autotune", self._tune)

    def versions(self) -> dict[str, str]:
        """Return the usual versions and that of Helion."""
        return {**super().versions(), "helion": metadata.version("helion")}

    def artifacts(self) -> list[str]:
        """Return the cubins of all builds so far. Raises RunError for a pinned config of no kernel."""
        unknown = sorted(self._pinned.keys() - self._found)
        if unknown:
            kernels = ", ".join(sorted(self._found)) or "none"
            raise RunError(
                f"workload.configs names {', '.join(unknown)}, and the case's kernels are: {kernels}",
                "Use the names of the functions under @helion.kernel",
            )
        return super().artifacts()

    def _make(self, original: Callable[..., None], kernel: Any, *args: Any, **options: Any) -> None:
        """A kernel is made: replace its configs by the pinned one."""
        original(kernel, *args, **options)
        self._found.add(kernel.name)
        if kernel.name in self._pinned:
            kernel.configs = [self._helion.Config(**self._pinned[kernel.name])]

    def _compile(self, original: Callable[..., Any], bound: Any, config: Any = None, **options: Any) -> Any:
        """A kernel is compiled: its config is made to name the ACF."""
        _require_triton(bound)
        given = bound._require_implicit_config() if config is None else config
        values = dict(given.config if isinstance(given, self._helion.Config) else given)
        own = values.pop(_SETTING, None)
        if own and own != self._acf:
            raise RunError(
                f"the config of kernel {bound.kernel.name} has {_SETTING}={own!r} of its own",
                "Remove it from the kernel: the ACF is added here, on one side",
            )
        if self._acf is not None:
            values[_SETTING] = self._acf
        return original(bound, self._helion.Config(**values), **options)

    def _tune(self, original: Callable[..., Any], bound: Any, *args: Any, **options: Any) -> Any:
        """A kernel would be tuned: two sides would end with two configs, and be two programs."""
        raise RunError(
            f"kernel {bound.kernel.name} has no pinned config: Helion would tune it on each side by itself",
            f"Tune it once by hand, and give what it prints to workload.configs.{bound.kernel.name} "
            "or to @helion.kernel(config=...)",
        )


def _wrap(owner: Any, name: str, around: Callable[..., Any]) -> None:
    """Replace a method by ``around(original, self, ...)``."""
    original = getattr(owner, name)

    def method(self: Any, *args: Any, **options: Any) -> Any:
        return around(original, self, *args, **options)

    setattr(owner, name, method)


def _require_triton(bound: Any) -> None:
    backend = getattr(bound.settings, "backend", "triton")
    if backend != "triton":
        raise RunError(
            f"kernel {bound.kernel.name} is compiled by the backend {backend}, which takes no ACF",
            "Remove backend= from its @helion.kernel",
        )


def worker_hooks(work: Path) -> HelionHooks:
    """Return the hooks of a worker whose folder is ``work``."""
    return HelionHooks(work)
