"""Zips from elsewhere: nothing surprising is read, and every refusal names the zip and the member."""

from __future__ import annotations

import stat
import struct
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boosterrun.config import SHIPPED
from boosterrun.errors import PackError
from boosterrun.packs import archive
from boosterrun.packs.archive import MAX_MEMBERS, open_archive

SAMPLE = SHIPPED / "packs/booster-pack-sample.zip"


def make(path: Path, *members: str | zipfile.ZipInfo, method: int = zipfile.ZIP_DEFLATED) -> Path:
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w", method) as file:
        warnings.filterwarnings("ignore", "Duplicate name")
        for member in members:
            file.writestr(member, b"content of it")
    return path


def info(name: str, mode: int = 0, **fields: int) -> zipfile.ZipInfo:
    found = zipfile.ZipInfo(name)
    found.filename = name  # the constructor cleans it
    found.external_attr = mode << 16
    for key, value in fields.items():
        setattr(found, key, value)
    return found


def refusal(path: Path, *, of: Callable[[Path], object] | None = None) -> str:
    def everything(path: Path) -> None:
        with open_archive(path) as opened:
            for member in opened.members:
                opened.read(member, 1 << 20)

    with pytest.raises(PackError) as caught:
        (of or everything)(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert message.isprintable()
    assert caught.value.exit_code == 2
    return message


def test_the_shipped_pack() -> None:
    with open_archive(SAMPLE) as opened:
        assert len(opened.members) == 25
        member = "booster-pack-sample/01-sample_1-12d486f9268b.acf"
        assert len(opened.read(member, 2288)) == 2288
        with pytest.raises(PackError, match="larger than 2287 bytes"):
            opened.read(member, 2287)
        with pytest.raises(PackError, match="'nothing' is not in the archive"):
            opened.read("nothing", 1)


def test_directories_are_no_members(tmp_path: Path) -> None:
    path = make(tmp_path / "a.zip", info("d/", stat.S_IFDIR | 0o755), "d/x.acf")
    with open_archive(path) as opened:
        assert opened.members == {"d/x.acf"}


@pytest.mark.parametrize(
    ("member", "reason"),
    [
        ("../x.acf", "a path that leads elsewhere"),
        ("d/../../x.acf", "a path that leads elsewhere"),
        ("./x.acf", "a path that leads elsewhere"),
        ("d//x.acf", "a path that leads elsewhere"),
        ("..", "a path that leads elsewhere"),
        ("/etc/x.acf", "an absolute path"),
        ("C:/x.acf", "an absolute path"),
        ("c:x.acf", "an absolute path"),
        ("d\\x.acf", "a backslash"),
        ("..\\x.acf", "a backslash"),
        ("x\0.acf", "a NUL"),
        (info("x.acf", stat.S_IFLNK | 0o777), "is a link"),
        (info("d/", stat.S_IFLNK | 0o777), "is a link"),
        (info("x.acf", stat.S_IFCHR | 0o666), "neither a file nor a directory"),
        (info("x.acf", stat.S_IFIFO | 0o666), "neither a file nor a directory"),
        (info("x.acf", stat.S_IFSOCK | 0o666), "neither a file nor a directory"),
    ],
)
def test_a_member_that_leads_elsewhere(tmp_path: Path, member: str | zipfile.ZipInfo, reason: str) -> None:
    member = info(member) if isinstance(member, str) else member
    message = refusal(make(tmp_path / "a.zip", "good.acf", member))
    assert reason in message
    assert repr(member.filename)[1:-1].replace("\\\\", "\\") in message


@pytest.mark.parametrize(
    "twice",
    [
        ("x.acf", "x.acf"),
        ("x.acf", "X.ACF"),
        ("d/x", "D/x"),
        ("d/", "d"),
        ("ß", "SS"),
        ("\u00e9.acf", "e\u0301.acf"),
    ],
)
def test_a_name_that_appears_twice(tmp_path: Path, twice: tuple[str, str]) -> None:
    message = refusal(make(tmp_path / "a.zip", *twice))
    assert f"'{twice[1]}' appears twice" in message


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_compressions(tmp_path: Path, method: int) -> None:
    assert "'x.acf' is compressed" in refusal(make(tmp_path / "a.zip", "x.acf", method=method))


def test_an_encrypted_member(tmp_path: Path) -> None:
    path = make(tmp_path / "a.zip", "x.acf")
    data = bytearray(path.read_bytes())
    data[data.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(data)
    assert "'x.acf' is encrypted" in refusal(path)


def test_a_damaged_member(tmp_path: Path) -> None:
    path = make(tmp_path / "a.zip", "x.acf", method=zipfile.ZIP_STORED)
    path.write_bytes(path.read_bytes().replace(b"content", b"comment"))
    assert "'x.acf' cannot be unpacked: Bad CRC-32" in refusal(path)


def test_the_stated_size_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("x.acf", bytes(50 << 20))
    data = bytearray(path.read_bytes())
    assert len(data) < 100_000
    struct.pack_into("<I", data, data.index(b"PK\x01\x02") + 24, 1000)
    path.write_bytes(data)
    assert "'x.acf'" in refusal(path)


def test_too_large_when_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for index in range(9):
            file.writestr(f"{index}.bin", bytes(30 << 20))
    assert "more than 256 MiB when unpacked" in refusal(path)


def test_too_many_members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MAX_MEMBERS", 3)
    assert "more than 3 members" in refusal(make(tmp_path / "a.zip", "1", "2", "3", "4"))
    # The count at the end may be a lie: the directory itself is counted, too.
    path = make(tmp_path / "b.zip", "1", "2", "3", "4")
    data = bytearray(path.read_bytes())
    struct.pack_into("<HH", data, data.rindex(b"PK\x05\x06") + 8, 1, 1)
    path.write_bytes(data)
    assert "more than 3 members" in refusal(path)


def test_a_directory_that_would_fill_the_memory(tmp_path: Path) -> None:
    path = make(tmp_path / "a.zip", "x.acf")
    data = bytearray(path.read_bytes())
    struct.pack_into("<I", data, data.rindex(b"PK\x05\x06") + 12, 1 << 30)
    path.write_bytes(data)
    assert f"more than {MAX_MEMBERS} members, or of the zip64 kind" in refusal(path)
    # A zip64 end record, which zipfile would follow, stands before the plain one.
    end = path.read_bytes().rindex(b"PK\x05\x06")
    data[end:end] = b"PK\x06\x07" + bytes(16)
    path.write_bytes(data)
    assert "zip64" in refusal(path)


@pytest.mark.parametrize("kept", [0, 1, 21, 100, 1000, 30_000, SAMPLE.stat().st_size - 1])
def test_a_zip_that_was_cut_off(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "a.zip"
    path.write_bytes(SAMPLE.read_bytes()[:kept])
    assert "not a zip, or cut off" in refusal(path)


def test_offsets_that_lead_nowhere(tmp_path: Path) -> None:
    path = make(tmp_path / "a.zip", "x.acf")
    data = bytearray(path.read_bytes())
    struct.pack_into("<I", data, data.rindex(b"PK\x05\x06") + 12, len(data) * 2)
    path.write_bytes(data)
    assert "not a readable zip" in refusal(path)


def test_text_is_no_zip(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    path.write_text("<html>rate limit</html>\n" * 50)
    assert "not a zip, or cut off" in refusal(path)


BASE = SAMPLE.read_bytes()
DIRECTORY = BASE.index(b"PK\x01\x02")


@given(
    changes=st.lists(
        st.tuples(st.integers(0, len(BASE) - 1) | st.integers(DIRECTORY, len(BASE) - 1), st.integers(0, 255)),
        min_size=1,
        max_size=6,
    ),
    cut=st.integers(0, 30) | st.just(0),
)
@settings(max_examples=150, deadline=None)
def test_any_damage_is_a_refusal_or_harmless(
    changes: list[tuple[int, int]], cut: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    data = bytearray(BASE)
    for at, value in changes:
        data[at] = value
    path = tmp_path_factory.getbasetemp() / "damaged.zip"
    path.write_bytes(data[: len(data) - cut])
    reads_or_refuses(path)


@given(data=st.binary(max_size=300) | st.binary(max_size=60).map(lambda b: b + BASE[-22:]))
@settings(max_examples=150, deadline=None)
def test_any_bytes_are_a_refusal(data: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "bytes.zip"
    path.write_bytes(data)
    reads_or_refuses(path)


def reads_or_refuses(path: Path) -> None:
    try:
        with open_archive(path) as opened:
            for member in opened.members:
                opened.read(member, 1 << 20)
    except PackError as error:
        assert str(error).isprintable()
