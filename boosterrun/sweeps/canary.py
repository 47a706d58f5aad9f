"""Does an ACF reach the compiler? Asked before a sweep, by ACFs that must make the build fail.

Nothing is timed: a damaged ACF stops every compiler that reads it, so a build that succeeds proves that
something between here and the compiler (a cache, a variable, an option in the code) took the ACF away.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from omegaconf import DictConfig

from boosterrun import packs
from boosterrun.adapters import base
from boosterrun.compilers.probe import Probe, Probing
from boosterrun.config import Config, typed
from boosterrun.errors import CanaryError, RunError
from boosterrun.sweeps import debug_pack
from boosterrun.system import leftovers, reading, redact
from boosterrun.system.atomic import replacing
from boosterrun.system.visible import one_line

FILE = "canary.json"
_SCHEMA_VERSION = 1
# What changes how a workload is compiled. Which GPU runs it does not.
_VARIABLES = (
    "CUDA_HOME",
    "CUDA_PATH",
    "CC",
    "CXX",
    "*_CACHE_DIR",
    "NVCC_*",
    "PTXAS_*",
    "TRITON_*",
    "TORCHINDUCTOR_*",
    "HELION_*",
    "FLASHINFER_*",
    "DISABLE_PTXAS_OPT",
)
# A sound ACF may break this workload by itself: as many are tried.
_TRIES = 3
_STRIDE = 61


@dataclass(frozen=True)
class _Check:
    """One thing that was tried. ``words``: what the compiler said, or what is at fault, with its fix."""

    name: str
    passed: bool
    words: str
    seconds: float


def before_sweep(configs: Sequence[DictConfig], folder: Path) -> None:
    """Run the canary once for each workload, toolchain and environment among ``configs``; tell its cost.

    Writes ``canary.json`` into the sweep's ``folder``, where jobs in whatever process find it. Raises
    CanaryError, after writing, when an ACF does not reach the compiler, unless ``canary.required`` is false;
    and RunError when the workload does not build for another reason.
    """
    records = _load(folder)
    for config in map(typed, configs):
        adapter = base.load(config.workload.adapter)
        toolchain = adapter.toolchain(config, os.environ)
        name = key(config, toolchain)
        if name in records:
            continue
        found = run(config, adapter, toolchain, folder.absolute() / f"canary-{name[:8]}")
        record = records[name] = redact.tree(found)
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(folder / FILE) as stream:
            document = {"schema_version": _SCHEMA_VERSION, "canaries": records}
            stream.write(json.dumps(document, indent=1).encode())
        _tell(record)


def recorded(config: Config, toolchain: base.Toolchain, folder: Path) -> dict[str, Any]:
    """Return what the canary of this job's sweep found; ``folder`` is the sweep's. For the result."""
    not_run = {"state": "not_run", "required": config.canary.required, "why": "no canary ran for this job"}
    return dict(_load(folder).get(key(config, toolchain), not_run))


def key(config: Config, toolchain: base.Toolchain) -> str:
    """Return what stands for a workload (its first shape), a toolchain and an environment."""
    workload = asdict(config.workload)
    workload["shapes"] = dict(list(workload["shapes"].items())[:1])
    compilers = [[str(c.path), c.version] if c else None for c in (toolchain.ptxas, toolchain.nvcc)]
    variables = {
        name: value
        for name, value in os.environ.items()
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in _VARIABLES)
    }
    canary = [config.canary.required, config.canary.debug]
    facts = [workload, compilers, variables, config.gpu.arch, config.pack.path, *canary]
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()


def run(config: Config, adapter: base.Adapter, toolchain: base.Toolchain, folder: Path) -> dict[str, Any]:
    """Run the canary of one workload with the first shape; JSON-ready, ``state`` passed, failed or skipped.

    ``folder`` is scratch, left there after a failure. Raises RunError when the workload does not build.
    """
    begun = time.monotonic()
    record: dict[str, Any] = {
        "state": "skipped",
        "why": "",
        "required": config.canary.required,
        "workload": config.workload.name,
        "ptxas": toolchain.ptxas.version if toolchain.ptxas else None,
        "acf": None,
        "ignored": [],
        "checks": [],
        "seconds": 0.0,
    }
    if not isinstance(adapter, Probing) or not adapter.injects(config):
        record["why"] = (
            f"adapter {config.workload.adapter} cannot tell whether an ACF reaches a compiler here"
        )
        return record
    trial = _Trial(config, adapter, toolchain, folder)
    try:
        checks = trial.checks()
    except _Unsuited as unsuited:
        record["why"] = f"no ACF of this pack is for adapter {config.workload.adapter}: {unsuited}"
        return record
    failed = [check for check in checks if not check.passed]
    record.update(
        state="failed" if failed else "passed",
        why=failed[0].words
        if failed
        else "a damaged ACF stops the build, and so does new content at an old path",
        acf=trial.acf.id,
        ignored=adapter.ignored(),
        checks=[asdict(check) for check in checks],
        seconds=round(time.monotonic() - begun, 3),
    )
    if not failed and not config.keep_work:
        shutil.rmtree(folder, ignore_errors=True)
    return record


def damaged(data: bytes) -> bytes:
    """Return an ACF with bits flipped all over it: every compiler refuses it."""
    spoilt = bytearray(data)
    for position in range(0, len(spoilt), _STRIDE):
        spoilt[position] ^= 0x55
    return bytes(spoilt)


class _Unsuited(Exception):  # noqa: N818 - a state of the pack
    """The pack's ACFs are for compilers that this adapter does not run."""


class _Trial:
    """The checks of one workload. ``acf``: the sound ACF that was used."""

    def __init__(self, config: Config, adapter: Probing, toolchain: base.Toolchain, folder: Path) -> None:
        self.config = config
        self.adapter = adapter
        self.toolchain = toolchain
        self.folder = folder
        stage = config.pack.stage.value if config.pack.stage is not None else None
        self.pack = packs.open_pack(
            Path(config.pack.path), cuda_version=config.pack.cuda_version, stage=stage, name=config.pack.name
        )
        ptxas_only = [acf for acf in self.pack.acfs if tuple(acf.compiler_stages) == ("ptxas",)]
        self.usable = list(ptxas_only or self.pack.acfs)[:_TRIES]
        if not self.usable:
            raise RunError(f"pack {self.pack.display_name} has no ACF: no canary", "Choose another pack")
        self.acf = self.usable[0]

    def checks(self) -> list[_Check]:
        """Every check, those that only build side by side; what is timed needs them to pass."""
        root = packs.materialise(self.pack.read(self.acf), self.acf.sha256).parent
        with leftovers.scratch("canary-", root) as place:  # compilers can read it, and no other sweep does
            try:
                with ThreadPoolExecutor(max_workers=2) as pool:
                    poison = pool.submit(self._poison, place)
                    same_path = pool.submit(self._same_path, place / "same-path.acf")
                    built = [poison.result(), same_path.result()]
            except OSError as error:
                raise RunError(f"cannot write to {place}: {error.strerror}", "Free some space") from error
        if not (self.config.canary.debug and all(check.passed for check in built)):
            return built
        adapter = cast(base.Adapter, self.adapter)
        bench = debug_pack.Bench(self.config, adapter, self.toolchain, self.adapter.remedies)
        return [*built, *(_Check(*check) for check in bench.checks(self.folder / "debug"))]

    def _poison(self, place: Path) -> _Check:
        """A damaged ACF under its own name must stop the build."""
        data = damaged(self.pack.read(self.usable[0]))
        path = packs.materialise(data, hashlib.sha256(data).hexdigest(), place)
        begun = time.monotonic()
        probe = self._build("poison", self.usable[0], path)
        return self._judged("poison", probe, path, time.monotonic() - begun)

    def _same_path(self, path: Path) -> _Check:
        """A sound ACF must arrive, and then a damaged one at the very same path must stop the build."""
        begun = time.monotonic()
        swapped: Future[None] = Future()
        # What builds the damaged one starts meanwhile, which takes as long as a build.
        with ThreadPoolExecutor(max_workers=1) as pool:
            later = pool.submit(self._build, "same-path-damaged", self.acf, path, swapped.result)
            try:
                sound = self._sound(path)
                if sound.controls and set(sound.controls) != {str(path)}:
                    words = self._at_fault(sound, path, "a sound ACF")
                    return _Check("same_path", False, words, time.monotonic() - begun)
                path.write_bytes(damaged(self.pack.read(self.acf)))
                swapped.set_result(None)
            finally:
                swapped.cancel()  # if it never comes to that, nothing is to be built
            return self._judged("same_path", later.result(), path, time.monotonic() - begun)

    def _sound(self, path: Path) -> Probe:
        """Build with the first ACF that this workload can be compiled with; how it runs does not matter."""
        words = ""
        for number, acf in enumerate(self.usable):
            self.acf = acf
            path.write_bytes(self.pack.read(acf))
            probe = self._build(f"same-path-sound-{number}", acf, path)
            if probe.reason in (None, "runtime_error", "runtime_timeout"):
                return probe
            words = f"{probe.reason}: {probe.words}"
        tried = ", ".join(acf.id for acf in self.usable)
        raise RunError(
            f"canary: the workload builds with none of the ACFs {tried}; the last: {words}",
            "Run it with acf=none; if that works, choose a pack for this compiler",
        )

    def _build(
        self, name: str, acf: packs.Acf, path: Path, begin: Callable[[], None] = lambda: None
    ) -> Probe:
        work = self.folder / name
        try:
            work.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"cannot make {work}: {error.strerror}", "Free some space") from error
        job = base.Job(self.config, acf, path, work, work, self.toolchain, self.config.gpu.arch)
        probe = self.adapter.probe(job, begin)
        if probe.reason == "unsupported_stage":
            raise _Unsuited(probe.words)
        return probe

    def _judged(self, name: str, probe: Probe, path: Path, seconds: float) -> _Check:
        if probe.reason == "acf_invalid":
            return _Check(name, True, probe.words, seconds)
        if probe.reason is not None:
            raise RunError(
                f"canary: the build failed, but not for its damaged ACF ({probe.reason}): {probe.words}",
                "Run the workload with acf=none and mend it",
            )
        return _Check(name, False, self._at_fault(probe, path, "a damaged ACF"), seconds)

    def _at_fault(self, probe: Probe, path: Path, what: str) -> str:
        """Name the cache or the variable that took the ACF away, by what the compiled code says."""
        names = self.adapter.remedies
        if not probe.controls:
            return (
                f"the build went well with {what}, and left no code behind: it comes from elsewhere; "
                f"find what overrides {names.cache}"
            )
        if str(path) in probe.controls and what == "a damaged ACF":
            return (
                f"the build went well with {what}: its code was compiled earlier, with other content of "
                f"the same file, and comes from a stale cache; find what overrides {names.cache}; empty it"
            )
        others = sorted({name for name in probe.controls if name not in ("", str(path))})
        if others:
            return f"the build went well with {what}, but used the controls {', '.join(others)}"
        return (
            f"the build went well with {what}, and its code was compiled without any: "
            f"it does not reach ptxas; find what overrides {names.options}, or remove {names.replaced}"
        )


def _tell(record: dict[str, Any]) -> None:
    """Say on one line what came out. Raises CanaryError for a failure that must stop the sweep."""
    why = one_line(record["why"])
    if record["ignored"]:
        sys.stderr.write(f"boosterrun: warning: ignored from the shell: {', '.join(record['ignored'])}\n")
    if record["state"] != "failed":
        cost = f" ({record['seconds']:.1f} s)" if record["state"] == "passed" else ""
        sys.stdout.write(f"canary: {record['workload']}: {record['state']}{cost}: {why}\n")
        sys.stdout.flush()
        return
    message = f"canary of {record['workload']}: {why}"
    if record["required"]:
        raise CanaryError(message, "No result of this sweep would mean anything")
    sys.stderr.write(
        f"boosterrun: WARNING: {message}. The sweep goes on because canary.required=false; "
        "each result says so\n"
    )


def _load(folder: Path) -> dict[str, dict[str, Any]]:
    try:
        canaries = reading.document(folder / FILE)["canaries"]
        return {str(key): dict(found) for key, found in canaries.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(
            f"cannot read {folder / FILE}: {error}", "Remove it: the canary will run again"
        ) from error
