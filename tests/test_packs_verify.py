"""Verification lists everything that is wrong, with a pack and with a release as a whole."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import releases

from boosterrun.packs.catalog import CATALOG_NAME, SUMS_NAME
from boosterrun.packs.manifest import MANIFEST_NAME
from boosterrun.packs.verify import Findings, verify

SAMPLE, NVCC = "booster-pack-sample.zip", "booster-pack-nvcc-sample.zip"


def problems(findings: Findings) -> list[str]:
    found = [str(problem) for problem in findings.problems]
    assert all(text.isprintable() for text in found)
    return found


def unpacked(root: Path) -> Path:
    with zipfile.ZipFile(releases.SAMPLE) as file:
        file.extractall(root)
    return root / "booster-pack-sample"


def edited(path: Path, change: Callable[[dict[str, object]], None]) -> Path:
    manifest = json.loads((path / MANIFEST_NAME).read_text())
    change(manifest)
    (path / MANIFEST_NAME).write_text(json.dumps(manifest))
    return path


def test_the_real_release_is_good(tmp_path: Path) -> None:
    findings = verify(releases.folder(tmp_path / "release"))
    assert problems(findings) == []
    assert findings.warnings == []
    assert sorted(pack.pack_id for pack in findings.packs) == ["nvcc-sample-pack", "sample-pack"]
    assert [len(pack.acfs) for pack in findings.packs] == [6, 24]


def test_the_shipped_pack_is_good(tmp_path: Path) -> None:
    for path in (releases.SAMPLE, unpacked(tmp_path)):
        findings = verify(path)
        assert problems(findings) == findings.warnings == []


def test_every_finding_of_a_pack(tmp_path: Path) -> None:
    path = unpacked(tmp_path)
    names = sorted(each.name for each in path.glob("*.acf"))
    (path / names[0]).unlink()
    (path / names[1]).write_bytes(b"short")
    data = bytearray((path / names[2]).read_bytes())
    data[100] ^= 1
    (path / names[2]).write_bytes(data)
    (path / "new.acf").write_bytes(b"x")
    (path / "other.acf").write_bytes(b"x")
    found = problems(verify(path))
    assert len(found) == 5
    for text in (
        f"'{names[0]}' cannot be read: No such file",
        f"'{names[1]}' has another size than the manifest says",
        f"'{names[2]}' has another SHA-256 than the manifest says",
        "'new.acf' is an ACF that the manifest does not list",
        "'other.acf' is an ACF that the manifest does not list",
    ):
        assert [text in each for each in found].count(True) == 1


def test_every_finding_of_a_zip(tmp_path: Path) -> None:
    path = tmp_path / "bad.zip"
    with zipfile.ZipFile(releases.SAMPLE) as old, zipfile.ZipFile(path, "w") as new:
        for member in old.namelist()[:-2]:
            new.writestr(member, old.read(member))
        new.writestr("../evil.acf", b"x")
        new.writestr("/etc/evil.acf", b"x")
        new.writestr("booster-pack-sample/extra.acf", b"x")
    found = problems(verify(path))
    assert [part in " ".join(found) for part in ("elsewhere", "absolute", "extra.acf")] == [True] * 3
    assert ["is not in the archive" in each for each in found].count(True) == 2
    assert len(found) == 5


def test_every_finding_of_a_manifest(tmp_path: Path) -> None:
    def spoil(manifest: dict[str, object]) -> None:
        manifest["cuda_version"] = 13.3
        del manifest["pack_id"]
        manifest["controls_stage"] = "all"

    found = problems(verify(edited(unpacked(tmp_path), spoil)))
    assert len(found) == 3
    assert ["$.cuda_version" in each for each in found].count(True) == 1


def test_warnings_are_no_problems(tmp_path: Path) -> None:
    def thin(manifest: dict[str, object]) -> None:
        for key in ("created_by", "caveats", "notice"):
            del manifest[key]
        manifest["controls_stage"] = "nvcc"

    findings = verify(edited(unpacked(tmp_path), thin))
    assert problems(findings) == []
    said = " ".join(findings.warnings)
    for part in (
        "has no created_by",
        "has no caveats",
        "has no notice",
        "is for ptxas, but controls_stage is nvcc",
    ):
        assert part in said
    loose = tmp_path / "loose"
    loose.mkdir()
    for name in ("a.acf", "b.acf"):
        (loose / name).write_bytes(b"the same")
    said = " ".join(verify(loose).warnings)
    assert "has no manifest" in said
    assert "'b.acf' is the same as 'a.acf'" in said


def with_catalog(files: dict[str, bytes], change: Callable[[dict[str, object]], None]) -> dict[str, bytes]:
    catalog = json.loads(files[CATALOG_NAME])
    change(catalog)
    return releases.summed({**files, CATALOG_NAME: json.dumps(catalog).encode()})


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda files: files.pop(SAMPLE), [f"'{SAMPLE}' is in {SUMS_NAME}, but not here"]),
        (
            lambda files: files.pop(SUMS_NAME),
            ["cannot be read", "does not list", "not in SHA", "not in SHA", "not in SHA"],
        ),
        (lambda files: files.pop(CATALOG_NAME), [f"'{CATALOG_NAME}' cannot be read"]),
        (lambda files: files.update({"x.txt": b""}), [f"'x.txt' is not in {SUMS_NAME}"]),
        (
            lambda files: files.update({SAMPLE: files[SAMPLE][:-1]}),
            [
                "has the SHA-256",
                "bytes, but the catalog",
                "another SHA-256 than the catalog",
                "not a zip, or cut off",
            ],
        ),
        (
            lambda files: files.update({SAMPLE: files[NVCC], NVCC: files[SAMPLE]}),
            ["has the SHA-256"] * 2,
        ),
        (lambda files: files.update({SUMS_NAME: files[SUMS_NAME] * 2}), ["appears twice"] * 3),
        (
            lambda files: files.update({SUMS_NAME: b"abc  x\n" + b"0" * 64 + b"  ../x\n" + files[SUMS_NAME]}),
            ["line 1: is not a SHA", "line 2: is not a SHA"],
        ),
        (lambda files: files.update({SUMS_NAME: b"\xff"}), ["is not UTF-8", "does not list"]),
        (
            lambda files: files.update(
                with_catalog(files, lambda catalog: catalog.update(packs=catalog["packs"][:1]))
            ),
            [f"'{NVCC}' is not in {CATALOG_NAME}"],
        ),
        (
            lambda files: files.update(
                with_catalog(files, lambda catalog: catalog.update(packs=catalog["packs"] * 2))
            ),
            ["two packs have the pack_id", "two packs have the artifact_name"],
        ),
        (
            lambda files: files.update(
                with_catalog(files, lambda catalog: catalog.update(release_tag="other"))
            ),
            ["the release_tag is booster-packs-2026.11.30, but the catalog says other"] * 2,
        ),
        (
            lambda files: files.update(with_catalog(files, lambda catalog: catalog.update(schema_version=2))),
            ["only 1 is known"],
        ),
        (
            lambda files: files.update(
                with_catalog(files, lambda c: c["packs"][0].update(artifact_name="a/b.zip"))
            ),
            ["artifact_name"],
        ),
    ],
)
def test_findings_of_a_release(
    tmp_path: Path, change: Callable[[dict[str, bytes]], object], expected: list[str]
) -> None:
    files = releases.real()
    change(files)
    found = problems(verify(releases.folder(tmp_path / "release", files)))
    joined = "\n".join(found)
    for text in set(expected):
        assert joined.count(text) >= expected.count(text), joined


def test_links_and_odd_files_in_a_release(tmp_path: Path) -> None:
    path = releases.folder(tmp_path / "release")
    (path / NVCC).unlink()
    (path / NVCC).symlink_to("/etc/hostname")
    assert any(f"'{NVCC}' is a link that leads outside" in text for text in problems(verify(path)))


def test_what_is_nothing(tmp_path: Path) -> None:
    for path in (tmp_path / "absent", tmp_path, Path("a\0b"), Path("/dev/null")):
        assert len(problems(verify(path))) == 1
