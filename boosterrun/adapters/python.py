"""Any Python case in resident workers with a plain environment: the smallest adapter, the one to copy."""

from __future__ import annotations

from boosterrun.measure.resident import ResidentAdapter

ADAPTER = ResidentAdapter()
