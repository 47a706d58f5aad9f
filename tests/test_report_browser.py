"""The report in a real browser."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import chromium
import made_results as made
import made_sweeps
import pytest

from boosterrun.report import model, page

pytestmark = pytest.mark.skipif(chromium.PATH is None, reason=chromium.MISSING)

HOSTILE = (
    "<script>alert(1)</script>",
    "'\"><img src=x onerror=alert(1)>",
    "</script><script>alert(2)</script>",
    "a\u202egnp.exe\u2066 \u2028 ${7*7} {{7*7}}",
    "x" * 3000,
    "javascript:alert(1)",
    "=cmd|' /C calc'!A0",
    "漢字 שלום 🚀",
)


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Page]:
    with chromium.page(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@contextlib.contextmanager
def clean(tab: chromium.Page, file: Path) -> Iterator[None]:
    """Nothing may be complained of or asked for but the file itself, whatever happens meanwhile."""
    tab.problems.clear()
    tab.requests.clear()
    yield
    tab.js("0")
    assert tab.problems == []
    assert set(tab.requests) <= {file.resolve().as_uri()}


def show(tab: chromium.Page, folder: Path, **options: Any) -> Path:
    file = page.write(model.read(folder), folder / "report.html")
    tab.open(file, **options)
    return file


CURVE = "document.querySelectorAll('#curve svg .mark-symbol path[aria-label], #curve canvas').length"
ROWS = "document.querySelectorAll('#table > tbody > tr:not(.panel)').length"


def names(tab: chromium.Page) -> list[str]:
    found: list[str] = tab.js("[...document.querySelectorAll('#table td.name bdi')].map(e => e.textContent)")
    return found


def test_table_sorts_and_filters_and_charts_are_there(tab: chromium.Page, tmp_path: Path) -> None:
    file = made_sweeps.sweep(tmp_path, 12, 3) / "report.html"
    with clean(tab, file):
        show(tab, tmp_path)
        assert tab.js(CURVE) >= 12
        assert tab.js("document.querySelectorAll('#heat svg .mark-rect path').length") >= 36
        assert tab.js("document.querySelectorAll('#health svg .mark-line path').length") >= 3
        assert tab.js(ROWS) == 36
        gain = "[...document.querySelectorAll('#table > thead button')].find(b => b.textContent == 'Gain')"
        shown = "[...document.querySelectorAll('#table > tbody > tr')].map(r => r.cells[3].textContent)"
        for order in (True, False):
            tab.js(f"{gain}.click()")
            gains = [float(t[:-1].replace("−", "-")) for t in tab.js(shown) if t != "–"]
            assert gains == sorted(gains, reverse=order)
            assert tab.js(shown)[-1] == "–"
            state = tab.js(f"{gain}.parentElement.getAttribute('aria-sort')")
            assert state == ("descending" if order else "ascending")
        type_into(tab, "find", "003-cand m128")
        assert tab.js(ROWS) == 1
        assert tab.js("document.getElementById('count').textContent") == "1 of 36 rows"
        type_into(tab, "find", "")
        type_into(tab, "by-decision", "KEPT")
        kept = [job for job in model.read(tmp_path).jobs for row in job.rows if row.status == "kept"]
        assert tab.js(ROWS) == len(kept) > 0
        type_into(tab, "by-shape", "1")
        assert tab.js(ROWS) < len(kept)
        tab.js("document.getElementById('curve-shape').value = '1'")
        tab.js("document.getElementById('curve-shape').dispatchEvent(new Event('change'))")
        assert tab.js(CURVE) >= 12


def type_into(tab: chromium.Page, name: str, value: str) -> None:
    tab.js(f"document.getElementById('{name}').value = {json.dumps(value)}")
    tab.js(f"document.getElementById('{name}').dispatchEvent(new Event('input'))")


def test_details_open_by_keyboard_with_their_charts(tab: chromium.Page, tmp_path: Path) -> None:
    file = made_sweeps.sweep(tmp_path, 6, 1) / "report.html"
    with clean(tab, file):
        show(tab, tmp_path)
        tab.js("document.querySelector('#table td.name button').focus()")
        for kind in ("keyDown", "keyUp"):
            tab.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key="Enter",
                code="Enter",
                text="\r",
                windowsVirtualKeyCode=13,
            )
        tab.until("document.querySelectorAll('.panel figure svg').length == 3")
        text = tab.js("document.querySelector('.panel').textContent")
        assert "boosterrun acf=none workload=triton/attn" in text
        assert "fresh process pair" in text
        assert tab.js("document.activeElement.getAttribute('aria-expanded')") == "true"
        link = tab.js("document.querySelector('.panel a').href")
        assert Path(link.removeprefix("file://")).is_file()
        tab.js("document.activeElement.click()")
        assert tab.js("document.querySelectorAll('.panel').length") == 0


def test_a_point_tells_what_it_is_and_opens_its_details(tab: chromium.Page, tmp_path: Path) -> None:
    made_sweeps.write(tmp_path, made_sweeps.static_result(1, gain=0.1))
    with clean(tab, tmp_path / "report.html"):
        show(tab, tmp_path)
        box = tab.js(
            "(r => [r.x + r.width / 2, r.y + r.height / 2])(document.querySelector("
            "'#curve .mark-symbol.role-mark path[aria-label]').getBoundingClientRect())"
        )
        tab.call("Input.dispatchMouseEvent", type="mouseMoved", x=box[0], y=box[1])
        tab.until("!document.getElementById('tip').hidden")
        assert "001-candidate" in tab.js("document.getElementById('tip').textContent")
        for kind in ("mousePressed", "mouseReleased"):
            tab.call("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)
        tab.until("document.querySelectorAll('.panel').length == 1")


@pytest.mark.parametrize("width", [1440, 390])
def test_nothing_is_wider_than_the_window_and_dark_is_dark(
    tab: chromium.Page, tmp_path: Path, width: int
) -> None:
    file = made_sweeps.sweep(tmp_path, 6, 2) / "report.html"
    for dark in (False, True):
        with clean(tab, file):
            show(tab, tmp_path, width=width, dark=dark)
            tab.js("document.querySelector('#table td.name button').click()")
            tab.until("document.querySelectorAll('.panel figure svg').length == 3")
            assert tab.js("document.documentElement.scrollWidth") <= width
            ground = tab.js("getComputedStyle(document.body).backgroundColor")
            assert (ground == "rgb(255, 255, 255)") is not dark
            label = "document.querySelector('#curve .role-axis-label text').getAttribute('fill')"
            assert tab.js(label) == ("#b3b3b3" if dark else "#595959")
    assert tab.call("Page.printToPDF")["data"]


def hostile(folder: Path) -> None:
    for number, name in enumerate(HOSTILE):
        result = made_sweeps.static_result(number, message=name)
        result["acf"] |= {"id": name, "filename": f"{name}.acf"}
        result["shapes"][0] |= {"name": name, "metric": name, "unit": name[:20]}
        result["shapes"][0]["kernels"][0]["name"] = name
        result["shapes"][0]["compile"]["candidate"] |= {"output": name, "command": [name]}
        result["workload"] = result["workload"] | {"name": name}
        result["job"]["overrides"] = [f"acf={name}", f"gpu={name}"]
        result["environment"]["host"] = {"hostname": name}
        made_sweeps.write(folder, result)


def test_hostile_names_are_text(tab: chromium.Page, tmp_path: Path) -> None:
    hostile(tmp_path)
    with clean(tab, tmp_path / "report.html"):
        show(tab, tmp_path, width=390)
        assert tab.js("document.documentElement.scrollWidth") <= 390
        show(tab, tmp_path)
        assert tab.js("document.documentElement.scrollWidth") <= 1440
        assert set(names(tab)) == {model.visible(name) for name in HOSTILE}
        tab.js("document.querySelectorAll('#table td.name button').forEach(b => b.click())")
        tab.until("document.querySelectorAll('.panel pre').length >= 8 * 2")
        text = tab.js("document.querySelector('#table').textContent")
        for name in HOSTILE:
            assert model.visible(name) in text
        assert tab.js("document.scripts.length") == 6
        assert tab.js("document.querySelectorAll('img').length") == 0


def test_500_candidates_on_10_shapes(tab: chromium.Page, tmp_path: Path) -> None:
    file = made_sweeps.sweep(tmp_path, 500, 10) / "report.html"
    with clean(tab, file):
        show(tab, tmp_path)
        assert file.stat().st_size < 5_000_000
        assert tab.js("document.querySelectorAll('#curve canvas').length") == 1
        assert tab.js(ROWS) == 150
        tab.js("document.getElementById('more').click()")
        assert tab.js(ROWS) == 5000
        tab.js("document.querySelector('#row-4999 button').click()")
        tab.until("document.querySelectorAll('.panel figure svg').length == 3")


def none_kept(folder: Path) -> None:
    for number in range(3):
        made_sweeps.write(folder, made_sweeps.static_result(number, "no_gain", gain=-0.01 * number))


def all_crashed(folder: Path) -> None:
    for number in range(3):
        made_sweeps.write(folder, made_sweeps.crash(number))


def one_candidate(folder: Path) -> None:
    made_sweeps.sweep(folder, 1, 1)


def no_nvml(folder: Path) -> None:
    result, pairs = made_sweeps.timed_result(1, ["a", "b"])
    empty = {"driver_version": None, "devices": [], "error": "NVML: NVML Shared Library Not Found"}
    result["environment"]["gpu"] = {"before": empty, "after": empty}
    made_sweeps.write(folder, result, pairs)


def partly_nvml(folder: Path) -> None:
    result, pairs = made_sweeps.timed_result(1, ["a"])
    device = {"index": 0, "name": None, "clocks_mhz": {"sm": None}, "power_w": None, "temperature_c": None}
    result["environment"]["gpu"] = {"before": {"devices": [device]}, "after": None}
    made_sweeps.write(folder, result, pairs)


def undecided(folder: Path) -> None:
    made_sweeps.write(folder, made.undecided())


def undecided_shape(folder: Path) -> None:
    made_sweeps.write(folder, made.undecided(made.shape(decision=None)))
    made_sweeps.write(folder, made_sweeps.static_result(2))


def self_test(folder: Path) -> None:
    made_sweeps.write(folder, made.self_test())


def only_rejects(folder: Path) -> None:
    (folder / "dead" / ".hydra").mkdir(parents=True)


CASES: list[tuple[Callable[[Path], None], str, int]] = [
    (none_kept, "No candidate was kept", 3),
    (all_crashed, "Every candidate failed", 3),
    (one_candidate, "1 candidate,", 1),
    (no_nvml, "NVML Shared Library Not Found", 2),
    (partly_nvml, "1 candidate,", 1),
    (undecided, "no verdict", 1),
    (undecided_shape, "no verdict", 2),
    (self_test, "0 candidates,", 1),
    (only_rejects, "was killed", 0),
]


@pytest.mark.parametrize(("make", "words", "rows"), CASES, ids=lambda value: getattr(value, "__name__", None))
def test_odd_sweeps(
    tab: chromium.Page, tmp_path: Path, make: Callable[[Path], None], words: str, rows: int
) -> None:
    make(tmp_path)
    with clean(tab, tmp_path / "report.html"):
        show(tab, tmp_path)
        text = " ".join(tab.js("document.body.innerText").split())
        assert words in text
        assert "undefined" not in text
        assert "NaN" not in text
        assert tab.js(ROWS) == rows
        if rows:
            assert tab.js(CURVE) >= 1
            tab.js("document.querySelectorAll('#table td.name button').forEach(b => b.click())")
            tab.until(f"document.querySelectorAll('.panel pre').length >= {2 * rows}")
