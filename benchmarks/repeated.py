"""The same sweep twice, with fresh caches: does each KEPT come back?

    python benchmarks/repeated.py flashinfer --out benchmarks/results/h200_flashinfer --override timeouts.build=600
    python benchmarks/repeated.py --folders FIRST SECOND --out benchmarks/results/h200_flashinfer

Writes both logs, and a summary with the wall seconds, the seconds of each phase, and both verdicts of each ACF.
"""  # noqa: E501

from __future__ import annotations

import argparse
import datetime
import json
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from ground_truth import sweep


def results(folder: Path) -> dict[str, dict[str, Any]]:
    """The results of a sweep by the name of their job."""
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("*/result.json"))]
    return {r["job"]["id"]: r for r in found}


def one(found: dict[str, dict[str, Any]], seconds: float | None) -> dict[str, Any]:
    """What one sweep took and decided."""
    phases = sorted({name for r in found.values() for name in r["phases"]})
    return {
        "wall_seconds": None if seconds is None else round(seconds, 1),
        "canary_seconds": next((r["environment"]["canary"].get("seconds") for r in found.values()), None),
        "seconds_by_phase": {
            n: round(sum(r["phases"].get(n, 0.0) for r in found.values()), 2) for n in phases
        },
        "decisions": dict(Counter(r["decision"] or "undecided" for r in found.values())),
    }


def verdict(result: dict[str, Any] | None) -> dict[str, Any] | None:
    """The decision on a candidate, and each shape's with its gain and interval in per cent."""
    if result is None:
        return None
    shapes = {
        s["name"]: [s["decision"], _percent(s["gain"]), [_percent(v) for v in s["interval"] or ()]]
        for s in result["shapes"]
    }
    return {"decision": result["decision"], "shapes": shapes}


def _percent(value: float | None) -> float | None:
    return None if value is None else round(100 * value, 2)


def main() -> int:
    """Run both sweeps, or read them, and write the summary. Returns 1 if a KEPT does not come back."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("workload", nargs="?")
    parser.add_argument("--folders", nargs=2, type=Path, help="two sweeps that have been run")
    parser.add_argument("--seconds", nargs=2, type=float, default=[None, None], help="what those took")
    parser.add_argument("--override", action="append", default=[], help="passed on to boosterrun")
    parser.add_argument("--out", type=Path, required=True, help="where to, without a suffix")
    options = parser.parse_args()
    runs = (
        list(zip(options.folders, options.seconds, strict=True))
        if options.folders
        else [sweep(options.workload, options.override) for _ in range(2)]
    )
    found = [results(folder) for folder, _ in runs]
    first = next(iter(found[0].values()))
    before = first["environment"]["gpu"]["before"]
    kept = [{name for name, r in each.items() if r["decision"] == "KEPT"} for each in found]
    report = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "gpu": next((device["name"] for device in before["devices"]), None),
        "driver": before["driver_version"],
        "versions": first["environment"]["versions"],
        "toolchain": {k: v["version"] for k, v in first["toolchain"].items() if isinstance(v, dict)},
        "workload": first["workload"]["name"],
        "runs": [one(each, seconds) for each, (_, seconds) in zip(found, runs, strict=True)],
        "kept_in_both": sorted(kept[0] & kept[1]),
        "kept_once": sorted(kept[0] ^ kept[1]),
        "acfs": {name: [verdict(each.get(name)) for each in found] for name in sorted(found[0] | found[1])},
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n")
    for number, (folder, _) in enumerate(runs, 1):
        target = options.out.with_name(f"{options.out.name}_{number}.csv")
        shutil.copyfile(folder / "booster-pack-log.csv", target)
    sys.stdout.write(f"kept in both: {report['kept_in_both']}; once: {report['kept_once']}\n")
    return int(bool(kept[0] - kept[1]))


if __name__ == "__main__":
    raise SystemExit(main())
