"""The command end to end: what it takes, what it refuses in one line, what it completes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from command import HELION, QUICK, ROOT, SAMPLE, environment, executable, loose_pack, results, run

from boosterrun import cli

IDS = ["01-sample_1-12d486f9268b", "02-sample_2-185bc435cad8"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory of the test's own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refusal(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    """The one line with which the command refuses ``args``."""
    code = cli.main(args)
    out, err = capsys.readouterr()
    assert (code, out) == (2, ""), err
    assert err.startswith("boosterrun: error: ")
    assert err.count("\n") == 1, err
    assert not list(Path().glob("outputs*")), "nothing may be made before a mistake is told"
    return err


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["trials=3"], ["'trials'", "protocol.trials?"]),
        (["protocol.trails=5"], ["'protocol.trails'", "protocol.trials?"]),
        (["+workload.trails=5"], ["'workload.trails'", "'+workload.trails=5'", "protocol.trials"]),
        (["++protocol.foo=5"], ["'protocol.foo'", "Keys under protocol:", "min_gain"]),
        (["+foo=1"], ["'foo'", "Keys at the top:", "timeouts"]),
        (["protocol.trials=abc"], ["protocol.trials", "'abc'", "Integer"]),
        (["seed=1.5"], ["seed", "'1.5'"]),
        (["pack=smaple"], ["unknown pack 'smaple'", "sample?", "pack=./NAME"]),
        (["pack=./nowhere"], ["nowhere", "No such file"]),
        (["pack.path=./nowhere"], ["nowhere"]),
        (["pack=path"], ["pack.path is not set"]),
        (["workload=ptxs"], ["unknown workload 'ptxs'", "ptxas?"]),
        (["gpu=h20"], ["unknown gpu 'h20'", "h200?"]),
        (["protocol=scren"], ["unknown protocol 'scren'", "screen?"]),
        (["experiment=ptxas_atention"], ["unknown experiment", "ptxas_attention?", "./experiments"]),
        (["acf=02-smaple_2-185bc435cad8"], ["none of the 24 ACFs", f"{IDS[1]}?"]),
        (["acf=zzz"], ["unknown ACF 'zzz'", IDS[0], "(24 in all)"]),
        (["acf=null"], ["acf=none"]),
        (["acf="], ["acf=none"]),
        ([f"acf={IDS[0]},{IDS[1]}"], ["sweep over 2 ACFs", "-m"]),
        (["acf=glob(*)"], ["sweep over 24 ACFs", "-m"]),
        (["-m", "acf=glob(zz*)"], ["matches no acf", IDS[0], "(24 in all)"]),
        (["-m", "acf=glob(*"], ["cannot read the override 'acf=glob(*'", "Quote"]),
        (["-m", "acf=none,glob(*)"], ["glob() cannot stand in a list"]),
        (["-m", "workload=glob(zz*)"], ["matches no workload", "ptxas"]),
        (["-m", "seed=interval(1,2)"], ["has no end"]),
        (["-m", "acf=none", "pack=sample,path"], ["pack.path is not set"]),
        (["workload.shapes.new.key=1"], ["+workload.shapes.new.key=1"]),
        (["seed=${nope}"], ["'nope' not found"]),
        (["workload.ptx=${oc.env:BOOSTERRUN_NOT_SET}"], ["workload.ptx", "BOOSTERRUN_NOT_SET"]),
        (["~workload"], ["workload is not set"]),
        (["~nothing"], ["'nothing' does not exist"]),
        (["hydra.foo=1"], ["'hydra.foo'"]),
        (["hydra/launcher=foo"], ["unknown hydra/launcher 'foo'", "basic"]),
        (["workload.ptx=nowhere.ptx"], ["nowhere.ptx"]),
        (["toolchain.ptxas=/nowhere/ptxas"], ["/nowhere/ptxas"]),
        (["--config-name", "nope"], ["there is no config 'nope'"]),
        (["-cd", "nowhere"], ["--config-dir nowhere"]),
        (["--trials=3"], ["unrecognized arguments: --trials=3"]),
        (["--cfg"], ["--cfg", "expected one argument"]),
        (["--cfg", "job", "-m"], ["--multirun and --cfg cannot be combined"]),
        (["--resolve"], ["--cfg"]),
        (["--experimental-rerun", "x.pickle"], ["not supported"]),
        (["acf=none", "collect"], ["'collect' is neither"]),
        (["colect"], ["unknown verb 'colect'", "collect"]),
        (["collect"], ["DIR"]),
        (["collect", "nowhere"], ["nowhere"]),
    ],
    ids=" ".join,
)
def test_a_mistake_is_told_in_one_line(
    here: Path, capsys: pytest.CaptureFixture[str], args: list[str], words: list[str]
) -> None:
    line = refusal(capsys, *args)
    for word in words:
        assert word in line


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("protocol: {trails: 3}", ["'protocol.trails'", "experiment/mine", "protocol.trials?"]),
        ("trials: 3", ["'trials'", "experiment/mine", "protocol.trials?"]),
        ("workload: {fags: [a]}", ["'workload.fags'", "experiment/mine", "workload.flags?"]),
        ("protocol: {trials: abc}", ["experiment/mine", "protocol.trials", "'abc'"]),
        ("protocol: 3", ["experiment/mine", "ProtocolConfig"]),
        ("[1, 2]", ["experiment/mine"]),
        ("a: [", ["mine.yaml, line 2"]),
        ("seed: 1\nseed: 2", ["mine.yaml, line 2", "duplicate key seed"]),
        ("defaults: {a: b}", ["experiment/mine", "defaults must be a list"]),
        ("defaults: [{override /pack: nope}]", ["unknown pack 'nope'", "sample"]),
        ("defaults: [{override /pak: sample}]", ["'pak'", "experiment/mine", "pack?"]),
        ("defaults: [{override /acf: zzz}]", ["unknown ACF 'zzz'"]),
        ("pack: {path: ./nowhere}", ["nowhere"]),
        ("hydra: {sweeper: {parms: {acf: none}}}", ["'hydra.sweeper.parms'", "experiment/mine"]),
        ('name: "\udcff"', ["mine.yaml is not UTF-8"]),
    ],
)
def test_a_mistake_in_an_experiment_names_the_file(
    here: Path, capsys: pytest.CaptureFixture[str], text: str, words: list[str]
) -> None:
    (here / "experiments").mkdir()
    (here / "experiments" / "mine.yaml").write_bytes(f"{text}\n".encode(errors="surrogateescape"))
    line = refusal(capsys, "experiment=mine")
    for word in words:
        assert word in line


def test_a_mistake_in_a_workload_file_names_it(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = here / "own" / "workload"
    folder.mkdir(parents=True)
    (folder / "a.yaml").write_text("defaults: [/schema/workload/ptxas@_here_, _self_]\nname: a\nptxx: b\n")
    line = refusal(capsys, "-cd", "own", "workload=a")
    assert "'workload.ptxx'" in line
    assert "workload/a" in line
    assert "workload.ptx?" in line
    (folder / "b.yaml").write_text("name: b\nadapter: ptxas\nptx: x\n")
    assert "defaults: [/schema/workload/ptxas@_here_, _self_]" in refusal(capsys, "-cd", "own", "workload=b")


def test_free_dictionaries_take_any_key(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    overrides = ["+workload.shapes.small.any=1", "+workload.options.key=1", "+workload.env.NAME=x"]
    assert cli.main(["--cfg", "job", "workload=simulated", *overrides]) == 0
    config = yaml.safe_load(capsys.readouterr().out)["workload"]
    assert config["shapes"]["small"]["any"] == 1
    assert (config["options"]["key"], config["env"]["NAME"]) == (1, "x")


def test_an_odd_name_is_answered_with_its_id(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loose_pack(here / "odd", ["a b", "x=y", "1e3", "${x}"])
    for name in ("a b", "x=y", "x=y.acf", "1e3", "${x}"):
        line = refusal(capsys, "pack=./odd", f"acf={name}")
        assert f"'{name}'" in line
        assert "Its id is: acf=" in line


def test_a_bug_keeps_its_traceback(tmp_path: Path) -> None:
    imports = "from boosterrun import cli\nfrom boosterrun.sweeps import app\n"
    broken = imports + "app.preflight = lambda cfg: 1 / 0\ncli.main([])\n"
    done = subprocess.run(
        [sys.executable, "-c", broken],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr
    assert "Traceback" in done.stderr


def test_full_error_shows_where_a_mistake_was_found(tmp_path: Path) -> None:
    done = run("trials=3", cwd=tmp_path, HYDRA_FULL_ERROR="1")
    assert done.returncode == 2
    assert "Traceback" in done.stderr
    assert done.stderr.endswith("Did you mean protocol.trials?\n")


def test_a_key_that_a_free_dictionary_lacks_is_added_with_a_plus(tmp_path: Path) -> None:
    done = run("workload.env={A:b}", cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "Did you mean" not in done.stderr
    assert "+workload.env={A:b}" in done.stderr


def test_plain_command_is_the_self_test(tmp_path: Path) -> None:
    done = run(QUICK, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("[1/1] none  REJECTED:no_difference  softmax: ")
    (result,) = results(tmp_path / "outputs" / "softmax")
    assert result["acf"] is None
    assert result["job"]["sweep_candidates"] == 1
    (log,) = (tmp_path / "outputs" / "softmax").glob("*/booster-pack-log.csv")
    assert f"log: {log}\n" in done.stdout
    assert (log.parent / "none" / ".hydra" / "config.yaml").is_file()


@pytest.mark.parametrize("name", [IDS[0], f"{IDS[0]}.acf"])
def test_one_acf_by_its_id_or_its_file(tmp_path: Path, name: str) -> None:
    done = run(f"acf={name}", QUICK, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (result,) = results(tmp_path)
    assert result["acf"]["filename"] == f"{IDS[0]}.acf"
    assert next((tmp_path / "outputs" / "softmax").glob("*/*/result.json")).parent.name == IDS[0]


def test_packs_by_path_become_absolute(tmp_path: Path) -> None:
    shutil.copy(SAMPLE, tmp_path / "x.zip")
    spaces = loose_pack(tmp_path / "dir with 'spaces', ${x}", [HELION])
    work = tmp_path / "work"
    work.mkdir()
    loose_pack(work / "own", [HELION])
    for value, path, acf in (
        ("../x.zip", tmp_path / "work" / ".." / "x.zip", IDS[0]),
        ("./own", work / "own", HELION),
        (str(spaces), spaces, HELION),
    ):
        done = run(f"pack={value}", f"acf={acf}", QUICK, "hydra.sweep.dir=out", cwd=work)
        assert done.returncode == 0, done.stderr
        config = work / "out" / acf / ".hydra" / "config.yaml"
        seen = yaml.safe_load(config.read_text())["pack"]["path"]
        assert seen.replace("\\${", "${") == str(path)
        (result,) = results(work / "out")
        assert Path(result["pack"]["location"]).samefile(path)
        shutil.rmtree(work / "out")


def test_a_pack_of_an_experiment_and_of_its_yaml(tmp_path: Path) -> None:
    loose_pack(tmp_path / "own", [HELION, "b"])
    (tmp_path / "experiments").mkdir()
    text = (
        "defaults: [{override /pack: path}, {override /workload: ptxas/softmax}]\n"
        "pack: {path: ./own, cuda_version: '13.3'}\n"
    )
    (tmp_path / "experiments" / "mine.yaml").write_text(text)
    done = run("experiment=mine", "acf=b", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (result,) = results(tmp_path / "outputs" / "mine")
    assert (result["pack"]["pack_id"], result["pack"]["cuda_version"]) == ("own", "13.3")
    assert result["config"]["pack"]["path"] == str(tmp_path / "own")


def test_flags_may_stand_anywhere(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = []
    for args in (["--cfg", "job", "seed=3"], ["seed=3", "--cfg", "job"], ["seed=3", "-c", "job", "acf=none"]):
        assert cli.main(args) == 0
        shown.append(capsys.readouterr().out)
    assert "seed: 3" in shown[0]
    assert shown[0] == shown[1] == shown[2]


def test_what_the_configuration_is(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--cfg", "job", "--resolve", f"acf={IDS[0]}"]) == 0
    config = yaml.safe_load(capsys.readouterr().out)
    assert config["acf"]["filename"] == f"{IDS[0]}.acf"
    assert config["pack"]["path"] == str(SAMPLE)
    assert "hydra" not in config


def test_info_does_not_swallow_an_override(tmp_path: Path) -> None:
    done = run("--info", "seed=3", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert str(SAMPLE) in done.stdout
    done = run("acf=none", "--info", "searchpath", cwd=tmp_path)
    assert f"pack://{SAMPLE}" in done.stdout


def test_help_lists_verbs_and_options(tmp_path: Path) -> None:
    done = run("--help", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    for word in ("collect", IDS[0], "(24 in all)", "ptxas_attention", "b200", "screen", "--multirun"):
        assert word in done.stdout
    broken = run("--help", "pack=./nowhere", cwd=tmp_path)
    assert (broken.returncode, broken.stderr) == (0, "")


def test_hydra_help_and_version(tmp_path: Path) -> None:
    assert "hydra" in run("--hydra-help", cwd=tmp_path).stdout
    assert run("--version", cwd=tmp_path).stdout.startswith("boosterrun ")


def test_collect_merges_several_runs(tmp_path: Path) -> None:
    for seed in ("1", "2"):
        assert run(QUICK, f"seed={seed}", cwd=tmp_path).returncode == 0
    done = run("collect", "outputs", "--out", "merged", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "merged" / "booster-pack-log.csv").read_text().splitlines()
    assert len(lines) == 3
    next(tmp_path.rglob("result.json")).write_text("{")
    done = run("collect", "outputs", cwd=tmp_path)
    assert done.returncode == 1
    assert "booster-pack-rejects.csv" in done.stdout


def complete(line: str, cwd: Path) -> list[str]:
    """What bash offers for ``line``, by the function that the command itself installs."""
    script = executable(cwd / ".bin")
    commands = (
        'eval "$(boosterrun -sc install=bash)"\n'
        "COMP_POINT=${#COMP_LINE}; words=($COMP_LINE); COMP_CWORD=$(( ${#words[@]} - 1 ))\n"
        'hydra_bash_completion; printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run(
        ["bash", "-c", commands],
        cwd=cwd,
        env=environment(COMP_LINE=line, PATH=f"{script.parent}:{os.environ['PATH']}"),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_bash_completes_acf_names(tmp_path: Path) -> None:
    loose_pack(tmp_path / "own", [HELION, "22-other"])
    assert complete("boosterrun -m acf=02", tmp_path) == [f"acf={IDS[1]}"]
    assert complete("boosterrun pack=./own acf=2", tmp_path) == [f"acf={HELION}", "acf=22-other"]
    assert complete("boosterrun 'acf=glob(*)' -m gpu=h", tmp_path) == ["gpu=h100", "gpu=h200"]
    assert complete("boosterrun protocol.tri", tmp_path) == ["protocol.trials="]
    assert complete("boosterrun pack=./nowhere gpu=b", tmp_path) == ["gpu=b200"]


def test_an_installed_package_has_the_same_configs(tmp_path: Path) -> None:
    """The wheel's layout: conf/ inside the package, the examples in it as group experiment."""
    site = tmp_path / "site"
    shutil.copytree(ROOT / "boosterrun", site / "boosterrun", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "conf", site / "boosterrun" / "conf")
    shutil.copytree(ROOT / "experiments", site / "boosterrun" / "conf" / "experiment")
    done = run("-m", "experiment=ptxas_attention", f"acf={IDS[0]}", cwd=tmp_path, PYTHONPATH=str(site))
    assert done.returncode == 0, done.stderr
    (result,) = results(tmp_path / "outputs" / "ptxas_attention")
    assert result["workload"]["source"].startswith(str(site))


def test_the_shipped_examples_are_short_and_explained() -> None:
    examples = sorted((ROOT / "experiments").glob("*.yaml"))
    assert len(examples) >= 3
    for example in examples:
        lines = example.read_text().splitlines()
        assert len(lines) < 30, example
        assert any(line.startswith("#") and "boosterrun -m experiment=" in line for line in lines), example
