"""What a pack's name means: the store, a pin, the toolkit; and what is said when it is not there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import releases
import yaml
from server import GitHub, Published

from boosterrun.config import SHIPPED, PackConfig
from boosterrun.errors import PackError, UsageError
from boosterrun.packs.fetch import Wish, copy, source
from boosterrun.packs.find import OWN_CONFIG, by_name, library, locate, pinned
from boosterrun.packs.library import Library, Stored

OLD, NEW, NEWEST = "booster-packs-2026.05.27", "booster-packs-2026.06.01", "booster-packs-2026.08.18"
CONF = Path(__file__).parent.parent / "conf/pack"


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> list[Stored]:
    """Helion for CUDA 13.3 twice, and once for 13.4."""
    root = tmp_path_factory.mktemp("stored")
    found = []
    for tag, cuda in ((NEWEST, "13.4.0"), (OLD, "13.3.0"), (NEW, "13.3.1")):
        folder = releases.folder(root / tag, releases.retagged(tag, cuda))
        found.append(copy(Wish("helion"), source({}, store=str(root / "store")), folder).stored)
    return found


def find(stored: list[Stored], *, env: dict[str, str] | None = None, **pack: Any) -> Path:
    root = str(stored[0].path.parents[2])
    config = {"path": "store:helion", "fetch": "manual", "store": root, **pack}
    return locate(config, None, {**os.environ, **(env or {})}, may_fetch=True)


def test_the_newest_for_the_toolkit(stored: list[Stored]) -> None:
    assert find(stored) == stored[2].path, "ptxas here is 13.3"


def test_the_newest_without_a_toolkit(stored: list[Stored]) -> None:
    assert find(stored, env={"BOOSTERRUN_PTXAS": "/nothing"}) == stored[0].path


def test_a_pin(stored: list[Stored]) -> None:
    assert find(stored, tag=NEWEST) == stored[0].path
    sha256 = stored[1].entry.artifact_sha256
    assert find(stored, sha256=sha256) == stored[1].path
    assert find(stored, tag=OLD, sha256=sha256) == stored[1].path
    with pytest.raises(PackError, match=f"of {NEW} with the SHA-256 {sha256[:12]}"):
        find(stored, tag=NEW, sha256=sha256)
    assert pinned(stored[1]) == f"pack=helion pack.tag={OLD} pack.sha256={sha256}"


def test_what_is_not_there_is_told_with_the_command(stored: list[Stored], tmp_path: Path) -> None:
    with pytest.raises(PackError) as caught:
        find(stored, store=str(tmp_path))
    assert f"pack 'helion' for CUDA 13.3 is not in {tmp_path}/NVIDIA+CompileIQ. Fetch it: " in str(
        caught.value
    )
    assert f"pack fetch helion --cuda 13.3 --store {tmp_path}, or give pack.fetch=auto" in str(caught.value)
    with pytest.raises(
        PackError, match=r"is not in .* \(there is .*05\.27 for CUDA 13\.3\.0, .*08\.18 for CUDA 13\.4\.0\)"
    ):
        find(stored, tag="booster-packs-2020.01.01")
    with pytest.raises(UsageError, match="is no tag"):
        find(stored, tag="latest")
    with pytest.raises(UsageError, match="is no name"):
        find(stored, path="store:../x")


def test_damage_is_told(stored: list[Stored], tmp_path: Path) -> None:
    folder = releases.folder(tmp_path / "release", releases.retagged(OLD))
    path = copy(Wish("helion"), source({}, store=str(tmp_path)), folder).stored.path
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(PackError, match="but the catalog says"):
        find(stored, store=str(tmp_path))


@pytest.fixture
def hub() -> Iterator[GitHub]:
    published = [
        Published(OLD, releases.retagged(OLD)),
        Published(NEWEST, releases.retagged(NEWEST, "13.4.0")),
    ]
    with GitHub(published) as running:
        yield running


def test_fetching_by_itself(
    stored: list[Stored], hub: GitHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = {"path": "store:helion", "fetch": "auto", "store": str(tmp_path), "base_url": hub.url}
    with pytest.raises(PackError, match="Fetch it"):
        locate(config, None, os.environ, may_fetch=False)
    assert not hub.requests
    path = locate(config, None, os.environ, may_fetch=True)
    assert path.parent.name == OLD, "the newest for this toolkit"
    assert f"fetched: pack=helion pack.tag={OLD} pack.sha256=" in capsys.readouterr().err
    hub.requests.clear()
    assert locate(config, None, os.environ, may_fetch=True) == path
    assert not hub.requests, "stored: no request"


def test_a_path_with_a_pin(tmp_path: Path) -> None:
    path = releases.SAMPLE
    sha256 = "5fa7d58c9fcade2ec3bd7560aed75da4ac27021974d0b0de196d71f057814fdd"
    assert locate({"path": str(path), "sha256": sha256}, None, {}, may_fetch=False) == path
    assert locate({"path": "x.zip"}, None, {}, may_fetch=False) == Path.cwd() / "x.zip"
    with pytest.raises(
        PackError, match=r"has the SHA-256 5fa7d58c9fca\.\.\., but 000000000000\.\.\. is pinned"
    ):
        locate({"path": str(path), "sha256": "0" * 64}, None, {}, may_fetch=False)
    with pytest.raises(UsageError, match="is a folder"):
        locate({"path": str(tmp_path), "sha256": sha256}, None, {}, may_fetch=False)
    with pytest.raises(PackError, match="cannot be read"):
        locate({"path": str(tmp_path / "no"), "sha256": sha256}, None, {}, may_fetch=False)


def test_names_given_to_a_verb(stored: list[Stored], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = Library(stored[0].path.parents[2])
    assert by_name("sample", here) == SHIPPED / "packs/booster-pack-sample.zip"
    assert by_name("helion", here) == stored[0].path, "the newest"
    assert by_name("booster-pack-helion.zip", here) == stored[0].path
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    assert by_name("mine", here) == tmp_path / "mine"
    assert by_name("./sample", here) == tmp_path / "sample"
    with pytest.raises(PackError, match=r"there is no pack 'triton'.*Fetch it: boosterrun pack fetch triton"):
        by_name("triton", here)


def test_where_the_store_is(tmp_path: Path) -> None:
    assert library({"BOOSTERRUN_PACK_STORE": "/a"}, None, None).root == Path("/a")
    assert library({"BOOSTERRUN_PACK_STORE": "/a"}, "/b", "x/y").folder == Path("/b/x+y")
    assert library({}, None, None).root.parts[-2:] == ("boosterrun", "packs")


def test_the_store_ignores_what_is_not_its_own(stored: list[Stored], tmp_path: Path) -> None:
    assert Library(tmp_path / "absent").stored() == []
    (tmp_path / "NVIDIA+CompileIQ" / "junk").mkdir(parents=True)
    (tmp_path / "NVIDIA+CompileIQ" / OLD).mkdir()
    assert Library(tmp_path).stored() == []
    (tmp_path / "file").write_text("")
    with pytest.raises(PackError, match="Not a directory"):
        Library(tmp_path / "file").stored()


@pytest.mark.parametrize("name", sorted(OWN_CONFIG))
def test_the_shipped_configs(name: str) -> None:
    assert yaml.safe_load((CONF / f"{name}.yaml").read_text()) == {"name": name, "path": f"store:{name}"}


def test_every_key_has_a_type() -> None:
    keys = {"tag", "sha256", "fetch", "store", "repository", "base_url"}
    assert keys <= set(PackConfig.__dataclass_fields__)
