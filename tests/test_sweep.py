"""Sweeps end to end: which jobs, in which folders, and what is left however they end."""

from __future__ import annotations

import csv
import pickle
import re
import shlex
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from command import HELION, QUICK, SAMPLE, environment, loose_pack, results, run, start
from compilers import pack, ptxas, script
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.core.utils import setup_globals
from hydra.types import RunMode
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import DictConfig, OmegaConf

Plugins.instance()

from boosterrun.hydra_ext import search  # noqa: E402
from boosterrun.hydra_ext.arguments import quoted  # noqa: E402
from boosterrun.hydra_ext.jobs import JobConfigs  # noqa: E402
from boosterrun.hydra_ext.launch import new_folder  # noqa: E402
from boosterrun.sweeps import sweep  # noqa: E402 - Hydra's plugin scan must come first

IDS = [acf.id for acf in pack().acfs]
ODD = [HELION, "a b", "x=y", "1e3", "a,b", "${x}", "é", "true"]

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)


def loader(folder: Path = SAMPLE) -> search.ConfigLoaderImpl:
    search.register_sources()
    return search.loader(search.search_path(folder))


def rows(folder: Path) -> list[dict[str, str]]:
    (log,) = folder.rglob("booster-pack-log.csv")
    with log.open(newline="") as file:
        return list(csv.DictReader(file))


def finished(stdout: str) -> list[str]:
    """The ids in the lines about jobs, in order."""
    return re.findall(r"^\[ *\d+/\d+\] (\S+)  ", stdout, re.MULTILINE)


@given(st.lists(st.tuples(st.sampled_from(IDS), texts, texts), min_size=1, max_size=8, unique=True))
@settings(max_examples=200, deadline=None)
def test_folders_are_plain_and_never_shared(jobs: list[tuple[str, str, str]]) -> None:
    as_jobs = [{"acf": acf, "+workload.env.X": x, "pack": y} for acf, x, y in jobs]
    names = sweep.subdirs(as_jobs, [acf for acf, _, _ in jobs])
    assert len({name.casefold() for name in names}) == len(names)
    for (acf, _, _), name in zip(jobs, names, strict=True):
        assert re.fullmatch(r"[A-Za-z0-9._-]+", name)
        assert name.startswith(acf)
        assert len(name) < 255


@given(texts)
@settings(max_examples=300, deadline=None)
def test_quoted_text_is_read_back_as_it_was(text: str) -> None:
    value = OverridesParser.create().parse_override(f"pack.path={quoted(text)}").value()
    config = OmegaConf.create({"path": ""})
    OmegaConf.update(config, "path", value)
    assert config.path == text


def test_expand_drops_equal_jobs_and_keeps_the_last_of_a_key() -> None:
    jobs = sweep.expand(["seed=1,2", f"acf={IDS[0]},{IDS[0]}", "seed=3,4"], loader())
    assert jobs == [{"seed": "3", "acf": IDS[0]}, {"seed": "4", "acf": IDS[0]}]


def test_globs_are_the_files_of_the_pack(tmp_path: Path) -> None:
    def chosen(glob: str, where: Path = SAMPLE) -> list[str]:
        return [job["acf"] for job in sweep.expand([f"acf={glob}"], loader(where))]

    assert chosen("glob(*)") == IDS
    assert chosen("glob([01*,02*])") == IDS[:2]
    assert chosen("glob(*,exclude=*_0-*)") == [name for name in IDS if "_0-" not in name]
    folder = loose_pack(tmp_path / "own", ODD)
    names = chosen("glob(*)", folder)
    assert HELION in names
    (folder / "more.acf").write_bytes((folder / "a b.acf").read_bytes())
    assert set(names) < set(chosen("glob(*)", folder)), "adding a file renames none"


def test_ids_for_files_and_for_jobs_without_an_acf() -> None:
    jobs = [{"acf": f"{IDS[0]}.acf"}, {"acf": "none"}, {"seed": "1"}]
    assert sweep.acf_ids(jobs, loader(), "default") == [IDS[0], "none", "default"]


def test_runs_of_one_microsecond_get_a_folder_each(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        folders = list(pool.map(lambda _: new_folder(tmp_path / "a" / "now"), range(40)))
    assert len(set(folders)) == 40
    assert all(folder.is_dir() for folder in folders)
    assert tmp_path / "a" / "now-2" in folders


def test_sources_survive_the_way_into_another_process(tmp_path: Path) -> None:
    """What launchers do that run jobs elsewhere: a pickled loader composes an ACF's config."""
    folder = loose_pack(tmp_path / "own", [HELION])
    sources = [s for s in loader(folder).get_sources() if s.scheme() in {"pack", "experiments"}]
    (tmp_path / "sources").write_bytes(pickle.dumps(sources))
    code = (
        "import pickle, sys\n"
        "for source in pickle.load(open(sys.argv[1], 'rb')):\n"
        "    for group in source.list(config_path='', results_filter=None):\n"
        "        print(group, source.list(config_path=group, results_filter=None))\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "sources")]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True)
    assert f"acf ['{HELION}']" in done.stdout
    assert "ptxas_attention" in done.stdout


def master(folder: Path, *overrides: str, name: str = "config") -> tuple[search.ConfigLoaderImpl, DictConfig]:
    """What Hydra has at hand when it starts a sweep in ``folder``."""
    sweep.register()
    setup_globals()
    search.register_sources()
    found = search.loader(search.search_path(SAMPLE, config_dir=str(folder)))
    config = found.load_configuration(name, list(overrides), RunMode.MULTIRUN)
    return found, config


def test_exchanged_configs_are_what_hydra_composes(tmp_path: Path) -> None:
    found, config = master(tmp_path, "hydra.sweep.dir=out")
    configs = JobConfigs(found, config)
    for number, acf in enumerate([*IDS[:4], "none", f"{IDS[5]}.acf"]):
        for seed in ("1", "2"):
            job = {"seed": seed, "acf": acf, "+workload.env.X": "y"}
            lines = [f"{key}={value}" for key, value in job.items()]
            got = configs.get(job, lines, f"folder-{number}")
            composed = found.load_sweep_config(config, [*lines, f"hydra.sweep.subdir=folder-{number}"])
            assert OmegaConf.to_yaml(got) == OmegaConf.to_yaml(composed)
            assert OmegaConf.get_type(got, "acf") is OmegaConf.get_type(composed, "acf")
            got.hydra.job.num = 7  # what is given away must not change what comes later


def test_configs_that_depend_on_the_acf_are_composed_each(tmp_path: Path) -> None:
    (tmp_path / "extra").mkdir()
    for seed, name in enumerate(["none", *IDS[:4]]):
        (tmp_path / "extra" / f"{name}.yaml").write_text(f"# @package _global_\nseed: {seed}\n")
    (tmp_path / "own.yaml").write_text("defaults: [config, extra: '${acf}', _self_]\n")
    found, config = master(tmp_path, name="own")
    configs = JobConfigs(found, config)
    assert [configs.get({"acf": acf}, [f"acf={acf}"], acf).seed for acf in IDS[:4]] == [1, 2, 3, 4]


def test_one_job_per_acf_one_line_each_and_one_log(tmp_path: Path) -> None:
    done = run("-m", "acf=glob([01*,02*,03*])", QUICK, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert finished(done.stdout) == IDS[:3]
    (folder,) = (tmp_path / "outputs" / "softmax").iterdir()
    assert sorted(path.name for path in folder.iterdir() if path.is_dir()) == IDS[:3]
    for result in results(folder):
        assert result["job"]["sweep_candidates"] == 3
        assert result["job"]["id"] == result["acf"]["id"]
    log = rows(folder)
    assert [row["acf_filename"] for row in log] == [f"{name}.acf" for name in IDS[:3]]
    assert all(row["decision"] for row in log)
    counts = re.findall(r"^ +(\d+)  (?:KEPT|REJECTED:\w+)$", done.stdout, re.MULTILINE)
    assert sum(map(int, counts)) == 3
    assert done.stdout.endswith(f"log: {folder / 'booster-pack-log.csv'}\n")


def test_every_swept_key_is_in_the_folder(tmp_path: Path) -> None:
    args = ["-m", f"acf={IDS[3]},none", "workload=ptxas/softmax,ptxas/rmsnorm", "seed=1,2"]
    done = run(*args, "hydra.sweep.dir=out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    names = sorted(path.parent.name for path in (tmp_path / "out").rglob("result.json"))
    expected = {
        f"{acf}__workload-ptxas-{kernel}__seed-{seed}"
        for acf in (IDS[3], "none")
        for kernel in ("softmax", "rmsnorm")
        for seed in (1, 2)
    }
    assert set(names) == expected
    assert len(names) == 8
    assert {result["job"]["sweep_candidates"] for result in results(tmp_path / "out")} == {1}


def test_a_pack_with_odd_names_is_swept_whole(tmp_path: Path) -> None:
    loose_pack(tmp_path / "odd dir", ODD)
    done = run("pack=./odd dir", QUICK, "acf=glob(*)", "-m", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert {row["acf_filename"].lstrip("'") for row in rows(tmp_path)} == {f"{name}.acf" for name in ODD}
    assert HELION in finished(done.stdout)


def test_an_experiment_declares_its_sweep(tmp_path: Path) -> None:
    (tmp_path / "experiments").mkdir()
    text = (
        "defaults: [{override /workload: ptxas/softmax}, {override /gpu: h100}]\n"
        "hydra: {sweeper: {params: {acf: 'glob(*,exclude=[0*,1*])', seed: '5,6'}}}\n"
    )
    (tmp_path / "experiments" / "mine.yaml").write_text(text)
    done = run("experiment=mine", "-m", "seed=5", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "outputs" / "mine").iterdir()
    assert [result["job"]["id"] for result in results(folder)] == IDS[19:]
    assert {result["config"]["gpu"]["name"] for result in results(folder)} == {"h100"}
    assert {result["job"]["seed"] for result in results(folder)} == {5}, "the command line comes last"


def test_a_user_experiment_comes_before_the_shipped_one(tmp_path: Path) -> None:
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "simulated.yaml").write_text("seed: 77\n")
    done = run("--cfg", "job", "experiment=simulated", cwd=tmp_path)
    assert "seed: 77" in done.stdout


def test_sweeps_at_once_do_not_mix(tmp_path: Path) -> None:
    running = [start(["-m", f"acf={name}", QUICK], tmp_path) for name in IDS[:3]]
    outputs = [process.communicate(timeout=200)[0] for process in running]
    assert [process.returncode for process in running] == [0, 0, 0]
    logs = {output.rpartition("log: ")[2].strip() for output in outputs}
    assert len(logs) == 3
    for name, output in zip(IDS[:3], outputs, strict=True):
        with Path(output.rpartition("log: ")[2].strip()).open(newline="") as file:
            assert [row["acf_filename"] for row in csv.DictReader(file)] == [f"{name}.acf"]


def hanging(folder: Path, acf: int) -> Path:
    """A ptxas that answers all but one ACF, for which it sleeps and ignores all that can be ignored."""
    sha, mark = pack().acfs[acf].sha256, shlex.quote(str(folder / "hanging"))
    return script(
        folder / "bin" / "ptxas",
        f'trap "" INT TERM; if [[ "$*" == *{sha}* ]]; then touch {mark}; while :; do sleep 1; done; fi\n'
        'exec "$REAL" "$@"',
    )


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)]
)
def test_a_stopped_sweep_still_merges(tmp_path: Path, number: signal.Signals, code: int) -> None:
    compiler = hanging(tmp_path, 2)
    process = start(["-m", "acf=glob(0*)", QUICK, f"toolchain.ptxas={compiler}"], tmp_path)
    deadline = time.monotonic() + 60
    while not (tmp_path / "hanging").exists() and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.05)
    assert (tmp_path / "hanging").exists()
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == code, stderr
    assert "Traceback" not in stderr
    assert "stopped after 2 of 9 jobs" in stderr
    assert finished(stdout) == IDS[:2]
    log = rows(tmp_path)
    assert [row["acf_filename"] for row in log[:2]] == [f"{name}.acf" for name in IDS[:2]]
    assert all(row["decision"] for row in log[:2])
    assert not any(row["decision"] for row in log[2:])
    assert str(tmp_path / "outputs") in stdout
    left = [p.pid for p in psutil.process_iter(["cmdline"]) if str(compiler) in (p.info["cmdline"] or ())]
    assert left == []


def test_jobs_that_cannot_be_judged_end_with_1_and_stop_the_sweep(tmp_path: Path) -> None:
    """A baseline that does not compile is no candidate's fault: three in a row are enough."""
    compiler = script(
        tmp_path / "bin" / "ptxas",
        'case "$*" in *--apply-controls*|*--version*|*--help*) exec "$REAL" "$@";; esac\n'
        "echo 'ptxas fatal   : out of luck' >&2; exit 255",
    )
    done = run("-m", "acf=glob(0*)", QUICK, f"toolchain.ptxas={compiler}", cwd=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "out of luck" in done.stderr
    assert "3 jobs in a row could not be judged" in done.stderr
    assert "Traceback" not in done.stderr
    assert re.findall(r"^\[\d/9\] (\S+)  UNDECIDED", done.stdout, re.MULTILINE) == IDS[:3]
    assert [row["decision"] for row in rows(tmp_path)] == ["", "", ""]
    few = run(
        "-m", "acf=glob(01*)", QUICK, f"toolchain.ptxas={compiler}", "hydra.sweep.dir=few", cwd=tmp_path
    )
    assert few.returncode == 1
    assert "     1  undecided" in few.stdout


def test_a_missing_compiler_is_told_before_anything_is_made(tmp_path: Path) -> None:
    done = run("-m", "acf=glob(*)", "toolchain.ptxas=/nowhere/ptxas", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "outputs").exists()


def test_a_pack_for_another_toolkit_is_told_before_anything_is_made(tmp_path: Path) -> None:
    loose_pack(tmp_path / "own", [HELION])
    done = run("-m", "acf=glob(*)", "pack=./own", "pack.cuda_version='13.4'", QUICK, cwd=tmp_path)
    assert done.returncode == 2
    assert "13.4" in done.stderr
    assert ptxas().cuda_version in done.stderr
    assert not (tmp_path / "outputs").exists()


def test_one_sweep_takes_one_pack(tmp_path: Path) -> None:
    loose_pack(tmp_path / "own", [HELION])
    done = run("-m", "acf=none", "pack=sample,path", "pack.path=own", "workload=ptxas", cwd=tmp_path)
    assert done.returncode == 0, "both mean the same folder, as pack.path replaces either's"
    done = run("-m", "acf=none", f"pack.path=own,{SAMPLE}", cwd=tmp_path)
    assert done.returncode == 2
    assert "2 packs" in done.stderr


def test_an_unwritable_folder_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "outputs").write_text("in the way")
    done = run(QUICK, cwd=tmp_path)
    assert done.returncode == 1
    assert re.fullmatch(r"boosterrun: error: cannot make outputs/softmax/.*\n", done.stderr)
