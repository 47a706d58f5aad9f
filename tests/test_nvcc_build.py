"""Programs by the real nvcc, with real ACFs; and stand-ins in front of it that lie."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import nvcc_programs
import pytest
from compilers import KERNELS, controls
from nvcc_programs import both_stages, script

from boosterrun import packs
from boosterrun.compilers import nvcc_build, nvcc_options
from boosterrun.compilers.cubin import applied_controls
from boosterrun.compilers.nvcc_build import Baselines, Early, Program
from boosterrun.compilers.toolchain import Compiler
from boosterrun.config import NvccMode, NvccWorkload
from boosterrun.errors import RunError
from boosterrun.packs import Acf
from boosterrun.sweeps import canary

Build = Callable[..., Program]


@pytest.fixture
def build(tmp_path: Path) -> Build:
    source = nvcc_programs.plain(tmp_path / "source")
    count = iter(range(100))

    def make(
        acf: tuple[Acf, Path] | None = None,
        *,
        arch: str = "sm_90a",
        nvcc: Compiler | None = None,
        base: dict[str, str] | None = None,
        timeout: float = 60.0,
        folder: str | None = None,
        **keys: Any,
    ) -> Program:
        keys = {"sources": [str(source)], "flags": [], **keys}
        workload = NvccWorkload(name="plain", shapes={"default": {}}, mode=NvccMode.program, **keys)
        return nvcc_build.build(
            nvcc_options.plan(workload, arch, nvcc or nvcc_programs.nvcc()),
            acf[1] if acf else None,
            acf[0].compiler_stages if acf else (),
            tmp_path / (folder or f"build-{next(count)}"),
            timeout=timeout,
            grace=0.2,
            base={**os.environ, **(base or {})},
        )

    return make


def notes(program: Program) -> set[str]:
    assert program.failure is None, program.failure
    return {" ".join(applied_controls(code.cubin)) for code in program.codes}


def damaged(acf: tuple[Acf, Path], root: Path) -> tuple[Acf, Path]:
    path = root / "damaged.acf"
    root.mkdir(exist_ok=True)
    path.write_bytes(canary.damaged(acf[1].read_bytes()))
    return acf[0], path


def test_a_baseline_has_no_controls_and_all_that_is_recorded(build: Build, tmp_path: Path) -> None:
    program = build()
    assert notes(program) == {""}
    assert (program.returncode, program.command[0]) == (0, str(nvcc_programs.nvcc().path))
    assert [code.names for code in program.codes] == ["work"] and program.codes[0].version == "13.3.73"
    assert program.codes[0].arch == "sm_90a"
    assert "Compiling entry function 'work'" in program.codes[0].facts["log"]
    assert {str(tmp_path / "source" / name) for name in ("plain.cu", "amount.h")} <= set(
        program.dependencies or {}
    )
    path = program.install(tmp_path / "side")
    assert subprocess.run([path], capture_output=True, check=True).stdout == b"time: 0.5 ms\n"


def test_a_stage_of_ptxas_reaches_ptxas_alone(build: Build, tmp_path: Path) -> None:
    acf = controls(tmp_path, 3)
    program = build(acf)
    assert notes(program) == {str(acf[1])}
    assert program.codes[0].cubin.code_sha256 != build().codes[0].cubin.code_sha256


def test_a_stage_of_nvcc_reaches_both_compilers_on_sm_100(build: Build, tmp_path: Path) -> None:
    source = tmp_path / "sgemm.cu"
    source.write_text(f'#include "{KERNELS}/sgemm.cu"\nint main() {{ return 0; }}\n')
    acf, path = both_stages(tmp_path)
    whole = build((acf, path), arch="sm_100a", sources=[str(source)])
    half = build((replace(acf, compiler_stages=("ptxas",)), path), arch="sm_100a", sources=[str(source)])
    assert notes(whole) == notes(half) == {str(path)}
    assert whole.codes[0].cubin.code_sha256 != half.codes[0].cubin.code_sha256


def test_on_sm_90_the_stage_of_nvcc_fails_in_its_own_words(build: Build, tmp_path: Path) -> None:
    program = build(both_stages(tmp_path))
    assert program.failure is not None and program.failure[0] == "unsupported_stage"
    assert "-apply-controls is not supported on this target" in program.failure[1]


@pytest.mark.parametrize(("both", "arch"), [(False, "sm_90a"), (False, "sm_100a"), (True, "sm_100a")])
def test_a_damaged_acf_is_poison_for_every_stage(build: Build, tmp_path: Path, both: bool, arch: str) -> None:
    acf = damaged(both_stages(tmp_path) if both else controls(tmp_path, 1), tmp_path / "damaged")
    program = build(acf, arch=arch)
    assert program.failure is not None and program.failure[0] == "acf_invalid", program.failure
    assert "ompiler controls file" in program.failure[1] and program.image == b""


def test_an_acf_for_ptxas_handed_to_nvcc_is_told_apart_from_a_damaged_one(
    build: Build, tmp_path: Path
) -> None:
    acf, path = controls(tmp_path, 1)
    wrong = replace(acf, compiler_stages=("nvcc", "ptxas"))
    program = build((wrong, path), arch="sm_100a")
    assert (
        program.failure is not None
        and "libnvvm : error: invalid compiler controls file" in program.failure[1]
    )


def test_source_that_does_not_compile(build: Build, tmp_path: Path) -> None:
    (tmp_path / "bad.cu").write_text("int main() { return nothing; }\n")
    program = build(sources=[str(tmp_path / "bad.cu")])
    assert program.failure is not None and program.failure[0] == "compile_error"
    assert 'identifier "nothing" is undefined' in program.failure[1] and program.returncode == 2


def test_relocatable_code_of_several_sources(build: Build, tmp_path: Path) -> None:
    (tmp_path / "one.cu").write_text(
        "__device__ float f(float);\n__global__ void one(float* x) { x[0] = f(x[1]); }\n"
        "int main() { return 0; }\n"
    )
    (tmp_path / "with space.h").write_text("#define TWO 2\n")
    (tmp_path / "two.cu").write_text(
        '#include "with space.h"\n__device__ float f(float a) { return a * TWO; }\n'
        "__global__ void two(float* x) { x[0] = f(x[1]); }\n"
    )
    acf = controls(tmp_path, 2)
    names = [str(tmp_path / name) for name in ("one.cu", "two.cu")]
    program = build(acf, sources=names, flags=["-rdc=true"])
    assert notes(program) == {str(acf[1])}
    assert {*names, str(tmp_path / "with space.h")} <= set(program.dependencies or {})
    assert nvcc_build.part_without(program.codes, acf[1]) is None
    assert nvcc_build.part_without(build(sources=names, flags=["-rdc=true"]).codes, acf[1])


def test_options_of_the_shell_do_not_reach_nvcc(build: Build, tmp_path: Path) -> None:
    mine, other = controls(tmp_path, 1), controls(tmp_path, 2)
    base = {"NVCC_APPEND_FLAGS": f"-Xptxas --apply-controls={other[1]}", "NVCC_PREPEND_FLAGS": "-O0 -G"}
    assert notes(build(mine, base=base)) == {str(mine[1])}
    assert notes(build(base=base)) == {""}


def test_if_they_did_the_other_acf_would_be_found_out(build: Build, tmp_path: Path) -> None:
    mine, other = controls(tmp_path, 1), controls(tmp_path, 2)
    lie = script(
        tmp_path / "bin" / "nvcc", f"sys.exit(real([*args, '-Xptxas', '--apply-controls={other[1]}']))\n"
    )
    program = build(mine, nvcc=lie)
    assert program.failure is not None and program.failure[0] == "acf_not_applied"
    assert "incompatible redefinition for option 'apply-controls'" in program.failure[1]


# A compiler cache that takes an option's text for the content of the file it names. It can be disabled.
CACHE = """
import hashlib, json, shutil
from pathlib import Path
store = Path(__file__).parent / "store"
store.mkdir(exist_ok=True)
key = store / hashlib.sha256(json.dumps([a for a in args if KEEP(a)]).encode()).hexdigest()
output, listed = args[args.index("-o") + 1], args[args.index("-MF") + 1]
if not env.get("CCACHE_DISABLE") and key.is_file():
    shutil.copy(key, output), shutil.copy(f"{key}.d", listed)
    sys.exit(0)
code = real()
if code == 0:
    shutil.copy(output, key), shutil.copy(listed, f"{key}.d")
sys.exit(code)
"""


def test_a_cache_around_nvcc_is_disabled(build: Build, tmp_path: Path) -> None:
    cache = script(tmp_path / "bin" / "nvcc", "KEEP = lambda a: True\n" + CACHE)
    acf = controls(tmp_path, 1)
    moved = tmp_path / "acf.acf"
    moved.write_bytes(acf[1].read_bytes())
    first = build((acf[0], moved), nvcc=cache)
    moved.write_bytes(controls(tmp_path, 5)[1].read_bytes())
    second = build((acf[0], moved), nvcc=cache)
    assert first.codes[0].cubin.code_sha256 != second.codes[0].cubin.code_sha256
    moved.write_bytes(canary.damaged(acf[1].read_bytes()))
    assert (build((acf[0], moved), nvcc=cache).failure or ("built",))[0] == "acf_invalid"


def test_a_cache_that_will_not_be_disabled_leaves_the_wrong_note(build: Build, tmp_path: Path) -> None:
    stubborn = (
        "env.pop('CCACHE_DISABLE', None)\nKEEP = lambda a: 'controls' not in a and a != '-Xptxas'\n" + CACHE
    )
    cache = script(tmp_path / "bin" / "nvcc", stubborn)
    assert notes(build(nvcc=cache)) == {""}
    assert notes(build(controls(tmp_path, 1), nvcc=cache)) == {""}  # so it is not applied, says the proof


def test_a_compiler_that_hangs_is_ended_with_all_its_children(build: Build, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    body = "child = subprocess.Popen(['sleep', '60'])\n"
    body += f"open({str(pid)!r}, 'w').write(str(child.pid))\nchild.wait()\n"
    begun = time.monotonic()
    program = build(nvcc=script(tmp_path / "bin" / "nvcc", body), timeout=1.5)
    assert program.failure is not None and program.failure[0] == "compile_timeout"
    assert time.monotonic() - begun < 20
    assert not Path(f"/proc/{pid.read_text()}").exists()


def test_a_compiler_that_crashes(build: Build, tmp_path: Path) -> None:
    body = "import signal\nos.kill(os.getpid(), signal.SIGSEGV)\n"
    program = build(nvcc=script(tmp_path / "bin" / "nvcc", body))
    assert program.failure == ("compiler_crash", "ended by SIGSEGV")
    assert program.returncode is None


def test_a_compiler_that_makes_nothing_is_no_success(build: Build, tmp_path: Path) -> None:
    program = build(nvcc=script(tmp_path / "bin" / "nvcc", "print('all is well')\n"))
    assert program.failure == ("compile_error", "nvcc ended well but left no program; it said: all is well")


def test_a_full_disk_is_no_candidates_fault(build: Build, tmp_path: Path) -> None:
    body = "sys.stderr.write('fatal: cannot write x.o: No space left on device\\n')\nsys.exit(1)\n"
    with pytest.raises(RunError, match=r"nvcc could not write in .*No space left on device"):
        build(nvcc=script(tmp_path / "bin" / "nvcc", body))


def test_a_baseline_is_built_once_and_again_when_a_header_changes(build: Build, tmp_path: Path) -> None:
    baselines = Baselines()
    source = nvcc_programs.plain(tmp_path / "source")
    workload = NvccWorkload(name="plain", sources=[str(source)], mode=NvccMode.program, flags=[])
    plan = nvcc_options.plan(workload, "sm_90a", nvcc_programs.nvcc())
    first = baselines.get(plan, build)
    same = nvcc_options.plan(workload, "sm_90a", nvcc_programs.nvcc())
    assert baselines.get(same, lambda: pytest.fail("built again")) is first
    nvcc_programs.plain(tmp_path / "source", amount="2.5f")
    second = baselines.get(plan, build)
    assert second.codes[0].cubin.code_sha256 != first.codes[0].cubin.code_sha256
    other = nvcc_options.plan(workload, "sm_100a", nvcc_programs.nvcc())
    assert baselines.get(other, lambda: build(arch="sm_100a")).codes[0].arch == "sm_100a"
    (tmp_path / "source" / "amount.h").unlink()
    assert not second.current()


def test_a_file_that_is_written_while_it_is_compiled_is_told(build: Build, tmp_path: Path) -> None:
    header = tmp_path / "source" / "amount.h"
    write = f"open({str(header)!r}, 'a').write('// more\\n')\n"
    for body, changed in (
        ("sys.exit(real())\n", None),
        (f"code = real()\n{write}sys.exit(code)\n", str(header)),  # after the compiler had read it
        (f"{write}sys.exit(real())\n", str(header)),  # before: the same to whoever looks afterwards
    ):
        program = build(nvcc=script(Path(tempfile.mkdtemp(dir=tmp_path)) / "nvcc", body))
        assert (program.changed, program.current()) == (changed, changed is None)
    ahead = time.time() + 3600
    os.utime(header, (ahead, ahead))  # by the clock of a file server
    assert build().changed is None


def test_a_baseline_that_failed_is_tried_again(build: Build, tmp_path: Path) -> None:
    source = nvcc_programs.plain(tmp_path / "source", amount="nothing")
    workload = NvccWorkload(name="plain", sources=[str(source)], mode=NvccMode.program, flags=[])
    plan = nvcc_options.plan(workload, "sm_90a", nvcc_programs.nvcc())
    baselines = Baselines()
    assert baselines.get(plan, build).failure is not None
    nvcc_programs.plain(tmp_path / "source")
    assert baselines.get(plan, build).failure is None


def test_what_was_built_too_early_is_built_again(build: Build, tmp_path: Path) -> None:
    early = Early()
    assert early.take("nothing") is None
    assert early.offer("a", build, 2) and early.offer("b", lambda: pytest.fail("broken"), 2)
    assert not early.offer("c", build, 2)
    assert early.take("b") is None
    program = early.take("a")
    assert program is not None and notes(program) == {""}
    slow = replace(program, failure=("compile_timeout", "killed"))
    assert early.offer("slow", lambda: slow, 9) and early.take("slow") is None
    refused = replace(program, failure=("acf_invalid", "refused"))
    assert early.offer("refused", lambda: refused, 9) and early.take("refused") is refused
    assert early.offer("stale", lambda: program, 9)
    nvcc_programs.plain(tmp_path / "source", amount="3.5f")
    assert early.take("stale") is None


def test_the_pack_of_the_tests_keeps_its_notice() -> None:
    pack = packs.open_pack(nvcc_programs.DATA / "nvcc-pack")
    assert pack.notice == "© NVIDIA Corporation, 2026." and pack.acfs[0].compiler_stages == ("nvcc", "ptxas")
