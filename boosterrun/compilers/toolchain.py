"""Find ptxas and nvcc, say which was taken and why, and check that they can apply the controls of a pack."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from boosterrun.errors import RunError, ToolchainError
from boosterrun.system import process

_PROBE_SECONDS = 30.0
_VERSION = re.compile(r"\bV(\d+\.\d+\.\d+)")
_CONTROLS_OPTION = "--apply-controls"
_FIRST_CUDA = "13.3"  # the first toolkit that knows the option, and the one that our own extra installs
_WHEEL_FOLDERS = ("cu*/bin", "cuda_nvcc/bin")


@dataclass(frozen=True)
class Compiler:
    """A compiler that was found and answered.

    Attributes:
        version: complete, e.g. ``13.3.73``.
        cuda_version: the toolkit's major and minor version, e.g. ``13.3``.
        source: where it was found, and what was passed over for it.
        controls: it has the option ``--apply-controls``.
    """

    path: Path
    version: str
    cuda_version: str
    source: str
    controls: bool


@dataclass(frozen=True)
class _Place:
    """Somewhere that a compiler may be; an ``explicit`` one was chosen by the user and is never replaced."""

    path: Path
    source: str
    explicit: bool = False


def find_ptxas(configured: str | None, env: Mapping[str, str]) -> Compiler:
    """Find ptxas: as configured, as the environment says, in this Python's CUDA wheels, on PATH.

    Of those that the user did not name, the first that can apply controls is taken, else the first that
    works. Raises ToolchainError with what was looked at and how to install it.
    """
    return _find("ptxas", configured, env)


def find_nvcc(configured: str | None, env: Mapping[str, str]) -> Compiler:
    """Find nvcc in the same places and by the same rule as :func:`find_ptxas`; raises ToolchainError."""
    return _find("nvcc", configured, env)


def require_controls(compiler: Compiler) -> None:
    """Raise ToolchainError unless the compiler has ``--apply-controls`` (CUDA 13.3 and later)."""
    if not compiler.controls:
        name = compiler.path.name
        raise ToolchainError(
            f"{compiler.path} ({compiler.version}, from {compiler.source}) cannot apply ACFs: "
            f"it has no {_CONTROLS_OPTION}",
            f"{install_command(_FIRST_CUDA)}, or set toolchain.{name}=/path/to/{name} of a later CUDA",
        )


def require_cuda(compiler: Compiler, pack_cuda_version: str | None) -> None:
    """Raise ToolchainError unless the compiler is of the pack's CUDA minor version.

    ``pack_cuda_version`` is e.g. ``13.3.0`` or ``13.3``; None means unknown and passes.
    """
    if pack_cuda_version is None:
        return
    match = re.match(r"(\d+\.\d+)(\.|$)", pack_cuda_version.strip())
    if match is None:
        raise ToolchainError(
            f"the pack's CUDA version {pack_cuda_version!r} is not MAJOR.MINOR",
            "Correct cuda_version in the pack's manifest, or pack.cuda_version for a folder without one",
        )
    wanted = match[1]
    if compiler.cuda_version != wanted:
        name = compiler.path.name
        raise ToolchainError(
            f"the pack is for CUDA {wanted}, but {compiler.path} (from {compiler.source}) is "
            f"{compiler.version}; ACFs load only in their own CUDA minor version",
            f"{install_command(wanted)}, or set toolchain.{name}=/path/to/{name} of CUDA {wanted}",
        )


def install_command(cuda_version: str) -> str:
    """Return the sentence that says how to install the compilers of a CUDA minor version, e.g. ``13.3``."""
    if cuda_version == _FIRST_CUDA:
        return "Install the compilers: pip install 'boosterrun[cuda13]'"
    # pip left alone pairs nvcc with the newest nvvm and crt, so each part is pinned.
    wheels = " ".join(
        f"'{name}=={cuda_version}.*'" for name in ("nvidia-cuda-nvcc", "nvidia-nvvm", "nvidia-cuda-crt")
    )
    return f"Install the compilers: pip install {wheels}"


def _find(name: str, configured: str | None, env: Mapping[str, str]) -> Compiler:
    without_controls: Compiler | None = None
    passed_over: list[str] = []
    for place in _places(name, configured, env):
        try:
            compiler = _open(place)
        except ToolchainError as error:
            if place.explicit:
                raise
            passed_over.append(error.message)
            continue
        if place.explicit or compiler.controls:
            return _explained(compiler, passed_over)
        without_controls = without_controls or _explained(compiler, passed_over)
        passed_over.append(
            f"{compiler.path} ({place.source}) is {compiler.version}, without {_CONTROLS_OPTION}"
        )
    if without_controls is not None:
        return without_controls
    looked = [
        f"toolchain.{name}, BOOSTERRUN_{name.upper()}, CUDA_HOME and CUDA_PATH (not set or empty there)"
    ]
    looked += ["the CUDA wheels of this Python", "PATH", *passed_over]
    raise ToolchainError(
        f"no {name} found; looked at {', '.join(looked)}",
        f"{install_command(_FIRST_CUDA)}, or set toolchain.{name}=/path/to/{name}",
    )


def _places(name: str, configured: str | None, env: Mapping[str, str]) -> Iterator[_Place]:
    variable = f"BOOSTERRUN_{name.upper()}"
    for value, source in ((configured, f"toolchain.{name}"), (env.get(variable), variable)):
        if value:
            yield _Place(_named(value, env), source, explicit=True)
    seen: set[Path] = set()
    for path, source in _implicit(name, env):
        if path.is_file() and path not in seen:
            seen.add(path)
            yield _Place(path, source)


def _implicit(name: str, env: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if env.get(variable):
            yield Path(env[variable]).expanduser().absolute() / "bin" / name, variable
    for folder in _wheel_folders():
        yield folder / name, f"the CUDA wheels in {folder.parent.parent}"
    on_path = shutil.which(name, path=env.get("PATH", os.defpath))
    if on_path is not None:
        yield Path(on_path).absolute(), "PATH"


def _named(value: str, env: Mapping[str, str]) -> Path:
    """Turn what the user named into a path: a bare name is looked up on PATH, like a shell does."""
    if os.sep not in value:
        found = shutil.which(value, path=env.get("PATH", os.defpath))
        if found is not None:
            return Path(found).absolute()
    return Path(value).expanduser().absolute()


def _wheel_folders() -> list[Path]:
    """Return the folders with compilers that CUDA wheels put into this Python, the newest CUDA first."""
    spec = importlib.util.find_spec("nvidia")
    roots = list(spec.submodule_search_locations or ()) if spec is not None else []
    folders: list[Path] = []
    for pattern in _WHEEL_FOLDERS:
        folders += sorted((folder for root in roots for folder in Path(root).glob(pattern)), reverse=True)
    return folders


def _open(place: _Place) -> Compiler:
    path = place.path
    try:
        stat = path.stat()
    except OSError as error:
        raise ToolchainError(
            f"{path} (from {place.source}) cannot be used: {error.strerror}", _remedy(place)
        ) from error
    if not path.is_file() or not os.access(path, os.X_OK):
        raise ToolchainError(f"{path} (from {place.source}) is not an executable file", _remedy(place))
    try:
        version, controls = _probe(path, stat.st_mtime_ns, stat.st_size)
    except RunError as error:
        raise ToolchainError(
            f"{path} (from {place.source}) does not work: {error.message}", _remedy(place)
        ) from error
    cuda_version = version.rpartition(".")[0]
    return Compiler(path, version, cuda_version, place.source, controls)


def _remedy(place: _Place) -> str:
    return f"Correct or unset {place.source}" if place.explicit else ""


def _explained(compiler: Compiler, passed_over: list[str]) -> Compiler:
    if not passed_over:
        return compiler
    source = f"{compiler.source} (passed over: {'; '.join(passed_over)})"
    return Compiler(compiler.path, compiler.version, compiler.cuda_version, source, compiler.controls)


@lru_cache(maxsize=64)
def _probe(path: Path, mtime_ns: int, size: int) -> tuple[str, bool]:
    """Ask a compiler for its version and options; the time and size make a changed file a new question."""
    del mtime_ns, size
    said = _ask(path, "--version")
    match = _VERSION.search(said)
    if match is None:
        raise RunError(f"its --version says no CUDA version but {said.strip()[:200]!r}")
    return match[1], _CONTROLS_OPTION in _ask(path, "--help")


def _ask(path: Path, option: str) -> str:
    completed = process.run([str(path), option], timeout=_PROBE_SECONDS)
    if completed.timed_out:
        raise RunError(f"no answer to {option} within {_PROBE_SECONDS:.0f} s")
    if completed.returncode != 0:
        ending = (
            f"exit code {completed.returncode}" if completed.signal is None else f"signal {completed.signal}"
        )
        raise RunError(f"{option} ended with {ending}: {completed.stderr.strip()[:200]!r}")
    return completed.stdout
