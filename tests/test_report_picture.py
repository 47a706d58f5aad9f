from __future__ import annotations

import struct
import sys
from xml.etree import ElementTree

import made_sweeps
import pytest

from boosterrun.errors import UsageError
from boosterrun.report import model, picture


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> model.Report:
    return model.read(made_sweeps.sweep(tmp_path_factory.mktemp("sweep"), 12, 2))


def test_svg(report: model.Report) -> None:
    pytest.importorskip("vl_convert")
    root = ElementTree.fromstring(picture.draw(report, "svg", "M64_N4096"))
    text = "".join(root.itertext())
    assert "ptxas, M64_N4096" in text
    assert "kept" in text
    assert len([e for e in root.iter() if "candidate-" in e.get("aria-label", "")]) >= 12


def test_png(report: model.Report) -> None:
    pytest.importorskip("vl_convert")
    data = picture.draw(report, "png")
    assert data.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", data[16:24])
    assert width > 1500
    assert height > 800


def test_an_unknown_shape_names_the_known_ones(report: model.Report) -> None:
    with pytest.raises(UsageError, match=r"no shape 'x' .* M64_N4096, M128_N4096"):
        picture.specification(report, "x")


def test_the_missing_package_is_named(report: model.Report, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(UsageError, match=r"vl-convert-python.*pip install"):
        picture.draw(report, "png")
