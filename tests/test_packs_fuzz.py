"""Damaged manifests, catalogs, checksums and zips, 10,000 of them: each is good, or refused in one line."""

from __future__ import annotations

import copy
import hashlib
import json
import random
import warnings
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import releases

from boosterrun.errors import PackError
from boosterrun.packs import catalog, manifest
from boosterrun.packs.manifest import MANIFEST_NAME
from boosterrun.packs.reader import inspect, open_pack

SEEDS = range(4)
ODD: list[Any] = [
    *(
        None,
        True,
        False,
        0,
        -1,
        1,
        2.5,
        1e308,
        1 << 70,
        "",
        " ",
        "x",
        "\x00",
        "a\nb",
        "\u202e",
        "é",
        "../x.acf",
    ),
    *(
        "/x.acf",
        "C:x.acf",
        "x.acf",
        "0" * 64,
        "13.3",
        "ptxas",
        "both",
        "nvcc",
        [],
        {},
        [None],
        ["nvcc", "ptxas"],
    ),
    *({"filename": "x.acf"}, [[]], "9" * 300, "booster-pack-x.zip", "Infinity"),
]


def small() -> tuple[dict[str, Any], dict[str, Any]]:
    """The real manifest and catalog, with three ACFs each."""
    with zipfile.ZipFile(releases.SAMPLE) as file:
        one = json.loads(file.read(f"booster-pack-sample/{MANIFEST_NAME}"))
    two = json.loads(releases.real()[catalog.CATALOG_NAME])
    for document in (one, *two["packs"]):
        document["acfs"] = document["acfs"][:3]
    for pack in two["packs"]:
        pack["acf_count"] = 3
    return one, two


MANIFEST, CATALOG = small()


def places(value: Any) -> list[tuple[Any, Any]]:
    """All (container, key) pairs of a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [pair for key, inner in items for pair in ((value, key), *places(inner))]


def twisted(document: dict[str, Any], luck: random.Random) -> bytes:
    """The document with one to three things replaced, removed, doubled or moved; or its text damaged."""
    document = copy.deepcopy(document)
    for _ in range(luck.randint(1, 3)):
        container, key = luck.choice(places(document) or [(document, "x")])
        match luck.randrange(5):
            case 0 if isinstance(container, dict):
                container.pop(key, None)
            case 1 if isinstance(container, list):
                container.insert(key, copy.deepcopy(luck.choice(container)))
            case 2 if isinstance(container, dict):
                container[luck.choice([*container, "new"])] = luck.choice(ODD)
            case 3:
                other, its = luck.choice(places(document))
                container[key] = copy.deepcopy(other[its])
            case _:
                container[key] = copy.deepcopy(luck.choice(ODD))
    text = json.dumps(document).encode()
    return text if luck.random() < 0.8 else damaged(text, luck)


def damaged(data: bytes, luck: random.Random) -> bytes:
    """The bytes with some flipped, cut, repeated or overwritten."""
    changed = bytearray(data)
    for _ in range(luck.randint(1, 4)):
        at = luck.randrange(max(1, len(changed)))
        match luck.randrange(5):
            case 0 if changed:
                changed[at] ^= 1 << luck.randrange(8)
            case 1:
                del changed[at:]
            case 2:
                changed[at:at] = changed[at : at + luck.randrange(64)]
            case 3:
                del changed[at : at + luck.randrange(64)]
            case _:
                changed[at : at + 4] = luck.choice(
                    [b"\xff" * 4, bytes(4), b"PK\x01\x02", b"PK\x05\x06", b"\xff\xfe"]
                )
    return bytes(changed)


def outcome(action: Callable[[], object]) -> bool:
    """Whether it worked; if not, it was refused as a user can read it."""
    try:
        action()
    except PackError as error:
        assert str(error).isprintable()
        assert len(str(error)) < 2500
        assert error.advice
        return False
    return True


@pytest.mark.parametrize("seed", SEEDS)
def test_manifests(seed: int) -> None:
    luck = random.Random(seed)
    good = 0
    for _ in range(850):
        data = twisted(MANIFEST, luck)
        found: list[PackError] = []
        parsed = manifest.check(data, "here", found.append)
        worked = outcome(lambda data=data: manifest.parse(data, "here"))  # type: ignore[misc]
        assert worked == (not found)
        assert parsed is not None or found
        good += worked
    assert 20 < good < 800, "both kinds are met"


@pytest.mark.parametrize("seed", SEEDS)
def test_catalogs_and_checksums(seed: int) -> None:
    luck = random.Random(seed)
    good = 0
    for _ in range(850):
        data = twisted(CATALOG, luck)
        good += outcome(lambda data=data: catalog.parse_catalog(data, "here").find("sample"))  # type: ignore[misc]
        sums = damaged(releases.real()[catalog.SUMS_NAME], luck)
        outcome(lambda sums=sums: catalog.parse_sums(sums, "here"))  # type: ignore[misc]
    assert 20 < good < 800, "both kinds are met"


@pytest.mark.parametrize("seed", SEEDS)
def test_zips(seed: int, tmp_path: Path) -> None:
    luck = random.Random(seed)
    files = {acf["filename"]: f"data of {acf['filename']}".encode() for acf in MANIFEST["acfs"]}
    names = [
        *files,
        MANIFEST_NAME,
        "../x.acf",
        "/x.acf",
        "d/",
        "LICENSE",
        "new.acf",
        "X.ACF",
        "a\\b",
        "é.acf",
    ]
    good = 0
    for number in range(850):
        path = tmp_path / f"{number}.zip"  # an opened pack is remembered by its path
        document = copy.deepcopy(MANIFEST)
        for acf in document["acfs"]:
            content = files[acf["filename"]]
            acf.update(size_bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
        text = json.dumps(document).encode() if luck.random() < 0.7 else twisted(document, luck)
        members = {f"p/{name}": data for name, data in {MANIFEST_NAME: text, **files}.items()}
        if luck.random() < 0.3:
            members[luck.choice(["", "p/", "q/"]) + luck.choice(names)] = luck.randbytes(luck.randrange(40))
        if luck.random() < 0.2:
            del members[luck.choice(list(members))]
        out = BytesIO()
        with warnings.catch_warnings(), zipfile.ZipFile(out, "w", luck.choice([0, 8])) as file:
            for name, data in members.items():
                file.writestr(name, data)
        data = out.getvalue()
        path.write_bytes(data if luck.random() < 0.4 else damaged(data, luck))
        found: list[PackError] = []
        pack = inspect(path, found.append)
        worked = outcome(lambda path=path: open_pack(path))  # type: ignore[misc]
        assert worked == (not found)
        assert (pack is not None) or found
        if worked:
            opened = open_pack(path)
            for acf in opened.acfs:
                assert hashlib.sha256(opened.read(acf)).hexdigest() == acf.sha256
        path.unlink()
        good += worked
    assert 50 < good < 800, "both kinds are met"
