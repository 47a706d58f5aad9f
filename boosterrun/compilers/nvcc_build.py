"""Build a CUDA program with nvcc, with and without an ACF, and read back what came out."""

from __future__ import annotations

import contextlib
import re
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path

from boosterrun.compilers import compilation, cubin, fatbin, resources
from boosterrun.compilers.nvcc_options import Plan
from boosterrun.compilers.proof import Code
from boosterrun.errors import RunError
from boosterrun.measure import quiet
from boosterrun.system import process
from boosterrun.system.digest import sha256_if_there
from boosterrun.system.process import Completed

_OUTPUT_LIMIT = 16 << 20
_KEPT_OUTPUT = 8000
_PROGRAM = "program"
_DEPENDENCIES = "program.d"
# libnvvm says this of every ACF that it cannot read: the stage is wrong only if the ACF is not for it.
_NOT_FOR_NVVM = re.compile(r"libnvvm\s*:\s*error\s*:\s*invalid compiler controls file", re.IGNORECASE)
_ENTRY = re.compile(r"^(?=.*Compiling entry function ')", re.MULTILINE)
_ENTRY_NAME = re.compile(r"Compiling entry function '(.+?)'")


@dataclass(frozen=True)
class Program:
    """One run of nvcc and what it made.

    Attributes:
        returncode: exit code; None when a signal ended it.
        seconds: wall time. output: what nvcc and its tools printed, its middle dropped when it is long.
        failure: (reason, the compiler's words); None when it succeeded, and only then there is the rest.
        image: the executable, kept in memory so that nothing can change it between jobs.
        codes: the cubins in it that have kernels. dependencies: sha256 of each compiled file, by path.
        changed: a compiled file that was written meanwhile: nobody knows which content is in it.
    """

    command: tuple[str, ...]
    returncode: int | None
    seconds: float
    output: str
    failure: tuple[str, str] | None
    image: bytes = b""
    codes: tuple[Code, ...] = ()
    dependencies: Mapping[str, str] | None = None
    changed: str | None = None

    def install(self, folder: Path) -> Path:
        """Write the executable into ``folder`` and return its path. Raises RunError when there is no room."""
        path = folder / _PROGRAM
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self.image)
            path.chmod(0o755)
        except OSError as error:
            raise RunError(f"cannot write {path}: {error.strerror}", "Free some space") from error
        return path

    def current(self) -> bool:
        """Whether every file that was compiled still has the same content."""
        return self.changed is None and self.dependencies == _hashes(self.dependencies or {})


class Baselines:
    """The baseline of each plan, built once per process and again when one of its sources has changed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._programs: dict[object, Program] = {}

    def get(self, plan: Plan, make: Callable[[], Program]) -> Program:
        """Return the baseline of ``plan``, built by ``make`` where it is not there; failures are not kept."""
        with self._lock:
            program = self._programs.get(plan)
            if program is None or not program.current():
                program = make()
                if program.failure is None:
                    self._programs[plan] = program
            return program


class Early:
    """Candidates that are built before their turn, in the background, never while pairs are timed."""

    def __init__(self) -> None:
        self._offered: dict[object, Future[Program]] = {}
        self._batches = quiet.Batches()

    def offer(self, key: object, make: Callable[[], Program], most: int) -> bool:
        """Begin to build if the batch has room (``most``); return whether this one is on its way."""
        if key not in self._offered:
            if not self._batches.room(len(self._offered), most):
                return False
            future = self._offered[key] = Future()
            threading.Thread(target=_fulfil, args=(future, make), daemon=True).start()
        return True

    def take(self, key: object) -> Program | None:
        """Wait for what was offered; None where nothing was, or where its own turn may do better."""
        future = self._offered.pop(key, None)
        if future is None or future.exception() is not None:
            return None
        program = future.result()
        in_time = program.failure is None or program.failure[0] != "compile_timeout"
        return program if in_time and (program.failure or program.current()) else None


def _fulfil(future: Future[Program], make: Callable[[], Program]) -> None:
    try:
        with quiet.building():
            future.set_result(make())
    except BaseException as error:  # whoever waits must learn of it; it fails again in its own turn
        future.set_exception(error)


def build(
    plan: Plan,
    controls: Path | None,
    stages: Sequence[str],
    folder: Path,
    *,
    timeout: float,
    grace: float,
    base: Mapping[str, str],
) -> Program:
    """Build ``plan`` in ``folder``, emptied; ``controls`` None is the baseline. Times are in seconds.

    A compiler that fails is a Program with ``failure``. Raises RunError when the machine is at fault.
    """
    temporary = folder / "tmp"
    try:
        shutil.rmtree(folder, ignore_errors=True)  # of a build before its turn
        temporary.mkdir(parents=True)
        begun = temporary.stat().st_mtime_ns
    except OSError as error:
        raise RunError(f"cannot make {temporary}: {error.strerror}", "Free some space") from error
    env = plan.environment(base, temporary)
    argv = plan.command(controls, stages, _PROGRAM)
    extra = ("-MD", "-MF", _DEPENDENCIES) if len(plan.sources) == 1 else ()
    done = process.run(
        (*argv, *extra), timeout=timeout, grace=grace, env=env, cwd=folder, stdout_limit=_OUTPUT_LIMIT
    )
    fault = compilation.environment_fault(done)
    if fault is not None:
        raise RunError(f"nvcc could not write in {folder}: {fault}", "Make room there")
    text = done.stderr + done.stdout
    failure = _failure(done, controls, stages)
    if failure is None and not (folder / _PROGRAM).is_file():
        failure = (
            "compile_error",
            f"nvcc ended well but left no program; it said: {compilation.words(text)}",
        )
    if failure is not None:
        return Program(argv, done.returncode, done.seconds, _bounded(text), failure)
    if not extra:
        _list_dependencies(plan, folder, env, timeout)
    names = _dependencies(folder)
    return Program(
        argv,
        done.returncode,
        done.seconds,
        _bounded(text),
        None,
        (folder / _PROGRAM).read_bytes(),
        _codes(folder / _PROGRAM, plan, text),
        _hashes(names),
        _written_since(begun, names),
    )


def part_without(codes: Sequence[Code], controls: Path) -> str | None:
    """Name the kernels of a cubin of which a part was compiled without the ACF; None: all were with it."""
    for code in codes:
        parts = [tool.options.split() for tool in code.cubin.tools if tool.name == "ptxas"]
        if any(str(controls) not in words for words in parts):
            return code.names
    return None


def _failure(done: Completed, controls: Path | None, stages: Sequence[str]) -> tuple[str, str] | None:
    failure = compilation.classify(done, controls)
    if failure is None or failure[0] != "unsupported_stage" or "nvcc" not in stages:
        return failure
    said = _NOT_FOR_NVVM.search(failure[1])
    return ("acf_invalid", failure[1]) if said else failure


def _codes(program: Path, plan: Plan, text: str) -> tuple[Code, ...]:
    """The cubins with kernels, each with the part of ``ptxas -v`` that is about it."""
    parts = {}
    for part in _ENTRY.split(text):
        name = _ENTRY_NAME.search(part)
        if name is not None:
            parts[name[1]] = part
    codes = []
    for number, data in enumerate(fatbin.cubins(program, fatbin.find_cuobjdump(plan.nvcc.path)), 1):
        image = cubin.read(data)
        # Linked relocatable code has a note for each of its parts: equal ones say nothing new.
        image = replace(image, tools=tuple(dict.fromkeys(image.tools)))
        if not image.kernels:  # what the linker leaves when there is nothing to link
            continue
        log = "".join(parts.get(kernel.name, "") for kernel in image.kernels)
        facts = {"log": log} if _complete(log, image) else {}
        codes.append(Code(f"{program}#{number}", image, None, facts))
    return tuple(codes)


def _complete(log: str, image: cubin.Cubin) -> bool:
    """Whether ptxas told about each kernel: of relocatable code, separate functions are in the cubin too."""
    try:
        resources.measure(log, image)
    except RunError:
        return False
    return True


def _list_dependencies(plan: Plan, folder: Path, env: Mapping[str, str], timeout: float) -> None:
    """Of several sources nvcc lists only the last one's dependencies while it compiles: ask once more."""
    argv = plan.dependency_command()
    done = process.run(argv, timeout=timeout, env=env, cwd=folder, stdout_limit=_OUTPUT_LIMIT)
    if done.returncode != 0 or done.truncated:
        words = compilation.words(done.stderr)
        raise RunError(f"nvcc cannot list what it compiles: {words}", f"Run {' '.join(argv)}")
    (folder / _DEPENDENCIES).write_text(done.stdout)


def _dependencies(folder: Path) -> list[str]:
    """The files in nvcc's list of dependencies, which has the format of make."""
    try:
        text = (folder / _DEPENDENCIES).read_text(errors="surrogateescape").replace("\\\n", " ")
    except OSError as error:
        raise RunError(
            f"nvcc left no list of dependencies in {folder}: {error.strerror}",
            "Check that toolchain.nvcc is NVIDIA's nvcc itself, not a wrapper",
        ) from error
    names = []
    for line in text.splitlines():
        _, _, right = line.partition(" : ")
        names += [
            re.sub(r"\\([ #])", r"\1", n).replace("$$", "$") for n in re.findall(r"(?:\\.|[^\s\\])+", right)
        ]
    return sorted({str((folder / name).absolute()) for name in names})


def _hashes(names: Sequence[str] | Mapping[str, str]) -> dict[str, str]:
    """The sha256 of each file; of one that is gone, nothing."""
    found = {name: sha256_if_there(Path(name)) for name in names}
    return {name: digest for name, digest in found.items() if digest is not None}


def _written_since(begun: int, names: Sequence[str]) -> str | None:
    """A file that was written after ``begun`` (ns). Times to come are another clock's: no sign."""
    for name in names:
        with contextlib.suppress(OSError):
            if begun < Path(name).stat().st_mtime_ns <= time.time_ns():
                return name
    return None


def _bounded(text: str) -> str:
    if len(text) <= _KEPT_OUTPUT:
        return text
    half = _KEPT_OUTPUT // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters dropped ...]\n{text[-half:]}"
