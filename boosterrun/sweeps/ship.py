"""What a sweep kept, whether it reappears when it is measured again, and a folder with what did."""

from __future__ import annotations

import math
import os
import re
import secrets
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from boosterrun.errors import RunError, UsageError
from boosterrun.packs import Acf, Pack, make, open_pack
from boosterrun.results import collect, record

NOTE = "APPLY.md"
NOTICE = "NOTICE.txt"
RESULTS = "results"
_LICENSE = "LICENSE-NVIDIA-ACF.txt"
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*\.acf")
# Overrides that do not tell what a job compiles and runs: they differ between the two sweeps, or may.
_NO_VARIANT = re.compile(r"(acf|protocol|pack|report|keep_work|pack\..*|sweep\..*|hydra[./].*)")


@dataclass(frozen=True)
class Found:
    """A valid result and where it lies."""

    path: Path
    result: dict[str, Any]

    @property
    def title(self) -> str:
        """The job and its workload, for people."""
        return f"{self.result['job']['id']} ({self.result['workload']['name']})"


@dataclass(frozen=True)
class Reappeared:
    """A candidate that was kept twice; ``file`` is its ACF's name in the shipped folder."""

    before: Found
    after: Found
    file: str

    @property
    def gain(self) -> float:
        """The geometric mean of what the second measurement gained over its shapes, a fraction."""
        gains = [shape["gain"] for shape in self.after.result["shapes"] if shape["gain"] is not None]
        return math.expm1(math.fsum(map(math.log1p, gains)) / len(gains)) if gains else 0.0


def kept(folder: Path) -> tuple[list[Found], list[str]]:
    """The timed candidates that the sweep in ``folder`` kept, and a line for each that nothing has timed.

    Raises UsageError for a folder without results or with static ones only, RunError when none was kept.
    """
    found = [one for one in _read(folder) if one.result["decision"] == record.KEPT and one.result["acf"]]
    if not found:
        raise RunError(f"no candidate was kept in {folder}", "There is nothing to ship")
    timed = [one for one in found if one.result["evidence"] == "timed"]
    if not timed:
        raise UsageError(
            f"what {folder} kept was never timed: a static screen cannot be shipped",
            "Time it first, in a workload that runs it",
        )
    static = [
        f"{one.title}: a static screen, never timed" for one in found if one.result["evidence"] == "static"
    ]
    return timed, static


def again(
    before: Sequence[Found], measured: Path, changed: Collection[str]
) -> tuple[list[Reappeared], list[str]]:
    """Which candidates reappear in the sweep in ``measured``, and a line for each that does not, with why.

    ``changed``: keys of overrides that this sweep has and the first one has not.
    """
    after = {_key(one.result, changed): one for one in _read(measured)}
    reappeared, refused = [], []
    for one in before:
        other = after.get(_key(one.result, changed))
        why = _why_not(one, other)
        if other is not None and why is None:
            acf = other.result["acf"]
            name = acf["filename"] if _PLAIN.fullmatch(acf["filename"]) else f"{acf['id']}.acf"
            reappeared.append(Reappeared(one, other, name))
        else:
            refused.append(f"{one.title}: {why}")
    return sorted(reappeared, key=lambda each: -each.gain), refused


def check_place(out: Path, folder: Path, measured: Path) -> None:
    """Raise UsageError when ``out`` cannot become the shipped folder: not empty, or among results."""
    if out.is_symlink() or (out.exists() and not out.is_dir()) or (out.is_dir() and any(out.iterdir())):
        raise UsageError(f"{out} is there already, and no empty folder", "Name another one with -o")
    for place in (folder, measured):
        if out.is_relative_to(place):
            raise UsageError(f"{out} is inside {place}, whose results it would repeat", "Name another folder")


def write(out: Path, shipped: Sequence[Reappeared], note: str) -> None:
    """Make ``out``, which appears as a whole: ACFs, notice, results, their log, and ``note``.

    Raises:
        PackError: an ACF is no longer in its pack.  RunError: the disk does not take it.
    """
    staging = out.with_name(f".{out.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        staging.mkdir(parents=True)
        notices = dict[str, str]()
        for each in shipped:
            pack, acf = _acf(each)
            (staging / each.file).write_bytes(pack.read(acf))
            notices[each.file] = _notice(each.file, pack)
            beside = pack.location.parent / _LICENSE
            if beside.is_file():
                shutil.copyfile(beside, staging / _LICENSE)
            job = staging / RESULTS / each.after.path.parent.name
            job.mkdir(parents=True)
            shutil.copyfile(each.after.path, job / record.FILENAME)
        (staging / NOTICE).write_text("\n".join(notices.values()), encoding="utf-8")
        (staging / NOTE).write_text(note, encoding="utf-8", errors="backslashreplace")
        collect.collect([staging / RESULTS], staging)
        staging.rename(out)  # fails when something has come there in between
    except OSError as error:
        raise RunError(
            f"cannot write {out}: {error.strerror or error}", "Free some space or name another folder with -o"
        ) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def key_of(override: str) -> str:
    """The key of an override."""
    return override.lstrip("+~").partition("=")[0]


def _read(folder: Path) -> Iterator[Found]:
    if not folder.is_dir():
        raise UsageError(f"no such folder: {folder}", "Name the output folder of a sweep")
    for where, content in collect.results([folder], folder):
        if not isinstance(content, str):
            yield Found(folder / where, content)


def _key(result: Mapping[str, Any], changed: Collection[str]) -> tuple[str, ...]:
    """Candidate, workload, and the overrides that tell the jobs of a sweep apart."""
    acf = result["acf"] or result["config"].get("acf") or {}
    variant = [
        override
        for override in result["job"]["overrides"]
        if key_of(override) not in changed and not _NO_VARIANT.fullmatch(key_of(override))
    ]
    return str(acf.get("id")), result["workload"]["name"], *sorted(variant)


def _why_not(before: Found, after: Found | None) -> str | None:
    if after is None:
        return "it has no result"
    result = after.result
    if result["status"] != "decided":
        return f"undecided: {result['message']}"
    if result["decision"] != record.KEPT:
        return f"{result['decision']}: {result['message']}"
    if result["acf"]["sha256"] != before.result["acf"]["sha256"]:
        return "the pack now holds another content under this name"
    return None


def _acf(each: Reappeared) -> tuple[Pack, Acf]:
    result = each.after.result
    pack = open_pack(Path(result["pack"]["location"]))
    acf = pack.get(result["acf"]["id"])
    if acf.sha256 != result["acf"]["sha256"]:
        raise RunError(f"{pack.location} has changed while it was measured", "Ship it again")
    return pack, acf


def _notice(file: str, pack: Pack) -> str:
    release = pack.release_tag or pack.catalog_version
    origin = f"{pack.display_name}{f', {release}' if release else ''}"
    return f"{file}\n    Compiler controls, from: {origin}\n    {pack.notice or make.NOTICE}\n"
