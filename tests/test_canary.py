"""The canary, with real ACFs and the real ptxas: what it lets pass, and what it must find."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from compilers import KERNELS, controls, pack, ptxas, script
from omegaconf import DictConfig, OmegaConf
from triton_jobs import CASE, config

from boosterrun.adapters import base
from boosterrun.config import (
    CanaryConfig,
    Config,
    PtxasWorkload,
    PythonWorkload,
    Stage,
    ToolchainConfig,
    TritonWorkload,
)
from boosterrun.errors import CanaryError, RunError
from boosterrun.sweeps import canary


def composed(chosen: Config) -> DictConfig:
    """As Hydra hands it over."""
    made: DictConfig = OmegaConf.structured(chosen)
    return made


def before(folder: Path, *configs: Config) -> dict[str, Any]:
    """Run the canary before a sweep in ``folder``; returns the only record."""
    canary.before_sweep([composed(one) for one in configs], folder)
    return only(folder)


def only(folder: Path) -> dict[str, Any]:
    [record] = json.loads((folder / canary.FILE).read_text())["canaries"].values()
    return dict(record)


def static(program: str | None = None) -> Config:
    chosen = config()
    chosen.workload = PtxasWorkload(name="s", ptx=str(KERNELS / "rmsnorm.ptx"), shapes={"d": {}})
    chosen.toolchain = ToolchainConfig(ptxas=program)
    return chosen


@pytest.mark.parametrize("number", range(1, 25))
def test_every_damaged_acf_is_refused(number: int, tmp_path: Path) -> None:
    bad = tmp_path / "bad.acf"
    sound = controls(tmp_path, number)[1].read_bytes()
    bad.write_bytes(canary.damaged(sound))
    assert len(canary.damaged(sound)) == len(sound)
    argv = [str(ptxas().path), "-arch", "sm_90a", "--apply-controls", str(bad), str(KERNELS / "rmsnorm.ptx")]
    done = subprocess.run([*argv, "-o", str(tmp_path / "x")], capture_output=True, text=True, check=False)
    assert done.returncode == 255
    assert "Invalid compiler controls file" in done.stderr


@pytest.mark.parametrize(
    "chosen", [config(shapes={"one": {"block": 1024}}), static()], ids=["triton", "ptxas"]
)
def test_passes_where_acfs_arrive(chosen: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = before(tmp_path, chosen)
    assert record["state"] == "passed"
    assert [check["name"] for check in record["checks"]] == ["poison", "same_path"]
    assert all("Invalid compiler controls file" in check["words"] for check in record["checks"])
    assert record["ptxas"] == ptxas().version
    assert record["acf"] == pack().acfs[0].id
    assert capsys.readouterr().out.startswith(f"canary: {chosen.workload.name}: passed (")
    assert [path.name for path in tmp_path.iterdir()] == [canary.FILE]


def test_runs_once_for_each_workload_toolchain_and_environment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = tmp_path / "calls"
    mine = script(
        tmp_path / "bin" / "ptxas", f'case "$*" in *--apply*) echo >> {calls};; esac\nexec "$REAL" "$@"'
    )
    chosen = static(str(mine))
    later = static(str(mine))
    later.protocol.trials, later.seed, later.workload.shapes = 99, 7, {"d": {}, "e": {"opt_level": 1}}
    before(tmp_path / "sweep", chosen, later)
    before(tmp_path / "sweep", chosen)
    assert len(calls.read_text().splitlines()) == 3
    assert capsys.readouterr().out.count("canary: ") == 1

    toolchain = base.load("ptxas").toolchain(chosen, os.environ)
    assert canary.recorded(chosen, toolchain, tmp_path / "sweep") == only(tmp_path / "sweep")
    other = base.load("ptxas").toolchain(static(), os.environ)
    assert canary.recorded(static(), other, tmp_path / "sweep")["state"] == "not_run"
    assert canary.recorded(chosen, toolchain, tmp_path / "elsewhere")["state"] == "not_run"
    monkeypatch.setenv("TRITON_PTXAS_PATH", "/x")
    assert canary.recorded(chosen, toolchain, tmp_path / "sweep")["state"] == "not_run"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    monkeypatch.delenv("TRITON_PTXAS_PATH")
    assert canary.recorded(chosen, toolchain, tmp_path / "sweep")["state"] == "passed"


@pytest.mark.parametrize(
    ("options", "check", "words"),
    [
        ({"trap": "ptx_options"}, "poison", r"compiled without any.*PTXAS_OPTIONS, or remove ptx_options="),
        (
            {"trap": "site_cache", "place": "{}"},
            "same_path",
            r"stale cache; find what overrides TRITON_CACHE_DIR",
        ),
        ({"trap": "no_code"}, "poison", r"left no code behind.*TRITON_CACHE_DIR"),
        (
            {"trap": "ptx_options_on_double", "kernels": ["double"]},
            "poison",
            r"compiled without any.*PTXAS_OPTIONS",
        ),
    ],
)
def test_finds_what_takes_the_acf_away(
    options: dict[str, Any], check: str, words: str, tmp_path: Path
) -> None:
    if "place" in options:
        options = {**options, "place": str(tmp_path / "site")}
    chosen = config(shapes={"one": {"block": 1024}}, **options)
    with pytest.raises(CanaryError, match=words) as raised:
        before(tmp_path / "sweep", chosen)
    assert raised.value.exit_code == 3
    record = only(tmp_path / "sweep")
    assert record["state"] == "failed"
    failed = [one["name"] for one in record["checks"] if not one["passed"]]
    assert check in failed
    with pytest.raises(CanaryError):  # a second start of the sweep asks again
        before(tmp_path / "again", chosen)


@pytest.mark.parametrize(
    ("body", "check", "words"),
    [
        (
            'a=(); skip=; for w in "$@"; do [ "$skip" ] && { skip=; continue; }; '
            '[ "$w" = --apply-controls ] && { skip=1; continue; }; a+=("$w"); done; exec "$REAL" "${a[@]}"',
            "poison",
            r"does not reach ptxas; find what overrides --apply-controls",
        ),
        (
            'c=$(dirname "$0")/$(printf %s "$*" | sha256sum | cut -c1-64); o="${@: -1}"\n'
            '[ -f "$c" ] || "$REAL" "$@" 2> "$c.log" || { cat "$c.log" >&2; exit 255; }\n'
            '[ -f "$c" ] || cp "$o" "$c"\n'
            'cp "$c" "$o"; cat "$c.log" >&2',
            "same_path",
            r"stale cache; find what overrides a cache around ptxas",
        ),
    ],
    ids=["drops the option", "caches by command line"],
)
def test_finds_a_ptxas_that_lies(body: str, check: str, words: str, tmp_path: Path) -> None:
    mine = script(
        tmp_path / "bin" / "ptxas", f'case "$1" in --version|--help) exec "$REAL" "$@";; esac\n{body}'
    )
    with pytest.raises(CanaryError, match=words):
        before(tmp_path / "sweep", static(str(mine)))
    failed = [one["name"] for one in only(tmp_path / "sweep")["checks"] if not one["passed"]]
    assert check in failed


def test_what_is_not_required_warns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chosen = config(shapes={"one": {"block": 1024}}, trap="ptx_options")
    chosen.canary = CanaryConfig(required=False)
    record = before(tmp_path, chosen)
    assert (record["state"], record["required"]) == ("failed", False)
    assert "WARNING: canary of compile_only" in capsys.readouterr().err
    toolchain = base.load("triton").toolchain(chosen, os.environ)
    assert canary.recorded(chosen, toolchain, tmp_path)["required"] is False


def test_says_what_the_shell_would_have_set(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PTXAS_OPTIONS", "--no-such-option")
    record = before(tmp_path, config(shapes={"one": {"block": 1024}}))
    assert (record["state"], record["ignored"]) == ("passed", ["PTXAS_OPTIONS"])
    assert "ignored from the shell: PTXAS_OPTIONS" in capsys.readouterr().err


def test_a_broken_workload_is_no_canary(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"not for its damaged ACF .*no such kernel") as raised:
        before(tmp_path, config(trap="broken"))
    assert raised.value.exit_code == 1


def test_a_first_acf_that_breaks_the_compiler_is_passed_over(tmp_path: Path) -> None:
    """The sound ACF must build to say anything; here the first one of the pack makes this ptxas crash."""
    copy = controls(tmp_path / "acf", 1)[1]
    body = f'for w in "$@"; do [ -f "$w" ] && cmp -s "$w" {copy} && kill -SEGV $$; done; exec "$REAL" "$@"'
    mine = script(tmp_path / "bin" / "ptxas", body)
    record = before(tmp_path / "sweep", static(str(mine)))
    assert record["state"] == "passed"
    assert record["acf"] == pack().acfs[1].id


def python(env: dict[str, str]) -> Config:
    chosen = config(shapes={"one": {"block": 1024}})
    chosen.workload = PythonWorkload(
        name="plain",
        case=f"{CASE}:make",
        shapes={"one": {"block": 1024}},
        env={"TRITON_PTXAS_PATH": str(ptxas().path), **env},
    )
    return chosen


def test_plain_python_cannot_tell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = before(tmp_path, python({}))
    assert (record["state"], record["checks"]) == ("skipped", [])
    assert "skipped: adapter python cannot tell" in capsys.readouterr().out


def test_plain_python_that_names_the_acf_is_tested(tmp_path: Path) -> None:
    inject = {"PTXAS_OPTIONS": "--apply-controls={acf}"}
    kept = {**inject, "TRITON_CACHE_DIR": str(tmp_path / "cache")}
    with pytest.raises(CanaryError, match=r"find what overrides the cache that the case uses"):
        before(tmp_path / "kept", python(kept))
    again = {**inject, "TRITON_ALWAYS_COMPILE": "1", "TRITON_CACHE_DIR": str(tmp_path / "cache")}
    assert before(tmp_path / "again", python(again))["state"] == "passed"


SLOW = """
import json, os, time
from boosterrun import Case
import numpy as np

def note(what):
    with open(os.environ["EVENTS"], "a") as log:
        log.write(json.dumps([what, os.path.basename(os.environ["ACF"]), time.monotonic()]) + "\\n")

note("started")

def make(*, seed):
    note("build")
    data = open(os.environ["ACF"], "rb").read()
    time.sleep(2.0)
    note("built")
    if data == open(os.environ["ACF_BAD"], "rb").read():
        raise RuntimeError("ptxas fatal   : Invalid compiler controls file")
    return Case(run=lambda: np.ones(1), reference=lambda: np.ones(1))
"""


@pytest.mark.parametrize("kind", [TritonWorkload, PythonWorkload])
def test_what_builds_the_damaged_acf_starts_beside_the_sound_build(
    kind: type[PythonWorkload], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And does not build before the content has been replaced; of plain Python nothing is known."""
    monkeypatch.setenv("EVENTS", str(tmp_path / "events"))
    (tmp_path / "case.py").write_text(SLOW)
    (tmp_path / "bad").write_bytes(canary.damaged(controls(tmp_path, 1)[1].read_bytes()))
    env = {"ACF": "{acf}", "ACF_BAD": str(tmp_path / "bad")}
    chosen = config()
    chosen.workload = kind(name="slow", case=f"{tmp_path / 'case.py'}:make", shapes={"one": {}}, env=env)
    assert before(tmp_path / "sweep", chosen)["state"] == "passed"
    events = [json.loads(line) for line in (tmp_path / "events").read_text().splitlines()]
    same = [what for what, path, _ in events if path == "same-path.acf"]
    beside = ["build", "started", "started"]
    assert sorted(same[:3]) == (beside if kind is TritonWorkload else ["build", "built", "started"])
    assert [what for what in same if what != "started"] == ["build", "built", "build", "built"]


def test_a_pack_for_other_compilers_needs_no_canary(tmp_path: Path) -> None:
    folder = tmp_path / "pack"
    folder.mkdir()
    shutil.copy(controls(tmp_path, 1)[1], folder / "one.acf")
    chosen = static()
    chosen.pack.path, chosen.pack.stage, chosen.pack.cuda_version = str(folder), Stage.both, "13.3"
    record = before(tmp_path / "sweep", chosen)
    assert (record["state"], record["acf"]) == ("skipped", None)
    assert "no ACF of this pack is for adapter ptxas" in record["why"]


def test_a_damaged_file_is_told(tmp_path: Path) -> None:
    (tmp_path / canary.FILE).write_text("{")
    with pytest.raises(RunError, match=r"cannot read .*canary\.json.*Remove it"):
        before(tmp_path, static())


# ---- the command ----


def command(folder: Path, *words: str, trap: str = "") -> subprocess.CompletedProcess[str]:
    """The real command in ``folder`` on the compile-only case."""
    workloads = folder / "conf" / "workload"
    workloads.mkdir(parents=True)
    (workloads / "mine.yaml").write_text(
        "defaults: [/schema/workload/triton@_here_, _self_]\n"
        f"name: mine\ncase: {CASE}:make\nshapes: {{one: {{block: 1024}}}}\noptions: {{trap: '{trap}'}}\n"
    )
    call = "import sys; from boosterrun.cli import main; sys.exit(main(sys.argv[1:]))"
    argv = [sys.executable, "-c", call, *words, "workload=mine", "--config-dir", "conf"]
    root = str(Path(__file__).parents[1])
    env = {**os.environ, "PYTHONPATH": root}
    return subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, timeout=200, check=False)


def test_the_verb(tmp_path: Path) -> None:
    done = command(tmp_path, "canary")
    assert done.returncode == 0, done.stderr
    assert "canary: mine: passed (" in done.stdout
    assert not (tmp_path / "outputs").exists()


def test_a_sweep_stops_before_its_first_job(tmp_path: Path) -> None:
    done = command(tmp_path, "-m", "acf=glob(0*)", "protocol=quick", trap="ptx_options")
    assert done.returncode == 3, done.stderr
    assert done.stderr.startswith("boosterrun: error: canary of mine: ")
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.rglob("result.json"))


def test_a_sweep_has_one_canary(tmp_path: Path) -> None:
    done = command(tmp_path, "-m", "acf=glob(01*)", "protocol=quick", "protocol.trials=2,3")
    assert done.returncode in (0, 1), done.stderr
    assert done.stdout.count("canary: mine: passed (") == 1
    [found] = tmp_path.rglob(canary.FILE)
    assert only(found.parent)["state"] == "passed"


def test_what_was_built_ahead_is_there_when_its_job_comes(tmp_path: Path) -> None:
    done = command(
        tmp_path,
        "-m",
        "acf=glob([01*,02*,03*])",
        "protocol.min_pairs=2",
        "protocol.max_pairs=30",
        "sweep.build_ahead=2",
    )
    assert "cannot read" not in done.stdout, done.stdout
    results = [json.loads(path.read_text()) for path in tmp_path.rglob("result.json")]
    assert len(results) == 3
    assert {shape["application"]["applied"] for result in results for shape in result["shapes"]} == {"proven"}
