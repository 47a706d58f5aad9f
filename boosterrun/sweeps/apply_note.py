"""``APPLY.md``: what was shipped, what it was measured with, and how each framework is given an ACF."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from boosterrun.report.facts import facts
from boosterrun.report.text import plain
from boosterrun.sweeps.ship import RESULTS, Reappeared
from boosterrun.system.visible import visible

# Of the facts of a result: what a compiler or a framework must be like for the gain to be expected.
_MEASURED_WITH = (
    "GPU",
    "driver",
    "CUDA toolkit",
    "ptxas",
    "nvcc",
    "pack",
    "pack release",
    "boosterrun",
)
_FENCE = "````"


def note(shipped: Sequence[Reappeared], folder: Path, measured: Path) -> str:
    """The note on candidates that were ``shipped``, the best first; ``folder``: the sweep that chose them."""
    workloads: dict[str, list[Reappeared]] = {}
    for each in shipped:
        workloads.setdefault(each.after.result["workload"]["name"], []).append(each)
    lines = ["# How to apply these compiler controls", "", *_origin(shipped, folder, measured)]
    for name, own in workloads.items():
        lines += ["", f"## {plain(name)}", "", *_table(own), "", *_measured_with(own), ""]
        if len(own) > 1:
            lines += ["Apply one of them; the first gained the most.", ""]
        lines += _how(own)
    return "\n".join(lines) + "\n"


def _origin(shipped: Sequence[Reappeared], folder: Path, measured: Path) -> Iterator[str]:
    before, after = shipped[0].before.result, shipped[0].after.result
    rules = after["config"]["protocol"]
    many, few = before["job"]["sweep_candidates"], after["job"]["sweep_candidates"]
    yield (
        f"Chosen among {many} candidates in the sweep `{folder.name}`, then measured once more in new "
        f"processes with new caches (`{measured.name}`). The gains below are of this measurement alone; the "
        "last column is what the first had shown, which choosing the best flatters."
    )
    yield ""
    yield (
        f"Protocol {plain(str(rules['name']))}: every shape gains at least {rules['min_gain']:.2%} (an error "
        f"rate of {rules['alpha']:.0%} over K = {few} candidates), from {rules['confirm_min_pairs']} pairs "
        f"or more over {rules['confirm_sessions']} fresh process pairs, results checked "
        f"with {rules['checks']} inputs. A gain is baseline / candidate - 1, or the same of rates."
    )
    yield ""
    yield (
        "An ACF is for one minor version of CUDA and for the code it was measured on: measure again when the "
        "compiler, the kernel or the GPU changes. Take the whole results from "
        f"`{RESULTS}/` and `booster-pack-log.csv`, and keep NVIDIA's notice (`NOTICE.txt`) with the files."
    )


def _table(own: Sequence[Reappeared]) -> Iterator[str]:
    yield "| file | shape | gain | interval | correct | applied | in the sweep |"
    yield "|---|---|---:|---|---|---|---:|"
    overrides = [set(each.before.result["job"]["overrides"]) for each in own]
    shared = set.intersection(*overrides)
    for each, its in zip(own, overrides, strict=True):
        variant = sorted(o for o in its - shared if not o.startswith("acf="))
        earlier = {shape["name"]: shape["gain"] for shape in each.before.result["shapes"]}
        for shape in each.after.result["shapes"]:
            cells = (
                f"`{each.file}`",
                plain(visible(" ".join([shape["name"], *variant]))),
                _percent(shape["gain"]),
                " to ".join(_percent(end) for end in shape["interval"] or ()),
                shape["correctness"].replace("_", " "),
                shape["application"]["applied"],
                _percent(earlier.get(shape["name"])),
            )
            yield f"| {' | '.join(cells)} |"


def _measured_with(own: Sequence[Reappeared]) -> Iterator[str]:
    known = facts(own[0].after.result)
    listed = [
        (name, value)
        for name, value in known.items()
        if name in _MEASURED_WITH or name.startswith(("framework ", "source of "))
    ]
    yield "Measured with:"
    yield ""
    for name, value in listed:
        yield f"- {plain(name)}: {plain(visible(value))}"
    variables = own[0].after.result["config"]["workload"].get("env") or {}
    for name, value in variables.items():
        if "{acf" not in str(value):
            yield f"- variable {plain(visible(str(name)))}: {plain(visible(str(value)))} (on both sides)"


def _how(own: Sequence[Reappeared]) -> Iterator[str]:
    """How to apply the best of them; once more for the best of those that other compilers must read."""
    done = set[tuple[str, ...]]()
    for each in own:
        stages = tuple(each.after.result["acf"]["compiler_stages"])
        if stages not in done:
            done.add(stages)
            yield from _WAYS.get(each.after.result["workload"]["adapter"], _python)(each)
            yield ""


def _nvcc_flags(each: Reappeared) -> str:
    whole = "nvcc" in each.after.result["acf"]["compiler_stages"]
    return f"{'' if whole else '-Xptxas '}--apply-controls=$ACF"


def _path(each: Reappeared) -> str:
    return f'ACF="$(realpath {each.file})"  # no comma and no space in it'


def _compiler(each: Reappeared, name: str) -> str:
    compiler = each.after.result["toolchain"].get(name) or {}
    return f"{name} {compiler.get('version', '')}".strip()


def _ptxas(each: Reappeared) -> str:
    return f'export TRITON_PTXAS_PATH="$(command -v ptxas)"  # {_compiler(each, "ptxas")}, not that of Triton'


def _nvcc(each: Reappeared) -> Iterator[str]:
    flags = _nvcc_flags(each).replace("$ACF", '"$ACF"')
    yield from _shell(_path(each), f"nvcc {flags} ...  # {_compiler(each, 'nvcc')}")
    if "nvcc" not in each.after.result["acf"]["compiler_stages"]:
        yield 'Where PTX is assembled by hand: `ptxas --apply-controls="$ACF" ...`.'


def _triton(each: Reappeared) -> Iterator[str]:
    yield "Triton reads these at its import, and they reach every kernel of the process. In this folder:"
    yield from _shell(
        _path(each),
        'export PTXAS_OPTIONS="--apply-controls=$ACF"',
        _ptxas(each),
        'export TRITON_PTXAS_BLACKWELL_PATH="$TRITON_PTXAS_PATH"  # the same, for sm_100 and up',
        'export TRITON_CACHE_DIR="$PWD/triton-cache"  # new: else what was compiled without it is used',
    )
    yield 'For one kernel alone, launch it with `ptx_options="--apply-controls=..."` instead.'


def _helion(each: Reappeared) -> Iterator[str]:
    configs = each.after.result["config"]["workload"].get("configs") or {}
    yield "In the config of the kernel; the ptxas is that of `TRITON_PTXAS_PATH`, and the cache must be new:"
    yield ""
    yield f"{_FENCE}python"
    for name, values in (configs or {"": {}}).items():
        given = "".join(f"{key}={value!r}, " for key, value in values.items()) or "..., "
        about = f"  # {visible(str(name))}" if name else "  # what the kernel has now"
        yield f'config = helion.Config({given}advanced_controls_file="/absolute/path/{each.file}"){about}'
    yield _FENCE
    yield from _shell(
        _ptxas(each),
        'export TRITON_PTXAS_BLACKWELL_PATH="$TRITON_PTXAS_PATH"',
    )


def _flashinfer(each: Reappeared) -> Iterator[str]:
    yield (
        "FlashInfer builds from source with these, for every kernel of the process; uninstall "
        "flashinfer-jit-cache and flashinfer-cubin, whose kernels win over those that are built:"
    )
    yield from _shell(
        _path(each),
        f'export FLASHINFER_EXTRA_CUDAFLAGS="{_nvcc_flags(each)}"',
        f'export FLASHINFER_NVCC="$(command -v nvcc)"  # {_compiler(each, "nvcc")}',
        'export CUDA_HOME="$(dirname "$(dirname "$(realpath "$FLASHINFER_NVCC")")")"',
        'export FLASHINFER_WORKSPACE_BASE="$PWD/flashinfer"  # new: else what was built without it is used',
    )


def _command(each: Reappeared) -> Iterator[str]:
    """The workload's own words, which say where the ACF goes."""
    workload = each.after.result["config"]["workload"]
    yield (
        "The program is given the ACF as the workload says: `{acf}` is the file's absolute path, "
        "`{acf_flags}` is `-Xptxas --apply-controls=` with it, and BOOSTERRUN_ACF is set to it."
    )
    yield ""
    yield f"{_FENCE}yaml"
    for name in ("build", "command", "env"):
        value = workload.get(name)
        if value and (name != "env" or _with_acf(value)):
            yield f"{name}: {visible(json.dumps(value, ensure_ascii=False))}"
    yield _FENCE


def _python(each: Reappeared) -> Iterator[str]:
    """A case that finds the ACF by itself."""
    workload = each.after.result["config"]["workload"]
    source = plain(visible(str(workload.get("case", ""))))
    yield f"The case ({source}) finds the file in BOOSTERRUN_ACF, or in these variables. In this folder:"
    variables = _with_acf(workload.get("env") or {})
    exports = [
        f"export {name}={shlex.quote(visible(value)).replace('{acf}', _OUT_OF_QUOTES)}"
        for name, value in variables.items()
    ]
    yield from _shell(_path(each), 'export BOOSTERRUN_ACF="$ACF"', *exports)


_OUT_OF_QUOTES = """'"$ACF"'"""


def _with_acf(variables: Mapping[str, Any]) -> dict[str, str]:
    return {str(name): str(value) for name, value in variables.items() if "{acf" in str(value)}


def _shell(*lines: str) -> Iterator[str]:
    yield ""
    yield f"{_FENCE}sh"
    yield from lines
    yield _FENCE


def _percent(fraction: float | None) -> str:
    return "" if fraction is None else f"{fraction:+.2%}"


_WAYS = {
    "nvcc": _nvcc,
    "triton": _triton,
    "helion": _helion,
    "flashinfer": _flashinfer,
    "command": _command,
    "python": _python,
}
