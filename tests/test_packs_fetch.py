"""Fetching packs from a server that behaves, and misbehaves, like the Releases API of GitHub."""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import releases
from server import FILES_HOST, GitHub, Published

from boosterrun.errors import BoosterrunError, PackError, RunError, UsageError
from boosterrun.packs.catalog import CATALOG_NAME, SUMS_NAME
from boosterrun.packs.fetch import Fetched, Source, Wish, copy, fetch, remote, source
from boosterrun.packs.http import Patience

QUICK = Patience(
    attempts=4, backoff=0.01, longest_wait=1.5, connect=2, read=0.4, slow_rate=2000, slow_seconds=0.3
)
OLD, NEW = "booster-packs-2026.05.27", "booster-packs-2026.08.18"
ZIP = "booster-pack-helion.zip"


@pytest.fixture
def hub() -> Iterator[GitHub]:
    published = [
        Published("v1.0.2", {"wheel": b"x"}),
        Published("search-spaces-2026.12.01", {"x": b"x"}),
        Published(OLD, releases.retagged(OLD)),
        Published(NEW, releases.retagged(NEW, "13.4.0")),
        Published("booster-packs-2027.01.01", {}, draft=True),
        Published("booster-packs-2027.01.02", {}, prerelease=True),
        Published("booster-packs-2026.13.01", {}),
    ]
    with GitHub(published) as running:
        yield running


def place(hub: GitHub, root: Path, token: str | None = None, patience: Patience = QUICK) -> Source:
    env = {"GITHUB_TOKEN": token} if token else {}
    return source(env, store=str(root / "store"), base_url=hub.url, patience=patience)


def get(hub: GitHub, root: Path, **wish: str) -> Fetched:
    return fetch(Wish("helion", **wish), place(hub, root))


def asset(hub: GitHub, name: str = ZIP, tag: str = NEW) -> str:
    """The path at the files' host."""
    number = next(n for n, (each, file) in hub.assets().items() if (each.tag, file) == (tag, name))
    return f"/{number}?"


def refusal(hub: GitHub, root: Path, kind: type[BoosterrunError] = PackError, **wish: str) -> str:
    with pytest.raises(kind) as caught:
        get(hub, root, **wish)
    message = str(caught.value)
    assert message.isprintable()
    assert caught.value.advice
    assert not list((root / "store").rglob("booster-pack-*.zip"))
    return message


def test_the_newest_release(hub: GitHub, tmp_path: Path) -> None:
    fetched = get(hub, tmp_path)
    assert fetched.new
    stored = fetched.stored
    assert (stored.tag, stored.entry.name, stored.entry.cuda_version) == (NEW, "helion", "13.4.0")
    assert stored.path == tmp_path / "store/NVIDIA+CompileIQ" / NEW / ZIP
    assert stored.path.read_bytes() == hub.releases[3].files[ZIP]
    assert len(stored.verify().acfs) == 24
    assert sorted(path.name for path in stored.path.parent.iterdir()) == [
        ".fetched.json",
        SUMS_NAME,
        CATALOG_NAME,
        ZIP,
    ]
    assert not list((tmp_path / "store/NVIDIA+CompileIQ/.partial").iterdir())


def test_a_tag_a_cuda_version_and_other_names(hub: GitHub, tmp_path: Path) -> None:
    assert get(hub, tmp_path, tag=OLD).stored.tag == OLD
    assert get(hub, tmp_path, cuda_version="13.3").stored.tag == OLD
    assert get(hub, tmp_path, cuda_version="13.4").stored.tag == NEW
    for name in ("helion-pack", "booster-pack-helion", ZIP):
        assert not fetch(Wish(name), place(hub, tmp_path)).new
    with pytest.raises(
        PackError, match=r"pack 'helion' for CUDA 13\.2\. There is: 13\.4\.0 in .*, 13\.3\.0 in"
    ):
        get(hub, tmp_path, cuda_version="13.2")
    with pytest.raises(PackError, match=r"'helion' is for CUDA 13\.3\.0, not 13\.4"):
        get(hub, tmp_path / "other", cuda_version="13.4", tag=OLD)
    with pytest.raises(PackError, match=r"has no pack 'triton'\. It has helion"):
        fetch(Wish("triton"), place(hub, tmp_path))


def test_revisions_are_newer(hub: GitHub, tmp_path: Path) -> None:
    for suffix in ("-rev2", "-rev10", "-rev1"):
        hub.releases.insert(0, Published(NEW + suffix, releases.retagged(NEW + suffix)))
    assert [each.tag for each in remote(place(hub, tmp_path))] == [
        OLD,
        NEW,
        f"{NEW}-rev1",
        f"{NEW}-rev2",
        f"{NEW}-rev10",
    ]
    assert get(hub, tmp_path).stored.tag == f"{NEW}-rev10"


def test_all_pages_are_read(hub: GitHub, tmp_path: Path) -> None:
    hub.releases.sort(key=lambda each: each.tag)
    hub.releases += [Published(f"v2.{number}", {}) for number in range(30)]
    hub.releases.append(Published("booster-packs-2026.09.01", releases.retagged("booster-packs-2026.09.01")))
    hub.page_size = 4
    assert get(hub, tmp_path).stored.tag == "booster-packs-2026.09.01"
    assert len(hub.seen(path="per_page=")) == 10


def test_a_stored_pack_of_a_given_tag_costs_no_request(hub: GitHub, tmp_path: Path) -> None:
    pin = get(hub, tmp_path, tag=OLD).stored.entry.artifact_sha256
    hub.requests.clear()
    again = get(hub, tmp_path, tag=OLD, sha256=pin)
    assert not again.new
    assert not hub.requests


def test_an_unchanged_list_is_not_sent_again(hub: GitHub, tmp_path: Path) -> None:
    get(hub, tmp_path)
    hub.requests.clear()
    assert not get(hub, tmp_path).new
    assert [each.status for each in hub.seen(path="per_page=")] == [304]
    assert not hub.seen(path=asset(hub))
    for page in (tmp_path / "store/NVIDIA+CompileIQ/.pages").iterdir():
        page.write_text('{"etag": 3}')
    assert not get(hub, tmp_path).new, "a damaged cache does no harm"


def test_the_token_goes_to_the_api_only(hub: GitHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text(f"machine 127.0.0.1 login a password b\nmachine {FILES_HOST} login a password b\n")
    monkeypatch.setenv("NETRC", str(netrc))
    hub.token = "github_pat_123"
    fetch(Wish("helion"), place(hub, tmp_path, hub.token))
    api, files = hub.seen("127.0.0.1"), hub.seen(FILES_HOST)
    assert len(api) == 4
    assert len(files) == 3
    assert {each.headers["Authorization"] for each in api} == {"Bearer github_pat_123"}
    assert not [each for each in files if "Authorization" in each.headers]
    assert "HTTP 401" in refusal(hub, tmp_path / "other", RunError)


def test_a_wrong_token_is_told(hub: GitHub, tmp_path: Path) -> None:
    hub.token = "right"
    with pytest.raises(RunError, match=r"HTTP 401 Unauthorized\. Check GITHUB_TOKEN"):
        fetch(Wish("helion"), place(hub, tmp_path, "wrong"))


@pytest.mark.parametrize("fault", ["500", "502", "503", "408", "429:0", "429 date:0", "limit:0", "drop"])
@pytest.mark.parametrize("where", ["per_page=", "/assets/", "?signature"])
def test_passing_failures_are_tried_again(hub: GitHub, tmp_path: Path, fault: str, where: str) -> None:
    hub.faults[where] = [fault] * 3
    assert get(hub, tmp_path).new


@pytest.mark.parametrize("fault", ["500", "drop"])
def test_lasting_failures_are_told(hub: GitHub, tmp_path: Path, fault: str) -> None:
    hub.faults["/assets/"] = [fault] * 4
    message = refusal(hub, tmp_path, RunError)
    assert message.startswith(f"{CATALOG_NAME} of {NEW}: 127.0.0.1:")
    assert "(after 4 attempts). Check the network and the proxy, or copy" in message
    assert get(hub, tmp_path).new


@pytest.mark.parametrize("fault", ["limit:1800", "429:1800", "429 date:1800"])
def test_a_rate_limit_tells_when_it_ends(hub: GitHub, tmp_path: Path, fault: str) -> None:
    hub.faults["per_page="] = [fault]
    begun = time.monotonic()
    message = refusal(hub, tmp_path, RunError)
    assert time.monotonic() - begun < 1
    assert "allows no more requests (HTTP 4" in message
    assert "try again in 30 min, at " in message
    assert message.endswith("UTC. Wait, or set GITHUB_TOKEN to be allowed more")
    assert len(hub.requests) == 1


def test_a_short_wait_is_waited_for(hub: GitHub, tmp_path: Path) -> None:
    hub.faults["per_page="] = ["429:1"]
    begun = time.monotonic()
    assert get(hub, tmp_path).new
    assert time.monotonic() - begun >= 1


def test_a_refusal_is_not_tried_again(hub: GitHub, tmp_path: Path) -> None:
    hub.faults["per_page="] = ["403"]
    assert "HTTP 403 Forbidden" in refusal(hub, tmp_path, RunError)
    assert len(hub.requests) == 1


@pytest.mark.parametrize("fault", ["truncate", "truncate without etag", "stall", "trickle"])
def test_a_broken_download_is_resumed(hub: GitHub, tmp_path: Path, fault: str) -> None:
    hub.faults[asset(hub)] = [fault, fault]
    stored = get(hub, tmp_path).stored
    assert len(stored.verify().acfs) == 24
    seen = hub.seen(FILES_HOST, asset(hub))
    assert [each.status for each in seen] == [200, 206, 206]
    start = int(seen[1].headers["Range"].removeprefix("bytes=").removesuffix("-"))
    half = stored.entry.artifact_size_bytes // 2
    assert half <= start <= half + (1000 if fault == "trickle" else 0)
    assert ("If-Range" in seen[1].headers) == ("without" not in fault)


def test_another_process_resumes(hub: GitHub, tmp_path: Path) -> None:
    hub.faults[asset(hub)] = ["truncate", "500", "500", "500"]
    assert "HTTP 500" in refusal(hub, tmp_path, RunError)
    hub.requests.clear()
    assert get(hub, tmp_path).new
    assert [each.status for each in hub.seen(FILES_HOST, asset(hub))] == [206]


@pytest.mark.parametrize("fault", ["no range", None])
def test_a_beginning_that_is_of_no_use(hub: GitHub, tmp_path: Path, fault: str | None) -> None:
    """Of another file, too long, or with a server that cannot resume: it is downloaded from the start."""
    sha256 = json.loads(hub.releases[3].files[CATALOG_NAME])["packs"][0]["artifact_sha256"]
    partial = tmp_path / "store/NVIDIA+CompileIQ/.partial" / f"{sha256}.zip"
    partial.parent.mkdir(parents=True)
    for size in (1000, len(hub.releases[3].files[ZIP]), 1 << 20):
        partial.write_bytes(bytes(size))
        if fault:
            hub.faults[asset(hub)] = [fault]
        stored = get(hub, tmp_path).stored
        assert stored.verify()
        stored.path.unlink()
    assert hub.seen(FILES_HOST, asset(hub))


def test_a_file_that_changes_meanwhile_is_not_mixed(hub: GitHub, tmp_path: Path) -> None:
    hub.faults[asset(hub)] = ["truncate", "500", "500", "500"]
    refusal(hub, tmp_path, RunError)
    hub.releases[3].files[ZIP] = hub.releases[3].files[ZIP][:-1] + b"x"
    assert f"{ZIP} of {NEW}: has another SHA-256 than the catalog says" in refusal(hub, tmp_path)
    assert [each.status for each in hub.seen(FILES_HOST, asset(hub))][4] == 200, "not resumed"


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("wrong bytes", "has another SHA-256 than the catalog says"),
        ("short", "bytes, but the catalog says"),
        ("huge", "is larger than the"),
        ("huge chunked", "is larger than the"),
    ],
)
def test_a_wrong_body(hub: GitHub, tmp_path: Path, fault: str, reason: str) -> None:
    hub.faults[asset(hub)] = [fault] * 4
    assert reason in refusal(hub, tmp_path)
    assert not list((tmp_path / "store/NVIDIA+CompileIQ/.partial").iterdir())
    if "huge" in fault:
        (seen,) = hub.seen(FILES_HOST, asset(hub))
        deadline = time.monotonic() + 5
        while (sent := int(seen.headers.get("sent", 0))) == 0 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert sent < 64 << 20, "cut off, of 2 GiB"
    hub.faults.clear()
    assert get(hub, tmp_path).new


@pytest.mark.parametrize("name", [CATALOG_NAME, SUMS_NAME])
def test_small_files_have_a_limit_too(hub: GitHub, tmp_path: Path, name: str) -> None:
    hub.faults[asset(hub, name)] = ["huge"]
    assert f"{name} of {NEW}: is larger than" in refusal(hub, tmp_path)


def test_what_does_not_agree(hub: GitHub, tmp_path: Path) -> None:
    good = hub.releases[3].files
    catalog = json.loads(good[CATALOG_NAME])
    entry = catalog["packs"][0]

    def changed(**values: object) -> dict[str, bytes]:
        document = {**catalog, "packs": [{**entry, **values}]}
        return releases.summed({**good, CATALOG_NAME: json.dumps(document).encode()})

    cases = {
        "SHA256SUMS.txt does not list": {**good, SUMS_NAME: b""},
        f"'{CATALOG_NAME}' has the SHA-256": {**good, CATALOG_NAME: good[CATALOG_NAME] + b"\n"},
        "not valid JSON": releases.summed({**good, CATALOG_NAME: b"{"}),
        f"'{ZIP}' has the SHA-256 000": changed(artifact_sha256="0" * 64),
        "bytes, but the catalog says 5": changed(artifact_size_bytes=5),
        "the SHA-256 of the manifest is": changed(manifest_sha256="0" * 64),
        "the place of the manifest is": changed(manifest_path="x.json"),
        "the pack_id is helion-pack, but": changed(pack_id="helion-other"),
        "the CUDA version is 13.4": changed(cuda_version="13.3.0"),
        "is not in the catalog": changed(acfs=entry["acfs"][1:], acf_count=23),
        "is not in the pack": changed(
            acfs=[*entry["acfs"], {**entry["acfs"][0], "filename": "x.acf"}], acf_count=25
        ),
        "has another size or SHA-256 in": changed(
            acfs=[{**entry["acfs"][0], "size_bytes": 5}, *entry["acfs"][1:]]
        ),
        "acf_count is 3, but 24": changed(acf_count=3),
        "its catalog is of release": releases.retagged(OLD),
        f"has no {SUMS_NAME}": {name: data for name, data in good.items() if name != SUMS_NAME},
        f"has no {CATALOG_NAME}": {SUMS_NAME: b""},
        f"has no {ZIP}": {name: data for name, data in good.items() if name != ZIP},
    }
    for number, (reason, files) in enumerate(cases.items()):
        hub.releases[3].files = files
        assert reason in refusal(hub, tmp_path / str(number))


def test_a_pin_holds(hub: GitHub, tmp_path: Path) -> None:
    right = hashlib.sha256(hub.releases[2].files[ZIP]).hexdigest()
    assert "but 000000000000... is pinned" in refusal(hub, tmp_path, tag=OLD, sha256="0" * 64)
    assert get(hub, tmp_path, tag=OLD, sha256=right).new
    with pytest.raises(PackError, match="is pinned"):
        get(hub, tmp_path, tag=OLD, sha256="0" * 64)


def test_a_release_that_changes_is_refused(hub: GitHub, tmp_path: Path) -> None:
    get(hub, tmp_path)
    hub.releases[3].files = releases.retagged(NEW, "13.4.1")
    with pytest.raises(PackError, match=rf"release {NEW} of NVIDIA/CompileIQ has changed since .* remove "):
        get(hub, tmp_path)


def test_a_damaged_store_is_mended(hub: GitHub, tmp_path: Path) -> None:
    path = get(hub, tmp_path).stored.path
    good = path.read_bytes()
    path.write_bytes(good[:-1])
    assert get(hub, tmp_path, tag=NEW).new
    assert path.read_bytes() == good
    (path.parent / CATALOG_NAME).write_text("{")
    with pytest.raises(PackError, match=r"not valid JSON.* Remove .* and fetch"):
        get(hub, tmp_path, tag=NEW)


def test_another_place(hub: GitHub, tmp_path: Path) -> None:
    hub.repository = "tools/mirror"
    assert "has no repository NVIDIA/CompileIQ" in refusal(hub, tmp_path)
    env = {
        "BOOSTERRUN_PACK_STORE": str(tmp_path / "elsewhere"),
        "BOOSTERRUN_PACK_REPOSITORY": "tools/mirror",
        "BOOSTERRUN_PACK_BASE_URL": hub.url + "/",
    }
    stored = fetch(Wish("helion"), source(env, patience=QUICK)).stored
    assert stored.path.parent == tmp_path / "elsewhere/tools+mirror" / NEW


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("nonsense", "does not answer like the API of GitHub"),
        ("redirect:file%///etc/passwd", "redirects to file"),
        ("redirect:/api/v3/repos/NVIDIA/CompileIQ/releases?per_page=1", "redirects without an end"),
    ],
)
def test_strange_answers(hub: GitHub, tmp_path: Path, fault: str, reason: str) -> None:
    hub.faults["per_page="] = [fault] * 10
    assert reason in refusal(hub, tmp_path, RunError)


def test_a_proxy_is_used(hub: GitHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{hub.api.server_port}")
    monkeypatch.setenv("no_proxy", FILES_HOST)
    where = source({}, store=str(tmp_path), base_url="http://packs.invalid/api/v3", patience=QUICK)
    assert fetch(Wish("helion"), where).new
    assert len(hub.seen("packs.invalid")) == 4
    assert len(hub.seen(FILES_HOST)) == 3


def test_certificates_are_those_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "company.pem"))
    where = source({}, store=str(tmp_path), base_url="https://127.0.0.1:9", patience=QUICK)
    with pytest.raises(RunError, match=r"cannot ask 127\.0\.0\.1:9: .*company\.pem"):
        fetch(Wish("helion"), where)


def test_no_trusted_connection(hub: GitHub, tmp_path: Path) -> None:
    where = source({}, store=str(tmp_path), base_url=hub.url.replace("http:", "https:"), patience=QUICK)
    with pytest.raises(RunError, match=r"no trusted TLS connection: .* Set REQUESTS_CA_BUNDLE"):
        fetch(Wish("helion"), where)
    assert not hub.requests


def test_no_server_at_all(hub: GitHub, tmp_path: Path) -> None:
    where = source({}, store=str(tmp_path), base_url="http://127.0.0.1:9", patience=QUICK)
    with pytest.raises(RunError, match=r"127\.0\.0\.1:9 cannot be reached: Connection refused \(after 4 att"):
        fetch(Wish("helion"), where)


def test_a_missing_tag(hub: GitHub, tmp_path: Path) -> None:
    tag = "booster-packs-2020.01.01"
    assert f"has no release {tag}. See boosterrun pack list --remote" in refusal(hub, tmp_path, tag=tag)
    tag = "booster-packs-2027.01.02"
    assert "draft or a prerelease" in refusal(hub, tmp_path, tag=tag)
    hub.releases[:] = hub.releases[:2]
    assert "has no release called booster-packs-*" in refusal(hub, tmp_path)


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "../x"},
        {"name": ""},
        {"tag": "v1"},
        {"tag": "booster-packs-2026.05.27/../.."},
        {"sha256": "abc"},
        {"cuda_version": "13"},
    ],
)
def test_wishes_that_make_no_sense(tmp_path: Path, wrong: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        fetch(Wish(**{"name": "helion", **wrong}), source({}, store=str(tmp_path)))


@pytest.mark.parametrize(
    ("env", "arguments"),
    [
        ({}, {"base_url": "ftp://x"}),
        ({}, {"base_url": "https://user:pw@x"}),
        ({}, {"base_url": "https://x:y"}),
        ({}, {"base_url": "https://"}),
        ({}, {"repository": "x"}),
        ({}, {"repository": "x/.."}),
        ({"GITHUB_TOKEN": "a\nb"}, {}),
        ({"GITHUB_TOKEN": "a"}, {"base_url": "http://example.com"}),
    ],
)
def test_sources_that_make_no_sense(env: dict[str, str], arguments: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        source(env, **arguments)


def test_a_copy_on_disk(tmp_path: Path) -> None:
    release = releases.folder(tmp_path / "usb")
    where = source({}, store=str(tmp_path / "store"), base_url="http://127.0.0.1:9", patience=QUICK)
    fetched = copy(Wish("sample"), where, release)
    assert fetched.new
    assert fetched.stored.tag == releases.TAG
    assert not copy(Wish("sample"), where, release).new
    assert not fetch(Wish("sample", tag=releases.TAG), where).new, "no request"
    with pytest.raises(
        PackError, match=r"is release booster-packs-2026\.11\.30, not booster-packs-2026\.05\.27"
    ):
        copy(Wish("nvcc-sample", tag=OLD), where, release)
    with pytest.raises(PackError, match="is pinned"):
        copy(Wish("nvcc-sample", sha256="0" * 64), where, release)
    (release / "booster-pack-nvcc-sample.zip").write_bytes(b"PK")
    with pytest.raises(PackError, match="has 2 bytes, but the catalog says 258514"):
        copy(Wish("nvcc-sample"), where, release)
    with pytest.raises(UsageError, match="is no folder"):
        copy(Wish("sample"), where, tmp_path / "absent")
    (tmp_path / "empty").mkdir()
    with pytest.raises(PackError, match=r"catalog\.json' cannot be read"):
        copy(Wish("sample"), where, tmp_path / "empty")


_FETCH = """
import sys
from boosterrun.packs.fetch import Wish, fetch, source
fetched = fetch(Wish("helion"), source({}, store=sys.argv[1], base_url=sys.argv[2]))
print(fetched.new, fetched.stored.path)
"""


def test_several_processes_at_once_leave_one_good_copy(hub: GitHub, tmp_path: Path) -> None:
    hub.faults[asset(hub)] = ["truncate"]
    command = [sys.executable, "-W", "error", "-c", _FETCH, str(tmp_path), hub.url]
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)
    ]
    said = [process.communicate(timeout=60) for process in running]
    assert [process.returncode for process in running] == [0, 0, 0], said
    paths = {out.split()[1] for out, _ in said}
    assert sorted(out.split()[0] for out, _ in said) == ["False", "False", "True"]
    assert len(paths) == 1
    assert Path(paths.pop()).read_bytes() == hub.releases[3].files[ZIP]
    assert len(hub.seen(FILES_HOST, asset(hub))) == 2, "downloaded once, in two parts"


BODIES = ["truncate", "truncate without etag", "wrong bytes", "short", "huge", "no range"]
STATUSES = ["500", "503", "404", "403", "429:0", "limit:0", "drop", "nonsense", "limit:9999"]


@pytest.mark.parametrize("seed", range(4))
def test_whatever_goes_wrong_the_store_has_a_good_copy_or_none(
    hub: GitHub, tmp_path: Path, seed: int
) -> None:
    luck = random.Random(seed)
    hurry = Patience(attempts=3, backoff=0.0, longest_wait=1.5, connect=2, read=2)
    outcomes = []
    for number in range(25):
        root = tmp_path / str(number // 3)  # what an earlier one left is there for the next
        for where, kinds in (
            ("per_page=", STATUSES),
            ("/assets/", STATUSES),
            ("?sig", STATUSES + 2 * BODIES),
        ):
            hub.faults[where] = [luck.choice(kinds) for _ in range(luck.choice([0, 0, 1, 2, 4]))]
        try:
            stored = fetch(Wish("helion"), place(hub, root, patience=hurry)).stored
            outcomes.append("good")
            assert stored.path.read_bytes() == hub.releases[3].files[ZIP]
        except BoosterrunError as error:
            outcomes.append("told")
            assert str(error).isprintable()
        for path in root.rglob("booster-pack-*.zip"):
            assert path.read_bytes() == hub.releases[3].files[ZIP]
    assert set(outcomes) == {"good", "told"}


def test_a_bar_on_a_terminal_only(
    hub: GitHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    get(hub, tmp_path / "pipe")
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    get(hub, tmp_path / "terminal")
    shown = capsys.readouterr().err
    assert shown.endswith(f"{ZIP} [{30 * '#'}] 0.07 of 0.07 MB\n")
    assert shown.count("\n") == 1


def test_a_store_that_cannot_be_written(hub: GitHub, tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file")
    with pytest.raises(RunError, match=r"cannot write to .*: Not a directory\. Free some space, or give"):
        get(hub, tmp_path)


def test_a_killed_fetch_leaves_no_lock(hub: GitHub, tmp_path: Path) -> None:
    hub.faults[asset(hub)] = ["stall"]
    process = subprocess.Popen(
        [sys.executable, "-c", _FETCH, str(tmp_path / "store"), hub.url], env=os.environ
    )
    deadline = time.monotonic() + 20
    while not hub.seen(FILES_HOST, asset(hub)) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.kill()
    process.wait()
    assert get(hub, tmp_path).new
