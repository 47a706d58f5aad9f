"""All that is wrong with a pack, or with a release of packs: every check, and every finding of each."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from boosterrun.errors import PackError
from boosterrun.packs.catalog import (
    CATALOG_NAME,
    MAX_CATALOG,
    MAX_SUMS,
    SUMS_NAME,
    Catalog,
    check_artifact,
    check_catalog,
    check_pack,
    check_sum,
    parse_sums,
)
from boosterrun.packs.folder import Folder
from boosterrun.packs.library import ORIGIN
from boosterrun.packs.manifest import STAGES
from boosterrun.packs.names import printable
from boosterrun.packs.pack import Pack
from boosterrun.packs.reader import inspect

_MAX_ZIP = 256 << 20


@dataclass
class Findings:
    """What was found: ``problems`` make a pack or release bad, ``warnings`` do not; ``packs`` were opened."""

    problems: list[PackError] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    packs: list[Pack] = field(default_factory=list)


def verify(path: Path) -> Findings:
    """Check the pack at ``path``, or the release if it is a folder with a catalog. Raises nothing."""
    findings = Findings()
    if (path / CATALOG_NAME).is_file() or (path / SUMS_NAME).is_file():
        _Release(path, findings).check()
    else:
        _pack(path, findings)
    return findings


def _pack(path: Path, findings: Findings) -> Pack | None:
    pack = inspect(path, findings.problems.append)
    if pack is not None:
        findings.packs.append(pack)
        findings.warnings += [f"{printable(str(path))}: {text}" for text in _oddities(pack)]
    return pack


def _oddities(pack: Pack) -> Iterable[str]:
    if pack.manifest is None:
        yield "has no manifest: nothing says for which CUDA version, GPUs and workload its ACFs are"
    else:
        for key in pack.manifest.absent:
            yield f"the manifest has no {key}"
        for acf in pack.acfs:
            beyond = set(acf.compiler_stages) - set(STAGES[pack.controls_stage])
            if beyond:
                stages = ", ".join(sorted(beyond))
                yield f"'{acf.filename}' is for {stages}, but controls_stage is {pack.controls_stage}"
    first: dict[str, str] = {}
    for acf in pack.acfs:
        other = first.setdefault(acf.sha256, acf.filename)
        if other != acf.filename:
            yield f"'{printable(acf.filename)}' is the same as '{printable(other)}'"


class _Release:
    """One folder with a catalog, checksums and zips; the store holds some of a release's packs only."""

    def __init__(self, path: Path, findings: Findings) -> None:
        self.box = Folder(path, CATALOG_NAME)
        self.shown = printable(str(path))
        self.complete = not (path / ORIGIN).is_file()
        self.findings = findings
        self.report = findings.problems.append
        data = {name: self.read(name, limit) for name, limit in _FILES.items()}
        self.sums = parse_sums(data[SUMS_NAME] or b"", f"{self.shown}: {SUMS_NAME}", self.report)
        self.catalog: Catalog | None = None
        if (text := data[CATALOG_NAME]) is not None:
            self.catalog = check_catalog(text, f"{self.shown}: {CATALOG_NAME}", self.report)
            check_sum(self.sums, CATALOG_NAME, hashlib.sha256(text).hexdigest(), self.shown, self.report)
        self.entries = {entry.artifact_name: entry for entry in self.catalog.packs} if self.catalog else {}

    def check(self) -> None:
        """Look at every file that is there, and for every file that should be."""
        present = self.names()
        for name in sorted(present - self.sums.keys() - {SUMS_NAME}):
            self.problem(f"'{printable(name)}' is not in {SUMS_NAME}", "Remove it, or list it there")
        for name in sorted(present - _FILES.keys()):
            self.artifact(name)
        if self.complete:
            for name in sorted((self.sums.keys() | self.entries.keys()) - present - _FILES.keys()):
                where = SUMS_NAME if name in self.sums else CATALOG_NAME
                self.problem(f"'{printable(name)}' is in {where}, but not here", "Get the release again")

    def artifact(self, name: str) -> None:
        """Check one file, and the pack in it if the catalog says that there is one."""
        data = self.read(name, _MAX_ZIP)
        if data is None:
            return
        if name in self.sums:
            check_sum(self.sums, name, hashlib.sha256(data).hexdigest(), self.shown, self.report)
        entry = self.entries.get(name)
        if self.catalog is None or entry is None:
            if self.catalog is not None and name.endswith(".zip"):
                self.problem(f"'{printable(name)}' is not in {CATALOG_NAME}", "Get the release again")
            return
        path = self.box.path / name
        check_artifact(entry, data, printable(str(path)), self.report)
        pack = _pack(path, self.findings)
        if pack is not None:
            check_pack(self.catalog, entry, pack, printable(str(path)), self.report)

    def read(self, name: str, limit: int) -> bytes | None:
        """The content of a file; None, and a finding, if it cannot be read."""
        try:
            return self.box.read(name, limit)
        except PackError as problem:
            self.report(problem)
            return None

    def names(self) -> set[str]:
        """The files that are part of the release."""
        try:
            return {name for name in self.box.members if "/" not in name and not name.startswith(".")}
        except PackError as problem:
            self.report(problem)
            return set()
        except OSError as error:
            self.problem(f"cannot be read: {error.strerror}", "Check the path")
            return set()

    def problem(self, text: str, advice: str) -> None:
        """Note a finding about the release as a whole."""
        self.report(PackError(f"{self.shown}: {text}", advice))


_FILES = {SUMS_NAME: MAX_SUMS, CATALOG_NAME: MAX_CATALOG}
