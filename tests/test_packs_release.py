"""Tags of releases: their order, and what is none."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boosterrun.packs.release import parse_release, tag_order

IN_ORDER = [
    "booster-packs-2025.12.31",
    "booster-packs-2026.05.21",
    "booster-packs-2026.05.27",
    "booster-packs-2026.05.27-rev1",
    "booster-packs-2026.05.27-rev2",
    "booster-packs-2026.05.27-rev10",
    "booster-packs-2026.05.28",
    "booster-packs-2026.08.18",
    "booster-packs-2026.11.03",
]


def test_the_order_of_tags() -> None:
    orders = [tag_order(tag) for tag in IN_ORDER]
    assert None not in orders
    for one, next_one in itertools.pairwise(orders):
        assert one is not None
        assert next_one is not None
        assert one < next_one
    shuffled = random.Random(1).sample(IN_ORDER, len(IN_ORDER))
    assert sorted(shuffled, key=tag_order) == IN_ORDER  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "tag",
    [
        "v1.0.2",
        "search-spaces-2026.05.22",
        "booster-packs-2026.13.01",
        "booster-packs-2026.02.30",
        "booster-packs-0000.01.01",
        "booster-packs-2026.5.1",
        "booster-packs-2026.05.27\n",
        "booster-packs-2026.05.27-",
        "booster-packs-2026.05.27/../x",
        "booster-packs-2026.05.27-" + "9" * 100,
        "xbooster-packs-2026.05.27",
        "booster-packs-２０２６.05.27",
        "",
    ],
)
def test_what_is_no_tag_of_packs(tag: str) -> None:
    assert tag_order(tag) is None


@given(
    st.text(st.characters(categories=["L", "N", "P"]), max_size=20), st.text("rev0123456789-._", max_size=12)
)
def test_any_two_tags_can_be_compared(text: str, suffix: str) -> None:
    assert tag_order(text) is None
    one, two = tag_order("booster-packs-2026.05.27"), tag_order(f"booster-packs-2026.05.27-{suffix}")
    assert one is not None
    assert two is None or one < two


ASSET = {"id": 1, "name": "x.zip", "size": 3, "state": "uploaded"}
GOOD = {"tag_name": IN_ORDER[0], "draft": False, "prerelease": False, "assets": [ASSET]}


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        "x",
        {},
        *({**GOOD, **c} for c in ({"draft": True}, {"prerelease": True}, {"assets": 3}, {"tag_name": 1})),
    ],
)
def test_what_is_no_release(document: Any) -> None:
    assert parse_release(document) is None


@pytest.mark.parametrize(
    "change", [{"id": True}, {"id": "1"}, {"name": None}, {"size": -1}, {"size": 1.5}, {"state": "starter"}]
)
def test_files_that_are_not_there_yet(change: dict[str, Any]) -> None:
    good = parse_release(GOOD)
    assert good is not None
    assert good.assets["x.zip"].size == 3
    found = parse_release({**GOOD, "assets": [None, {**ASSET, **change}]})
    assert found is not None
    assert not found.assets
