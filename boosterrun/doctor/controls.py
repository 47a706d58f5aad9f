"""The pack: is it for this card, for this adapter's compilers, and in one piece?"""

from __future__ import annotations

from collections.abc import Iterator

from boosterrun.doctor import device
from boosterrun.doctor.finding import Finding, failure, passed, warning
from boosterrun.doctor.setup import Setup
from boosterrun.packs.support import supported

_NO_NVVM = {"ptxas", "triton", "helion"}
_FIRST_NVCC_STAGE = (10, 0)


def card(setup: Setup) -> Iterator[Finding]:
    """Is the pack made for this card?"""
    pack, found = setup.pack, device.visible(setup)
    if pack is None or found is None or setup.needs.gpu is False:
        return
    names = ", ".join(pack.supported_gpus) or "no card"
    match supported(pack.supported_gpus, found["name"], found["compute_capability"]):
        case True:
            yield passed("pack and GPU", f"{pack.display_name} is for {names}")
        case False:
            yield warning(
                "pack and GPU",
                f"{pack.display_name} is for {names}, not for {found['name']}",
                "A run is honest all the same, but expect less of it; each result says gpu_supported: false",
            )
        case None:
            yield warning(
                "pack and GPU",
                f"{pack.display_name} names {names}: it cannot be told whether that is {found['name']}",
                "Ask whoever made the pack",
            )


def stages(setup: Setup) -> Iterator[Finding]:
    """Can the adapter's compilers apply every ACF completely?"""
    pack, adapter = setup.pack, setup.adapter
    if pack is None or not pack.acfs or not setup.needs.compilers:
        return
    total = len(pack.acfs)
    usable = sum("nvcc" not in acf.compiler_stages or _has_nvcc_stage(setup) for acf in pack.acfs)
    why = f"{adapter} runs only ptxas" if adapter in _NO_NVVM else "nvcc's own stage exists from sm_100 on"
    if usable == total:
        yield passed("compiler stages", f"all {total} ACFs can be applied by {adapter}")
    elif usable:
        yield warning(
            "compiler stages",
            f"{total - usable} of {total} ACFs are for nvcc too: {why}",
            "They will be REJECTED:unsupported_stage; the others are judged",
        )
    else:
        yield failure(
            "compiler stages",
            f"none of the {total} ACFs can be applied: they are for nvcc too, and {why}",
            "Choose a pack with the controls stage ptxas" + ", or workload=nvcc" * (adapter in _NO_NVVM),
        )


def _has_nvcc_stage(setup: Setup) -> bool:
    if setup.config is None or setup.adapter in _NO_NVVM:
        return False
    arch = setup.config.gpu.arch
    if arch is not None:
        digits = "".join(character for character in arch if character.isdigit())
        return int(digits or 0) >= 100
    found = device.visible(setup)
    if found is None or not found["compute_capability"]:
        return False
    major, _, minor = found["compute_capability"].partition(".")
    return (int(major), int(minor)) >= _FIRST_NVCC_STAGE


CHECKS = (card, stages)
