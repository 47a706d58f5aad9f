"""What a user or a machine did wrong, each with the exit code that the command ends with."""

from __future__ import annotations


class BoosterrunError(Exception):
    """An error told to the user in one line: what, where, and what to do next.

    Attributes:
        exit_code: process exit code: 1 something could not be judged, 2 bad input, 3 a canary failed.
        advice: what to do next, one sentence, or an empty string.
    """

    exit_code = 1

    def __init__(self, message: str, advice: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice

    def __str__(self) -> str:
        return f"{self.message}. {self.advice}" if self.advice else self.message


class UsageError(BoosterrunError):
    """The command line or a YAML file asks for something that does not exist or makes no sense."""

    exit_code = 2


class PackError(UsageError):
    """A pack cannot be read, or does not agree with its manifest."""


class ToolchainError(UsageError):
    """The compilers asked for are missing, too old, or of another CUDA minor version than the pack."""


class RunError(BoosterrunError):
    """A job could not be judged for no fault of its candidate (disk full, baseline broken, no compiler)."""

    exit_code = 1


class CanaryError(BoosterrunError):
    """ACFs provably do not reach the compiler in this environment."""

    exit_code = 3
