"""The SHA-256 of files."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from boosterrun.system.digest import sha256_if_there, sha256_of


def test_the_digest_of_a_file_and_of_none(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"content")
    assert sha256_of(path) == sha256_if_there(path) == hashlib.sha256(b"content").hexdigest()
    assert sha256_if_there(tmp_path) is None
    with pytest.raises(FileNotFoundError):
        sha256_of(tmp_path / "gone")
