from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
import re
from pathlib import Path
from typing import Any

import made_sweeps
import pytest
from hypothesis import given
from hypothesis import strategies as st

from boosterrun.report import model, page

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@given(JSON)
def test_embedded_json_comes_back_and_cannot_end_its_element(value: Any) -> None:
    text = page.script_json(value)
    assert json.loads(text) == value
    assert not re.search("[<>&\u2028\u2029]", text)
    assert text.isascii()


def embedded(text: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The data of a page, read back: what is drawn at once, and the details."""
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    details = re.search(r'id="details-data">(.*?)</script>', text, re.S)
    assert data and details
    return json.loads(data[1]), json.loads(gzip.decompress(base64.b64decode(details[1])))


def test_the_page_is_whole_and_its_policy_pins_its_scripts(tmp_path: Path) -> None:
    made_sweeps.sweep(tmp_path, 6, 2)
    text = page.render(model.read(tmp_path), tmp_path)
    scripts = re.findall(r"<script>(.*?)</script>", text, re.S)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy
    allowed = html.unescape(policy[1])
    assert len(scripts) == 4
    for script in scripts:
        assert f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" in allowed
    assert "default-src 'none'" in allowed
    assert "unsafe-eval" not in allowed
    own = re.sub(r"<script>.*?</script>", "", text, flags=re.S)
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", own)
    assert "@import" not in own


def test_rows_and_details_are_those_of_the_results(tmp_path: Path) -> None:
    made_sweeps.sweep(tmp_path, 6, 2)
    report = model.read(tmp_path)
    data, details = embedded(page.render(report, tmp_path))
    assert len(data["rows"]) == len(details) == 12
    gain = data["row_fields"].index("gain")
    for values, (_, row), detail in zip(data["rows"], report.rows(), details, strict=True):
        assert (
            values[gain] == pytest.approx(row.gain, rel=1e-5)
            if row.gain is not None
            else values[gain] is None
        )
        assert detail["trace"]["b"]
        assert detail["again"]["baseline"] == "boosterrun acf=none workload=triton/attn"
    link = data["job_fields"].index("link")
    assert all((tmp_path / job[link]).is_file() for job in data["jobs"])


def test_hostile_text_is_text(tmp_path: Path) -> None:
    name = "<script>alert(1)</script>'\"&"
    result = made_sweeps.static_result(1, message=name)
    result["acf"]["id"] = name
    result["workload"] = result["workload"] | {"name": "</script><img src=x onerror=alert(1)>"}
    result["environment"]["host"] = {"hostname": "<b>host</b>"}
    made_sweeps.write(tmp_path, result)
    text = page.render(model.read(tmp_path), tmp_path)
    assert "<script>alert" not in text
    assert "<img" not in text
    assert "<b>host" not in text
    data, details = embedded(text)
    assert data["candidates"] == [name]
    assert details[0]["message"] == name


def test_details_that_are_too_large_lose_the_pairs_of_the_worst(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_sweeps.sweep(tmp_path, 12, 2)
    report = model.read(tmp_path)
    _, whole = embedded(page.render(report, tmp_path))
    packed = re.search(r'id="details-data">(.*?)<', page.render(report, tmp_path))
    assert packed
    monkeypatch.setattr(page, "DETAILS_LIMIT", len(packed[1]) - 100)
    text = page.render(report, tmp_path)
    _, details = embedded(text)
    kept = ["trace" in one for one in details]
    assert len(whole) == len(details)
    assert all("trace" in one for one in whole)
    assert kept == sorted(kept, reverse=True)
    assert 0 < sum(kept) < len(kept)
    assert f"Some details of {kept.count(False)} rows are left out" in text
    monkeypatch.setattr(page, "DETAILS_LIMIT", 10)
    _, details = embedded(page.render(report, tmp_path))
    assert not any("trace" in one or "outputs" in one or "kernels" in one for one in details)
    assert all(one["message"] for one in details)


def test_facts_that_differ_between_jobs_are_marked(tmp_path: Path) -> None:
    for number, driver in enumerate(["580.1", "590.2"]):
        result = made_sweeps.static_result(number)
        result["environment"]["gpu"] = result["environment"]["gpu"] | {"driver_version": driver}
        made_sweeps.write(tmp_path, result)
    report = model.read(tmp_path)
    assert dict(page.facts(report))["driver"] == ["580.1", "590.2"]
    assert "580.1; 590.2" in page.render(report, tmp_path)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59.6, "1 min 00 s"), (61, "1 min 01 s"), (5000, "1 h 23 min")]
)
def test_durations(seconds: float, text: str) -> None:
    assert page.duration(seconds) == text
