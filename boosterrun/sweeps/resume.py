"""What an earlier run has left in a job's folder: may it stand, or must the job run again, and why.

A result stands if it is final and its identity (:mod:`boosterrun.results.identity`) is that of the job.
Nothing that was measured is ever deleted: what must go gets another name.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import Enum
from importlib import metadata
from pathlib import Path
from typing import Any

from boosterrun.adapters import base
from boosterrun.config import Config
from boosterrun.decision.pairs import FILENAME as PAIRS
from boosterrun.errors import RunError
from boosterrun.gpus import binding
from boosterrun.results import record
from boosterrun.results.identity import FILENAME as IDENTITY
from boosterrun.results.identity import differences, identify
from boosterrun.sweeps.ingredients import Ingredients
from boosterrun.system import reading, redact
from boosterrun.system.atomic import replacing
from boosterrun.system.visible import one_line

WORK = "work"
_SELF_TEST = "none"
_SHOWN = 3

# What compiles, launches or computes in a timed workload.
_FRAMEWORKS = (
    "torch",
    "triton",
    "pytorch-triton",
    "helion",
    "flashinfer-python",
    "flashinfer-jit-cache",
    "flashinfer-cubin",
    "apache-tvm-ffi",
    "nvidia-cutlass-dsl",
    "numpy",
    "cupy-cuda13x",
    "jax",
)


class Earlier(dict[str, Any]):
    """A result that an earlier run has left, and that stands."""


@dataclass(frozen=True)
class Standing:
    """What there is of a job.

    Attributes:
        state: new, missing (begun, no result), invalid, undecided, changed, done.
        why: why the job must run again, or what came of it; empty for a new one.
        result: the result that stands; None unless done. rewritten: it says more than the file does.
    """

    state: str
    why: str = ""
    result: Earlier | None = None
    rewritten: bool = False


def identity_of(config: Config) -> dict[str, Any]:
    """Return the identity of a job as things are now: files, compilers, packages, GPU.

    Raises BoosterrunError for a workload or a toolchain that is not there.
    """
    adapter = base.load(config.workload.adapter)
    source = adapter.source(config)
    toolchain = adapter.toolchain(config, os.environ)
    plain: dict[str, Any] = redact.tree(json.loads(json.dumps(asdict(config), default=_plain)))
    timed = adapter.evidence == "timed"
    if not timed:  # nothing runs, and the only rule is the smallest gain
        plain["protocol"] = {"min_gain": config.protocol.min_gain}
        del plain["seed"]
    ingredients = Ingredients(plain["workload"], source)
    plain["workload"] = ingredients.config
    compilers = {"ptxas": toolchain.ptxas, "nvcc": toolchain.nvcc}
    return identify(
        plain,
        acf=config.acf.sha256 if config.acf.id != _SELF_TEST else None,
        files=ingredients.files,
        compilers={name: c.version if c is not None else None for name, c in compilers.items()},
        packages=_packages() if timed else {},
        gpu=binding.model(config) if timed else None,
    )


def standing(config: Config, folder: Path, *, elsewhere: bool = False) -> Standing:
    """Say what there is of a job in its ``folder``; only reads. Raises what identity_of does.

    ``elsewhere``: the job would run on another machine, whose GPU is not known here where there is none.
    """
    path = folder / record.FILENAME
    if not os.path.lexists(path):
        return Standing("missing", "it did not end") if (folder / IDENTITY).exists() else Standing("new")
    try:
        result = Earlier(record.load(path))
    except record.InvalidResult as error:
        return Standing("invalid", f"its result is not valid: {error.message}")
    if result["status"] != "decided":
        return Standing("undecided", f"not judged: {result['message']}")
    try:
        old = reading.document(folder / IDENTITY)
    except (OSError, ValueError):
        old = None
    if not isinstance(old, dict):
        return Standing("changed", "it is not known what its result was measured on")
    new = identity_of(config)
    if elsewhere and new["gpu_model"] is None:
        new["gpu_model"] = old.get("gpu_model")
    changes = differences(old, new, result["decision"])
    if changes:
        more = f" and {len(changes) - _SHOWN} more" if len(changes) > _SHOWN else ""
        return Standing("changed", f"changed: {'; '.join(changes[:_SHOWN])}{more}")
    return _among(result, folder, config.sweep.candidates)


def _among(result: Earlier, folder: Path, candidates: int) -> Standing:
    """More candidates make a false KEPT likelier: what was decided among fewer is decided again."""
    from boosterrun.results.redecide import NotAgain, redecide  # noqa: PLC0415 - NumPy takes a tenth of a second

    before = result["job"]["sweep_candidates"]
    if candidates <= before or result["acf"] is None:
        return Standing("done", result["message"], result)
    try:
        again = Earlier(redecide(result, folder, candidates))
    except NotAgain as reason:
        return Standing("changed", f"changed: {before} -> {candidates} candidates, {reason}")
    return Standing("done", result["message"], again, rewritten=True)


def hold(folder: Path, *, wait: bool = False) -> int | None:
    """Have a job's folder alone: a descriptor to close at the end; None: another has it, unless we wait."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError:  # where locks do not work, the last to finish wins
        pass
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


@contextlib.contextmanager
def turn(folder: Path) -> Iterator[None]:
    """Have a job's folder alone: another process that runs the same job is waited for."""
    descriptor = hold(folder)
    if descriptor is None:
        sys.stderr.write(f"boosterrun: another process runs {folder.name}: waiting for it\n")
        descriptor = hold(folder, wait=True)
    try:
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


def settle(config: Config, folder: Path, *, built_ahead: bool = False) -> Earlier | None:
    """Return the result of an earlier run if it stands; else make way for the job and note its identity.

    ``built_ahead``: what its work folder holds was built for this very job. Raises RunError when the folder
    cannot be written, and BoosterrunError as identity_of does.
    """
    found = standing(config, folder)
    if found.result is not None:
        if found.rewritten:
            record.write(found.result, folder)
        return found.result
    if found.state != "new":
        sys.stdout.write(f"again: {folder.name}: {one_line(found.why)}\n")
        sys.stdout.flush()
    if not built_ahead:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(folder / WORK)
    if found.state in ("invalid", "changed"):
        _aside(folder / record.FILENAME)
    _aside(folder / PAIRS)
    note = json.dumps(identity_of(config), indent=1).encode()
    with replacing(folder / IDENTITY) as stream:
        stream.write(note)
    return None


def withdraw(folder: Path) -> None:
    """Undo :func:`settle` for a job that is to begin anew in its turn. Raises RunError."""
    _aside(folder / PAIRS)
    (folder / IDENTITY).unlink(missing_ok=True)


def discard(folder: Path) -> None:
    """Take away a result that was made while the run was being ended. Raises RunError."""
    _aside(folder / record.FILENAME)


def _aside(path: Path) -> None:
    """Give what is there another name: ``.old``, ``.old-2``, ..."""
    number = 1
    while os.path.lexists(path):
        other = path.with_name(f"{path.name}.old" + (f"-{number}" if number > 1 else ""))
        number += 1
        if os.path.lexists(other):
            continue
        try:
            path.rename(other)
        except OSError as error:
            raise RunError(
                f"cannot rename {path}: {error.strerror}", "Make its folder writable, or use another one"
            ) from error


def _packages() -> dict[str, str]:
    found = {}
    for name in _FRAMEWORKS:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def _plain(value: object) -> Any:
    return value.value if isinstance(value, Enum) else str(value)
