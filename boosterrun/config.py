"""The types of everything in ``conf/``: what a YAML file or an override may say, with its defaults.

Each dataclass is a Hydra structured config. A key that is not here is refused by Hydra, with the file's
name; so is a value of another type. Times are seconds and fractions are fractions (0.01 is 1 %) everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, DictConfig, OmegaConf

from boosterrun.errors import UsageError

SHIPPED = Path(__file__).parent / "shipped"


class Stage(Enum):
    """Which compilers an ACF of a folder without a manifest is for (``controls_stage`` of a manifest)."""

    ptxas = "ptxas"
    nvcc = "nvcc"
    both = "both"


class Fetch(Enum):
    """What to do about a pack that is not in the store: say how to fetch it, or fetch it."""

    manual = "manual"
    auto = "auto"


@dataclass
class AcfConfig:
    """One candidate, filled in from the selected pack; ``acf=none`` is the baseline against itself."""

    id: str = MISSING
    filename: str | None = None
    sha256: str | None = None


@dataclass
class PackConfig:
    """Where the ACFs come from: ``path`` is a folder or a zip, or ``store:NAME`` for a fetched pack.

    ``cuda_version`` and ``stage`` are for folders without a manifest. ``tag`` and ``sha256`` (of the zip)
    pin a fetched pack; without them it is the newest in the store for the CUDA version of ptxas. ``store``,
    ``repository`` and ``base_url`` null: as the environment says, else the user's cache and NVIDIA/CompileIQ.
    """

    name: str = MISSING
    path: str = MISSING
    cuda_version: str | None = None
    stage: Stage | None = None
    tag: str | None = None
    sha256: str | None = None
    fetch: Fetch = Fetch.manual
    store: str | None = None
    repository: str | None = None
    base_url: str | None = None


@dataclass
class GpuConfig:
    """The card. ``arch`` null: that of this machine's GPU, else what the source names.

    ``devices``: the GPUs that jobs may use, each job one of them: ``auto`` or a list of indices and UUIDs
    (:mod:`boosterrun.gpus.devices`). ``wait``: seconds to wait for others who use the job's GPU.
    """

    name: str = "auto"
    arch: str | None = None
    devices: Any = "auto"
    wait: float = 3600.0


@dataclass
class ToolchainConfig:
    """Paths of the compilers; null: found from the environment, PATH or the installed wheels."""

    ptxas: str | None = None
    nvcc: str | None = None


@dataclass
class TimeoutsConfig:
    """Deadlines in seconds; on expiry the whole process group is interrupted, terminated, killed."""

    start: float = 120.0
    build: float = 120.0
    check: float = 120.0
    sample: float = 60.0
    grace: float = 2.0


@dataclass
class ProtocolConfig:
    """How many measurements decide, and how sure they must be (docs: conf/protocol/)."""

    name: str = MISSING
    method: str = "sequential"
    min_gain: float = 0.01
    alpha: float = 0.05
    calibration_pairs: int = 10
    min_pairs: int = 4
    max_pairs: int = 60
    confirm_sessions: int = 3
    confirm_min_pairs: int = 10
    confirm_max_pairs: int = 80
    trials: int = 30
    warmup: int = 2
    block_seconds: float = 0.005
    block_launches: int = 10
    checks: int = 2
    max_voids: int = 20
    max_failures: int = 0
    max_baseline_failures: int = 3
    every_shape: bool = False
    process_spread: float = 0.003
    screen_evidence: float = 20.0
    futility_evidence: float = 5.0
    require_proof: bool | None = None
    confirm_start: str = "auto"


@dataclass
class CanaryConfig:
    """Before a sweep: do ACFs reach the compiler? ``required`` false: a failure warns instead of stopping.

    ``debug``: with NVIDIA's Debug Pack at hand, also that its -O0 is slow and its -O3 changes nothing.
    """

    required: bool = True
    debug: bool = True


@dataclass
class SweepConfig:
    """How a sweep's jobs share work; none of it changes a verdict.

    ``candidates`` (K) sets the family-wise bound; the sweeper fills it in. ``warm_start``: workers are forked
    from a process that has their imports. ``keep_baseline``: the screen's baseline stays from job to job.
    ``build_ahead``: sides that may build while others are timed, ``auto`` by the cores.
    """

    candidates: int = 1
    warm_start: bool = True
    keep_baseline: bool = True
    build_ahead: Any = "auto"


@dataclass
class WorkloadConfig:
    """What is compiled and run. ``shapes`` maps a shape's name to its arguments; none: one, without any."""

    name: str = MISSING
    adapter: str = MISSING
    shapes: dict[str, dict[str, Any]] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)


@dataclass
class PtxasWorkload(WorkloadConfig):
    """PTX assembled with and without the ACF: a static screen. ``objective`` is compared in order."""

    adapter: str = "ptxas"
    ptx: str = MISSING
    flags: list[str] = field(default_factory=list)
    objective: list[str] = field(default_factory=lambda: ["spill_bytes", "sass_instructions"])


@dataclass
class PythonWorkload(WorkloadConfig):
    """A resident Python worker per side; ``case``: ``path/to/file.py:function`` or ``module:function``.

    ``preload``: modules that a worker may find imported (``sweep.warm_start``).
    """

    adapter: str = "python"
    case: str = MISSING
    options: dict[str, Any] = field(default_factory=dict)
    preload: list[str] = field(default_factory=list)


@dataclass
class TritonWorkload(PythonWorkload):
    """Triton kernels, unchanged: a Python case whose compiler gets the ACF by the environment."""

    adapter: str = "triton"
    preload: list[str] = field(default_factory=lambda: ["torch"])


@dataclass
class HelionWorkload(PythonWorkload):
    """Helion kernels, unchanged. ``configs`` pins one by the name of its kernel, before its decorator."""

    adapter: str = "helion"
    preload: list[str] = field(default_factory=lambda: ["torch"])
    configs: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass
class FlashinferWorkload(PythonWorkload):
    """FlashInfer's kernels, built from source per side: a Python case that calls them."""

    adapter: str = "flashinfer"
    preload: list[str] = field(default_factory=lambda: ["torch"])


@dataclass
class ScoreConfig:
    """How output becomes samples: ``regex`` (one group) or ``json_path`` (dotted), of stdout or a file."""

    regex: str | None = None
    json_path: str | None = None
    file: str | None = None
    unit: str = "ms"
    select: str = "all"


@dataclass
class CommandWorkload(WorkloadConfig):
    """Any program that prints scores; one launch is one block. ``command`` is an argv list unless ``shell``.

    ``output`` is the file that ``reference_output`` is compared with (null: what the program prints, without
    its scores); numbers in it may differ by the fraction ``tolerance``.
    """

    adapter: str = "command"
    command: Any = MISSING
    shell: bool = False
    build: Any = None
    score: ScoreConfig = field(default_factory=ScoreConfig)
    check: Any = None
    reference_output: str | None = None
    output: str | None = None
    tolerance: float = 1e-5
    cwd: str | None = None


class NvccMode(Enum):
    """What is built: a worker made with ``boosterrun.cuh``, a program with scores, or an NVBench one."""

    harness = "harness"
    program = "program"
    nvbench = "nvbench"


@dataclass
class NvccWorkload(WorkloadConfig):
    """CUDA C++ compiled by nvcc, once per side.

    ``case`` and ``options`` are for mode harness; ``args`` and what follows are for the others.
    """

    adapter: str = "nvcc"
    sources: list[str] = MISSING
    flags: list[str] = field(default_factory=lambda: ["-O3", "-std=c++17"])
    include_dirs: list[str] = field(default_factory=list)
    mode: NvccMode = NvccMode.harness
    case: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    args: list[Any] = field(default_factory=list)
    score: ScoreConfig = field(default_factory=ScoreConfig)
    check: Any = None
    reference_output: str | None = None
    output: str | None = None
    tolerance: float = 1e-5
    cwd: str | None = None


@dataclass
class Config:
    """One job."""

    acf: AcfConfig = field(default_factory=AcfConfig)
    pack: PackConfig = field(default_factory=PackConfig)
    gpu: GpuConfig = field(default_factory=GpuConfig)
    workload: Any = MISSING
    protocol: ProtocolConfig = field(default_factory=ProtocolConfig)
    toolchain: ToolchainConfig = field(default_factory=ToolchainConfig)
    timeouts: TimeoutsConfig = field(default_factory=TimeoutsConfig)
    canary: CanaryConfig = field(default_factory=CanaryConfig)
    sweep: SweepConfig = field(default_factory=SweepConfig)
    seed: int = 0
    keep_work: bool = False
    report: bool = True


def typed(cfg: DictConfig) -> Config:
    """Return a composed job config as dataclasses; a workload without shapes has one, without arguments.

    Raises UsageError when the workload has no schema.
    """
    config = OmegaConf.to_object(cfg)
    if not isinstance(config, Config) or not isinstance(config.workload, WorkloadConfig):
        raise UsageError(
            "the workload has no schema",
            "Begin its YAML with `defaults: [/schema/workload/python@_here_, _self_]`",
        )
    config.workload.shapes = config.workload.shapes or {"default": {}}
    return config


def register() -> None:
    """Register the schemas with Hydra and the ``${shipped:...}`` resolver; safe to call again."""
    store = ConfigStore.instance()
    store.store(name="schema", node=Config)
    for name, node in (
        ("ptxas", PtxasWorkload),
        ("python", PythonWorkload),
        ("triton", TritonWorkload),
        ("helion", HelionWorkload),
        ("flashinfer", FlashinferWorkload),
        ("command", CommandWorkload),
        ("nvcc", NvccWorkload),
    ):
        store.store(group="schema/workload", name=name, node=node)
    store.store(group="schema", name="pack", node=PackConfig)
    store.store(group="schema", name="gpu", node=GpuConfig)
    store.store(group="schema", name="protocol", node=ProtocolConfig)
    if not OmegaConf.has_resolver("shipped"):
        OmegaConf.register_new_resolver("shipped", lambda name: str(SHIPPED / name))
