"""What makes two jobs the same measurement: content, not names or numbers. Pure.

An identity is a flat mapping from what counts (``acf``, ``workload.options.base_ms``, ``toolchain.ptxas``) to
its value. Where something lies, what it is called and how a sweep is carried out are no part of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

FILENAME = "identity.json"
"""In a job's folder: the identity of what is there, or is being measured."""
VERSION = 1
"""Raise it when boosterrun itself measures or decides otherwise than before."""

# The ACF counts by its content and the compilers by their versions; the other settings do not change what is
# measured, or have no say in one job alone.
_PASSED_OVER = (
    "acf",
    "pack",
    "toolchain",
    "canary",
    "sweep",
    "keep_work",
    "report",
    "gpu.name",
    "gpu.devices",
    "gpu.wait",
    "workload.name",
    "protocol.name",
    "protocol.max_baseline_failures",
    "workload.preload",
    "timeouts.grace",
)
TIMEOUTS = "timeouts."
_SHOWN = 48


def identify(
    config: Mapping[str, Any],
    *,
    acf: str | None,
    files: Mapping[str, str],
    compilers: Mapping[str, str | None],
    packages: Mapping[str, str],
    gpu: str | None,
) -> dict[str, Any]:
    """Return the identity of a job, ready for JSON.

    Args:
        config: the job's resolved configuration; paths in it should be replaced by what does not move.
        acf: sha256 of the candidate; None: the baseline against itself.
        files: name -> sha256 of every file of the workload.
        compilers: name -> version. packages: those that take part, name -> version. gpu: its model.
    """
    return {
        "boosterrun": VERSION,
        "acf": acf,
        **{f"file.{name}": digest for name, digest in sorted(files.items())},
        **dict(_leaves(config, "")),
        **{f"toolchain.{name}": version for name, version in sorted(compilers.items())},
        **{f"package.{name}": version for name, version in sorted(packages.items())},
        "gpu_model": gpu,
    }


def differences(old: Mapping[str, Any], new: Mapping[str, Any], decision: str | None = None) -> list[str]:
    """Say what distinguishes two identities, as ``key: old -> new`` each; nothing: the same measurement.

    ``decision``: what came out of the old one. A deadline counts only where one was missed.
    """
    late = decision is None or decision.endswith("timeout")
    keys = [*new, *(key for key in old if key not in new)]
    return [
        f"{key}: {_short(old, key)} -> {_short(new, key)}"
        for key in keys
        if (key in old, old.get(key)) != (key in new, new.get(key)) and (late or not key.startswith(TIMEOUTS))
    ]


def _leaves(node: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """Every value below ``node`` under its dotted key; an empty mapping counts as a value."""
    if any(prefix == key or prefix.startswith(f"{key}.") for key in _PASSED_OVER):
        return
    if isinstance(node, Mapping) and (node or not prefix):
        for key, value in node.items():
            yield from _leaves(value, f"{prefix}.{key}" if prefix else str(key))
    else:
        yield prefix, node


def _short(identity: Mapping[str, Any], key: str) -> str:
    if key not in identity:
        return "(none)"
    value = identity[key]
    if isinstance(value, str) and len(value) == 64 and key.startswith(("acf", "file.")):
        return value[:12]
    text = str(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
