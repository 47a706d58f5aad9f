"""ACFs on their way into a new pack, whatever they come from."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Candidate:
    """One ACF for a pack; ``beside`` maps the names of further files that go with it to their content."""

    filename: str
    data: bytes
    description: str
    stages: tuple[str, ...] | None = None
    cuda_version: str | None = None
    gpu: str | None = None
    beside: dict[str, bytes] = field(default_factory=dict)

    @property
    def sha256(self) -> str:
        """The SHA-256 of the content."""
        return hashlib.sha256(self.data).hexdigest()


@dataclass
class Gathered:
    """Candidates in the order of their sources, and how many rows or files were left out, by reason."""

    candidates: list[Candidate] = field(default_factory=list)
    left_out: dict[str, int] = field(default_factory=dict)

    def leave_out(self, reason: str) -> None:
        """Count one that does not go into the pack."""
        self.left_out[reason] = self.left_out.get(reason, 0) + 1
