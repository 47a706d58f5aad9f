"""What each kernel of a cubin costs: registers, spills, stack, instructions, as ptxas and its output tell."""

from __future__ import annotations

import re

from boosterrun.compilers.cubin import Cubin
from boosterrun.errors import RunError

METRICS = {
    "spill_bytes": "bytes",
    "spill_store_bytes": "bytes",
    "spill_load_bytes": "bytes",
    "registers": "registers",
    "stack_bytes": "bytes",
    "sass_instructions": "instructions",
    "code_bytes": "bytes",
    "shared_bytes": "bytes",
    "compile_seconds": "s",
}
"""Every metric of a kernel, with its unit; less is better for each. The time is that of this kernel alone."""

OBJECTIVES = tuple(name for name in METRICS if name != "compile_seconds")
"""The metrics that may decide: those that come out the same each time."""

_ENTRY = re.compile(r"Compiling entry function '(.+?)' for '")
_PROPERTIES = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_STACK = re.compile(r"(\d+) bytes cumulative stack size")
_SHARED = re.compile(r"(\d+) bytes smem")
_TIME = re.compile(r"Compile time = ([\d.]+) ms")


_REPORT = "Report this with the version of ptxas"


def measure(text: str, image: Cubin) -> dict[str, dict[str, float | None]]:
    """Return the metrics of each kernel from the output of ``ptxas -v`` and the cubin.

    Spills of device functions that were not inlined count for the kernel that they are part of.
    Raises RunError when the text and the cubin name different kernels.
    """
    said = {}
    for name, part in _parts(text):
        properties = [tuple(map(int, found)) for found in _PROPERTIES.findall(part)]
        registers = _REGISTERS.search(part)
        if not properties or registers is None:
            raise RunError(f"ptxas -v does not say what kernel {name} uses: {part.strip()[:200]!r}", _REPORT)
        milliseconds = _TIME.search(part)
        said[name] = {
            "spill_bytes": sum(stores + loads for _, stores, loads in properties),
            "spill_store_bytes": sum(stores for _, stores, _ in properties),
            "spill_load_bytes": sum(loads for _, _, loads in properties),
            "registers": int(registers[1]),
            "stack_bytes": max(properties[0][0], _number(_STACK, part)),
            "shared_bytes": _number(_SHARED, part),
            "compile_seconds": float(milliseconds[1]) / 1000 if milliseconds else None,
        }
    if not image.kernels:
        raise RunError("the PTX has no kernel (.entry): nothing to compare", "Correct ptx in the workload")
    if set(said) != {kernel.name for kernel in image.kernels}:
        named = ", ".join(sorted(said)) or "none"
        held = ", ".join(kernel.name for kernel in image.kernels)
        raise RunError(
            f"cannot read the statistics of ptxas -v: it names the kernels {named}, its output has {held}",
            _REPORT,
        )
    return {
        kernel.name: {
            **said[kernel.name],
            "sass_instructions": kernel.sass_instructions,
            "code_bytes": kernel.code_bytes,
        }
        for kernel in image.kernels
    }


def _parts(text: str) -> list[tuple[str, str]]:
    pieces = _ENTRY.split(text)
    return list(zip(pieces[1::2], pieces[2::2], strict=True))


def _number(pattern: re.Pattern[str], text: str) -> int:
    found = pattern.search(text)
    return int(found[1]) if found else 0
