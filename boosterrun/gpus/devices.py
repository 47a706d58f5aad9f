"""Which GPUs a run may use: what ``gpu.devices`` and ``CUDA_VISIBLE_DEVICES`` leave of those there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from boosterrun.adapters import base
from boosterrun.config import Config
from boosterrun.errors import UsageError
from boosterrun.gpus import cards, gpu

VISIBLE = "CUDA_VISIBLE_DEVICES"
AUTO = "auto"
_ADVICE = "Give auto, indices as nvidia-smi has them or UUIDs, e.g. gpu.devices=[0,1]"


@dataclass(frozen=True)
class Device:
    """One GPU, or one MIG instance. ``index``: that of its card, as nvidia-smi numbers them."""

    uuid: str
    index: int
    name: str | None
    capability: tuple[int, int] | None = None
    memory_bytes: int | None = None


def chosen(config: Config) -> bool:
    """Whether a GPU is chosen for a job: not where nothing runs, or its workload has chosen one by itself.

    Raises UsageError where both ``gpu.devices`` and the workload's environment choose.
    """
    if base.load(config.workload.adapter).evidence != "timed":
        return False
    if VISIBLE not in config.workload.env:
        return True
    if config.gpu.devices != AUTO:
        raise UsageError(f"gpu.devices and workload.env.{VISIBLE} both choose a GPU", "Remove one of them")
    return False


def check(config: Config, env: Mapping[str, str]) -> None:
    """Raise UsageError for a ``gpu.devices`` that makes no sense, or names what is not on this machine.

    A machine without GPUs is no error yet: a launcher may run the jobs elsewhere.
    """
    entries = _entries(config.gpu.devices)
    if chosen(config) and entries is not None and cards.listed()[0]:
        allowed(config.gpu.devices, env)


def allowed(wanted: Any, env: Mapping[str, str]) -> list[Device]:
    """Return the GPUs that jobs may use, all of one model, in order; none: nothing is to be chosen.

    Args:
        wanted: ``gpu.devices``.
        env: its ``CUDA_VISIBLE_DEVICES``, where set, limits them, up to the first entry that names none.

    With ``auto`` cards of other models than the most capable one are left out: one sweep measures on one
    model. Where only CUDA knows which cards the shell means, none is chosen. Raises UsageError.
    """
    entries = _entries(wanted)
    found, why = cards.listed()
    there = [_device(each) for each in found if each["uuid"]]
    if entries is None and not there:
        return []
    if not there:
        raise UsageError(
            f"gpu.devices={_shown(wanted)}: there is no GPU here: {why}", "Give gpu.devices=auto"
        )
    visible = _visible(there, env)
    if entries is None:
        return _alike(visible or [])
    if visible is None:
        raise UsageError(
            f"{VISIBLE}={env[VISIBLE]} on a machine with several models: CUDA numbers them by speed",
            f"export CUDA_DEVICE_ORDER=PCI_BUS_ID, or unset {VISIBLE}",
        )
    named = list(dict.fromkeys(device for entry in entries for device in _named(entry, there)))
    left = [device for device in named if device in visible]
    if not left:
        raise UsageError(
            f"gpu.devices={_shown(wanted)}: {VISIBLE}={env.get(VISIBLE)} leaves none of them",
            f"Correct one of the two, or unset {VISIBLE}",
        )
    if len({device.name for device in left}) > 1:
        models = ", ".join(sorted({str(device.name) for device in left}))
        raise UsageError(
            f"gpu.devices={_shown(wanted)} are of several models: {models}", "Run one sweep for each model"
        )
    return left


def model(config: Config, env: Mapping[str, str]) -> str | None:
    """Return the name of the GPUs that a job may use; None without any. Raises UsageError."""
    if chosen(config) and cards.listed()[0]:
        found = allowed(config.gpu.devices, env)
        if found:
            return found[0].name
    device = gpu.visible_device(env)
    return None if device is None else device["name"]


def _entries(wanted: Any) -> list[str] | None:
    """What ``gpu.devices`` lists, as text; None for ``auto``. Raises UsageError."""
    if wanted == AUTO:
        return None
    listed = list(wanted) if isinstance(wanted, list | tuple) else [wanted]
    for entry in listed:
        plain = isinstance(entry, int | str) and not isinstance(entry, bool)
        text = str(entry).strip()
        if not plain or not (text.isdecimal() or text.startswith(("GPU-", "MIG-"))):
            raise UsageError(f"gpu.devices={_shown(wanted)}: {entry!r} names no GPU", _ADVICE)
    if not listed:
        raise UsageError("gpu.devices=[] leaves no GPU", _ADVICE)
    return [str(entry).strip() for entry in listed]


def _named(entry: str, there: Sequence[Device]) -> list[Device]:
    """The devices of an entry: an index stands for a card and its instances. Raises UsageError."""
    found = _matching(entry, there)
    if not found:
        here = ", ".join(f"{device.index} ({device.uuid})" for device in there)
        raise UsageError(f"gpu.devices: there is no GPU {entry} here", f"There are: {here}")
    if not entry.isdecimal() and len(found) > 1:
        raise UsageError(f"gpu.devices: {entry} is the beginning of {len(found)} UUIDs", "Give more of it")
    return found


def _matching(entry: str, there: Sequence[Device]) -> list[Device]:
    if entry.isdecimal():
        return [device for device in there if device.index == int(entry)]
    return [device for device in there if device.uuid.startswith(entry)]


def _visible(there: Sequence[Device], env: Mapping[str, str]) -> list[Device] | None:
    """What CUDA would see, which ends at the first entry that names nothing; None: only CUDA knows."""
    text = env.get(VISIBLE)
    if text is None:
        return list(there)
    entries = [entry.strip() for entry in text.split(",")]
    by_speed = env.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID" and len({device.name for device in there}) > 1
    if by_speed and any(entry.isdecimal() for entry in entries):
        return None
    found: list[Device] = []
    for entry in entries:
        matching = _matching(entry, there) if entry else []
        if not matching:
            break
        found += [device for device in matching if device not in found]
    return found


def _alike(visible: Sequence[Device]) -> list[Device]:
    """Those of the most capable model."""
    if not visible:
        return []
    best = max(visible, key=lambda device: (device.capability or (0, 0), device.memory_bytes or 0))
    return [device for device in visible if device.name == best.name]


def _device(found: Mapping[str, Any]) -> Device:
    capability = found["capability"]
    return Device(
        uuid=str(found["uuid"]),
        index=int(found["index"]),
        name=found["name"],
        capability=None if capability is None else (int(capability[0]), int(capability[1])),
        memory_bytes=found["memory_bytes"],
    )


def _shown(wanted: Any) -> str:
    return str(list(wanted) if isinstance(wanted, list | tuple) else wanted).replace("'", "")
