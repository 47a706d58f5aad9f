"""Which file a pack's name means: ``store:NAME`` in a config, or a name or path given to a verb."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from boosterrun.config import SHIPPED
from boosterrun.errors import PackError, ToolchainError, UsageError
from boosterrun.packs.catalog import minor, pack_name
from boosterrun.packs.library import REPOSITORY, Library, Stored, default_root
from boosterrun.packs.names import printable
from boosterrun.system.digest import sha256_of

if TYPE_CHECKING:
    from boosterrun.packs.fetch import Wish

SCHEME = "store:"
OWN_CONFIG = frozenset({"helion", "debug"})


def locate(pack: Mapping[str, Any], ptxas: str | None, env: Mapping[str, str], *, may_fetch: bool) -> Path:
    """The path of the pack that a config's block ``pack`` means.

    Args:
        pack: the keys of PackConfig. ``path`` is a path, or ``store:NAME``: the stored release that ``tag``
            or ``sha256`` pins, else the newest for the CUDA version of ``ptxas``.
        ptxas: as configured; only looked for when nothing else decides.
        may_fetch: with ``fetch: auto``, a pack that is not stored may be fetched now.
    Raises:
        PackError: it is not in the store, or not the pinned one.  RunError: it cannot be fetched now.
    """
    path, sha256 = str(pack["path"]), pack.get("sha256")
    if not path.startswith(SCHEME):
        plain = _absolute(path)
        if sha256 is not None:
            _check_pin(plain, sha256)
        return plain
    from boosterrun.packs.fetch import Wish, fetch, source  # noqa: PLC0415 (requests; only for stored packs)

    where = source(
        env, store=pack.get("store"), repository=pack.get("repository"), base_url=pack.get("base_url")
    )
    wish = Wish(path.removeprefix(SCHEME), pack.get("tag"), sha256)
    wish.check()
    others = where.library.find(wish.name)
    found = [each for each in others if wish.tag in {None, each.tag}]
    if sha256 is not None:
        found = [stored for stored in found if stored.entry.artifact_sha256 == sha256]
    elif wish.tag is None:
        cuda = _cuda(ptxas, env)
        wish = Wish(wish.name, cuda_version=cuda)
        found = [each for each in found if cuda in {None, minor(each.entry.cuda_version)}]
    if found:
        found[-1].verify()
        return found[-1].path
    if may_fetch and pack.get("fetch") == "auto":
        stored = fetch(wish, where).stored
        sys.stderr.write(f"pack '{stored.entry.name}' fetched: {pinned(stored)}\n")
        return stored.path
    raise _absent(wish, where.library, others, pack)


def by_name(text: str, library: Library) -> Path:
    """The pack that a word given to a verb means: a path, a shipped pack, the newest stored one."""
    if "/" in text or text.startswith((".", "~")):
        return _absolute(text)
    shipped = SHIPPED / "packs" / f"booster-pack-{pack_name(text)}.zip"
    if shipped.is_file():
        return shipped
    stored = library.find(text)
    if stored:
        return stored[-1].path
    here = _absolute(text)
    if here.exists():
        return here
    raise PackError(
        f"there is no pack '{printable(text)}': no file here, not shipped, not in {library.folder}",
        f"Fetch it: {shlex.join(['boosterrun', 'pack', 'fetch', pack_name(text)])}",
    )


def library(env: Mapping[str, str], store: str | None, repository: str | None) -> Library:
    """The store as a verb's options or the environment say, for all that needs no network."""
    root = _absolute(store) if store else default_root(env)
    return Library(root, repository or env.get("BOOSTERRUN_PACK_REPOSITORY") or REPOSITORY)


def pinned(stored: Stored) -> str:
    """The overrides that make every later run use exactly this pack."""
    name = stored.entry.name
    chosen = f"pack={name}" if name in OWN_CONFIG else f"pack=stored pack.name={name}"
    return f"{chosen} pack.tag={stored.tag} pack.sha256={stored.entry.artifact_sha256}"


def _cuda(ptxas: str | None, env: Mapping[str, str]) -> str | None:
    from boosterrun.compilers import toolchain  # noqa: PLC0415 (starts ptxas)

    try:
        return toolchain.find_ptxas(ptxas, env).cuda_version
    except ToolchainError:
        return None


def _absent(wish: Wish, library: Library, others: list[Stored], pack: Mapping[str, Any]) -> PackError:
    words = ["boosterrun", "pack", "fetch", wish.name]
    for option, value in (
        ("--tag", wish.tag),
        ("--cuda", wish.cuda_version),
        ("--sha256", wish.sha256 if wish.tag else None),
        ("--store", pack.get("store")),
        ("--repository", pack.get("repository")),
        ("--base-url", pack.get("base_url")),
    ):
        words += [option, str(value)] if value is not None else []
    what = f"pack '{wish.name}'"
    if wish.tag is not None:
        what += f" of {wish.tag}"
    if wish.sha256 is not None:
        what += f" with the SHA-256 {wish.sha256[:12]}..."
    if wish.cuda_version is not None:
        what += f" for CUDA {wish.cuda_version}"
    there = ", ".join(f"{each.tag} for CUDA {each.entry.cuda_version}" for each in others[-4:])
    return PackError(
        f"{what} is not in {library.folder}" + (f" (there is {there})" if there else ""),
        f"Fetch it: {shlex.join(words)}, or give pack.fetch=auto",
    )


def _check_pin(path: Path, sha256: str) -> None:
    try:
        found = sha256_of(path)
    except IsADirectoryError:
        raise UsageError(
            f"{path} is a folder, and pack.sha256 is for a zip", "Leave pack.sha256 out"
        ) from None
    except (OSError, ValueError) as error:
        raise PackError(f"{printable(str(path))}: cannot be read: {error}", "Check the path") from None
    if found != sha256:
        raise PackError(
            f"{path}: has the SHA-256 {found[:12]}..., but {printable(sha256[:12])}... is pinned",
            "It has changed, or the pin is of another pack",
        )


def _absolute(path: str) -> Path:
    try:
        return Path(path).expanduser().absolute()
    except RuntimeError:  # "~nobody": no such user
        return Path(path).absolute()
