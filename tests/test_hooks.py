"""What a worker says about its framework."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path

import numpy as np

from boosterrun import hooks


def test_default_hooks_find_what_a_build_compiled(tmp_path: Path) -> None:
    default = hooks.load("python", tmp_path)
    old, new = tmp_path / "cache" / "old.cubin", tmp_path / "cache" / "deep" / "new.cubin"
    new.parent.mkdir(parents=True)
    for path in (old, new, new.with_suffix(".json"), new.with_suffix(".so")):
        path.write_bytes(b"x")
    os.utime(old, (time.time() - 60, time.time() - 60))  # as after a clock that was set
    assert default.artifacts() == [str(new), str(new.with_suffix(".so")), str(old)]
    assert default.kernels() == []


def test_default_hooks_tell_versions_of_what_is_imported(tmp_path: Path) -> None:
    versions = hooks.load("no_such_adapter", tmp_path).versions()
    assert versions["python"] == platform.python_version()
    assert versions["numpy"] == np.__version__
