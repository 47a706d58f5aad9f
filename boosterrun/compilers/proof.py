"""Prove from what both sides compiled that the ACF was applied on one side only, and tell what it changed.

What a side produced is believed, not what its environment should have made of it: the note in each cubin
names the controls that ptxas was given, and its own version.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from boosterrun.compilers import cubin, fatbin, resources
from boosterrun.compilers.cubin import Cubin, applied_controls
from boosterrun.compilers.probe import Remedies
from boosterrun.compilers.toolchain import Compiler
from boosterrun.errors import RunError
from boosterrun.measure.api import Built
from boosterrun.measure.trial import Application
from boosterrun.system.digest import sha256_if_there

_ARCH = re.compile(r"-arch\s+(\S+)")
_VERSION = re.compile(r"\bV(\d+\.\d+\.\d+)")


@dataclass(frozen=True)
class Code:
    """One cubin that a side used.

    Attributes:
        source_sha256: of the PTX that it was made from; None when that was not kept.
        facts: what the framework says about it: its own ``options``, the ``log`` of ptxas -v, ``foreign``
            if it is not from this side's cache, ``shared_bytes`` of a launch, ``compile_seconds`` of ptxas.
    """

    path: str
    cubin: Cubin
    source_sha256: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def names(self) -> str:
        """The kernels in it."""
        return ", ".join(kernel.name for kernel in self.cubin.kernels) or Path(self.path).name

    @property
    def arch(self) -> str | None:
        """SASS target, as the note says."""
        found = _ARCH.search(self.cubin.options or "")
        return found[1] if found else None

    @property
    def version(self) -> str | None:
        """Complete version of the ptxas that made it, as the note says."""
        found = _VERSION.search(self.cubin.tool_version or "")
        return found[1] if found else None


def read(built: Built, compiler: Compiler | None) -> list[Code]:
    """Read every cubin of a build; ``compiler`` is where cuobjdump is looked for first.

    Raises RunError for a file that cannot be read.
    """
    facts = {str(kernel["cubin"]): kernel for kernel in built.kernels if "cubin" in kernel}
    found = []
    for name in built.artifacts:
        path = Path(name)
        if path.suffix == ".cubin":
            found.append(
                Code(name, cubin.read(path), sha256_if_there(path.with_suffix(".ptx")), facts.get(name, {}))
            )
            continue
        tool = fatbin.find_cuobjdump(compiler.path if compiler is not None else None)
        for number, data in enumerate(fatbin.cubins(path, tool), 1):
            found.append(Code(f"{name}#{number}", cubin.read(data), None, facts.get(name, {})))
    return found


def prove(
    baseline: Sequence[Code],
    candidate: Sequence[Code],
    controls: Path | None,
    compiler: Compiler | None,
    remedies: Remedies,
) -> Application:
    """Compare what both sides compiled. ``controls`` None: the baseline against itself.

    ``not_applied`` when a cubin of the candidate was made without the ACF, ``unproven`` when there is nothing
    to read. Raises RunError when the environment is at fault: a baseline with controls, another ptxas, other
    PTX on one side.
    """
    missing = [side for side, codes in (("baseline", baseline), ("candidate", candidate)) if not codes]
    for code in baseline:
        _require_plain(code, remedies)
    for code in [*baseline, *candidate]:
        _require_version(code, compiler, remedies)
    if missing:
        words = f"no compiled code of the {' and the '.join(missing)} was found in {remedies.cache}"
        return Application(detail=words, kernels=_records(baseline, candidate))
    for code in candidate:
        fault = _not_applied(code, controls, remedies)
        if fault is not None:
            return Application("not_applied", None, fault, _records(baseline, candidate))
    _require_same_source(baseline, candidate)
    kernels = _records(baseline, candidate)
    identical = all(_same(kernel) for kernel in kernels)
    count = f"{len(kernels)} kernel{'s' if len(kernels) != 1 else ''}"
    if controls is None:
        return Application("not_applicable", identical, f"no ACF, in {count}", kernels)
    return Application("proven", identical, f"the note of ptxas in {count} names {controls}", kernels)


def _require_plain(code: Code, remedies: Remedies) -> None:
    found = applied_controls(code.cubin)
    if found:
        raise RunError(
            f"the baseline's kernel {code.names} was compiled with the controls {', '.join(found)}",
            f"Find what adds them: {remedies.options}, or {remedies.replaced}",
        )
    if code.facts.get("foreign"):
        raise RunError(
            f"the baseline's kernel {code.names} is not from its own cache but from {code.path}",
            f"Find what overrides {remedies.cache}",
        )


def _require_version(code: Code, compiler: Compiler | None, remedies: Remedies) -> None:
    if compiler is None or code.version == compiler.version:
        return
    other = f"ptxas {code.version}" if code.version else "a ptxas that leaves no note (before CUDA 13)"
    raise RunError(
        f"kernel {code.names} was compiled by {other}, not by {compiler.path} ({compiler.version})",
        f"Find what overrides {remedies.compiler} (or, if the code is old, {remedies.cache})",
    )


def _not_applied(code: Code, controls: Path | None, remedies: Remedies) -> str | None:
    """Why a cubin of the candidate does not have exactly the ACF, or None."""
    found = applied_controls(code.cubin)
    if found == ([str(controls)] if controls is not None else []):
        return None
    if code.facts.get("foreign"):
        return (
            f"kernel {code.names} was not compiled here: it came from {code.path}; "
            f"find what overrides {remedies.cache}"
        )
    if found:
        return f"kernel {code.names} was compiled with the controls {', '.join(found)}, not with {controls}"
    options = code.facts.get("options")
    if options is not None and str(controls) not in str(options):
        return (
            f"kernel {code.names} was compiled with its own options {options!r}, which replace those of the "
            f"environment: remove {remedies.replaced}, or add the ACF to it from BOOSTERRUN_ACF"
        )
    return (
        f"kernel {code.names} was compiled without controls: its options are {code.cubin.options!r}; "
        f"find what overrides {remedies.options}"
    )


def _require_same_source(baseline: Sequence[Code], candidate: Sequence[Code]) -> None:
    """Both sides must have assembled the same PTX, where that is known: else they are two programs."""
    sources = [{(code.names, code.source_sha256) for code in side} for side in (baseline, candidate)]
    if None in {source for side in sources for _, source in side}:
        sources = [{(names, None) for names, _ in side} for side in sources]
    for here, there, side in ((0, 1, "baseline"), (1, 0, "candidate")):
        only = sorted({names for names, _ in sources[here] - sources[there]})
        if only:
            raise RunError(
                f"kernel {', '.join(only)} of the {side} was made from other PTX than on the other side",
                "Make the case build the same on both: it may depend on time, chance, the ACF, autotuning",
            )


def _records(baseline: Sequence[Code], candidate: Sequence[Code]) -> list[dict[str, Any]]:
    """The record's ``kernels``: both sides by name, target and PTX, in order where these are equal."""
    merged: dict[tuple[Any, ...], dict[str, Any]] = {}
    for side, codes in (("baseline", baseline), ("candidate", candidate)):
        seen: dict[tuple[Any, ...], int] = {}
        for code in codes:
            metrics = _metrics(code)
            for kernel in code.cubin.kernels:
                which = (kernel.name, code.arch or "", code.source_sha256 or "")
                number = seen[which] = seen.get(which, 0) + 1
                record = merged.setdefault(
                    (*which, number),
                    {
                        "name": kernel.name,
                        "arch": code.arch,
                        "code_sha256": {"baseline": None, "candidate": None},
                        "baseline": None,
                        "candidate": None,
                    },
                )
                record["code_sha256"][side] = kernel.code_sha256
                record[side] = metrics[kernel.name]
    return [merged[key] for key in sorted(merged)]


def _same(kernel: Mapping[str, Any]) -> bool:
    """Equal code in equal resources: nothing that could run differently."""
    codes = kernel["code_sha256"]
    sides = [
        {name: value for name, value in (kernel[side] or {}).items() if name != "compile_seconds"}
        for side in ("baseline", "candidate")
    ]
    return codes["baseline"] is not None and codes["baseline"] == codes["candidate"] and sides[0] == sides[1]


def _metrics(code: Code) -> dict[str, dict[str, float | None]]:
    """What each kernel of a cubin costs; registers and spills where the framework kept ptxas's words."""
    measured: dict[str, dict[str, float | None]] = {
        kernel.name: {"sass_instructions": kernel.sass_instructions, "code_bytes": kernel.code_bytes}
        for kernel in code.cubin.kernels
    }
    if code.facts.get("log"):
        measured = resources.measure(str(code.facts["log"]), code.cubin)
    elif code.facts.get("compile_seconds"):
        for metrics in measured.values():
            metrics["compile_seconds"] = float(code.facts["compile_seconds"])
    if code.facts.get("shared_bytes") is not None:  # what is asked for at the launch is not in the cubin
        for metrics in measured.values():
            metrics["shared_bytes"] = float(code.facts["shared_bytes"])
    return measured
