"""Examining a machine that is made of variables, executables and folders of the test's own."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

from command import run

from boosterrun.config import Config, WorkloadConfig
from boosterrun.doctor.setup import Setup
from boosterrun.packs import Pack

Findings = dict[str, dict[str, Any]]


def doctor(cwd: Path, *args: str, code: int | None = None, **variables: str) -> Findings:
    """Run ``boosterrun doctor --json`` in ``cwd``. Returns the findings by subject."""
    done = run("doctor", "--json", *args, cwd=cwd, **variables)
    assert done.stderr == ""
    said = json.loads(done.stdout)
    failed = any(finding["status"] == "FAIL" for finding in said["findings"])
    assert done.returncode == int(failed), done.stdout
    assert code is None or done.returncode == code, done.stdout
    for finding in said["findings"]:
        assert (finding["fix"] is None) == (finding["status"] == "PASS"), finding
        assert "could not be examined" not in finding["detail"], finding
    return {finding["subject"]: finding for finding in said["findings"]}


def setup(adapter: str, pack: Pack | None = None, **variables: str) -> Setup:
    """A setup without a command line; ``variables`` are all that its shell has."""
    config = Config(workload=WorkloadConfig(name="mine", adapter=adapter))
    return Setup(config, pack, None, Path("outputs"), variables)


def nothing_installed(folder: Path) -> dict[str, str]:
    """Variables of a machine without any program, compiler or framework: those of this Python are hidden."""
    (folder / "hidden" / "nvidia").mkdir(parents=True)
    (folder / "hidden" / "nvidia" / "__init__.py").write_text("")  # a package hides the wheels' namespace
    (folder / "empty").mkdir()
    return {"PATH": str(folder / "empty"), "CUDA_HOME": "", "CUDA_PATH": "", "HIDDEN": str(folder / "hidden")}


def distribution(folder: Path, name: str, version: str, module: str = "", body: str = "") -> None:
    """An installed distribution, found when ``folder`` stands on PYTHONPATH, with a module of this body."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    if module:
        (folder / f"{module}.py").write_text(body)


def compiler(path: Path, version: str, *, controls: bool = True) -> Path:
    """A compiler that only answers --version and --help."""
    path.parent.mkdir(parents=True, exist_ok=True)
    option = "--apply-controls <file>" if controls else "--maxrregcount <N>"
    release = ".".join(version.split(".")[:2])
    text = shlex.quote(f"Cuda compilation tools, release {release}, V{version}")
    path.write_text(f'#!/bin/sh\ncase "$1" in --version) echo {text};; --help) echo "{option}";; esac\n')
    path.chmod(0o755)
    return path
