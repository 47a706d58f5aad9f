"""What Triton compiles for the host is compiled once for many fresh caches, and nothing else is shared."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from compilers import script

SOURCE = """
#include <Python.h>
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "answer", NULL, -1, NULL};
PyMODINIT_FUNC PyInit_answer(void) {
  PyObject *made = PyModule_Create(&module);
  PyModule_AddIntConstant(made, "value", VALUE);
  return made;
}
"""
PROGRAM = """
import json, os, sys
from pathlib import Path
from boosterrun.hooks import triton_once
from triton import knobs
from triton.runtime import build, cache
if sys.argv[3] == "own":
    original = build._build
    def own(name, src, srcdir, *rest):
        knobs.build.impl = None
        try: return original(name, src, srcdir, *rest, [])
        finally: knobs.build.impl = own
    knobs.build.impl = own
triton_once.share_host_code(Path(sys.argv[1]))
triton_once.forget_installation()
module = build.compile_module_from_src(sys.argv[2], "answer")
made = [str(path) for path in Path(os.environ["TRITON_CACHE_DIR"]).rglob("*") if path.is_file()]
print(json.dumps({"value": module.value, "file": module.__file__, "made": made, "key": cache.triton_key()}))
"""
Program = Callable[..., tuple[dict[str, Any], int]]


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """Run it with a cache of its own; returns what it says, and how often the C compiler ran."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    calls = tmp_path / "calls"
    cc = script(tmp_path / "bin" / "cc", f'echo call >> {calls}\nexec {compiler} "$@"')
    shared = tmp_path / "sweep" / "shared"
    shared.parent.mkdir()

    def run(name: str, value: int = 42, builder: str = "", **env: str) -> tuple[dict[str, Any], int]:
        calls.write_text("")
        variables = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path / name), "CC": str(cc), **env}
        source = SOURCE.replace("VALUE", str(value))
        argv = [sys.executable, "-c", PROGRAM, str(shared), source, builder]
        done = subprocess.run(argv, env=variables, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout), len(calls.read_text().splitlines())

    return run


def test_a_fresh_cache_takes_host_code_from_the_sweep(program: Program, tmp_path: Path) -> None:
    first, compiled = program("first")
    assert (first["value"], compiled) == (42, 1)
    second, compiled = program("second")
    assert (second["value"], compiled) == (42, 0)
    # Loaded from the side's own cache, which holds that module and nothing else.
    assert Path(second["file"]).is_relative_to(tmp_path / "second")
    assert second["made"] == [second["file"]]
    assert first["key"] == second["key"]


def test_what_is_asked_of_another_compiler_or_for_another_source_is_compiled(
    program: Program, tmp_path: Path
) -> None:
    program("first")
    assert program("other", value=43)[1] == 1
    other = tmp_path / "bin" / "other-cc"
    shutil.copy(tmp_path / "bin" / "cc", other)
    assert program("another", CC=str(other))[1] == 1


def test_a_builder_of_the_case_is_asked_as_ever(program: Program) -> None:
    program("first")
    for name in ("second", "third"):
        found, compiled = program(name, builder="own")
        assert (found["value"], compiled) == (42, 1)


def test_a_folder_that_is_gone_or_full_costs_nothing_but_time(program: Program, tmp_path: Path) -> None:
    (tmp_path / "sweep").rmdir()
    assert program("first")[0]["value"] == 42
    assert program("second")[1] == 1
