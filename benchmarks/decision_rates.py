#!/usr/bin/env python3
"""Error rates, power and cost of the shipped decision under simulated noise.

Each noise model drives sweeps of 30 candidates: once all of them null, once a realistic mix. The vectorised
path here does what ``boosterrun.decision.decide.decide`` does, for many candidates at a time; a random sample
of candidates is replayed through ``decide`` itself, and any difference in verdict, number of pairs or gain
ends the run with an error.

    python benchmarks/decision_rates.py --sweeps 1000 --json benchmarks/results/decision_rates.json
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from boosterrun.decision.budget import confirm_quota, hopeful_gain
from boosterrun.decision.decide import TAIL_ALPHA, Pair, Protocol, decide
from boosterrun.decision.evidence import CLIP_SCALES, STAKES, noise_scale, sign_p
from boosterrun.decision.interval import prediction_interval, t_quantile
from boosterrun.decision.tail import SLOW_LAUNCH

Array = NDArray[np.float64]
Ints = NDArray[np.int_]
Bools = NDArray[np.bool_]
Session = tuple[Array, Array, Bools]  # log-times of baseline and candidate, baseline first
Part = tuple[str, int, Array, Array, Bools]

CANDIDATES = 30
EFFECTS = (-0.05, -0.01, 0.0, 0.005, 0.01, 0.02, 0.05, 0.20)
MIX = np.repeat(EFFECTS, (4, 5, 12, 3, 2, 2, 1, 1))
WARM = 2  # launches that each session throws away
REFERENCE_LAUNCHES = 300


@dataclass(frozen=True)
class Noise:
    """Multiplicative noise of one launch, by launch number within a session; fractions throughout."""

    sigma: float = 0.01
    ramp: float = 0.0  # slow-down reached after 300 launches; negative: the machine frees up
    ramp_tau: float = 0.0  # launches; 0: linear
    ramp_either: bool = False
    outlier: float = 0.0  # share of launches slower by a factor of 1.2 to 3
    slow_share: float = 0.0  # share of launches in the slow clock state
    slow_by: float = 0.05
    slow_stay: float = 0.0  # P(next launch is in the slow state too); 0: independent
    ar: float = 0.0
    ar_sd: float = 0.0
    second: float = 0.0  # every second launch is slower by this
    candidate_tail: float = 0.0  # share of the candidate's launches slower by 1.3
    process_sd: float = 0.0  # offset of the candidate, new in each fresh process

    def draw(self, rng: np.random.Generator, rows: int, launches: int) -> Array:
        """Log-times (rows, launches) of independent sessions."""
        z = rng.normal(0.0, self.sigma, (rows, launches))
        t = np.arange(launches)
        if self.ramp:
            sign = rng.choice((-1.0, 1.0), (rows, 1)) if self.ramp_either else math.copysign(1.0, self.ramp)
            z += (
                sign
                * math.log1p(abs(self.ramp))
                * (-np.expm1(-t / self.ramp_tau) if self.ramp_tau else t / 300)
            )
        if self.outlier:
            hit = np.nonzero(rng.random(z.shape) < self.outlier)
            z[hit] += np.log(rng.uniform(1.2, 3.0, hit[0].size))
        if self.slow_share:
            z += math.log1p(self.slow_by) * self._slow(rng, rows, launches)
        if self.ar:
            level = rng.normal(0.0, self.ar_sd, rows)
            for i in range(launches):
                z[:, i] += level
                level = self.ar * level + rng.normal(0.0, self.ar_sd * math.sqrt(1 - self.ar**2), rows)
        return z + self.second * (t % 2)

    def _slow(self, rng: np.random.Generator, rows: int, launches: int) -> Bools:
        u = rng.random((rows, launches))
        if not self.slow_stay:
            return u < self.slow_share
        enter = (1 - self.slow_stay) * self.slow_share / (1 - self.slow_share)
        slow = np.empty((rows, launches), bool)
        slow[:, 0] = u[:, 0] < self.slow_share
        for i in range(1, launches):
            slow[:, i] = u[:, i] < np.where(slow[:, i - 1], self.slow_stay, enter)
        return slow


NOISES = {
    "iid 0.5%": Noise(0.005),
    "iid 1%": Noise(),
    "iid 2%": Noise(0.02),
    "iid 3%": Noise(0.03),
    "ramp +2% (warms up), s=1%": Noise(ramp=0.02),
    "ramp +5% (warms up), s=1%": Noise(ramp=0.05),
    "ramp -2% (frees up), s=1%": Noise(ramp=-0.02),
    "ramp -5% (frees up), s=1%": Noise(ramp=-0.05),
    "exp ramp 5% either way, s=1%": Noise(ramp=0.05, ramp_tau=60, ramp_either=True),
    "outliers 2%, s=1%": Noise(outlier=0.02),
    "bimodal iid 30%x1.05, s=0.5%": Noise(0.005, slow_share=0.3),
    "bimodal sticky .97, s=0.5%": Noise(0.005, slow_share=0.3, slow_stay=0.97),
    "AR(1) .9 sd1%, s=0.5%": Noise(0.005, ar=0.9, ar_sd=0.01),
    "AR(1) .99 sd1%, s=0.5%": Noise(0.005, ar=0.99, ar_sd=0.01),
    "2nd of each two launches +1.5%": Noise(second=0.015),
    "candidate-only tail 20%x1.3": Noise(candidate_tail=0.2),
    "kitchen sink": Noise(
        0.0075,
        ramp=0.03,
        ramp_either=True,
        outlier=0.02,
        slow_share=0.2,
        slow_by=0.03,
        slow_stay=0.95,
        ar=0.95,
        ar_sd=0.0075,
    ),
    "process offsets sd 0.3%, s=0.5%": Noise(0.005, process_sd=0.003),
    "process offsets sd 0.5%, s=0.5%": Noise(0.005, process_sd=0.005),
    "process offsets sd 0.3%, s=0.1%": Noise(0.001, process_sd=0.003),
    "process offsets sd 0.5%, s=0.1%": Noise(0.001, process_sd=0.005),
    "process offsets sd 0.5%, s=2%": Noise(0.02, process_sd=0.005),
    "process offsets sd 0.9%, s=0.5%": Noise(0.005, process_sd=0.009),
}
SOME = (
    "iid 1%",
    "iid 2%",
    "outliers 2%, s=1%",
    "kitchen sink",
    "process offsets sd 0.5%, s=0.5%",
    "process offsets sd 0.9%, s=0.5%",
)
SCREEN = Protocol()
FIXED = Protocol(method="fixed")
SHIP = Protocol(every_shape=True, confirm_sessions=5, confirm_min_pairs=100, confirm_max_pairs=200)


@dataclass
class Outcome:
    """What became of each candidate of a batch; arrays of one entry per candidate."""

    reason: NDArray[np.str_]
    launches: Array
    gain: Array
    inside: Array  # 1 when a repetition in new processes fell in the interval, nan when not kept


class Batch:
    """Many candidates through the sequential protocol at a time; ``gain`` (rows,) is each one's true gain."""

    def __init__(self, noise: Noise, protocol: Protocol, gain: Array, rng: np.random.Generator) -> None:
        self.noise, self.protocol, self.rng = noise, protocol, rng
        self.effect = np.log1p(gain)
        self.rows = gain.size

    def measure(self, rows: Ints, pairs: int, null: bool = False) -> Session:
        """One session: log-times of baseline and candidate (rows, pairs), whether the baseline ran first."""
        z = self.noise.draw(self.rng, rows.size, WARM + 2 * pairs)[:, WARM:].reshape(rows.size, pairs, 2)
        first = self.rng.random((rows.size, pairs)) < 0.5
        a, b = np.where(first, z[..., 0], z[..., 1]), np.where(first, z[..., 1], z[..., 0])
        if not null:
            b = b - self.effect[rows, None] + self.rng.normal(0.0, self.noise.process_sd, (rows.size, 1))
            if self.noise.candidate_tail:
                b = b + math.log(1.3) * (self.rng.random(b.shape) < self.noise.candidate_tail)
        return a, b, first

    def bets(self, x: Array, rows: Ints) -> tuple[Array, Array]:
        unit = CLIP_SCALES * self.scale[rows, None]
        hope = np.log1p(self.hope[rows, None])
        return np.clip(x / unit, -1, 1), np.clip((hope - x) / unit, -1, 1)

    def run(self) -> Outcome:
        protocol, everyone = self.protocol, np.arange(self.rows)
        sweeps = self.rows // CANDIDATES
        aa = self.measure(np.arange(sweeps), protocol.calibration_pairs, null=True)
        self.aa = tuple(np.repeat(v, CANDIDATES, axis=0) for v in aa)
        scale = np.array([noise_scale(x) for x in aa[0] - aa[1]])
        self.scale = np.repeat(scale, CANDIDATES)
        self.hope = np.repeat([hopeful_gain(float(v), CANDIDATES, protocol) for v in scale], CANDIDATES)

        self.screened = self.measure(everyone, protocol.max_pairs)
        plus, minus = (wealth(g) for g in self.bets(self.screened[0] - self.screened[1], everyone))
        log_plus, log_minus = log_mean(plus), log_mean(minus)
        look = np.arange(1, protocol.max_pairs + 1) >= protocol.min_pairs
        out = first_true((log_minus >= math.log(protocol.futility_evidence)) & look)
        on = first_true((log_plus >= math.log(protocol.screen_evidence)) & look)
        self.screen_pairs = np.minimum(np.minimum(out, on) + 1, protocol.max_pairs)
        reason = np.where(out <= on, "no_gain", "confirm").astype("U16")
        reason[np.minimum(out, on) >= protocol.max_pairs] = "inconclusive"
        launches = (2 * protocol.calibration_pairs + WARM) / CANDIDATES + 2.0 * self.screen_pairs + WARM

        self.quota = np.zeros(self.rows, int)
        self.sessions: list[tuple[Ints, Array, Array, Bools]] = []
        self.taken = np.zeros(self.rows, int)
        active = np.flatnonzero(reason == "confirm")
        at = self.screen_pairs[active] - 1
        start = [w[active, at] for w in (plus, minus)]
        for row, value in zip(active, log_plus[active, at], strict=True):
            self.quota[row] = confirm_quota(value, int(self.screen_pairs[row]), CANDIDATES, protocol)
        session = 0
        while active.size:
            session += 1
            width = int(self.quota[active].max())
            a, b, first = self.measure(active, width)
            self.sessions.append((active, a, b, first))
            paths = [wealth(g) + w[:, None] for g, w in zip(self.bets(a - b, active), start, strict=True)]
            quota = self.quota[active]
            out = first_true(log_mean(paths[1]) >= math.log(protocol.futility_evidence))
            stopped = out < quota
            ran = np.where(stopped, out + 1, quota)
            self.taken[active] += ran
            launches[active] += 2.0 * ran + WARM
            reason[active[stopped]] = "no_gain"
            start = [p[np.arange(active.size), ran - 1] for p in paths]
            go_on = ~stopped
            if session >= protocol.confirm_sessions:
                enough = go_on & (log_mean(start[0]) >= math.log(CANDIDATES / protocol.alpha))
                reason[active[enough]] = "enough"
                over = go_on & ~enough & ((session + 1) * quota > protocol.confirm_max_pairs)
                reason[active[over]] = "inconclusive"
                go_on &= ~enough & ~over
            active, start = active[go_on], [s[go_on] for s in start]
        return self._verdicts(reason, launches)

    def fresh(self, row: int) -> list[Session]:
        """The sessions of the confirm step of one candidate, cut where it stopped."""
        found, left = [], int(self.taken[row])
        for rows, a, b, first in self.sessions:
            if left <= 0:
                break
            i = int(np.searchsorted(rows, row))
            n = min(left, int(self.quota[row]))
            found.append((a[i, :n], b[i, :n], first[i, :n]))
            left -= n
        return found

    def _verdicts(self, reason: NDArray[np.str_], launches: Array) -> Outcome:
        gain, inside = np.full(self.rows, np.nan), np.full(self.rows, np.nan)
        ended = np.flatnonzero(reason == "enough")
        cells: dict[tuple[int, int], list[int]] = {}
        for row in ended:
            cells.setdefault((int(self.quota[row]), int(self.taken[row])), []).append(int(row))
        for (quota, taken), rows_list in cells.items():
            rows = np.array(rows_list)
            count = taken // quota
            parts = [self.fresh(int(r)) for r in rows]
            a = np.array([np.concatenate([p[0] for p in part]) for part in parts])
            b = np.array([np.concatenate([p[1] for p in part]) for part in parts])
            gain[rows] = np.expm1(hodges_lehmann(a - b))
            small = gain[rows] < self.protocol.min_gain
            reason[rows[small]] = "no_gain"
            again = [self.measure(rows, quota) for _ in range(count)]
            repeated = np.expm1(hodges_lehmann(np.hstack([v[0] - v[1] for v in again])))
            for i, row in enumerate(rows):
                if small[i]:
                    continue
                if self._tail(int(row), parts[i]) < TAIL_ALPHA:
                    reason[row] = "fat_tail"
                    continue
                reason[row] = "KEPT"
                x = [p[0] - p[1] for p in parts[i]]
                low, high = prediction_interval(
                    x,
                    float(self.scale[row]),
                    self.protocol.calibration_pairs - 1,
                    self.protocol.process_spread,
                )
                inside[row] = math.expm1(low) <= repeated[i] <= math.expm1(high)
        return Outcome(reason, launches, gain, inside)

    def _tail(self, row: int, parts: list[Session]) -> float:
        n = int(self.screen_pairs[row])
        worse = better = 0
        for a, b in [(self.screened[0][row, :n], self.screened[1][row, :n]), *((p[0], p[1]) for p in parts)]:
            slow = [t > SLOW_LAUNCH * np.median(t) for t in (np.exp(a), np.exp(b))]
            worse += int((slow[1] & ~slow[0]).sum())
            better += int((slow[0] & ~slow[1]).sum())
        return sign_p(worse, better)

    def pairs(self, row: int) -> list[Pair]:
        """The pairs that this candidate was judged by, as the runner would have stored them."""
        n = int(self.screen_pairs[row])
        aa, screened = ([v[row] for v in session] for session in (self.aa, self.screened))
        parts: list[Part] = [
            ("calibrate", 0, aa[0], aa[1], aa[2]),
            ("screen", 0, screened[0][:n], screened[1][:n], screened[2][:n]),
            *(("confirm", i, a, b, first) for i, (a, b, first) in enumerate(self.fresh(row), 1)),
        ]
        return as_pairs(parts)


def as_pairs(parts: list[Part]) -> list[Pair]:
    """Pairs of one launch a side from (phase, session, log baseline, log candidate, baseline first)."""
    return [
        Pair(phase, session, "bc" if f else "cb", (math.exp(x),), (math.exp(y),))
        for phase, session, a, b, first in parts
        for x, y, f in zip(a, b, first, strict=True)
    ]


def wealth(scores: Array) -> Array:
    """Log-wealth of each stake after each pair: (rows, n) to (rows, n, stakes)."""
    return np.cumsum(np.log1p(scores[..., None] * np.array(STAKES)), axis=1)


def log_mean(logs: Array) -> Array:
    """Logarithm of the mean over the last axis of exp(logs)."""
    top = logs.max(axis=-1)
    return np.asarray(top + np.log(np.exp(logs - top[..., None]).mean(axis=-1)))


def first_true(hit: Bools) -> Ints:
    """Per row the index of the first True, or the row's length."""
    return np.asarray(np.where(hit.any(axis=1), hit.argmax(axis=1), hit.shape[1]))


def hodges_lehmann(x: Array) -> Array:
    """Row-wise Hodges-Lehmann estimate."""
    i, j = np.triu_indices(x.shape[1])
    return np.asarray(np.median((x[:, i] + x[:, j]) / 2, axis=1))


def prove(batch: Batch, outcome: Outcome, sample: int, rng: np.random.Generator) -> int:
    """Replay a random sample through ``decide``; raises AssertionError on any difference, returns the count.

    Half of the sample is drawn from the candidates that reached the confirm step.
    """
    reached = np.flatnonzero(batch.taken > 0)
    rows = set(rng.choice(batch.rows, min(sample, batch.rows), replace=False).tolist())
    if reached.size:
        rows |= set(rng.choice(reached, min(sample, reached.size), replace=False).tolist())
    for row in rows:
        pairs = batch.pairs(row)
        got = decide(pairs, batch.protocol, CANDIDATES)
        # The batch tells kept from not kept; which words go with a rejection is left to decide.
        alike = (got.reason == "KEPT") == (outcome.reason[row] == "KEPT")
        assert got.state == "final" and alike, (row, got, outcome.reason[row])
        assert (got.reason == "fat_tail") == (outcome.reason[row] == "fat_tail"), row
        assert decide(pairs[:-1], batch.protocol, CANDIDATES).state != "final", row
        if not math.isnan(outcome.gain[row]):
            assert math.isclose(got.gain or 0.0, outcome.gain[row], rel_tol=1e-9, abs_tol=1e-12), row
    return len(rows)


def rates(noise: Noise, protocol: Protocol, sweeps: int, seed: int, sample: int) -> dict[str, Any]:
    """One line of the table."""
    rng = np.random.default_rng(seed)
    nulls = Batch(noise, protocol, np.zeros(sweeps * CANDIDATES), rng)
    null = nulls.run()
    mix = np.tile(MIX, sweeps)
    mixed = Batch(noise, protocol, mix, rng)
    out = mixed.run()
    replayed = prove(nulls, null, sample, rng) + prove(mixed, out, sample, rng)
    kept0, kept = null.reason == "KEPT", out.reason == "KEPT"
    known = out.inside[~np.isnan(out.inside)]
    two = kept & (mix == 0.02)
    return {
        "false_keep_per_null": float(kept0.mean()),
        "false_keep_per_null_sweep": float(kept0.reshape(-1, CANDIDATES).any(axis=1).mean()),
        "false_keep_per_mixed_sweep": float((kept & (mix <= 0)).reshape(-1, CANDIDATES).any(axis=1).mean()),
        "kept": {f"{e:g}": float(kept[mix == e].mean()) for e in EFFECTS},
        "launches_null": float(null.launches.mean()),
        "launches_mix": float(out.launches.mean()),
        "launches": {f"{e:g}": float(out.launches[mix == e].mean()) for e in EFFECTS},
        "interval_coverage": float(known.mean()) if known.size else None,
        "coverage": {
            f"{e:g}": float(np.nanmean(out.inside[kept & (mix == e)]))
            for e in EFFECTS
            if (kept & (mix == e)).any()
        },
        "bias_at_2%": float(out.gain[two].mean() - 0.02) if two.any() else None,
        "replayed_through_decide": replayed,
    }


def fixed_rates(noise: Noise, protocol: Protocol, sweeps: int, seed: int) -> dict[str, Any]:
    """One line of the table for a protocol with a fixed count; every candidate goes through ``decide``."""
    rng = np.random.default_rng(seed)
    per_session = protocol.trials // protocol.confirm_sessions
    kept: list[Bools] = []
    mix = np.tile(MIX, sweeps)
    for gain in (np.zeros(mix.size), mix):
        batch = Batch(noise, protocol, gain, rng)
        sessions = [
            batch.measure(np.arange(gain.size), per_session) for _ in range(protocol.confirm_sessions)
        ]
        verdicts = [
            decide(
                as_pairs([("confirm", i, a[k], b[k], f[k]) for i, (a, b, f) in enumerate(sessions, 1)]),
                protocol,
                CANDIDATES,
            )
            for k in range(gain.size)
        ]
        assert all(v.state == "final" for v in verdicts)
        kept.append(np.array([v.reason == "KEPT" for v in verdicts]))
    launches = float(2 * protocol.trials + WARM * protocol.confirm_sessions)
    return {
        "false_keep_per_null_sweep": float(kept[0].reshape(-1, CANDIDATES).any(axis=1).mean()),
        "kept": {f"{e:g}": float(kept[1][mix == e].mean()) for e in EFFECTS},
        "launches_null": launches,
        "launches_mix": launches,
        "interval_coverage": None,
    }


def usual_rates(noise: Noise, sweeps: int, seed: int) -> dict[str, Any]:
    """The usual rule, to compare: 50 launches a side dropped, 100 timed, baseline first, then Welch's t."""
    rng = np.random.default_rng(seed)
    kept: list[Bools] = []
    mix = np.tile(MIX, sweeps)
    for gain in (np.zeros(mix.size), mix):
        z = noise.draw(rng, gain.size, REFERENCE_LAUNCHES)
        tail = math.log(1.3) * (rng.random((gain.size, 100)) < noise.candidate_tail)
        offset = rng.normal(0.0, noise.process_sd, (gain.size, 1))
        a, b = np.exp(z[:, 100:200]), np.exp(z[:, 200:] - np.log1p(gain)[:, None] + tail + offset)
        error = np.sqrt((a.var(axis=1, ddof=1) + b.var(axis=1, ddof=1)) / 100)
        kept.append((a.mean(axis=1) - b.mean(axis=1)) / error > t_quantile(198))
    return {
        "false_keep_per_null_sweep": float(kept[0].reshape(-1, CANDIDATES).any(axis=1).mean()),
        "kept": {f"{e:g}": float(kept[1][mix == e].mean()) for e in EFFECTS},
        "launches_null": float(REFERENCE_LAUNCHES),
        "launches_mix": float(REFERENCE_LAUNCHES),
        "interval_coverage": None,
    }


HEADER = (
    "noise",
    "any false keep, 30 nulls",
    *(f"{100 * e:+g}%" for e in EFFECTS),
    "launches null",
    "launches mix",
    "repeat in interval",
)


def row(name: str, r: dict[str, Any]) -> str:
    """One line of the markdown table."""
    cover = "" if r["interval_coverage"] is None else f"{100 * r['interval_coverage']:.0f}%"
    cells = [
        name,
        f"{100 * r['false_keep_per_null_sweep']:.1f}%",
        *(f"{100 * v:.0f}" for v in r["kept"].values()),
    ]
    return "| " + " | ".join([*cells, f"{r['launches_null']:.0f}", f"{r['launches_mix']:.0f}", cover]) + " |"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sweeps", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--sample", type=int, default=100, help="candidates per batch replayed through decide"
    )
    parser.add_argument(
        "--other-sweeps", type=int, default=100, help="sweeps of the protocols fixed and ship"
    )
    parser.add_argument("--only", default="", help="models whose name contains this")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    began = time.perf_counter()
    names = [name for name in NOISES if args.only in name]
    print("| " + " | ".join(HEADER) + " |\n" + "|---" * len(HEADER) + "|")
    results: dict[str, dict[str, Any]] = {"screen": {}, "fixed": {}, "ship": {}, "usual": {}}
    for name in names:
        r = results["screen"][name] = rates(NOISES[name], SCREEN, args.sweeps, args.seed, args.sample)
        print(row(name, r), flush=True)
    for name in (n for n in names if n in SOME):
        r = results["fixed"][name] = fixed_rates(NOISES[name], FIXED, args.other_sweeps, args.seed)
        print(row(f"fixed: {name}", r), flush=True)
        r = results["ship"][name] = rates(NOISES[name], SHIP, args.other_sweeps, args.seed, args.sample)
        print(row(f"ship: {name}", r), flush=True)
    for name in (n for n in names if n in (*SOME, "ramp -2% (frees up), s=1%")):
        r = results["usual"][name] = usual_rates(NOISES[name], args.other_sweeps, args.seed)
        print(row(f"usual: {name}", r), flush=True)
    if args.json:
        report = {
            "command": f"python benchmarks/decision_rates.py --sweeps {args.sweeps} --seed {args.seed}",
            "candidates": CANDIDATES,
            "reference_launches": REFERENCE_LAUNCHES,
            "sweeps": {"screen": args.sweeps, "others": args.other_sweeps},
            "protocols": {"screen": asdict(SCREEN), "fixed": asdict(FIXED), "ship": asdict(SHIP)},
            "seconds": round(time.perf_counter() - began, 1),
            "rates": results,
        }
        args.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
