"""Every command and every YAML of the documentation, run or composed for real.

A section is played in an empty folder: its files are written, its commands run by bash in their order. What
cannot run here is in ``COMPOSED`` or ``SPECIAL``, with the reason; both must match the pages exactly.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest
import releases
from command import SAMPLE, environment, executable, loose_pack
from compilers import controls, ptxas
from pages import PAGES, ROOT, Section, sections
from server import GitHub, Published

SECTIONS = {section.key: section for page in PAGES for section in sections(page)}
SHOWN = {block.name: block.text for section in SECTIONS.values() for block in section.blocks if block.name}
SWEEP = next((ROOT / "docs/example/sweep/triton_rmsnorm").iterdir())
TAG = "booster-packs-2026.05.27"

GPU = "it measures on a GPU"
# Composed by the same front end, with the pack opened and the case's signature compared, but not run.
COMPOSED = {
    "boosterrun -m 'acf=glob(*)' workload=triton/rmsnorm": GPU,
    "boosterrun -m 'acf=glob(*)' workload=triton": GPU,
    "boosterrun -m 'acf=glob(*)' pack=helion workload=ptxas": "README.md runs this sweep, of the same ACFs",
    "boosterrun plan -m 'acf=glob(*)' workload=triton": "the check that it begins with wants torch",
    "boosterrun -m experiment=bench": "a minute; the same experiment runs with acf=none",
    "boosterrun -m experiment=scale": GPU,
    "boosterrun -m experiment=scale_helion": GPU,
    "boosterrun -m experiment=square": GPU,
    "boosterrun -m experiment=decode": GPU,
    "boosterrun -m 'acf=glob(*)' pack=./booster-pack-found.zip workload=triton": GPU,
}
# How else a command is tried, and why.
SPECIAL = {
    "make demo": ("make -n", "it installs; what it runs then is run in another section"),
    "make test": ("make -n", "it runs this test"),
    "pip install -e '.[cuda13]'": ("extras", "it needs a network"),
    "boosterrun doctor workload=triton": ("findings", "what it finds depends on the machine"),
    "boosterrun doctor experiment=scale": ("findings", "what it finds depends on the machine"),
    "boosterrun doctor workload=triton pack=./my-pack": ("findings", "what it finds depends on the machine"),
    "boosterrun doctor --json workload=nvcc": ("findings", "what it finds depends on the machine"),
}
EXTRA = "it needs an extra; test_cluster_*.py runs what the page shows"
SPECIAL |= dict.fromkeys(SECTIONS["cluster.md: Slurm"].commands, ("extra", EXTRA))
SPECIAL |= dict.fromkeys(SECTIONS["cluster.md: Ray"].commands, ("extra", EXTRA))
# ``text`` is for what nobody types.
LANGUAGES = ("sh", "yaml", "python", "bash", "cuda", "text")
# In a YAML, what no page can know.
UNKNOWN = "64 hexadecimal digits, of the zip"

# The command's front end alone: composes, opens the pack, and compares the case's function with the YAML.
COMPOSER = """
import ast, dataclasses, os, sys
from pathlib import Path
from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.core.utils import setup_globals
Plugins.instance()
from boosterrun import config
from boosterrun.sweeps import sweep
from boosterrun.config import typed
from boosterrun.hydra_ext import arguments, plan, search
search.register_sources(); sweep.register(); setup_globals()
if schema := os.environ.get("DOCS_SCHEMA"):
    names = dict(vars(config), dataclass=dataclasses.dataclass, __name__="boosterrun.config")
    exec(Path(schema).read_text(), names)
    ConfigStore.instance().store(group="schema/workload", name="mojave", node=names["MojaveWorkload"])
argv = sys.argv[1:]
for each in map(typed, plan.make(arguments.parse(argv[argv[0] == "plan":])).configs):
    path, _, name = str(getattr(each.workload, "case", None) or "").rpartition(":")
    if not path.endswith(".py"):
        continue
    tree = ast.parse(Path(path).read_text())
    [function] = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == name]
    known = {a.arg for a in function.args.kwonlyargs}
    needed = {a.arg for a, d in zip(function.args.kwonlyargs, function.args.kw_defaults) if d is None}
    for shape in each.workload.shapes.values():
        given = {"seed", *shape, *each.workload.options}
        assert needed <= given <= known, f"{path}: {name} takes {known} and is given {given}"
print("composed")
"""

# Stands for nvcc, whose programs need a GPU: makes one that needs none, and says what it was given.
NVCC = """#!/bin/bash
while [ $# -gt 0 ]; do [ "$1" = -o ] && out=$2; shift; done
echo "flags: $NVCC_APPEND_FLAGS" >> "$(dirname "$0")/nvcc.log"
cat > "$out" <<'END'
#!/bin/bash
awk -v n="$1" -v s="$2" 'BEGIN { for (i = 0; i < n; i++) printf "%.9g\\n", sqrt((s + i) % 97) }'
echo "time: 1.2$((RANDOM % 100)) ms"
END
chmod +x "$out"
"""


class Stage:
    """A folder in which a section is played."""

    def __init__(self, folder: Path, section: Section) -> None:
        self.folder = folder
        self.section = section
        self.extra: dict[str, str] = {}
        self.bin = executable(folder / ".bin").parent
        self.composer = folder / ".composer"
        self.composer.mkdir()
        script = self.composer / "boosterrun"
        script.write_text(f"#!{sys.executable}\n{COMPOSER}")
        script.chmod(0o755)
        for block in section.blocks:
            if block.name is not None:
                self.write(block.name, block.text)

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        if text.startswith("#!"):
            path.chmod(0o755)
        return path

    def run(self, line: str, *, composed: bool = False, codes: tuple[int, ...] = (0,)) -> str:
        """Run a line of a page by bash; ``DIR`` in it is a sweep. Returns what it printed."""
        path = f"{self.composer if composed else self.bin}:{os.environ['PATH']}"
        variables = environment(PATH=path, BROWSER="true", BOOSTERRUN_LOCKS=str(self.folder / "locks"))
        line = re.sub(r"\bDIR(_[AB])?\b", "dir", line)
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=self.folder,
            env={**variables, **self.extra},
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )
        assert done.returncode in codes, f"{line}\n{done.stdout}{done.stderr}"
        assert "Traceback" not in done.stderr
        return done.stdout + done.stderr

    def compose(self, line: str) -> None:
        assert "composed" in self.run(line, composed=True)


@contextmanager
def prepared(stage: Stage) -> Iterator[None]:
    """What a section presupposes: packs on a server, a sweep, a compiler."""
    folder, key = stage.folder, stage.section.key
    if any("DIR" in command for command in stage.section.commands):
        if "pack make" in str(stage.section.commands):  # the example's pack is not where it was
            stage.run("boosterrun -m 'acf=glob([01*,02*])' workload=simulated hydra.sweep.dir=dir")
        elif "resume" in str(stage.section.commands):
            stage.run("boosterrun -m 'acf=glob([01*,02*])' workload=ptxas/softmax hydra.sweep.dir=dir")
        else:
            shutil.copytree(SWEEP, folder / "dir")
    for path in {"kernels/scale.py"} - {block.name for block in stage.section.blocks}:
        stage.write(path, SHOWN[path])  # of another section
    if "pack=./my-pack" in str(stage.section.commands):
        loose_pack(folder / "my-pack", ["one", "two"])
    if key == "tutorial.md: A benchmark script that you have":
        stage.write(".bin/nvcc", NVCC)
    if key == "experiments.md: Pinning":
        stage.extra["CUDA_HOME"] = str(ptxas().path.parent.parent)
        (folder / "packs").mkdir()
        shutil.copy(SAMPLE, folder / "packs")
    if key == "packs.md: Make one":
        controls(folder / "other", 3)
        shutil.copy(controls(folder / "acfs", 2)[1], folder / "best.acf")
        rows = [f"0,{n},{controls(folder / 'acfs', n)[1].read_bytes().hex()}" for n in range(1, 13)]
        stage.write("results.csv", "\n".join(["generation,score_1,params", *rows, ""]))
    if not key.startswith("packs.md:"):
        yield
        return
    with GitHub([Published(TAG, releases.retagged(TAG))]) as hub:
        stage.extra |= {"BOOSTERRUN_PACK_BASE_URL": hub.url, "BOOSTERRUN_PACK_STORE": str(folder / "store")}
        if key != "packs.md: Get one":
            stage.run("boosterrun pack fetch helion")
        yield


def play(stage: Stage, command: str) -> None:
    """Try one command of a page."""
    how = SPECIAL.get(command, ("", ""))[0]
    if command in COMPOSED:
        stage.compose(command)
    elif how == "findings":
        assert "PASS" in stage.run(command, codes=(0, 1))
    elif how == "make -n":
        assert stage.run(f"make -C {ROOT} -n {command.removeprefix('make ')}")
    elif command.startswith("boosterrun ship "):  # measures on a GPU; its own tests run it
        assert "usage: boosterrun ship" in stage.run("boosterrun ship --help")
    elif how == "extra":  # composed where it is installed, else told
        if find_spec("ray" if "launcher=ray" in command else "submitit"):
            stage.compose(command)
        else:
            assert "pip install 'boosterrun[" in stage.run(command, codes=(2,))
    elif how == "extras":
        [extra] = re.findall(r"\[(\w+)\]", command)
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        assert extra in project["optional-dependencies"]
    else:
        assert command.startswith("boosterrun "), f"{command!r}: run it, or list it with a reason"
        assert stage.run(command)


@pytest.mark.parametrize("key", SECTIONS)
def test_what_a_section_shows_works(key: str, tmp_path: Path) -> None:
    section = SECTIONS[key]
    stage = Stage(tmp_path, section)
    with prepared(stage):
        for block in section.of("yaml"):
            text = block.text
            if UNKNOWN in text:
                [zipped] = (tmp_path / "store").rglob("*.zip")
                text = text.replace(UNKNOWN, releases.hashlib.sha256(zipped.read_bytes()).hexdigest())
            if "@_here_" in text:  # a file of conf/workload/, for an adapter that the page writes
                [schema] = [b.text for b in section.of("python") if "Workload(PythonWorkload)" in b.text]
                stage.extra["DOCS_SCHEMA"] = str(stage.write("schema.py", schema))
                stage.write("path/to/case.py", "def make(*, seed, M, N): ...\n")
                stage.write("conf/workload/shown.yaml", text)
                stage.compose("boosterrun -cd conf workload=shown")
                continue
            path = stage.write(block.name or "experiments/shown.yaml", text)
            name = path.relative_to(tmp_path / "experiments").with_suffix("")
            stage.compose(f"boosterrun -m acf=none experiment={name}")
        for command in section.commands:
            play(stage, command)


def test_the_script_of_the_tutorial_hands_on_the_acf(tmp_path: Path) -> None:
    stage = Stage(tmp_path, SECTIONS["tutorial.md: A benchmark script that you have"])
    with prepared(stage):
        said = stage.run("boosterrun experiment=bench acf=01-sample_1-12d486f9268b protocol=quick")
    assert "REJECTED:" in said or "KEPT" in said
    flags = (tmp_path / ".bin/nvcc.log").read_text().splitlines()
    given = [line for line in flags if re.fullmatch(r"flags: -Xptxas --apply-controls=/\S+\.acf", line)]
    assert given
    assert flags.count("flags: ") == len(given)


@pytest.mark.parametrize("key", SECTIONS)
def test_every_block_says_what_it_is(key: str, tmp_path: Path) -> None:
    for block in SECTIONS[key].blocks:
        where = f"{key}, line {block.line}"
        assert block.language in LANGUAGES, f"{where}: {block.language!r}"
        if block.language == "python":
            ast.parse(block.text)
        if block.language == "bash":
            subprocess.run(["bash", "-n"], input=block.text, text=True, check=True)
        if block.language == "text":
            assert not re.search("boosterrun|:$", block.text, re.MULTILINE), f"{where}: a command or YAML"
        if block.language in ("bash", "cuda"):
            assert block.name, f"{where}: nothing uses it"


def test_exceptions_are_of_commands_that_the_pages_still_show() -> None:
    shown = {command for section in SECTIONS.values() for command in section.commands}
    assert {*COMPOSED, *SPECIAL} <= shown


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
            if target.startswith("https://"):
                continue
            path, _, anchor = target.partition("#")
            found = (page.parent / path).resolve() if path else page
            assert found.exists(), f"{page.name}: {target}"
            heads = re.findall(r"^#+ (.*)$", found.read_text(), re.MULTILINE) if anchor else []
            slugs = [re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads]
            assert not anchor or anchor in slugs, f"{page.name}: {target}"
