"""Which files a workload is made of, by content: those that its configuration names, and what they include.

Found by reading, nothing is run or imported. What a program opens at run time by itself is not seen.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.machinery
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)
_CXX = {".cu", ".cuh", ".c", ".cc", ".cpp", ".h", ".hpp"}
_CASE = re.compile(r"(.+):([A-Za-z_]\w*)")
_FOLDERS = "include_dirs"
_WRITTEN = {"output", "file"}  # workload.output and workload.score.file: what the program leaves
_SIZE = 64 * 2**20
_MOST = 4096


class Ingredients:
    """The files of one workload.

    Attributes:
        files: name -> sha256. Names are those of files, not paths, so that a checkout may be moved; of equal
            ones the later get numbers.
        config: the workload's configuration with each file's path replaced by its name.
    """

    def __init__(self, workload: dict[str, Any], source: Path | None) -> None:
        """``source``: the file that the adapter calls the workload's; relative paths begin where it runs."""
        self.files: dict[str, str] = {}
        self._seen: dict[Path, str] = {}
        cwd = workload.get("cwd")
        self._bases = [Path.cwd(), *([Path(cwd)] if isinstance(cwd, str) and "{" not in cwd else [])]
        self._folders: list[Path] = []
        for folder in workload.get(_FOLDERS) or ():
            self._folder(Path(folder).expanduser())
        if source is not None:
            self._add(source)
        self.config = self._replaced(workload)

    def _replaced(self, node: Any) -> Any:
        if isinstance(node, dict):
            return {k: v if k in _WRITTEN else self._replaced(v) for k, v in node.items()}
        if isinstance(node, list | tuple):
            return [self._replaced(value) for value in node]
        if not isinstance(node, str):
            return node
        found = self._named(node)
        if found is not None:
            return found
        case = _CASE.fullmatch(node)
        if case is not None:
            found = self._named(case[1]) or self._module(case[1])
        return node if case is None or found is None else f"{found}:{case[2]}"

    def _named(self, text: str) -> str | None:
        """The name of the file that a value names; None: it names none."""
        if not text or len(text) > 4096 or "\0" in text:
            return None
        for base in self._bases:
            path = base / Path(text).expanduser() if text.startswith("~/") else base / text
            try:
                # A bare word such as `softmax` may be a file by chance; a program's name is found on PATH.
                if ("/" in text or path.suffix) and path.is_file():
                    return self._add(path)
            except OSError:
                continue
        return None

    def _module(self, name: str) -> str | None:
        """A case's module, found without importing it."""
        top, *rest = name.split(".")
        try:
            spec = importlib.machinery.PathFinder.find_spec(top)
        except (ImportError, ValueError):
            return None
        if spec is None or not all(part.isidentifier() for part in (top, *rest)):
            return None
        places = [Path(place) for place in spec.submodule_search_locations or ()]
        found = [Path(spec.origin)] if spec.origin and not rest else []
        for place in places if rest else ():
            found += [place.joinpath(*rest).with_suffix(".py"), place.joinpath(*rest, "__init__.py")]
        path = next((path for path in found if path.is_file()), None)
        if path is not None:
            self._add(path)
        return name if path is not None else None

    def _folder(self, folder: Path) -> None:
        """A folder of headers: which of them count is known to the compiler alone."""
        self._folders.append(folder)
        for place, folders, names in os.walk(folder):
            folders.sort()
            for name in sorted(names):
                self._add(Path(place, name))

    def _add(self, path: Path) -> str | None:
        """Hash a file and what it includes, once. Returns its name; None where it cannot be read."""
        path = Path(os.path.realpath(path))
        if path in self._seen or len(self._seen) >= _MOST:
            return self._seen.get(path)
        try:
            with path.open("rb") as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
            text = path.read_bytes() if path.stat().st_size <= _SIZE else b""
        except OSError:
            return None
        name, number = path.name, 2
        while name in self.files:
            name, number = f"{path.name}#{number}", number + 1
        self._seen[path] = name
        self.files[name] = digest
        for other in self._included(path, text):
            self._add(other)
        return name

    def _included(self, path: Path, text: bytes) -> Iterator[Path]:
        if path.suffix in _CXX:
            for quoted in _INCLUDE.findall(text):
                for folder in (path.parent, *self._folders):
                    if (found := folder / os.fsdecode(quoted)).is_file():
                        yield found
                        break
        elif path.suffix == ".py":
            for module in _imports(text):
                place = path.parent.joinpath(*module.split("."))
                if (found := place.with_suffix(".py")).is_file():
                    yield found
                elif (place / "__init__.py").is_file():
                    yield from sorted(place.rglob("*.py"))


def _imports(text: bytes) -> Iterator[str]:
    """Modules that Python code imports; relative ones as seen from its folder."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.module:
                yield node.module
            prefix = f"{node.module}." if node.module else ""
            yield from (f"{prefix}{alias.name}" for alias in node.names if alias.name != "*")
