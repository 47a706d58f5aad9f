"""Tell from how a side failed what was wrong: in the compiler's own words, not a framework's."""

from __future__ import annotations

import re
from pathlib import Path

from boosterrun.compilers import compilation
from boosterrun.errors import RunError
from boosterrun.measure.api import SideFailed
from boosterrun.system.process import Completed

# How frameworks say how their compiler ended: an exit code, or a signal.
_EXIT_CODE = re.compile(r"(?:failed with error code|returned non-zero exit status) (-?\d+)")
_SIGNAL = re.compile(r"`?ptxas`? raised SIGSEGV|died with <Signals\.\w+: (\d+)>")
_COMPILER = re.compile(
    r"`?\bptxas\b`? (?:stderr|fatal|error|failed|raised)|PTX codegen error|Compiler controls file"
    r"|\b(?:nvcc|cicc|libnvvm)\b.*\b(?:error|fatal)\b",
    re.IGNORECASE,
)
_STDERR = re.compile(r"`ptxas` stderr:\n(.*?)\n?Repro command", re.DOTALL)
_SEGMENTATION_FAULT = 11


def explain(failure: SideFailed, acf: Path | None) -> tuple[str, str]:
    """Return the reason of a rejection (boosterrun.decision.policy) and words, a compiler's by its own.

    ``acf`` is the ACF's path that the side was given, None for a baseline. Raises RunError when the machine
    made the compiler fail (disk full).
    """
    kind = "runtime_error" if failure.kind == "protocol_error" else failure.kind
    if kind != "compile_error":
        return kind, failure.message
    text = next((t for t in (failure.message, failure.output_tail) if _COMPILER.search(t)), None)
    if text is None:
        return kind, failure.message
    done = _completed(text)
    fault = compilation.environment_fault(done)
    if fault is not None:
        raise RunError(f"the compiler of the {failure.side} could not write: {fault}", "Make room there")
    reason, words = compilation.classify(done, acf) or (kind, compilation.words(text))
    return reason, words


def _completed(text: str) -> Completed:
    """What is known of the compiler's run when all that is left of it is an exception's text."""
    said, code = _SIGNAL.search(text), _EXIT_CODE.search(text)
    stderr = _STDERR.search(text)
    number = -int(said[1] or _SEGMENTATION_FAULT) if said else int(code[1]) if code else 255
    # 128 and more may be a shell's way to tell a signal; 255 is what ptxas itself ends with.
    return Completed(
        argv=(),
        returncode=number if number > 0 else None,
        signal=-number if number < 0 else None,
        stdout="",
        stderr=stderr[1] if stderr else text,
        seconds=0.0,
        timed_out=False,
        truncated=False,
    )
