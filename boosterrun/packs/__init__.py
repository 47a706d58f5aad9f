"""Booster Packs: reading a directory or a zip, naming the ACFs, copying one out for a compiler."""

from __future__ import annotations

from boosterrun.packs.names import option_id
from boosterrun.packs.pack import Acf, Pack
from boosterrun.packs.reader import open_pack
from boosterrun.packs.store import materialise

__all__ = ["Acf", "Pack", "materialise", "open_pack", "option_id"]
