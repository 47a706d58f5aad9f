"""What is told of a build that failed, from the words that frameworks and compilers really use."""

from __future__ import annotations

from pathlib import Path

import pytest

from boosterrun.errors import RunError
from boosterrun.measure.api import FailureKind, SideFailed
from boosterrun.measure.blame import explain

ACF = Path("/plain/0a1b.acf")
TRITON = """PTXASError: PTXAS error: {first}
`ptxas` stderr:
{said}
Repro command: /cuda/bin/ptxas -v --apply-controls=/plain/0a1b.acf --gpu-name=sm_90a x.ptx -o x.o
"""


def failed(message: str, kind: FailureKind = "compile_error", tail: str = "") -> SideFailed:
    return SideFailed("candidate", kind, message, output_tail=tail)


def triton(said: str, first: str = "Internal Triton PTX codegen error") -> SideFailed:
    return failed(TRITON.format(first=first, said=said))


@pytest.mark.parametrize(
    ("failure", "reason", "words"),
    [
        (
            triton("ptxas fatal   : Invalid compiler controls file"),
            "acf_invalid",
            "ptxas fatal : Invalid compiler controls file (exit code 255)",
        ),
        (
            triton("ptxas fatal   : Input file '/plain/0a1b.acf' not in expected format"),
            "acf_invalid",
            "ptxas fatal : Input file '/plain/0a1b.acf' not in expected format (exit code 255)",
        ),
        (
            triton("ptxas fatal   : Unknown option 'apply-controls'"),
            "toolchain_mismatch",
            "ptxas fatal : Unknown option 'apply-controls' (exit code 255)",
        ),
        (
            triton("ptxas x.ptx, line 7; error   : No 'y'\nptxas fatal   : Ptx assembly aborted"),
            "compile_error",
            "ptxas x.ptx, line 7; error : No 'y'; ptxas fatal : Ptx assembly aborted (exit code 255)",
        ),
        (triton("", "`ptxas` raised SIGSEGV"), "compiler_crash", "ended by SIGSEGV"),
        (triton("", "`ptxas` failed with error code -6"), "compiler_crash", "ended by SIGABRT"),
        (triton("", "`ptxas` failed with error code 139"), "compiler_crash", "ended by SIGSEGV"),
        (
            failed("RuntimeError: Ninja build failed", tail="ptxas fatal   : Invalid compiler controls file"),
            "acf_invalid",
            "ptxas fatal : Invalid compiler controls file (exit code 255)",
        ),
        (failed("ValueError: no such kernel"), "compile_error", "ValueError: no such kernel"),
        (failed("it took longer", "compile_timeout"), "compile_timeout", "it took longer"),
        (failed("ptxas fatal error", "runtime_error"), "runtime_error", "ptxas fatal error"),
        (failed("no answer", "protocol_error"), "runtime_error", "no answer"),
    ],
)
def test_says_why(failure: SideFailed, reason: str, words: str) -> None:
    assert explain(failure, ACF) == (reason, words)


def test_a_baseline_has_no_acf_to_refuse() -> None:
    assert explain(triton("ptxas fatal   : Invalid compiler controls file"), None)[0] == "compile_error"


def test_a_full_disk_is_nobodys_fault() -> None:
    with pytest.raises(RunError, match=r"candidate could not write: .*No space left on device.*Make room"):
        explain(triton("ptxas fatal   : /tmp/x.ptx.o: No space left on device"), ACF)
