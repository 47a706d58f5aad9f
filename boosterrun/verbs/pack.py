"""``boosterrun pack list|show|fetch|verify|make``."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from boosterrun.verbs.parser import Parser

if TYPE_CHECKING:
    from boosterrun.packs.fetch import Source

EPILOG = """\
  boosterrun pack fetch helion                    the newest release of NVIDIA's Helion pack
  boosterrun pack fetch helion --cuda 13.3        the newest for this toolkit
  boosterrun pack show helion                     what it is for, and its ACFs
  boosterrun -m 'acf=glob(*)' pack=helion ...     sweep it
  boosterrun pack make booster-pack-mine.zip results.csv --cuda-version 13.3
"""


def run(argv: Sequence[str]) -> int:
    """Do what ``argv`` (after ``pack``) says. Returns the exit code: 1 if a verification found something.

    Raises BoosterrunError.
    """
    options = _parser().parse_args(argv)
    act: int = options.act(options)
    return act


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        "boosterrun pack",
        description="Booster Packs: get, look at, check and make them.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(metavar="ACTION", required=True)

    store = Parser(add_help=False)
    store.add_argument("--store", metavar="DIR", help="where fetched packs are kept (BOOSTERRUN_PACK_STORE)")
    store.add_argument(
        "--repository", metavar="OWNER/NAME", help="whose releases (BOOSTERRUN_PACK_REPOSITORY)"
    )
    network = Parser(add_help=False)
    network.add_argument(
        "--base-url", metavar="URL", help="API of a mirror or GitHub Enterprise (BOOSTERRUN_PACK_BASE_URL)"
    )
    network.add_argument("--attempts", type=_positive, metavar="N", help="how often to try each file")
    network.add_argument("--backoff", type=_seconds, metavar="S", help="seconds before the second attempt")

    one = verbs.add_parser("list", parents=[store, network], help="packs on this machine, or on offer")
    one.add_argument("--remote", action="store_true", help="ask which releases there are")
    one.set_defaults(act=_list)

    one = verbs.add_parser("show", parents=[store], help="one pack: what it is for, and its ACFs")
    one.add_argument("pack", metavar="PATH|NAME")
    one.set_defaults(act=_show)

    one = verbs.add_parser("fetch", parents=[store, network], help="download a pack into the store")
    one.add_argument("pack", metavar="NAME")
    one.add_argument("--tag", help="of this release, such as booster-packs-2026.05.27")
    one.add_argument("--sha256", help="only the zip with this SHA-256")
    one.add_argument("--cuda", metavar="13.3", help="of the newest release for this CUDA version")
    one.add_argument(
        "--from", metavar="DIR", dest="folder", type=Path, help="from a copy of a release, no network"
    )
    one.set_defaults(act=_fetch)

    one = verbs.add_parser("verify", parents=[store], help="check a pack, or a folder with a release")
    one.add_argument("pack", metavar="PATH|NAME")
    one.set_defaults(act=_verify)

    one = verbs.add_parser("make", help="make a pack of ACF files, of what a log kept, or of a search")
    one.add_argument("out", metavar="OUT.zip", type=Path)
    one.add_argument(
        "sources", metavar="SOURCE", nargs="+", type=Path, help=".acf file, folder, log or results CSV"
    )
    one.add_argument("--cuda-version", metavar="13.3", help="toolkit of the ACFs (default: what a log says)")
    one.add_argument(
        "--stage", choices=("ptxas", "nvcc", "both"), help="compilers of the ACFs (default: ptxas)"
    )
    one.add_argument(
        "--gpu", action="append", default=[], metavar="NAME", help="GPU they are meant for; repeatable"
    )
    one.add_argument(
        "--top", type=_positive, default=24, metavar="K", help="best K of a search (default: 24)"
    )
    one.add_argument("--maximize", action="store_true", help="higher scores of the search are better")
    one.add_argument(
        "--pack", action="append", default=[], type=Path, metavar="PATH", help="where a log's ACFs are"
    )
    one.add_argument("--name", help="display name")
    one.add_argument("--description")
    one.add_argument("--notice", help="instead of NVIDIA's")
    one.add_argument("--force", action="store_true", help="replace OUT.zip")
    one.set_defaults(act=_make)
    return parser


def _list(options: argparse.Namespace) -> int:
    from boosterrun.config import SHIPPED  # noqa: PLC0415
    from boosterrun.packs import find, open_pack, show  # noqa: PLC0415

    if options.remote:
        from boosterrun.packs.fetch import remote  # noqa: PLC0415

        _say(show.on_offer(remote(_source(options))))
        return 0
    library = find.library(os.environ, options.store, options.repository)
    shipped = [open_pack(path) for path in sorted((SHIPPED / "packs").glob("*.zip"))]
    _say(show.at_hand(shipped, library.stored()))
    return 0


def _show(options: argparse.Namespace) -> int:
    from boosterrun.packs import find, match, open_pack, show  # noqa: PLC0415

    library = find.library(os.environ, options.store, options.repository)
    pack = open_pack(find.by_name(options.pack, library))
    _say(show.describe(pack))
    for warning in match.warnings(pack):
        sys.stderr.write(f"boosterrun: warning: {warning}\n")
    return 0


def _fetch(options: argparse.Namespace) -> int:
    from boosterrun.packs.catalog import pack_name  # noqa: PLC0415
    from boosterrun.packs.fetch import Wish, copy, fetch  # noqa: PLC0415
    from boosterrun.packs.find import pinned  # noqa: PLC0415

    wish = Wish(pack_name(options.pack), options.tag, options.sha256, options.cuda)
    source = _source(options)
    fetched = fetch(wish, source) if options.folder is None else copy(wish, source, options.folder)
    stored = fetched.stored
    how = "fetched and verified" if fetched.new else "in the store already, and verified"
    _say(f"{stored.entry.name} of {stored.tag}, for CUDA {stored.entry.cuda_version}: {how}\n{stored.path}")
    _say(f"To use exactly this one: {pinned(stored)}")
    return 0


def _verify(options: argparse.Namespace) -> int:
    from boosterrun.packs import find  # noqa: PLC0415
    from boosterrun.packs.verify import verify  # noqa: PLC0415

    library = find.library(os.environ, options.store, options.repository)
    path = find.by_name(options.pack, library)
    findings = verify(path)
    for warning in findings.warnings:
        _say(f"warning: {warning}")
    for problem in findings.problems:
        _say(f"problem: {' '.join(str(problem).split())}")
    acfs = sum(len(pack.acfs) for pack in findings.packs)
    verdict = f"{len(findings.problems)} problems" if findings.problems else "good"
    _say(f"{path}: {verdict}; {len(findings.packs)} packs, {acfs} ACFs")
    return 1 if findings.problems else 0


def _make(options: argparse.Namespace) -> int:
    from boosterrun.packs import make  # noqa: PLC0415
    from boosterrun.packs.candidates import gather  # noqa: PLC0415

    found = gather(options.sources, top=options.top, maximise=options.maximize, packs=options.pack)
    label = make.Label(
        display_name=options.name,
        description=options.description,
        cuda_version=options.cuda_version,
        stage=options.stage,
        gpus=tuple(options.gpu),
        notice=make.NOTICE if options.notice is None else options.notice,
    )
    out = make.write(options.out, found.candidates, label, replace=options.force)
    _say(f"{out}: {len(found.candidates)} ACFs")
    for reason, count in found.left_out.items():
        _say(f"left out: {count} ({reason})")
    return 0


def _source(options: argparse.Namespace) -> Source:
    from boosterrun.packs.fetch import source  # noqa: PLC0415
    from boosterrun.packs.http import Patience  # noqa: PLC0415

    given = {"attempts": options.attempts, "backoff": options.backoff}
    return source(
        os.environ,
        store=options.store,
        repository=options.repository,
        base_url=options.base_url,
        patience=Patience(**{key: value for key, value in given.items() if value is not None}),
    )


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text) < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return int(text)


def _seconds(text: str) -> float:
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", text):
        raise argparse.ArgumentTypeError("must be a number of seconds")
    return float(text)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
