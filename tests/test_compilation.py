"""How real compilers fail, and what is made of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from compilers import KERNELS, controls, ptxas, script
from hypothesis import given, settings
from hypothesis import strategies as st

from boosterrun.compilers import compilation, toolchain
from boosterrun.system import process

SOFTMAX = KERNELS / "softmax.ptx"


def run(program: Path, *arguments: str, timeout: float = 60.0) -> process.Completed:
    return process.run([str(program), *arguments], timeout=timeout, grace=0.3)


def assemble(folder: Path, *arguments: str, ptx: Path = SOFTMAX) -> process.Completed:
    return run(ptxas().path, "-arch", "sm_90a", str(ptx), "-o", str(folder / "out.cubin"), *arguments)


def reason(completed: process.Completed, acf: Path | None = None) -> str | None:
    found = compilation.classify(completed, acf)
    return None if found is None else found[0]


def test_success_is_no_failure(tmp_path: Path) -> None:
    _, acf = controls(tmp_path, 1)
    done = assemble(tmp_path, "--apply-controls", str(acf))
    assert compilation.classify(done, acf) is None
    assert compilation.environment_fault(done) is None


def damaged(data: bytes, how: str) -> bytes:
    middle = len(data) // 2
    return {
        "empty": b"",
        "truncated": data[:middle],
        "flipped": data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :],
        "text": b"spill less, please\n",
    }[how]


@pytest.mark.parametrize("how", ["empty", "truncated", "flipped", "text"])
def test_damaged_controls(tmp_path: Path, how: str) -> None:
    _, good = controls(tmp_path, 1)
    bad = tmp_path / "bad.acf"
    bad.write_bytes(damaged(good.read_bytes(), how))
    found = compilation.classify(assemble(tmp_path, "--apply-controls", str(bad)), bad)
    assert found is not None
    assert found[0] == "acf_invalid"
    assert "ptxas fatal" in found[1]
    assert "exit code 255" in found[1]


def test_missing_controls(tmp_path: Path) -> None:
    gone = tmp_path / "gone.acf"
    assert reason(assemble(tmp_path, "--apply-controls", str(gone)), gone) == "acf_invalid"


def test_damaged_ptx_is_no_fault_of_the_controls(tmp_path: Path) -> None:
    _, acf = controls(tmp_path, 1)
    for text in ("", "hello\n", SOFTMAX.read_text().replace("mov.u32", "mov.q32")):
        ptx = tmp_path / "bad.ptx"
        ptx.write_text(text)
        found = compilation.classify(assemble(tmp_path, "--apply-controls", str(acf), ptx=ptx), acf)
        assert found is not None
        assert found[0] == "compile_error"
        assert "bad.ptx, line" in found[1]
        assert "\n" not in found[1]


def test_a_second_controls_file_is_not_only_a_warning(tmp_path: Path) -> None:
    _, first = controls(tmp_path, 1)
    _, second = controls(tmp_path, 2)
    done = assemble(tmp_path, "--apply-controls", str(first), "--apply-controls", str(second))
    assert done.returncode == 0
    assert reason(done, first) == "acf_not_applied"


def test_options_and_ptx_of_another_cuda(tmp_path: Path) -> None:
    assert reason(assemble(tmp_path, "--apply-dreams")) == "toolchain_mismatch"
    ptx = tmp_path / "new.ptx"
    ptx.write_text(SOFTMAX.read_text().replace(".version 9.3", ".version 19.9"))
    assert reason(assemble(tmp_path, ptx=ptx)) == "toolchain_mismatch"


def test_stages_that_nvcc_does_not_take(tmp_path: Path) -> None:
    nvcc = toolchain.find_nvcc(None, os.environ).path
    source = tmp_path / "k.cu"
    source.write_text('extern "C" __global__ void k(float *p) { *p = 1; }\n')
    _, acf = controls(tmp_path, 1)
    for arch, words in (("sm_90a", "not supported on this target"), ("sm_100a", "libnvvm")):
        argv = (
            "-cubin",
            f"-arch={arch}",
            "--apply-controls",
            str(acf),
            str(source),
            "-o",
            str(tmp_path / "k.cubin"),
        )
        found = compilation.classify(run(nvcc, *argv), acf)
        assert found is not None
        assert found[0] == "unsupported_stage"
        assert words in found[1]


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ("kill -SEGV $$", "SIGSEGV"),
        ("bash -c 'kill -ABRT $$'; exit $?", "SIGABRT"),  # a shell in between says 134
        ("kill -KILL $$", "SIGKILL"),
    ],
)
def test_crashes(tmp_path: Path, body: str, name: str) -> None:
    found = compilation.classify(run(script(tmp_path / "ptxas", body)), None)
    assert found is not None
    assert found[0] == "compiler_crash"
    assert name in found[1]


def test_a_crash_of_which_a_driver_only_speaks(tmp_path: Path) -> None:
    body = "echo \"nvcc error   : 'ptxas' died due to signal 11 (Invalid memory reference)\" >&2; exit 11"
    found = compilation.classify(run(script(tmp_path / "nvcc", body)), None)
    assert found is not None
    assert found[0] == "compiler_crash"
    assert "died due to signal 11" in found[1]


def test_timeout_of_a_compiler_that_will_not_end(tmp_path: Path) -> None:
    done = run(script(tmp_path / "ptxas", "trap '' INT TERM; sleep 60 & wait; sleep 60"), timeout=0.3)
    found = compilation.classify(done, None)
    assert found is not None
    assert found[0] == "compile_timeout"
    assert "killed after" in found[1]
    assert done.seconds < 20


def test_a_machine_at_fault(tmp_path: Path) -> None:
    for output in ("/dev/full", str(tmp_path / "no" / "such" / "folder")):
        done = run(ptxas().path, "-arch", "sm_90a", str(SOFTMAX), "-o", output)
        fault = compilation.environment_fault(done)
        assert fault is not None
        assert output in fault
    limited = script(tmp_path / "ptxas", 'ulimit -f 4; exec "$REAL" "$@"')
    done = run(limited, "-arch", "sm_90a", str(SOFTMAX), "-o", str(tmp_path / "out.cubin"))
    assert compilation.environment_fault(done) == "file size limit exceeded"
    assert compilation.environment_fault(assemble(tmp_path, "--apply-dreams")) is None


@given(st.text(max_size=5000))
@settings(deadline=None)
def test_words_are_one_bounded_line(text: str) -> None:
    said = compilation.words(text)
    assert len(said.splitlines()) <= 1
    assert len(said) <= 1050
    assert bool(said) == any(line.strip() for line in text.splitlines())


def test_words_of_many_complaints() -> None:
    text = "".join(f"k.ptx, line {number}; error   : No\n" * 2 for number in range(9))
    assert compilation.words(text).startswith("k.ptx, line 0; error : No; k.ptx, line 1;")
    assert compilation.words(text).endswith("line 2; error : No; and 6 more")


def test_words_leave_out_what_is_no_complaint() -> None:
    text = "ptxas info    : Used 5 registers\n\nptxas fatal   : Invalid\n// .visible .entry default()\n"
    assert compilation.words(text) == "ptxas fatal : Invalid"
