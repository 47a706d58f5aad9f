"""Whole jobs: the real nvcc, real ACFs, real programs; where a GPU would be, kernels are emulated."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import command
import nvcc_programs
import pytest
from compilers import controls, pack
from nvcc_programs import both_stages, job, script
from omegaconf import OmegaConf

from boosterrun.adapters import base
from boosterrun.adapters.nvcc import Nvcc
from boosterrun.compilers import nvcc_options
from boosterrun.config import SHIPPED, Config, NvccMode, NvccWorkload, ScoreConfig, register
from boosterrun.errors import RunError, UsageError
from boosterrun.gpus import gpu
from boosterrun.measure import ahead
from boosterrun.measure import kept as measure_kept
from boosterrun.measure.judged import BaselineFailed
from boosterrun.sweeps import canary

CONF = Path(__file__).parent.parent / "conf" / "workload"
SHORT = {
    "calibration_pairs": 4,
    "min_pairs": 4,
    "max_pairs": 12,
    "confirm_sessions": 2,
    "confirm_min_pairs": 4,
}
NO_GAIN = {"no_gain", "inconclusive", "regression", "fat_tail"}


@pytest.fixture(autouse=True)
def shell(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell without options for nvcc, and no GPU: the emulated one is not in the driver's list."""
    for name in nvcc_options.ignored(os.environ):
        monkeypatch.delenv(name)
    monkeypatch.setattr(gpu, "visible_device", lambda env: None)
    monkeypatch.setattr(gpu, "light", lambda device=0: None)


@pytest.fixture
def adapter() -> Nvcc:
    loaded = base.load("nvcc")
    assert isinstance(loaded, Nvcc)
    return Nvcc()


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> NvccWorkload:
    """A resident worker with an emulated kernel."""
    folder = tmp_path_factory.mktemp("emulated")
    return NvccWorkload(
        name="scale",
        sources=[str(nvcc_programs.DATA / "emulated.cu")],
        flags=nvcc_programs.emulated_flags(folder),
        shapes={"small": {"n": 64}},
    )


@pytest.fixture(scope="module")
def kept() -> Nvcc:
    """One adapter for several jobs on the emulated worker: its baseline is built once."""
    return Nvcc()


def plain(folder: Path, **keys: Any) -> NvccWorkload:
    source = nvcc_programs.plain(folder / "source")
    keys = {"flags": ["-O1"], "mode": NvccMode.program, **keys}
    keys.setdefault("sources", [str(source)])
    return NvccWorkload(name="plain", shapes=keys.pop("shapes", {"default": {}}), **keys)


# ---- what needs no measurement ----


def test_equal_code_is_not_measured(adapter: Nvcc, tmp_path: Path) -> None:
    (tmp_path / "trivial.cu").write_text("__global__ void empty() {}\nint main() { return 1; }\n")
    acf, path = controls(tmp_path, 3)
    workload = plain(tmp_path, sources=[str(tmp_path / "trivial.cu")], shapes={"a": {}, "b": {}})
    judgement = adapter.judge(job(tmp_path / "job", workload, acf, path))
    assert judgement.decision == "REJECTED:identical_code"
    assert [s["decision"] for s in judgement.shapes] == ["REJECTED:identical_code"] * 2
    shape = judgement.shapes[0]
    assert shape["application"]["applied"] == "proven" and shape["application"]["code_identical"] is True
    assert str(path) in shape["application"]["detail"]
    assert set(judgement.phases) == {"build"}
    kernel = shape["kernels"][0]
    assert kernel["arch"] == "sm_90a" and kernel["baseline"]["registers"] > 0
    assert kernel["code_sha256"]["baseline"] == kernel["code_sha256"]["candidate"]
    assert f"--apply-controls={path}" in shape["compile"]["candidate"]["command"]
    assert not any("apply-controls" in word for word in shape["compile"]["baseline"]["command"])


def test_a_stage_that_the_target_lacks_is_rejected_before_anything_is_compiled(
    adapter: Nvcc, tmp_path: Path
) -> None:
    never = script(tmp_path / "bin" / "nvcc", f"open({str(tmp_path / 'called')!r}, 'w')\nsys.exit(1)\n")
    acf, path = both_stages(tmp_path)
    judgement = adapter.judge(job(tmp_path / "job", plain(tmp_path), acf, path, compiler=never))
    assert judgement.decision == "REJECTED:unsupported_stage"
    assert "nvcc, ptxas" in judgement.message and "sm_90a" in judgement.message
    assert not (tmp_path / "called").exists()


def test_a_damaged_acf_is_invalid_and_the_record_has_the_compilers_words(
    adapter: Nvcc, tmp_path: Path
) -> None:
    acf, path = controls(tmp_path, 1)
    bad = tmp_path / "bad.acf"
    bad.write_bytes(canary.damaged(path.read_bytes()))
    judgement = adapter.judge(job(tmp_path / "job", plain(tmp_path), acf, bad))
    assert judgement.decision == "REJECTED:acf_invalid"
    assert "Invalid compiler controls file" in judgement.message
    recorded = judgement.shapes[0]["compile"]
    assert recorded["candidate"]["returncode"] == 255 and recorded["baseline"]["returncode"] == 0
    assert "Invalid compiler controls file" in recorded["candidate"]["output"]


def test_a_compiler_that_drops_the_acf_is_found_out(adapter: Nvcc, tmp_path: Path) -> None:
    body = "at = next((i for i, a in enumerate(args) if 'apply-controls' in a), 1 << 20)\n"
    body += "kept = args[: at - 1] + args[at + 1 :] if at < len(args) else args\n"
    lie = script(tmp_path / "bin" / "nvcc", body + "sys.exit(real(kept))\n")
    acf, path = controls(tmp_path, 1)
    judgement = adapter.judge(job(tmp_path / "job", plain(tmp_path), acf, path, compiler=lie))
    assert judgement.decision == "REJECTED:acf_not_applied"
    assert "compiled without controls" in judgement.message and "toolchain" not in judgement.message


def test_a_baseline_with_controls_is_no_candidates_fault(adapter: Nvcc, tmp_path: Path) -> None:
    acf, path = controls(tmp_path, 1)
    lie = script(
        tmp_path / "bin" / "nvcc", f"sys.exit(real([*args, '-Xptxas', '--apply-controls={path}']))\n"
    )
    with pytest.raises(RunError, match="the baseline's kernel work was compiled with the controls"):
        adapter.judge(job(tmp_path / "job", plain(tmp_path), acf, path, compiler=lie))


def test_a_baseline_that_does_not_build_is_no_candidates_fault(adapter: Nvcc, tmp_path: Path) -> None:
    acf, path = controls(tmp_path, 1)
    workload = plain(tmp_path)
    nvcc_programs.plain(tmp_path / "source", amount="nothing")
    with pytest.raises(BaselineFailed, match=r"the baseline does not build \(compile_error\): "):
        adapter.judge(job(tmp_path / "job", workload, acf, path))


def test_a_source_that_changes_meanwhile_is_found_out(adapter: Nvcc, tmp_path: Path) -> None:
    workload = plain(tmp_path)
    header = tmp_path / "source" / "amount.h"
    body = f"code = real()\nopen({str(header)!r}, 'a').write('// more\\n')\nsys.exit(code)\n"
    acf, path = controls(tmp_path, 1)
    with pytest.raises(RunError, match=r"amount\.h changed while plain was built"):
        adapter.judge(
            job(tmp_path / "job", workload, acf, path, compiler=script(tmp_path / "bin" / "nvcc", body))
        )


# ---- the resident worker ----


def test_a_worker_is_measured_and_a_faster_one_kept(
    kept: Nvcc, emulated: NvccWorkload, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAST", "1")
    monkeypatch.setenv("NVCC_APPEND_FLAGS", "-G")
    acf, path = controls(tmp_path, 3)
    judgement = kept.judge(job(tmp_path / "job", emulated, acf, path, protocol=SHORT))
    assert judgement.decision == "KEPT", judgement.message
    shape = judgement.shapes[0]
    assert shape["application"]["applied"] == "proven" and shape["application"]["code_identical"] is False
    assert shape["application"]["detail"].endswith("; ignored from the shell: NVCC_APPEND_FLAGS")
    assert shape["correctness"] == "passed" and shape["timer"] == "events"
    assert 1 < shape["gain"] < 6
    assert len({check["side"] for check in shape["correctness_detail"]["checks"]}) == 2
    assert shape["compile"]["baseline"]["seconds"] > 0 and judgement.versions["cuda_runtime"] == "13.3"


def test_a_wrong_result_is_rejected_however_fast(
    kept: Nvcc, emulated: NvccWorkload, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAST", "1")
    monkeypatch.setenv("LIE", "1")
    acf, path = controls(tmp_path, 4)
    judgement = kept.judge(job(tmp_path / "job", emulated, acf, path, protocol=SHORT))
    assert judgement.decision == "REJECTED:wrong_result"
    assert "relative error 0.5 is above 1e-05" in judgement.message


def test_the_self_test_runs_one_program_on_both_sides(
    kept: Nvcc, emulated: NvccWorkload, tmp_path: Path
) -> None:
    self_test = job(tmp_path / "job", emulated, protocol=SHORT)
    judgement = kept.judge(self_test)
    assert judgement.decision == "REJECTED:no_difference"
    sides = [self_test.work / side / "program" for side in ("baseline", "candidate")]
    assert sides[0].read_bytes() == sides[1].read_bytes()
    assert judgement.shapes[0]["application"]["applied"] == "not_applicable"


def test_a_sweep_keeps_its_baseline_running_and_builds_ahead(
    kept: Nvcc, emulated: NvccWorkload, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ahead, "limit", lambda wanted: 1)
    jobs = []
    for number in (3, 4):
        acf, path = controls(tmp_path, number)
        jobs.append(job(tmp_path / f"job-{number}", emulated, acf, path, protocol=SHORT))
        jobs[-1].config.sweep.candidates = 2
    assert kept.prepare(jobs[1]) and not kept.prepare(jobs[0]) and kept.prepare(jobs[1])
    running = []
    for swept in jobs:
        judgement = kept.judge(swept)
        assert judgement.shapes[0]["correctness"] == "passed"
        assert judgement.shapes[0]["application"]["applied"] == "proven"
        running.append(measure_kept._kept[0].side)
    measure_kept.close()
    assert running[0] is running[1]
    assert kept.prepare(jobs[0])  # the one that was taken makes room
    assert kept._early.take(kept._key(jobs[0])) is not None


# ---- programs that time themselves ----


def test_a_program_is_measured_by_its_scores(adapter: Nvcc, tmp_path: Path) -> None:
    acf, path = controls(tmp_path, 3)
    workload = plain(tmp_path, score=ScoreConfig(regex=r"time: (\S+) ms"))
    judgement = adapter.judge(job(tmp_path / "job", workload, acf, path, protocol=SHORT))
    assert judgement.decision.removeprefix("REJECTED:") in NO_GAIN
    shape = judgement.shapes[0]
    assert (shape["timer"], shape["baseline"]["mean"]) == ("launch", 0.5)
    assert shape["correctness"] == "not_checked" and shape["application"]["applied"] == "proven"
    assert Path(shape["compile"]["candidate"]["command"][0]).name == "nvcc"


def test_arguments_and_checks_see_the_shape(adapter: Nvcc, tmp_path: Path) -> None:
    source = tmp_path / "args.cu"
    source.write_text(
        (nvcc_programs.DATA / "plain.cu")
        .read_text()
        .replace('"amount.h"', "<cstdlib>")
        .replace("AMOUNT", "1.5f")
        .replace("main()", "main(int, char** w)")
        .replace("0.5 ms", '%s ms\\n", w[1]); std::fprintf(stderr, "')
    )
    acf, path = controls(tmp_path, 3)
    workload = plain(
        tmp_path,
        sources=[str(source)],
        args=["{amount}"],
        shapes={"a": {"amount": 0.25}},
        score=ScoreConfig(regex=r"time: (\S+) ms"),
        check=["test", "{amount}", "=", "0.25"],
    )
    judgement = adapter.judge(job(tmp_path / "job", workload, acf, path, protocol=SHORT))
    assert judgement.shapes[0]["baseline"]["mean"] == 0.25
    assert judgement.shapes[0]["correctness"] == "passed"


def nvbench(folder: Path, *args: str) -> NvccWorkload:
    source = nvcc_programs.DATA / "nvbench_like.cu"
    return plain(folder, sources=[str(source)], mode=NvccMode.nvbench, args=list(args))


def test_an_nvbench_program_gives_its_raw_samples(adapter: Nvcc, tmp_path: Path) -> None:
    acf, path = controls(tmp_path, 3)
    judgement = adapter.judge(job(tmp_path / "job", nvbench(tmp_path), acf, path, protocol=SHORT))
    assert judgement.decision.removeprefix("REJECTED:") in NO_GAIN
    shape = judgement.shapes[0]
    assert shape["baseline"]["mean"] == pytest.approx(0.5, rel=1e-6)
    assert shape["baseline"]["n"] == shape["candidate"]["n"] >= 12 and shape["baseline"]["n"] % 3 == 0


def test_an_nvbench_program_with_several_states_is_the_workloads_fault(adapter: Nvcc, tmp_path: Path) -> None:
    acf, path = controls(tmp_path, 3)
    workload = nvbench(tmp_path, "--states", "2")
    with pytest.raises(BaselineFailed, match=r"NVBench measured 2 states .*Choose one in args"):
        adapter.judge(job(tmp_path / "job", workload, acf, path, protocol=SHORT))


# ---- before a sweep ----


def config(workload: NvccWorkload, **keys: Any) -> Config:
    made = Config(workload=workload, **keys)
    made.pack.path = str(SHIPPED / "packs" / "booster-pack-sample.zip")
    return made


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"args": ["{nothing}"]}, r"workload.args: unknown placeholder \{nothing\}|\{nothing\}"),
        ({"check": ["x", "{nothing}"]}, r"\{nothing\}"),
        ({"case": "scale"}, "workload.case and options are not for mode program"),
        ({"score": ScoreConfig()}, "workload.score needs either regex or json_path"),
        ({"flags": ["-arch=sm_80"], "score": ScoreConfig(regex="(.)")}, "set gpu.arch"),
    ],
)
def test_a_workload_that_cannot_work_is_refused(
    adapter: Nvcc, tmp_path: Path, keys: dict[str, Any], words: str
) -> None:
    keys.setdefault("score", ScoreConfig(regex=r"time: (\S+) ms"))
    with pytest.raises(UsageError, match=words):
        adapter.source(config(plain(tmp_path, **keys)))


def test_how_a_side_is_run_by_hand(adapter: Nvcc, tmp_path: Path, emulated: NvccWorkload) -> None:
    assert adapter.source(config(emulated)) == Path(emulated.sources[0])
    assert adapter.benchmark_command(config(emulated, seed=7)) == ["./program", "seed=7", "n=64"]
    workload = plain(tmp_path, args=["--m", "{m}"], shapes={"a": {"m": 3}})
    assert adapter.benchmark_command(config(workload)) == ["./program", "--m", "3"]


def test_the_canary_can_ask_it(adapter: Nvcc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    acf, path = controls(tmp_path, 1)
    workload = plain(tmp_path)
    sound = adapter.probe(job(tmp_path / "sound", workload, acf, path))
    assert sound.reason is None and sound.controls == (str(path),)
    path.chmod(0o600)
    path.write_bytes(canary.damaged(path.read_bytes()))
    assert adapter.probe(job(tmp_path / "damaged", workload, acf, path)).reason == "acf_invalid"
    assert adapter.injects(config(workload))
    only_sm_100 = config(workload)
    only_sm_100.pack.path = str(nvcc_programs.DATA / "nvcc-pack")
    assert not adapter.injects(only_sm_100)
    only_sm_100.gpu.arch = "sm_100a"
    assert adapter.injects(only_sm_100)
    assert adapter.ignored() == []
    monkeypatch.setenv("NVCC_PREPEND_FLAGS", "-G")
    assert adapter.ignored() == ["NVCC_PREPEND_FLAGS"]


def test_the_canary_passes_and_catches_a_stubborn_cache(tmp_path: Path) -> None:
    made = config(plain(tmp_path))
    made.gpu.arch = "sm_90a"
    tools = base.Toolchain(nvcc=nvcc_programs.nvcc())
    record = canary.run(made, Nvcc(), tools, tmp_path / "good")
    assert record["state"] == "passed", record
    assert record["acf"] == pack().acfs[0].id
    body = (
        "import shutil\nfrom pathlib import Path\nold = Path(__file__).parent / 'old'\n"
        "if not old.exists(): real(); shutil.copytree('.', old, ignore=shutil.ignore_patterns('tmp'))\n"
        "[shutil.copy(p, '.') for p in old.iterdir()]\n"
    )
    (tmp_path / "prime").mkdir()
    cache = script(tmp_path / "bin" / "nvcc", body)
    Nvcc().probe(job(tmp_path / "primed", plain(tmp_path), compiler=cache))
    record = canary.run(made, Nvcc(), base.Toolchain(nvcc=cache), tmp_path / "bad")
    assert record["state"] == "failed"
    assert "NVCC_APPEND_FLAGS, a wrapper around nvcc" in record["why"]


# ---- the shipped workloads ----


def composed(path: Path) -> NvccWorkload:
    register()
    declared: Any = OmegaConf.load(path)
    assert declared.pop("defaults") == ["/schema/workload/nvcc@_here_", "_self_"]
    workload = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(NvccWorkload), declared))
    assert isinstance(workload, NvccWorkload)
    return workload


@pytest.mark.parametrize(
    "path", sorted([CONF / "nvcc.yaml", *CONF.glob("nvcc/*.yaml")]), ids=lambda path: path.stem
)
def test_the_shipped_workloads_are_sound(adapter: Nvcc, path: Path) -> None:
    workload = composed(path)
    assert adapter.source(config(workload)).suffix == ".cu" and workload.mode == NvccMode.harness
    for shape in workload.shapes.values():
        sizes = {"m": 128, "n": 128 if "m" in shape else 1024, "k": 8, "rows": 1, "columns": 4}
        assert all(value > 0 and value % sizes[name] == 0 for name, value in shape.items())


def test_the_default_workload_is_sgemm() -> None:
    assert composed(CONF / "nvcc.yaml") == composed(CONF / "nvcc" / "sgemm.yaml")


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("sgemm", {"m": 128, "n": 256, "k": 24}),
        ("nbody", {"n": 1024}),
        ("reduction", {"rows": 96, "columns": 100}),
    ],
)
def test_the_references_agree_with_kernels_written_anew(
    name: str, shape: dict[str, int], tmp_path: Path
) -> None:
    emulation = str(nvcc_programs.DATA / "emulated_kernels.cpp")
    workload = composed(CONF / "nvcc" / f"{name}.yaml")
    workload.sources.append(emulation)
    workload.flags = nvcc_programs.emulated_flags(tmp_path)
    workload.shapes = {"tiny": shape}
    judgement = Nvcc().judge(job(tmp_path / "job", workload, protocol=SHORT))
    assert judgement.shapes[0]["correctness"] == "passed"
    checks = judgement.shapes[0]["correctness_detail"]["checks"]
    assert all(0 < check["outputs"][0]["relative_error"] < 1e-5 for check in checks)


def test_a_sweep_of_a_program_in_a_relative_folder(tmp_path: Path) -> None:
    workloads = tmp_path / "conf" / "workload"
    workloads.mkdir(parents=True)
    (tmp_path / "mine.cu").write_text(
        "#include <cstdio>\n"
        "__global__ void scale(float *x, float a) { x[threadIdx.x] *= a; }\n"
        'int main() { for (int i = 0; i < 5; ++i) std::printf("time: %d.5 ms\\n", 3 + i % 2); }\n'
    )
    (workloads / "mine.yaml").write_text(
        "defaults: [/schema/workload/nvcc@_here_, _self_]\n"
        "name: mine\nsources: [mine.cu]\nmode: program\nscore: {regex: 'time: (\\S+) ms'}\n"
    )
    done = command.run(
        *("-m", "acf=glob([01*,04*])", "workload=mine", "--config-dir", "conf", "hydra.sweep.dir=out"),
        *("protocol=quick", "protocol.trials=4", "gpu=h200"),
        cwd=tmp_path,
    )
    assert "canary: mine: passed" in done.stdout, done.stderr
    assert "UNDECIDED" not in done.stdout
    assert len(list((tmp_path / "out").glob("*/result.json"))) == 2
