"""How the verbs read their arguments."""

from __future__ import annotations

import argparse
from typing import NoReturn

from boosterrun.errors import UsageError


class Parser(argparse.ArgumentParser):
    """Tells a mistake in one line like any other, instead of printing the usage. Raises UsageError."""

    def error(self, message: str) -> NoReturn:
        """Raise what ``argparse`` would print."""
        raise UsageError(f"{self.prog}: {message}", f"See {self.prog} --help")
