"""Whether a pack is for a GPU, by name, code name or target."""

from __future__ import annotations

import pytest

from boosterrun.packs.support import supported


@pytest.mark.parametrize(
    ("names", "device", "capability", "expected"),
    [
        (["ALL"], None, None, True),
        (["B200", "all"], "NVIDIA H200", "9.0", True),
        (["H200"], "NVIDIA H200", "9.0", True),
        (["h100"], "NVIDIA H100 80GB HBM3", "9.0", True),
        (["H100 PCIe"], "NVIDIA H100 80GB HBM3", "9.0", False),
        (["NVIDIA B200"], "NVIDIA B200", "10.0", True),
        (["H20"], "NVIDIA H200", "9.0", False),
        (["H200"], "NVIDIA GH200 480GB", "9.0", False),
        (["B200"], "NVIDIA GB200", "10.0", False),
        (["B200"], "NVIDIA H200", "9.0", False),
        (["sm_90a"], "NVIDIA H200", "9.0", True),
        (["sm_100+"], "NVIDIA H200", "9.0", False),
        (["sm_100+"], "NVIDIA RTX", "12.0", True),
        (["sm_100f"], "NVIDIA B300", "10.3", True),
        (["sm_100"], "NVIDIA B300", "10.3", False),
        (["sm_89"], None, "8.9", True),
        (["Hopper"], "NVIDIA H200", "9.0", True),
        (["sm_90"], "NVIDIA H200", None, None),
        (["B200"], None, "9.0", None),
        (["B200", "sm_90"], None, "9.0", True),
        ([], "NVIDIA H200", "9.0", None),
        (["???"], "NVIDIA H200", "9.0", False),
    ],
)
def test_supported_gpus(
    names: list[str], device: str | None, capability: str | None, expected: bool | None
) -> None:
    assert supported(names, device, capability) is expected
