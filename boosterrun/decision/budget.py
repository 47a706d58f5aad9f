"""How many pairs are worth measuring, and for what gain."""

from __future__ import annotations

import math

from boosterrun.decision.pairs import Protocol

PACE = 1.5
HOPEFUL = 2 / 3
POWER_MARGIN = 12.0


def confirm_quota(log_plus: float, screened: int, family: int, protocol: Protocol) -> int:
    """Pairs per fresh process pair: what is missing, at two thirds of the pace of the screen, shared out."""
    least = math.ceil(protocol.confirm_min_pairs / protocol.confirm_sessions)
    most = protocol.confirm_max_pairs // protocol.confirm_sessions
    missing = math.log(family / protocol.alpha) - log_plus
    wanted = math.ceil(PACE * missing * screened / log_plus / protocol.confirm_sessions)
    return min(most, max(least, wanted))


def smallest_detectable_gain(scale: float, family: int, protocol: Protocol) -> float:
    """About the gain that the whole budget finds 4 times of 5; ``scale``: noise of one pair (log-ratio).

    Growth of the evidence, x^2 / 2 scale^2 a pair, against what is needed; the margin was fitted to
    simulations.
    """
    needed = math.log(family / protocol.alpha) + POWER_MARGIN
    pairs = protocol.max_pairs + protocol.confirm_max_pairs
    return max(protocol.min_gain, math.expm1(scale * math.sqrt(2.0 * needed / pairs)))


def hopeful_gain(scale: float, family: int, protocol: Protocol) -> float:
    """The least gain worth going on for: ``min_gain``, or what this noise leaves some hope for."""
    return max(protocol.min_gain, HOPEFUL * smallest_detectable_gain(scale, family, protocol))
