"""The static screen: its rule as a pure function, and whole verdicts with the real ptxas and real ACFs."""

from __future__ import annotations

import dataclasses
import json
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from compilers import KERNELS, controls, ptxas, stand_in
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from boosterrun import packs
from boosterrun.compilers import static
from boosterrun.compilers.toolchain import Compiler
from boosterrun.config import PtxasWorkload
from boosterrun.errors import RunError, UsageError
from boosterrun.results import record

OBJECTIVE = ("spill_bytes", "sass_instructions")
SMALL = {"a": {}, "b": {"maxrregcount": 64}}


def compare(
    before: tuple[float, float], after: tuple[float, float], min_gain: float = 0.01
) -> static.Comparison:
    sides = [dict(zip(OBJECTIVE, values, strict=True)) for values in (before, after)]
    return static.compare(*sides, OBJECTIVE, min_gain)


@pytest.mark.parametrize(
    ("before", "after", "decision", "metric", "gain"),
    [
        ((100, 500), (80, 900), "KEPT", "spill_bytes", 0.2),
        ((100, 500), (99, 500), "KEPT", "spill_bytes", 0.01),
        ((1000, 500), (991, 100), "REJECTED:no_gain", "spill_bytes", 0.009),
        ((1000, 500), (1009, 100), "REJECTED:no_gain", "spill_bytes", -0.009),
        ((100, 500), (101, 100), "REJECTED:regression", "spill_bytes", -0.01),
        ((0, 500), (4, 100), "REJECTED:regression", "spill_bytes", None),
        ((4, 500), (0, 900), "KEPT", "spill_bytes", 1.0),
        ((0, 500), (0, 400), "KEPT", "sass_instructions", 0.2),
        ((0, 500), (0, 600), "REJECTED:regression", "sass_instructions", -0.2),
        ((0, 500), (0, 500), "REJECTED:no_gain", "spill_bytes", None),
        ((8, 500), (8, 500), "REJECTED:no_gain", "spill_bytes", 0.0),
    ],
)
def test_rule_for_a_shape(before: Any, after: Any, decision: str, metric: str, gain: float | None) -> None:
    found = compare(before, after)
    assert (found.decision, found.metric) == (decision, metric)
    assert found.gain == (None if gain is None else pytest.approx(gain))


counts = st.tuples(st.integers(0, 5000), st.integers(1, 5000))


@given(counts, counts, st.floats(0.001, 0.5))
def test_rule_has_no_favourite_side(one: Any, other: Any, min_gain: float) -> None:
    there, back = compare(one, other, min_gain), compare(other, one, min_gain)
    assert there.metric == back.metric
    if there.decision == "KEPT":
        assert back.decision == "REJECTED:regression"
    if one == other:
        assert there.decision == "REJECTED:no_gain"


@pytest.mark.parametrize(
    ("decisions", "overall"),
    [
        ("KEPT REJECTED:no_gain REJECTED:identical_code", "KEPT"),
        ("KEPT REJECTED:regression", "REJECTED:regression"),
        ("KEPT REJECTED:compile_error REJECTED:regression", "REJECTED:compile_error"),
        ("REJECTED:identical_code REJECTED:no_gain", "REJECTED:no_gain"),
        ("REJECTED:identical_code REJECTED:identical_code", "REJECTED:identical_code"),
        ("REJECTED:no_difference", "REJECTED:no_difference"),
        ("REJECTED:compile_timeout REJECTED:acf_invalid", "REJECTED:compile_timeout"),
    ],
)
def test_rule_over_shapes(decisions: str, overall: str) -> None:
    assert static.decide(decisions.split()) == overall


@given(
    st.permutations(["KEPT", "REJECTED:no_gain", "REJECTED:identical_code", "REJECTED:regression"]),
    st.integers(1, 4),
)
def test_rule_over_shapes_does_not_depend_on_their_order(decisions: list[str], count: int) -> None:
    chosen = decisions[:count]
    assert static.decide(chosen) == static.decide(sorted(chosen))
    assert (static.decide(chosen) == "KEPT") == ("KEPT" in chosen and "REJECTED:regression" not in chosen)


def judge(
    folder: Path,
    candidate: tuple[packs.Acf, Path] | None,
    *,
    compiler: Compiler | None = None,
    kernel: str = "rmsnorm",
    shapes: dict[str, dict[str, Any]] | None = None,
    timeout: float = 60.0,
    baselines: static.Baselines | None = None,
) -> static.Verdict:
    workload = PtxasWorkload(
        name=kernel, ptx=str(KERNELS / f"{kernel}.ptx"), shapes=shapes or {"default": {}}
    )
    acf, path = candidate or (None, None)
    return static.judge(
        workload,
        arch=None,
        compiler=compiler or ptxas(),
        acf=acf,
        controls=path,
        folder=folder / "work",
        timeout=timeout,
        grace=0.3,
        min_gain=0.01,
        baselines=baselines or static.Baselines(),
    )


def check_records(verdict: static.Verdict) -> None:
    """Each shape's record is what the schema of results says, and JSON."""
    schema = record.schema()
    validator = Draft202012Validator({"$ref": "#/$defs/shape", "$defs": schema["$defs"]})
    for shape in json.loads(json.dumps(verdict.shapes, allow_nan=False)):
        validator.validate(shape)
        assert shape["correctness"] == "not_checked"


def test_candidates_differ(tmp_path: Path) -> None:
    """On the attention kernel under register limits, with a few of the shipped ACFs."""
    shapes = {f"r{limit}": {"maxrregcount": limit} for limit in (128, 160)}
    baselines = static.Baselines()
    found = {}
    for number in (1, 2, 14):
        verdict = judge(
            tmp_path, controls(tmp_path, number), kernel="attn_causal", shapes=shapes, baselines=baselines
        )
        check_records(verdict)
        found[number] = verdict
        for shape in verdict.shapes:
            assert shape["application"]["applied"] == "proven"
            assert shape["application"]["code_identical"] is False
            before, after = shape["baseline"]["mean"], shape["candidate"]["mean"]
            assert shape["gain"] == pytest.approx((before - after) / before)
            assert (shape["decision"] == "KEPT") == (shape["gain"] >= 0.01)
            (kernel,) = shape["kernels"]
            assert kernel["baseline"][shape["metric"]] == before
            assert kernel["candidate"][shape["metric"]] == after
    assert found[1].decision == found[14].decision == "KEPT"
    assert found[2].decision == "REJECTED:regression"
    assert "spill_bytes" in found[2].message
    assert "in 2 of 2 shapes" in found[2].message


def test_self_test_finds_no_difference(tmp_path: Path) -> None:
    verdict = judge(tmp_path, None, shapes=SMALL)
    check_records(verdict)
    assert verdict.decision == "REJECTED:no_difference"
    for shape in verdict.shapes:
        assert shape["decision"] == "REJECTED:no_difference"
        assert shape["application"]["applied"] == "not_applicable"
        assert shape["application"]["code_identical"] is True
        assert shape["gain"] in (None, 0.0)


def test_self_test_fails_when_the_compiler_wavers(tmp_path: Path) -> None:
    body = f'n=$(cat {tmp_path}/n 2>/dev/null); echo x$n > {tmp_path}/n; exec "$REAL" "$@" ${{n:+-O1}}'
    with pytest.raises(RunError, match="self-test of shape default failed"):
        judge(tmp_path, None, compiler=stand_in(tmp_path / "ptxas", body))


def test_a_baseline_is_built_once_for_all_candidates(tmp_path: Path) -> None:
    log = tmp_path / "log"
    body = f'case "$*" in *apply-controls*) ;; *) echo baseline >> {log};; esac; exec "$REAL" "$@"'
    compiler = stand_in(tmp_path / "ptxas", body)
    baselines = static.Baselines()
    for number in (1, 2, 3):
        judge(tmp_path, controls(tmp_path, number), compiler=compiler, shapes=SMALL, baselines=baselines)
    assert log.read_text().split() == ["baseline"] * len(SMALL)


def test_a_changed_ptx_gets_a_new_baseline(tmp_path: Path) -> None:
    ptx = tmp_path / "k.ptx"
    baselines = static.Baselines()
    seen = []
    for kernel in ("rmsnorm", "softmax"):
        ptx.write_bytes((KERNELS / f"{kernel}.ptx").read_bytes())
        verdict = judge(
            tmp_path, controls(tmp_path, 1), shapes={"default": {"ptx": str(ptx)}}, baselines=baselines
        )
        seen += [kernel["name"] for kernel in verdict.shapes[0]["kernels"] if kernel["baseline"]]
    assert seen == ["rmsnorm", "softmax"]


@pytest.mark.parametrize("side", ["baseline", "candidate"])
def test_a_ptx_that_changes_while_it_is_assembled_is_told(tmp_path: Path, side: str) -> None:
    ptx, baselines = tmp_path / "k.ptx", static.Baselines()
    ptx.write_bytes((KERNELS / "rmsnorm.ptx").read_bytes())
    wanted = "*" if side == "baseline" else "*apply-controls*"
    body = f'case "$*" in {wanted}) cp {KERNELS}/softmax.ptx {ptx};; esac; exec "$REAL" "$@"'
    shapes = {"default": {"ptx": str(ptx)}}
    with pytest.raises(RunError, match=r"k\.ptx changed while it was assembled"):
        judge(
            *(tmp_path, controls(tmp_path, 1)),
            compiler=stand_in(tmp_path / "ptxas", body),
            shapes=shapes,
            baselines=baselines,
        )
    verdict = judge(tmp_path, controls(tmp_path, 1), shapes=shapes, baselines=baselines)
    assert {kernel["name"] for kernel in verdict.shapes[0]["kernels"]} == {"softmax"}


def spoilt(root: Path, spoil: Callable[[bytes], bytes]) -> tuple[packs.Acf, Path]:
    acf, good = controls(root, 1)
    bad = root / "spoilt.acf"
    bad.write_bytes(spoil(good.read_bytes()))
    return acf, bad


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: b"",
        lambda data: data[:-100],
        lambda data: data[:50] + bytes([data[50] ^ 4]) + data[51:],
        lambda data: bytes(len(data)),
    ],
    ids=["empty", "truncated", "flipped", "zeros"],
)
def test_damaged_controls(tmp_path: Path, spoil: Callable[[bytes], bytes]) -> None:
    verdict = judge(tmp_path, spoilt(tmp_path, spoil), shapes=SMALL)
    check_records(verdict)
    assert verdict.decision == "REJECTED:acf_invalid"
    shape = verdict.shapes[0]
    assert "ptxas fatal" in shape["message"]
    assert "CUDA 13.3" in shape["message"]
    assert shape["candidate"] is None
    assert shape["baseline"] is not None
    assert shape["compile"]["candidate"]["returncode"] == 255
    assert "ptxas fatal" in shape["compile"]["candidate"]["output"]


# Where the flag is dropped the code is the baseline's: that it was dropped is what has to be said.
DROPS = """a=("$@")
for i in "${!a[@]}"; do [ "${a[i]}" = --apply-controls ] && unset "a[i]" "a[i+1]"; done
exec "$REAL" "${a[@]}\""""
REPLACES = 'exec "$REAL" "$@" --apply-controls "$OTHER"'
REPLACES_SILENTLY = '"$REAL" "$@" --apply-controls "$OTHER" 2>&1 | grep -v incompatible; exit 0'
COMPLAINS = "echo 'ptxas k.ptx, line 3; error   : No' >&2; exit 1"


@pytest.mark.parametrize(
    ("body", "reason", "words"),
    [
        ("kill -SEGV $$", "compiler_crash", "SIGSEGV"),
        (COMPLAINS, "compile_error", "line 3"),
        (DROPS, "acf_not_applied", "names none"),
        (REPLACES, "acf_not_applied", "incompatible redefinition"),
        (REPLACES_SILENTLY, "acf_not_applied", "but names"),
    ],
)
def test_candidates_that_fail(tmp_path: Path, body: str, reason: str, words: str) -> None:
    _, other = controls(tmp_path, 2)
    body = f'OTHER={other}; case "$*" in *apply-controls*) {body};; esac; exec "$REAL" "$@"'
    verdict = judge(tmp_path, controls(tmp_path, 1), compiler=stand_in(tmp_path / "ptxas", body))
    check_records(verdict)
    assert verdict.decision == f"REJECTED:{reason}"
    assert words in verdict.message
    assert verdict.shapes[0]["application"]["applied"] != "proven"


def alive(marker: str) -> list[str]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if marker in line:
            found.append(line)
    return found


def test_a_compiler_that_will_not_end(tmp_path: Path) -> None:
    hang = "trap '' INT TERM; sleep 987.25 & sleep 987.25; sleep 987.25"
    body = f'case "$*" in *apply-controls*) {hang};; esac; exec "$REAL" "$@"'
    started = time.monotonic()
    compiler = stand_in(tmp_path / "ptxas", body)
    verdict = judge(tmp_path, controls(tmp_path, 1), compiler=compiler, shapes=SMALL, timeout=1.0)
    check_records(verdict)
    assert verdict.decision == "REJECTED:compile_timeout"
    assert verdict.shapes[0]["compile"]["candidate"]["timed_out"] is True
    assert time.monotonic() - started < 30
    assert alive(str(tmp_path)) == []


TINY = """.version 9.3
.target sm_90a
.address_size 64
.visible .entry tiny(.param .u64 p)
{
    .reg .b64 %rd<2>;
    .reg .b32 %r<2>;
    ld.param.u64 %rd1, [p];
    mov.u32 %r1, 1;
    st.global.u32 [%rd1], %r1;
    ret;
}
"""


def test_identical_code(tmp_path: Path) -> None:
    """Some of the shipped ACFs change nothing in a kernel that has nothing to change."""
    ptx = tmp_path / "tiny.ptx"
    ptx.write_text(TINY)
    tiny = {"ptx": str(ptx)}
    same = judge(tmp_path, controls(tmp_path, 5), shapes={"tiny": tiny})
    check_records(same)
    assert same.decision == "REJECTED:identical_code"
    assert same.shapes[0]["application"]["applied"] == "proven"
    assert same.shapes[0]["application"]["code_identical"] is True
    (kernel,) = same.shapes[0]["kernels"]
    assert kernel["code_sha256"]["baseline"] == kernel["code_sha256"]["candidate"]
    other = judge(tmp_path, controls(tmp_path, 1), shapes={"tiny": tiny})
    assert other.decision == "REJECTED:no_gain"
    assert "in other code" in other.message
    assert other.shapes[0]["application"]["code_identical"] is False
    mixed = judge(tmp_path, controls(tmp_path, 5), shapes={"tiny": tiny, "large": {}})
    assert mixed.shapes[0]["decision"] == "REJECTED:identical_code"
    assert mixed.decision == mixed.shapes[1]["decision"] != "REJECTED:identical_code"


def test_stages_that_ptxas_alone_cannot_apply(tmp_path: Path) -> None:
    acf, path = controls(tmp_path, 1)
    for stages in (("nvcc", "ptxas"), ("nvcc",)):
        verdict = judge(tmp_path, (dataclasses.replace(acf, compiler_stages=stages), path), shapes=SMALL)
        check_records(verdict)
        assert verdict.decision == "REJECTED:unsupported_stage"
        assert [shape["decision"] for shape in verdict.shapes] == [verdict.decision] * 2
        assert "nvcc" in verdict.message


def test_a_broken_baseline_is_no_candidates_fault(tmp_path: Path) -> None:
    ptx = tmp_path / "bad.ptx"
    ptx.write_text((KERNELS / "rmsnorm.ptx").read_text().replace("mov.u32", "mov.q32"))
    with pytest.raises(
        RunError, match=r"baseline of shape default does not build \(compile_error\).*Unknown modifier"
    ):
        judge(tmp_path, controls(tmp_path, 1), shapes={"default": {"ptx": str(ptx)}})
    with pytest.raises(RunError, match=r"\.target 'sm_90a'.*gpu\.arch \(now sm_100a\)"):
        judge(tmp_path, controls(tmp_path, 1), shapes={"default": {"arch": "sm_100a"}})


def test_a_baseline_with_controls_is_no_baseline(tmp_path: Path) -> None:
    acf, path = controls(tmp_path, 1)
    compiler = stand_in(tmp_path / "ptxas", f'exec "$REAL" "$@" --apply-controls {path}')
    with pytest.raises(RunError, match="baseline of shape default was built with controls"):
        judge(tmp_path, (acf, path), compiler=compiler)


def test_a_work_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "work").write_text("a file")
    with pytest.raises(RunError, match="cannot make the work folder"):
        judge(tmp_path, controls(tmp_path, 1))


def test_an_unknown_shape_key_is_told_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="maxregcount"):
        judge(tmp_path, controls(tmp_path, 1), shapes={"default": {"maxregcount": 3}})


def test_an_interrupt_ends_the_builds(tmp_path: Path) -> None:
    began = tmp_path / "began"
    compiler = stand_in(tmp_path / "ptxas", f"trap '' INT TERM; touch {began}; sleep 987.5; sleep 987.5")

    def interrupt() -> None:
        while not began.exists():
            time.sleep(0.02)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        judge(tmp_path, controls(tmp_path, 1), compiler=compiler, shapes=SMALL, timeout=100)
    assert time.monotonic() - started < 30
    assert alive(str(tmp_path)) == []
