"""``boosterrun pack``, as a user gives it."""

from __future__ import annotations

import json
import shutil
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

import command
import pytest
import releases
from server import GitHub, Published
from test_gpu import FAKE

from boosterrun import cli
from boosterrun.packs import open_pack
from boosterrun.packs.manifest import MANIFEST_NAME
from boosterrun.packs.show import describe

OLD, NEW = "booster-packs-2026.05.27", "booster-packs-2026.08.18"


@pytest.fixture
def hub() -> Iterator[GitHub]:
    published = [
        Published(
            OLD,
            releases.retagged(OLD, helion="booster-pack-sample.zip", debug="booster-pack-nvcc-sample.zip"),
        ),
        Published(NEW, releases.retagged(NEW, "13.4.0")),
    ]
    with GitHub(published) as running:
        yield running


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory and a store of the test's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BOOSTERRUN_PACK_STORE", str(tmp_path / "store"))
    monkeypatch.delenv("GITHUB_TOKEN", raising=False)
    return tmp_path


def said(capsys: pytest.CaptureFixture[str], *args: str, code: int = 0) -> str:
    assert cli.main(["pack", *args]) == code
    out, err = capsys.readouterr()
    if code == 2:
        assert err.startswith("boosterrun: error: ")
        assert err.count("\n") == 1
        return err
    return out


def test_from_nothing_to_a_sweep(hub: GitHub, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Fetch for the toolkit at hand, pin what was printed, sweep with the real ptxas, without the server."""
    assert "Fetch it: boosterrun pack fetch helion" in said(capsys, "show", "helion", code=2)
    out = said(capsys, "fetch", "helion", "--cuda", "13.3", "--base-url", hub.url)
    assert f"helion of {OLD}, for CUDA 13.3.0: fetched and verified" in out
    pin = out.splitlines()[-1].partition(": ")[2].split()
    assert pin[:2] == ["pack=helion", f"pack.tag={OLD}"]
    assert said(capsys, "show", "helion").startswith("Sample Booster Pack (helion-pack)\n")
    assert "good; 1 packs, 24 ACFs" in said(capsys, "verify", "helion")
    hub.requests.clear()
    for number, overrides in enumerate((["pack=helion"], pin)):
        ran = command.run(
            "-m",
            "acf=glob([01*,02*])",
            *overrides,
            command.QUICK,
            f"hydra.sweep.dir={here}/{number}",
            cwd=here,
            BOOSTERRUN_PACK_STORE=str(here / "store"),
            BOOSTERRUN_PACK_BASE_URL=hub.url,
        )
        assert ran.returncode == 0, ran.stderr
        result = json.loads(next((here / str(number)).rglob("result.json")).read_text())
        assert result["pack"]["release_tag"] == OLD
        assert result["config"]["pack"]["path"] == str(
            here / f"store/NVIDIA+CompileIQ/{OLD}/booster-pack-helion.zip"
        )
    assert not hub.requests


def test_fetching_during_a_run(hub: GitHub, here: Path) -> None:
    overrides = [f"acf={releases_acf()}", "pack=stored", "pack.name=helion", command.QUICK]
    ran = command.run(*overrides, cwd=here, BOOSTERRUN_PACK_BASE_URL=hub.url)
    assert ran.returncode == 2
    assert "or give pack.fetch=auto" in ran.stderr
    assert not hub.requests
    ran = command.run(*overrides, "pack.fetch=auto", cwd=here, BOOSTERRUN_PACK_BASE_URL=hub.url)
    assert ran.returncode == 0, ran.stderr
    assert f"fetched: pack=helion pack.tag={OLD}" in ran.stderr


def releases_acf() -> str:
    return open_pack(releases.SAMPLE).acfs[1].id


def test_looking_around_asks_no_server(hub: GitHub, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listed = said(capsys, "list")
    assert listed.splitlines()[1].split()[:4] == ["sample", "shipped", "13.3.0", "ALL"]
    args = ["pack=helion", "pack.fetch=auto", f"pack.base_url={hub.url}"]
    assert cli.main(["--help", *args]) == 0
    assert not hub.requests


def test_lists(hub: GitHub, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    remote = said(capsys, "list", "--remote", "--base-url", hub.url)
    assert [line.split() for line in remote.splitlines()] == [
        ["RELEASE", "PACKS"],
        [NEW, "helion"],
        [OLD, "debug,", "helion"],
    ]
    for args in (["helion"], ["debug", "--tag", OLD]):
        said(capsys, "fetch", *args, "--base-url", hub.url)
    rows = [line.split()[:3] for line in said(capsys, "list").splitlines()]
    assert rows[1:] == [
        ["sample", "shipped", "13.3.0"],
        ["helion", NEW, "13.4.0"],
        ["debug", OLD, "13.3.0"],
    ]


def test_air_gapped(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = releases.folder(here / "usb")
    assert f"{folder}: good; 2 packs, 30 ACFs" in said(capsys, "verify", str(folder))
    out = said(capsys, "fetch", "nvcc-sample", "--from", str(folder))
    assert "pack=stored pack.name=nvcc-sample pack.tag=booster-packs-2026.11.30" in out
    assert "in the store already" in said(capsys, "fetch", "nvcc-sample", "--from", str(folder))
    assert "good; 1 packs, 6 ACFs" in said(
        capsys, "verify", str(here / f"store/NVIDIA+CompileIQ/{releases.TAG}")
    )


def test_findings_make_the_exit_code(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = releases.folder(here / "usb")
    (folder / "booster-pack-sample.zip").write_bytes(b"PK")
    out = said(capsys, "verify", "./usb", code=1)
    assert out.count("problem: ") == 4
    assert out.endswith(f"{folder}: 4 problems; 1 packs, 6 ACFs\n")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([], "arguments are required: ACTION. See boosterrun pack --help"),
        (["get"], "invalid choice: 'get'"),
        (["fetch"], "arguments are required: NAME"),
        (["fetch", "helion", "--tag", "latest"], "'latest' is no tag"),
        (["fetch", "helion", "--sha256", "x"], "'x' is no SHA-256"),
        (["fetch", "helion", "--cuda", "13"], "'13' is no CUDA version"),
        (["fetch", "helion", "--attempts", "0"], "argument --attempts: must be 1 or more"),
        (["fetch", "helion", "--repository", "x"], "'x' is no repository"),
        (["fetch", "helion", "--base-url", "x"], "'x' is no address"),
        (["fetch", "helion", "--from", "nowhere"], "nowhere is no folder"),
        (["verify", "nothing"], "there is no pack 'nothing'"),
        (["make", "x.zip"], "arguments are required: SOURCE"),
        (["make", "x.zip", "y.acf"], "y.acf: cannot be read"),
        (["list", "--wrong"], "unrecognized arguments: --wrong"),
    ],
)
def test_mistakes(here: Path, capsys: pytest.CaptureFixture[str], args: list[str], words: str) -> None:
    assert words in said(capsys, *args, code=2)


def test_making_one(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    acf = open_pack(releases.SAMPLE).acfs[0]
    (here / "best.acf").write_bytes(open_pack(releases.SAMPLE).read(acf))
    args = [
        "make",
        "booster-pack-best.zip",
        "best.acf",
        "--cuda-version",
        "13.3",
        "--gpu",
        "H200",
        "--name",
        "Best",
    ]
    assert said(capsys, *args) == "booster-pack-best.zip: 1 ACFs\n"
    assert "is there already" in said(capsys, *args, code=2)
    shown = said(capsys, "show", "./booster-pack-best.zip")
    for line in (
        "Best (best)",
        "  CUDA        13.3",
        "  GPUs        H200",
        "  notice      © NVIDIA Corporation, 2026.",
    ):
        assert line in shown.splitlines()


def pack_for(path: Path, **changes: object) -> Path:
    with zipfile.ZipFile(releases.SAMPLE) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name.endswith(MANIFEST_NAME):
                data = json.dumps({**json.loads(data), **changes}).encode()
            new.writestr(name, data)
    return path


@pytest.fixture(scope="module")
def h200(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment in which the driver's library says that there is an H200."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler: the fake NVML cannot be built")
    folder = tmp_path_factory.mktemp("nvml")
    (folder / "nvml.c").write_text(FAKE)
    (folder / "settings").write_text("")
    target = folder / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-w", "-shared", "-fPIC", "-o", target, folder / "nvml.c"], check=True)
    return {"LD_LIBRARY_PATH": str(folder), "FAKE_NVML": str(folder / "settings")}


def test_another_gpu_is_a_warning(here: Path, h200: dict[str, str]) -> None:
    path = pack_for(here / "x.zip", supported_gpus=["B200"])
    words = "warning: pack 'Sample Booster Pack' is for B200, and here is NVIDIA H200: expect fewer gains"
    assert words in command.run("pack", "show", str(path), cwd=here, **h200).stderr
    assert "warning" not in command.run("pack", "show", "sample", cwd=here, **h200).stderr
    ran = command.run("-m", "acf=glob([01*,02*])", f"pack={path}", command.QUICK, cwd=here, **h200)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr.count(words) == 1, "once a sweep"
    found = [json.loads(each.read_text()) for each in here.rglob("result.json")]
    assert [result["pack"]["gpu_supported"] for result in found] == [False, False]
    ran = command.run(command.QUICK, f"pack={path}", cwd=here, **h200)
    assert words not in ran.stderr, "the self-test uses no ACF"


def test_another_toolkit_is_a_warning_when_shown_and_refused_when_run(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = pack_for(here / "x.zip", cuda_version="13.5.0")
    assert cli.main(["pack", "show", str(path)]) == 0
    assert "the pack is for CUDA 13.5, but" in capsys.readouterr().err
    assert cli.main([f"acf={releases_acf()}", f"pack={path}", command.QUICK]) == 2
    assert "the pack is for CUDA 13.5, but" in capsys.readouterr().err


def test_a_pack_cannot_steer_the_terminal(tmp_path: Path) -> None:
    path = pack_for(
        tmp_path / "x.zip", description="a\x1b[2Jb\r\nsecond", notice="n\u202e", caveats=["", "c\x07"]
    )
    text = describe(open_pack(path))
    assert "a\\x1b[2Jb" in text
    assert "second" in text
    assert all(line.isprintable() for line in text.splitlines())


def test_a_pack_of_loose_files_is_shown(tmp_path: Path) -> None:
    (tmp_path / "a.acf").write_bytes(b"x")
    text = describe(open_pack(tmp_path))
    assert "loose files without a manifest" in text
    assert "unknown: give pack.cuda_version" in text
