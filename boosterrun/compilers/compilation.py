"""Tell from how a compiler ended why it failed: a reason for the decision, and the compiler's own words."""

from __future__ import annotations

import re
import signal
from pathlib import Path

from boosterrun.system.process import Completed

_MAX_LINES = 3
_MAX_CHARACTERS = 1000

_ENVIRONMENT = re.compile(
    r"No space left on device|Failed to write to out|Output file '.*' could not be opened|Disk quota exceeded"
)
_OTHER_CONTROLS = re.compile(r"incompatible redefinition for option '-*apply-controls'")
# In order: the first that is found decides.
_REASONS = (
    (
        re.compile(
            r"Segmentation fault|died due to signal|Internal (compiler )?error|core dumped"
            r"|Assertion .* failed|terminate called after",
            re.IGNORECASE,
        ),
        "compiler_crash",
    ),
    (
        re.compile(
            r"apply-controls\S* is not supported on this target"
            r"|libnvvm\s*:\s*error\s*:\s*invalid compiler controls file",
            re.IGNORECASE,
        ),
        "unsupported_stage",
    ),
    (
        re.compile(r"Unknown option|Unsupported \.version|Unsupported gpu architecture", re.IGNORECASE),
        "toolchain_mismatch",
    ),
)
_SPEAKS = re.compile(
    r"\b(error|fatal|warning|fault|died|dumped|invalid|not supported)\b|Assertion|terminate", re.IGNORECASE
)


def classify(completed: Completed, acf: Path | None) -> tuple[str, str] | None:
    """Return why a compiler run failed as (reason, the compiler's words), or None when it did its job.

    ``acf`` is the path that the run was given, None for a baseline. Reasons: ``compile_timeout``,
    ``compiler_crash``, ``acf_not_applied`` (another file took the place of this one), ``acf_invalid``,
    ``unsupported_stage``, ``toolchain_mismatch``, ``compile_error``.
    """
    text = f"{completed.stderr}\n{completed.stdout}"
    reason = _reason(completed, text, acf)
    if reason is None:
        return None
    said = words(text)
    if reason == "compile_timeout":
        fact = f"killed after {completed.seconds:.1f} s"
    elif (number := _signal(completed)) is not None:
        fact = f"ended by {_signal_name(number)}"
    else:
        fact = f"exit code {completed.returncode}"
    return reason, f"{said} ({fact})" if said else fact


def environment_fault(completed: Completed) -> str | None:
    """Return the compiler's words when the machine made it fail (disk full, folder gone), else None."""
    if completed.returncode == 0:
        return None
    if completed.signal == signal.SIGXFSZ:
        return "file size limit exceeded"
    text = f"{completed.stderr}\n{completed.stdout}"
    return words(text) if _ENVIRONMENT.search(text) else None


def words(text: str) -> str:
    """Return the lines in which a compiler complains, else its last ones, as one line of bounded length."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    complaints = list(dict.fromkeys(line for line in lines if _SPEAKS.search(line)))
    chosen = complaints[:_MAX_LINES] or lines[-_MAX_LINES:]
    said = "; ".join(re.sub(r"\s+", " ", line) for line in chosen)
    if len(said) > _MAX_CHARACTERS:
        said = said[: _MAX_CHARACTERS - 4] + " ..."
    more = len(complaints) - _MAX_LINES
    return f"{said}; and {more} more" if more > 0 else said


def _reason(completed: Completed, text: str, acf: Path | None) -> str | None:
    if completed.timed_out:
        return "compile_timeout"
    if _signal(completed) is not None:
        return "compiler_crash"
    if _OTHER_CONTROLS.search(text):  # only a warning: the compiler goes on with the last file named
        return "acf_not_applied"
    if completed.returncode == 0:
        return None
    if acf is not None and _refuses(text, acf):
        return "acf_invalid"
    return next((reason for pattern, reason in _REASONS if pattern.search(text)), "compile_error")


def _refuses(text: str, acf: Path) -> bool:
    quoted = re.escape(f"'{acf}'")
    # libnvvm says the first as well, in lower case, when it is only the stage that is wrong.
    said = rf"Invalid compiler controls file|{quoted} (not in expected format|could not be opened)"
    return re.search(said, text) is not None


def _signal(completed: Completed) -> int | None:
    """Return the signal that ended the compiler, also when a shell in between says 128 + signal."""
    if completed.signal is not None:
        return completed.signal
    code = completed.returncode
    return code - 128 if code is not None and 128 < code < 128 + signal.NSIG else None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
