"""Inside a worker that runs FlashInfer: lay out its CUDA_HOME, tell built kernels from prebuilt ones."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from boosterrun.errors import RunError
from boosterrun.hooks import DefaultHooks

_PREBUILT = ("flashinfer_jit_cache", "flashinfer_cubin")
_DRIVER = re.compile(r"^\s*libcuda\.so(\.1)? .*=> (\S+)$", re.MULTILINE)


class FlashinferHooks(DefaultHooks):
    """Compiled code is what was linked in this side's workspace, whichever shape needed it first."""

    def __init__(self, work: Path) -> None:
        super().__init__(work)
        self._workspace = Path(os.environ.get("FLASHINFER_WORKSPACE_BASE", work))
        self._cubins = Path(os.environ.get("FLASHINFER_CUBIN_DIR", work / "none"))
        home = Path(os.environ.get("CUDA_HOME", "/"))
        if home.is_relative_to(work):
            _lay_out(home, Path(os.environ["FLASHINFER_NVCC"]).resolve().parent.parent)
        for module in _PREBUILT:
            if importlib.util.find_spec(module) is not None:
                raise RunError(
                    f"{module} can be imported here: its kernels win over those built with an ACF",
                    f"Run pip uninstall {module.replace('_', '-')}",
                )

    def versions(self) -> dict[str, str]:
        """Return the usual versions and that of FlashInfer, if imported."""
        version = getattr(sys.modules.get("flashinfer"), "__version__", None)
        found = super().versions()
        return found if version is None else {**found, "flashinfer": str(version)}

    def artifacts(self) -> list[str]:
        """Return each library that was built so far. Raises RunError for a workspace of another side."""
        taken = getattr(sys.modules.get("flashinfer.jit.env"), "FLASHINFER_WORKSPACE_DIR", None)
        if taken is not None and not Path(taken).resolve().is_relative_to(self._workspace.resolve()):
            raise RunError(
                f"FlashInfer's workspace is {taken}, not this side's own",
                "See that nothing in the case sets FLASHINFER_WORKSPACE_BASE",
            )
        return sorted(str(path) for path in self._workspace.rglob("*.so") if path.is_file())

    def kernels(self) -> list[dict[str, Any]]:
        """Name the cubins that were fetched instead of built."""
        return [{"prebuilt": str(path)} for path in sorted(self._cubins.rglob("*.cubin"))]


def _lay_out(home: Path, root: Path) -> None:
    """Make ``home`` a CUDA installation out of links: that of pip has lib without lib64 and libcudart.so."""
    libraries = home / "lib64"
    libraries.mkdir(parents=True, exist_ok=True)
    for name in ("bin", "include", "nvvm"):
        _link(home / name, root / name)
    for folder in (root / "lib64", root / "lib"):
        for library in sorted(folder.glob("lib*")) if folder.is_dir() else ():
            _link(libraries / library.name, library)
            if library.name.startswith("libcudart.so."):
                _link(libraries / "libcudart.so", library)
    driver = _driver()
    if driver is not None:
        _link(libraries / "libcuda.so", driver)


def _link(link: Path, target: Path) -> None:
    if target.exists() and not link.is_symlink():
        link.symlink_to(target)


def _driver() -> Path | None:
    """Where the driver's library is, which machines with a driver alone have only under its full name."""
    try:
        done = subprocess.run(  # the nvcc of the toolchain, an argument list # nosec B603
            ["/sbin/ldconfig", "-p"], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _DRIVER.search(done.stdout)
    return Path(found[2]) if found else None


def worker_hooks(work: Path) -> FlashinferHooks:
    """Return the hooks of a worker whose folder is ``work``."""
    return FlashinferHooks(work)
