"""The GPUs that a run may use: are they there, can they run the code, are they quiet enough to measure on?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from boosterrun.doctor import nvml
from boosterrun.doctor.finding import Finding, Status, failure, passed, warning
from boosterrun.doctor.setup import Setup
from boosterrun.gpus.devices import AUTO, VISIBLE

Card = dict[str, Any]

# The first driver that runs the cubins of a CUDA major version.
_FIRST_DRIVER = {"12": 525, "13": 580}
_COMPUTE_MODES = {1: "EXCLUSIVE_THREAD", 2: "PROHIBITED", 3: "EXCLUSIVE_PROCESS"}
# Reasons for lower clocks that an idle card or a power limit explains: adjacent blocks cope with them.
_HARMLESS = {"gpu_idle", "sw_power_cap"}
# A card without any process holds some hundred MiB.
_UNEXPLAINED_BYTES = 2 << 30
_GIB = 1 << 30


def present(setup: Setup) -> Iterator[Finding]:
    """Are there GPUs, and which would a run use?"""
    found = snapshot(setup)
    cards, why, fix = _chosen(setup)
    if cards:
        others = len(found["devices"]) - len(cards)
        more = f"; {others} more not used" if others else ""
        use = "; this workload does not use it" if setup.needs.gpu is False else more
        capability = cards[0]["compute_capability"] or "unknown"
        several = f"{len(cards)} x " if len(cards) > 1 else ""
        which = f" ({_named(cards)})" if len(cards) > 1 else ""
        yield passed("GPU", f"{several}{cards[0]['name']}{which}, compute capability {capability}{use}")
        if others and len({each["name"] for each in found["devices"]}) > 1 and _by_number(setup):
            yield warning(
                "GPU order",
                "cards of several kinds, and CUDA numbers them by speed, not like nvidia-smi",
                "export CUDA_DEVICE_ORDER=PCI_BUS_ID, or name the card by its UUID",
            )
    elif setup.needs.gpu is False:
        yield passed("GPU", f"none is needed by this workload ({why})")
    elif setup.needs.gpu is None:
        yield warning("GPU", f"none: {why}; a workload that uses one would fail", fix)
    else:
        yield failure("GPU", f"none: {why}", fix)


def driver(setup: Setup) -> Iterator[Finding]:
    """Can the driver load what the pack's CUDA compiles?"""
    found = snapshot(setup)
    version, cuda = found["driver_version"], found["cuda_driver_version"]
    if not found["devices"] or setup.needs.gpu is False:
        return
    wanted = setup.cuda_version
    major = wanted.split(".")[0]
    first = _FIRST_DRIVER.get(major)
    upgrade = f"Install driver {first} or later" if first else f"Install a driver for CUDA {major}"
    if cuda is None:
        yield warning(
            "driver",
            f"{version or 'unknown'}: it does not say which CUDA it runs",
            f"{upgrade} if a run fails",
        )
    elif int(cuda.split(".")[0]) < int(major):
        yield failure("driver", f"{version} runs CUDA {cuda}, not the cubins of CUDA {wanted}", upgrade)
    elif _numbers(cuda) < _numbers(wanted):
        yield passed(
            "driver",
            f"{version} (CUDA {cuda}) runs cubins of CUDA {wanted}; its PTX it would not, and need not",
        )
    else:
        yield passed("driver", f"{version} (CUDA {cuda}) runs what CUDA {wanted} compiles")


def target(setup: Setup) -> Iterator[Finding]:
    """Does the card run the target that ``gpu.arch`` names?"""
    device = visible(setup)
    arch = setup.config.gpu.arch if setup.config is not None else None
    if device is None or arch is None or setup.needs.gpu is False or not device["compute_capability"]:
        return
    capability = device["compute_capability"]
    if runs(arch, capability):
        yield passed("gpu.arch", f"{arch} runs on compute capability {capability}")
    else:
        yield failure(
            "gpu.arch",
            f"{arch} does not run on compute capability {capability}",
            "Use gpu=auto on this machine",
        )


def _clocks(device: Card) -> Iterator[Finding]:
    """Do the clocks move for a reason that spoils a measurement?"""
    speed, power = device["clocks_mhz"], device["power_w"]
    state = (
        f"SM {_of(speed['sm'])} of {_of(speed['sm_max'])} MHz, power {_of(power['draw'])} of "
        f"{_of(power['limit'])} W, {_of(device['temperature_c'])} C"
    )
    reasons = device["clocks_event_reasons"]
    held = [reason for reason in reasons or [] if reason not in _HARMLESS]
    if held:
        yield warning(
            "clocks",
            f"held down by {', '.join(held)}; {state}",
            "Let the card cool, or ask its administrator; pairs measured meanwhile are thrown away",
        )
    elif reasons is None:
        yield warning(
            "clocks", f"the driver does not say why clocks change; {state}", "Look at nvidia-smi -q -d CLOCK"
        )
    else:
        note = "; at its power limit, which pairs of adjacent blocks cope with" * ("sw_power_cap" in reasons)
        yield passed("clocks", state + note)


def _persistence(device: Card) -> Iterator[Finding]:
    """Does the driver stay loaded between processes?"""
    if device["persistence_mode"] is None:
        return
    if device["persistence_mode"]:
        yield passed("persistence mode", "on")
    else:
        yield warning(
            "persistence mode",
            "off: each first process waits for the driver, and clock settings are lost",
            "sudo nvidia-smi -pm 1 (optional: it changes times of starting, not of kernels)",
        )


def _sharing(device: Card) -> Iterator[Finding]:
    """Can two processes use the card at once? Baseline and candidate do."""
    mode = _COMPUTE_MODES.get(device["compute_mode"] or 0)
    if mode is not None:
        yield failure(
            "compute mode",
            f"{mode}: baseline and candidate are two processes on one card",
            "sudo nvidia-smi -c DEFAULT",
        )
    if device["mig_mode"]:
        yield warning(
            "MIG",
            "on: a slice is measured, with its neighbours on the same card, and NVML tells less about it",
            "Choose the slice by CUDA_VISIBLE_DEVICES=MIG-..., or measure on a whole card",
        )


def _neighbours(device: Card) -> Iterator[Finding]:
    """Who else uses the card now?"""
    running, memory = device["compute_processes"], device["memory_bytes"]
    fix = "End them, or choose another card by CUDA_VISIBLE_DEVICES; pairs that they disturb are thrown away"
    if running:
        pids = ", ".join(str(each["pid"]) for each in running[:5])
        more = f" and {len(running) - 5} more" if len(running) > 5 else ""
        yield warning("other processes", f"on this GPU: pid {pids}{more}", fix)
    elif (memory["used"] or 0) > _UNEXPLAINED_BYTES:
        used = memory["used"] / _GIB
        yield warning("other processes", f"none to be seen from here, but {used:.1f} GiB are in use", fix)
    elif running is None:
        yield warning("other processes", "the driver does not tell", "Look at nvidia-smi on the host")
    else:
        yield passed("other processes", "none on this GPU")


def _memory_errors(device: Card) -> Iterator[Finding]:
    """Has the memory failed since the driver was loaded?"""
    if device["ecc"]["uncorrected"]:
        yield warning(
            "GPU memory",
            f"{device['ecc']['uncorrected']} uncorrected errors since the driver was loaded",
            "Reset or replace the card: wrong results may not be the ACF's fault",
        )


def quiet(setup: Setup) -> Iterator[Finding]:
    """Can one measure on them? What holds for several cards is said once."""
    cards = [] if setup.needs.gpu is False else _chosen(setup)[0]
    for judge in _OF_A_CARD:
        alike: dict[tuple[str, ...], list[tuple[Card, Finding]]] = {}
        for card in cards:
            for finding in judge(card):
                # Good readings differ in nothing that matters: the first card's stand for all.
                detail = "" if finding.status is Status.PASS else finding.detail
                alike.setdefault((finding.subject, finding.status, detail), []).append((card, finding))
        for found in alike.values():
            where = f"{_named([card for card, _ in found])}: " if len(cards) > 1 else ""
            yield replace(found[0][1], detail=where + found[0][1].detail)


def visible(setup: Setup) -> Card | None:
    """The first device that a run may use, as in a snapshot; None without one. Others are of its model."""
    return next(iter(_chosen(setup)[0]), None)


def snapshot(setup: Setup) -> dict[str, Any]:
    """What NVML says of all cards, asked once: :func:`boosterrun.doctor.nvml.ask`."""
    wanted = AUTO if setup.config is None else setup.config.gpu.devices
    return setup.once("nvml", partial(nvml.ask, wanted, _variables(setup)))


def runs(arch: str, capability: str) -> bool:
    """Whether SASS for ``arch``, such as ``sm_90a`` or ``sm_100f``, loads on a capability such as ``9.0``."""
    match = re.fullmatch(r"sm_(\d+)(\d)([af]?)", arch)
    if match is None:
        return False
    wanted, have = (int(match[1]), int(match[2])), _numbers(capability)
    if match[3] == "a":
        return have == wanted
    return have[0] == wanted[0] and have >= wanted


def _variables(setup: Setup) -> dict[str, str]:
    """What the shell, or the workload for itself, says about GPUs."""
    env = {**setup.env, **(setup.config.workload.env if setup.config is not None else {})}
    return {name: env[name] for name in (VISIBLE, "CUDA_DEVICE_ORDER") if name in env}


def _by_number(setup: Setup) -> bool:
    env = _variables(setup)
    return env.get(VISIBLE, "0").strip()[:1].isdigit() and env.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID"


def _chosen(setup: Setup) -> tuple[list[Card], str, str]:
    """The cards that jobs may use, or why there is none, and the fix."""
    found = snapshot(setup)
    named = _variables(setup).get(VISIBLE)
    if not found["devices"]:
        fix = "Check that nvidia-smi works here (in a container: --gpus all)"
        return [], found["error"] or "NVML lists no device", f"{fix}, or use workload=ptxas, which needs none"
    if found["refused"] is not None:
        return [], found["refused"][0], found["refused"][1]
    cards = [each for each in found["devices"] if each["index"] in found["allowed"]]
    if not cards:  # a run leaves the choice to CUDA
        first = "0" if named is None else named.split(",")[0].strip()
        cards = [each for each in found["devices"] if str(each["index"]) == first]
    why = f"{VISIBLE}={named} names none of the {len(found['devices'])} that NVML lists"
    return cards, why, f"Correct or unset {VISIBLE}"


def _named(cards: list[Card]) -> str:
    return f"GPU{'s' * (len(cards) > 1)} {', '.join(str(card['index']) for card in cards)}"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _of(value: float | None) -> str:
    return "?" if value is None else f"{value:.0f}"


_OF_A_CARD = (_clocks, _persistence, _sharing, _neighbours, _memory_errors)
CHECKS = (present, driver, target, quiet)
