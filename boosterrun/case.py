"""What a user brings to be measured: a function that makes a :class:`Case`.

A case file has one function, called with a seed and one shape's keyword arguments::

    import numpy as np
    from boosterrun import Case

    def make(*, seed, rows, columns):
        x = np.random.default_rng(seed).standard_normal((rows, columns), dtype=np.float32)
        return Case(run=lambda: softmax(x), reference=lambda: slow_softmax(x.astype(np.float64)))

It is called once for timing and once more, with another seed, for each check.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from boosterrun.errors import UsageError


@dataclass
class Case:
    """One kernel on one shape. Arrays are NumPy arrays or torch tensors, on the CPU or on a GPU.

    Attributes:
        run: launches the kernel once and returns its output: an array, a number, or lists, tuples and
            dicts of them; None means the declared ``outputs``. It need not wait for the GPU. It is called
            many times: it must not change its inputs, and must write the whole output each time.
        reference: returns the right output from an independent computation, in higher precision where
            that matters, without any code compiled with the ACF; an input only as a copy. Called once,
            before ``run``.
        outputs: preallocated arrays that ``run`` writes. They, and what ``run`` returned, are filled with
            NaN (or the largest integer) before the run that is compared: an output that is not written
            again cannot pass.
        tolerance: largest relative norm ``|run - reference| / |reference|``, a fraction. Default by the
            type of the output: 1e-10 float64, 1e-5 float32, 3e-3 float16, 1e-2 bfloat16, 0.1 float8;
            integers must be equal.
        rtol, atol: bound for each element, ``|run - reference| <= atol + rtol * |reference|``. With
            neither, an element may be off by ten tolerances of its own size plus the root mean square
            of the reference.
        post: turns the output of ``run`` into what ``reference`` returns, outside of the timing.
        sample: own timing: ``sample(n)`` launches ``n`` times and returns raw times in milliseconds; NaN is a
            launch that failed. Without it the launches of ``run`` are timed.
        sync: waits until the outputs are complete; default: waits for the GPU when torch uses one.
        flops, bytes: floating-point operations and bytes moved per launch, for reports.

    Raises TypeError or ValueError for values that make no sense.
    """

    run: Callable[[], Any]
    reference: Callable[[], Any]
    outputs: Sequence[Any] = ()
    tolerance: float | None = None
    rtol: float | None = None
    atol: float | None = None
    post: Callable[[Any], Any] | None = None
    sample: Callable[[int], Sequence[float]] | None = None
    sync: Callable[[], Any] | None = None
    flops: float | None = None
    bytes: float | None = None

    def __post_init__(self) -> None:
        for name in ("run", "reference", "post", "sample", "sync"):
            value = getattr(self, name)
            if not callable(value) and not (value is None and name not in ("run", "reference")):
                raise TypeError(f"Case.{name} must be a function, not {type(value).__name__}")
        for name in ("tolerance", "rtol", "atol", "flops", "bytes"):
            value = getattr(self, name)
            if value is not None and not (float(value) >= 0 and math.isfinite(value)):
                raise ValueError(f"Case.{name} must be a finite number >= 0, not {value!r}")
        if not isinstance(self.outputs, list | tuple):
            self.outputs = (self.outputs,)


@dataclass(frozen=True)
class CaseSource:
    """Where a case comes from: exactly one of ``path`` (a file) and ``module`` is set."""

    path: Path | None
    module: str | None
    function: str


def parse_source(text: str) -> CaseSource:
    """Read ``path/to/file.py:function`` or ``package.module:function``.

    A file must exist; relative paths start at the current folder. Raises UsageError.
    """
    where, _, function = text.rpartition(":")
    if not where or not function.isidentifier():
        raise UsageError(
            f"workload.case={text!r} names no function",
            "Write path/to/file.py:function or package.module:function",
        )
    if where.endswith(".py") or "/" in where:
        path = Path(where).expanduser().resolve()
        if not path.is_file():
            raise UsageError(f"workload.case={text!r}: there is no file {path}", "Check the path")
        return CaseSource(path, None, function)
    if not all(part.isidentifier() for part in where.split(".")):
        raise UsageError(
            f"workload.case={text!r}: {where!r} is no module name", "Write package.module:function"
        )
    return CaseSource(None, where, function)


def load(text: str) -> Callable[..., Case]:
    """Import the case's file or module and return its function. Runs the user's code.

    The file's folder comes first on ``sys.path``, so it can import its neighbours. Raises UsageError when
    the file, module or function is not there; what the import itself raises passes through.
    """
    source = parse_source(text)
    if source.path is not None:
        module = _import_file(source.path)
    else:
        name = cast(str, source.module)
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
                raise  # the module is there, but one that it imports is not
            raise UsageError(
                f"workload.case={text!r}: there is no module {error.name}",
                "Check that it is installed in this environment",
            ) from error
    function = getattr(module, source.function, None)
    if not callable(function):
        raise UsageError(
            f"workload.case={text!r}: {source.path or source.module} has no function {source.function}",
            "Check the name after the colon",
        )
    return cast(Callable[..., Case], function)


def _import_file(path: Path) -> Any:
    # A prefix keeps a file called numpy.py or triton.py from taking the place of the module of that name.
    name = f"boosterrun_case_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is no Python file", "Name a .py file")
    sys.path.insert(0, str(path.parent))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def make(function: Callable[..., Case], seed: int, options: dict[str, Any], shape: dict[str, Any]) -> Case:
    """Call a case's function; ``shape`` and ``options`` are its keyword arguments, a shape's value winning.

    Raises TypeError when it returns no Case.
    """
    case = function(**{**options, **shape, "seed": seed})
    if not isinstance(case, Case):
        name = getattr(function, "__name__", "the case's function")
        raise TypeError(f"{name} must return a boosterrun.Case, not {type(case).__name__}")
    return case
