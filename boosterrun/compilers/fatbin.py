"""Take the cubins out of shared objects and executables, where compilers of CUDA C++ put them."""

from __future__ import annotations

import shutil
from pathlib import Path

from boosterrun.errors import RunError, ToolchainError
from boosterrun.system import leftovers, process

_SECONDS = 120.0
_NONE = "does not contain device code"


def find_cuobjdump(compiler: Path | None) -> Path:
    """Return cuobjdump beside a compiler, else on PATH. Raises ToolchainError."""
    beside = compiler.parent / "cuobjdump" if compiler is not None else None
    if beside is not None and beside.is_file():
        return beside
    found = shutil.which("cuobjdump")
    if found is None:
        raise ToolchainError(
            f"no cuobjdump beside {compiler} or on PATH: nothing can be proven of compiled programs",
            "pip install nvidia-cuda-cuobjdump of the same version as the compiler",
        )
    return Path(found)


def cubins(program: Path, cuobjdump: Path) -> list[bytes]:
    """Return every cubin in a shared object or executable, in order; none when it has no device code.

    PTX that the driver would compile is not looked at. Raises RunError when cuobjdump cannot read the file.
    """
    with leftovers.scratch("boosterrun-cubins-") as folder:
        argv = [str(cuobjdump), "-xelf", "all", str(program.absolute())]
        done = process.run(argv, timeout=_SECONDS, cwd=folder)
        if done.returncode != 0:
            text = f"{done.stderr}\n{done.stdout}".strip()
            if _NONE in text:
                return []
            raise RunError(f"cuobjdump cannot read {program}: {text[:400] or 'no words'}", "Check the file")
        return [path.read_bytes() for path in sorted(folder.glob("*.cubin"), key=_number)]


def _number(path: Path) -> tuple[int, str]:
    """The place of ``name.12.sm_90a.cubin`` in its program."""
    part = path.name.split(".")[-3] if path.name.count(".") >= 3 else ""
    return int(part) if part.isdigit() else 0, path.name
