"""Does a pack support a GPU? What ``supported_gpus`` of a manifest says, held against a device."""

from __future__ import annotations

import re
from collections.abc import Sequence

_CODE_NAMES = {"ampere": ("8.0", "8.6", "8.7"), "ada": ("8.9",), "hopper": ("9.0",)}


def _capability_matches(name: str, capability: str) -> bool | None:
    """Compare ``sm_90a``, ``sm_100+`` or a code name with a capability; None if ``name`` is neither."""
    if name in _CODE_NAMES:
        return capability in _CODE_NAMES[name]
    match = re.fullmatch(r"(?:sm|compute)_?(\d+)(\d)([af]?)(\+?)", name)
    if match is None:
        return None
    wanted = (int(match[1]), int(match[2]))
    major, _, minor = capability.partition(".")
    have = (int(major), int(minor))
    if match[4]:
        return have >= wanted
    if match[3] == "f":  # family: later minor versions of the same major one
        return have[0] == wanted[0] and have >= wanted
    return have == wanted


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower())


def supported(names: Sequence[str], device: str | None, compute_capability: str | None) -> bool | None:
    """Say whether a pack's ``supported_gpus`` include a device; None if that cannot be known.

    Args:
        names: ``ALL``, product names (``B200``: a whole word of the device's name, so ``H20`` is not an
            H200), targets (``sm_90a``, ``sm_100f``, ``sm_100+``) or the code names Ampere, Ada and Hopper,
            in any case.
        device: NVML's name, e.g. ``NVIDIA H100 80GB HBM3``.
        compute_capability: e.g. ``9.0``.
    """
    unknown = not names
    for raw in names:
        name = raw.strip().lower()
        if name in {"all", "any", "*"}:
            return True
        by_capability = _capability_matches(name, compute_capability or "0.0")
        if by_capability is not None:
            if compute_capability is None:
                unknown = True
            elif by_capability:
                return True
        elif device is None:
            unknown = True
        else:
            have, wanted = _words(device), _words(name)
            if wanted and any(have[i : i + len(wanted)] == wanted for i in range(len(have))):
                return True
    return None if unknown else False
