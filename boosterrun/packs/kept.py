"""The kept rows of a ``booster-pack-log.csv``: their ACFs, from the packs that they were in."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from boosterrun.errors import BoosterrunError, PackError, UsageError
from boosterrun.packs.gathered import Candidate, Gathered
from boosterrun.packs.names import printable
from boosterrun.packs.pack import Acf, Pack
from boosterrun.packs.reader import open_pack

if TYPE_CHECKING:
    import pandas as pd


def read(path: Path, packs: Sequence[Path], found: Gathered) -> None:
    """Add each ACF that a job of the log kept. Raises UsageError if none was, PackError if one is lost."""
    from boosterrun.results.csvlog import read_log  # noqa: PLC0415 (pandas)

    log = read_log(path)
    kept = log[(log["job_decision"] == "KEPT") & log["acf_sha256"].notna()]
    for _ in range(len(log) - len(kept)):
        found.leave_out("not kept")
    if kept.empty:
        raise UsageError(f"{printable(str(path))}: no ACF was kept", "There is nothing to make a pack of")
    for sha256, rows in kept.groupby("acf_sha256", sort=False):
        pack, acf = _find(path, str(sha256), rows, packs)
        found.candidates.append(
            Candidate(
                filename=acf.filename,
                data=pack.read(acf),
                description=_description(acf, rows),
                stages=acf.compiler_stages,
                cuda_version=pack.cuda_version or _first(rows["cuda_version"]),
                gpu=_first(rows["gpu_model"]),
            )
        )


def _find(log: Path, sha256: str, rows: pd.DataFrame, packs: Sequence[Path]) -> tuple[Pack, Acf]:
    """The ACF by its content: in the given packs, else in the pack that its results name."""
    for where in (*packs, *_recorded(log, rows)):
        with suppress(PackError):
            pack = open_pack(where)
            for acf in pack.acfs:
                if acf.sha256 == sha256:
                    return pack, acf
    name = printable(str(_first(rows["acf_filename"])))
    raise PackError(
        f"{printable(str(log))}: the kept ACF '{name}' of pack '{_first(rows['pack_id'])}' is not at hand",
        "Give its pack with --pack",
    )


def _recorded(log: Path, rows: pd.DataFrame) -> list[Path]:
    from boosterrun.results import record  # noqa: PLC0415

    found = []
    for where in rows["result"].dropna():
        with suppress(BoosterrunError):
            pack: dict[str, Any] = record.load(log.parent / str(where)).get("pack") or {}
            if pack.get("location"):
                found.append(Path(pack["location"]))
    return list(dict.fromkeys(found))


def _description(acf: Acf, rows: pd.DataFrame) -> str:
    said = []
    for row in rows.to_dict("records"):
        gain, where = row["gain"], f"{row['workload']}, {row['shape']}"
        if isinstance(gain, float) and math.isfinite(gain):
            said.append(f"{gain:+.2%} ({row['evidence']}; {where}; {_text(row['gpu_model'])})")
    return "; ".join(([acf.description] if acf.description else []) + [f"kept: {', '.join(said)}"])


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "no GPU"


def _first(values: pd.Series[Any]) -> Any:
    present = values.dropna()
    return None if present.empty else str(present.iloc[0])
