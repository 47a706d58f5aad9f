"""Packs as directories, zips and loose folders: what is opened agrees with its manifest."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boosterrun.config import SHIPPED
from boosterrun.errors import PackError
from boosterrun.packs import Pack, open_pack, pack, reader
from boosterrun.packs.manifest import MANIFEST_NAME

SAMPLE = SHIPPED / "packs/booster-pack-sample.zip"
FILES = {"b-2.acf": b"two", "a 1.acf": b"one", "C.acf": b"three"}
IDS = ["b-2", "a-1-6590a4", "C"]


def manifest(files: Mapping[str, bytes] = FILES, **changes: Any) -> bytes:
    with zipfile.ZipFile(SAMPLE) as file:
        document = json.loads(file.read(f"booster-pack-sample/{MANIFEST_NAME}"))
    document["acfs"] = [
        {
            "filename": name,
            "sha256": hashlib.sha256(data).hexdigest(),
            "size_bytes": len(data),
            "compiler_stages": ["ptxas"],
            "description": f"the file {name}",
        }
        for name, data in files.items()
    ]
    return json.dumps(document | changes).encode()


def directory(root: Path, files: Mapping[str, bytes] = FILES) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (root / name).write_bytes(data)
    return root


def pack_directory(root: Path, **changes: Any) -> Path:
    directory(root)
    (root / MANIFEST_NAME).write_bytes(manifest(**changes))
    return root


def pack_zip(path: Path, prefix: str = "pack/", extra: Mapping[str, bytes] | None = None) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in {**FILES, MANIFEST_NAME: manifest()}.items():
            file.writestr(prefix + name, data)
        for name, data in (extra or {}).items():
            file.writestr(name, data)
    return path


def refusal(path: Path, **arguments: str) -> str:
    with pytest.raises(PackError) as caught:
        open_pack(path, **arguments)
    message = str(caught.value)
    assert message.isprintable()
    assert caught.value.advice
    return message


def test_the_shipped_pack() -> None:
    opened = open_pack(SAMPLE)
    assert opened.location == SAMPLE
    assert opened.pack_id == "sample-pack"
    assert opened.release_tag == "booster-packs-2026.11.30"
    assert opened.cuda_version == "13.3.0"
    assert opened.controls_stage == "ptxas"
    assert opened.supported_gpus == ("ALL",)
    assert opened.notice == "© NVIDIA Corporation, 2026."
    with zipfile.ZipFile(SAMPLE) as file:
        text = file.read(f"booster-pack-sample/{MANIFEST_NAME}")
        assert opened.manifest_sha256 == hashlib.sha256(text).hexdigest()
        for acf, entry in zip(opened.acfs, json.loads(text)["acfs"], strict=True):
            assert (acf.filename, acf.id) == (entry["filename"], entry["filename"].removesuffix(".acf"))
            assert opened.get(acf.id) is acf
            assert opened.read(acf) == file.read(f"booster-pack-sample/{acf.filename}")
            assert acf.compiler_stages == ("ptxas",)


def test_the_licence_lies_beside_it() -> None:
    text = (SAMPLE.parent / "LICENSE-NVIDIA-ACF.txt").read_text()
    notice = open_pack(SAMPLE).notice
    assert notice
    assert notice in text
    assert SAMPLE.name in text


@pytest.mark.parametrize("kind", ["directory", "nested", "zip", "flat zip"])
def test_the_same_pack_in_each_form(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "here"
    match kind:
        case "directory":
            pack_directory(path)
            (path / "README.md").write_text("other files do not matter")
            (path / "._b-2.acf").write_bytes(b"nor do those that macOS leaves")
        case "nested":
            pack_directory(path / "anything")
            (path / "other").mkdir()
        case "zip":
            pack_zip(path, extra={"pack/LICENSE": b"text", "__MACOSX/pack/._b-2.acf": b"junk"})
        case _:
            pack_zip(path, prefix="")
    opened = open_pack(path)
    assert [acf.id for acf in opened.acfs] == IDS
    assert [opened.read(acf) for acf in opened.acfs] == list(FILES.values())
    assert opened.manifest is not None
    assert opened.manifest.pack_type == "performance"
    copy: Pack = pickle.loads(pickle.dumps(opened))
    assert copy.acfs == opened.acfs


def test_a_folder_of_loose_files(tmp_path: Path) -> None:
    path = directory(tmp_path / "found")
    (path / "notes.txt").write_text("not an ACF")
    (path / ".hidden.acf").write_text("not shown")
    opened = open_pack(path)
    assert [acf.filename for acf in opened.acfs] == sorted(FILES)
    assert (opened.pack_id, opened.display_name, opened.controls_stage) == ("found", "found", "ptxas")
    assert (opened.cuda_version, opened.manifest_sha256, opened.notice) == (None, None, None)
    assert {acf.compiler_stages for acf in opened.acfs} == {("ptxas",)}
    assert opened.read(opened.get("b-2")) == b"two"
    both = open_pack(path, stage="both", cuda_version="13.3", name="mine")
    assert both.acfs[0].compiler_stages == ("nvcc", "ptxas")
    assert (both.pack_id, both.display_name, both.cuda_version) == ("found", "mine", "13.3")


def test_adding_a_file_renames_none(tmp_path: Path) -> None:
    path = directory(tmp_path / "loose")
    before = {acf.filename: acf.id for acf in open_pack(path).acfs}
    (path / "a-1.acf").write_bytes(b"another")
    after = {acf.filename: acf.id for acf in open_pack(path).acfs}
    assert len(after) == 4
    assert before.items() <= after.items()


def test_configuration_may_repeat_the_manifest_but_not_contradict_it(tmp_path: Path) -> None:
    path = pack_directory(tmp_path / "p")
    assert open_pack(path, stage="ptxas", cuda_version="13.3").cuda_version == "13.3.0"
    assert "pack.stage is both, but the manifest says ptxas" in refusal(path, stage="both")
    assert "pack.cuda_version is 13.4, but the manifest says 13.3" in refusal(path, cuda_version="13.4.1")
    assert "stage 'ptx' is unknown" in refusal(path, stage="ptx")
    assert "cuda_version '13' is no version" in refusal(path, cuda_version="13")


@pytest.mark.parametrize("form", ["zip", "directory"])
def test_files_that_disagree_with_the_manifest(tmp_path: Path, form: str) -> None:
    good = manifest()
    cases = {
        "'{}C.acf' has another SHA-256 than the manifest says": {"C.acf": b"THREE"},
        "'{}C.acf' has another size than the manifest says": {"C.acf": b"three!"},
        "'{}new.acf' is an ACF that the manifest does not list": {"new.acf": b"x"},
        "'{}NEW.ACF' is an ACF that the manifest does not list": {"NEW.ACF": b"x"},
        "'{}C.acf'": {"C.acf": None},
    }
    for index, (message, change) in enumerate(cases.items()):
        files = {
            name: data for name, data in {**FILES, **change, MANIFEST_NAME: good}.items() if data is not None
        }
        path = tmp_path / str(index)
        if form == "zip":
            with zipfile.ZipFile(path, "w") as file:
                for name, data in files.items():
                    file.writestr(f"p/{name}", data)
        else:
            directory(path / "p", files)
        found = refusal(path)
        assert found.startswith(f"{path}: ")
        assert message.format("p/") in found
        if change == {"C.acf": None}:
            assert "is not in the archive" in found or "No such file" in found


def test_an_acf_beside_the_packs_directory_is_not_listed(tmp_path: Path) -> None:
    assert "'x.acf' is an ACF that" in refusal(pack_zip(tmp_path / "a.zip", extra={"x.acf": b""}))
    pack_directory(tmp_path / "d" / "pack")
    (tmp_path / "d" / "x.acf").write_bytes(b"")
    assert "'x.acf' is an ACF that" in refusal(tmp_path / "d")


def test_two_manifests(tmp_path: Path) -> None:
    path = pack_zip(tmp_path / "a.zip", extra={f"other/{MANIFEST_NAME}": manifest()})
    assert f"holds 2 packs: other/{MANIFEST_NAME}, pack/{MANIFEST_NAME}. Give the path of one" in refusal(
        path
    )
    pack_directory(tmp_path / "d")
    pack_directory(tmp_path / "d" / "inner")
    assert "holds 2 packs" in refusal(tmp_path / "d")


def test_a_broken_manifest_is_named(tmp_path: Path) -> None:
    path = pack_directory(tmp_path / "p", controls_stage="none")
    assert refusal(path).startswith(f"{path}: {MANIFEST_NAME}: $.controls_stage: 'none' is not one of")


def test_what_is_no_pack(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "release").mkdir()
    pack_zip(tmp_path / "release" / "one.zip")
    os.mkfifo(tmp_path / "fifo")
    with zipfile.ZipFile(tmp_path / "bare.zip", "w") as file:
        file.writestr("x.acf", b"x")
    assert "No such file or directory. Check the path" in refusal(tmp_path / "absent")
    assert f"neither a {MANIFEST_NAME} nor an .acf file in it" in refusal(tmp_path / "empty")
    assert "Give one of the zips in it: one.zip" in refusal(tmp_path / "release")
    assert "neither a directory nor a zip" in refusal(tmp_path / "fifo")
    assert "neither a directory nor a zip" in refusal(Path("/dev/zero"))
    assert f"no {MANIFEST_NAME} in it. Unpack loose ACFs" in refusal(tmp_path / "bare.zip")
    assert "embedded null byte" in refusal(Path("a\0b"))
    assert "File name too long" in refusal(Path("x" * 300))
    assert "Could not determine home" in refusal(Path("~nobody-of-that-name/x"))


def test_links_stay_inside(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"three")
    path = pack_directory(tmp_path / "p")
    (path / "C.acf").unlink()
    (path / "C.acf").symlink_to(secret)
    assert "'C.acf' is a link that leads outside" in refusal(path)
    (path / "C.acf").unlink()
    (path / "real.bin").write_bytes(b"three")
    (path / "C.acf").symlink_to("real.bin")
    assert open_pack(path).get("C").size_bytes == 5
    (path / MANIFEST_NAME).rename(tmp_path / "m")
    (path / MANIFEST_NAME).symlink_to(tmp_path / "m")
    assert f"'{MANIFEST_NAME}' is a link that leads outside" in refusal(path)


def test_a_linked_directory_stays_inside(tmp_path: Path) -> None:
    real = pack_directory(tmp_path / "real")
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "pack").symlink_to(real)
    assert "'pack' is a link that leads outside" in refusal(tmp_path / "p")
    (tmp_path / "itself").symlink_to(real)
    assert open_pack(tmp_path / "itself").pack_id == "sample-pack", "the pack's own path may be a link"


@pytest.mark.parametrize("kind", ["fifo", "directory", "loop", "dangling"])
def test_only_regular_files_are_read(tmp_path: Path, kind: str) -> None:
    path = pack_directory(tmp_path / "p")
    target = path / "C.acf"
    target.unlink()
    match kind:
        case "fifo":
            os.mkfifo(target)
        case "directory":
            target.mkdir()
        case "loop":
            target.symlink_to("C.acf")
        case _:
            target.symlink_to("nothing")
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    assert "'C.acf' " in refusal(path)
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_sizes_are_capped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = directory(tmp_path / "p")
    with (path / "huge.acf").open("wb") as file:
        file.truncate(pack.MAX_ACF + 1)
    assert f"'huge.acf' is larger than {16 << 20} bytes" in refusal(path)
    (path / "huge.acf").unlink()
    with (path / MANIFEST_NAME).open("wb") as file:
        file.truncate(reader.MAX_MANIFEST + 1)
    assert f"'{MANIFEST_NAME}' is larger than {4 << 20} bytes" in refusal(path)
    (path / MANIFEST_NAME).unlink()
    monkeypatch.setattr(reader, "MAX_TOTAL", 10)
    assert "MiB of ACFs" in refusal(path)
    monkeypatch.setattr(reader, "MAX_MEMBERS", 2)
    assert "more than 2 ACFs" in refusal(path)


def test_two_names_of_one_id_are_refused(tmp_path: Path) -> None:
    path = directory(tmp_path / "p", {"a b.acf": b"", f"{IDS[1]}.acf": b"", "a 1.acf": b""})
    assert f"'a 1.acf' and '{IDS[1]}.acf' would both be acf={IDS[1]}" in refusal(path)
    path = directory(tmp_path / "q", {"k.acf": b"1", "K.acf": b"2"})
    assert "would both be acf=k (capitals do not count). Rename one" in refusal(path)


def test_names_that_would_break_a_line_are_refused(tmp_path: Path) -> None:
    assert r"'a\nb.acf' has control characters" in refusal(directory(tmp_path / "p", {"a\nb.acf": b""}))
    assert r"'\udcff.acf' has control characters" in refusal(directory(tmp_path / "q", {"\udcff.acf": b""}))


def test_an_unknown_id_lists_some(tmp_path: Path) -> None:
    opened = open_pack(pack_directory(tmp_path / "p"))
    with pytest.raises(PackError, match=r"no ACF 'zz' among its 3\. There are: b-2, a-1-6590a4, C$"):
        opened.get("zz")


@pytest.mark.parametrize("form", ["zip", "directory"])
def test_a_pack_is_opened_once_until_it_changes(tmp_path: Path, form: str) -> None:
    path = tmp_path / "p"
    pack_zip(path) if form == "zip" else pack_directory(path / "inner")
    first = open_pack(path)
    assert open_pack(path) is first
    assert open_pack(path, name="other") is not first
    if form == "zip":
        pack_zip(path, extra={"pack/README": b"new"})
    else:
        (path / "inner" / "new.txt").write_bytes(b"")
        os.utime(path / "inner", (1, 1))
    assert open_pack(path) is not first


def test_a_file_that_changes_later_is_noticed(tmp_path: Path) -> None:
    path = pack_directory(tmp_path / "p")
    opened = open_pack(path)
    (path / "C.acf").write_bytes(b"THREE")
    with pytest.raises(PackError, match=r"'C\.acf' is no longer what it was"):
        opened.read(opened.get("C"))
    (path / "C.acf").unlink()
    with pytest.raises(PackError, match=r"'C\.acf' cannot be read: No such file"):
        opened.read(opened.get("C"))
    path.rename(tmp_path / "gone")
    with pytest.raises(PackError, match="cannot be read as a pack"):
        opened.read(opened.get("C"))


BASE = SAMPLE.read_bytes()
CENTRAL = BASE.index(b"PK\x01\x02")


@given(at=st.integers(0, len(BASE) - 1) | st.integers(CENTRAL, len(BASE) - 1), value=st.integers(0, 255))
@settings(max_examples=100, deadline=None)
def test_one_wrong_byte_never_changes_an_acf(
    at: int, value: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "one-wrong-byte.zip"
    path.write_bytes(BASE[:at] + bytes([value]) + BASE[at + 1 :])
    try:
        opened = open_pack(path)
    except PackError as error:
        assert str(error).startswith(str(path))
        assert str(error).isprintable()
    else:
        good = open_pack(SAMPLE)
        assert [opened.read(acf) for acf in opened.acfs] == [good.read(acf) for acf in good.acfs]


def test_a_pack_of_10_000_members(tmp_path: Path) -> None:
    path = tmp_path / "many"
    path.mkdir()
    for number in range(10_000):
        (path / f"{number:05}.acf").write_bytes(b"%d" % number)
    opened = open_pack(path)
    assert len(opened.acfs) == 10_000
    assert opened.read(opened.acfs[-1]) == b"9999"
