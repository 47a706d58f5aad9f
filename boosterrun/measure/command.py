"""A side that is a program, started anew for every launch: no worker, one launch is one block."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from boosterrun.config import CommandWorkload
from boosterrun.errors import RunError, UsageError
from boosterrun.gpus import gpu
from boosterrun.measure.api import (
    Built,
    Checked,
    Closing,
    FailureKind,
    Hello,
    Samples,
    SideFailed,
    SideSpec,
    Timeouts,
)
from boosterrun.programs import outputs, score
from boosterrun.programs.placeholders import Values
from boosterrun.system import process, reading
from boosterrun.system.process import Completed

TIMER = "launch"

# Of the shell, these would override what the command line says.
_SCRUBBED = (
    "NVCC_APPEND_FLAGS",
    "NVCC_PREPEND_FLAGS",
    "PTXAS_OPTIONS",
    "BOOSTERRUN_ACF",
    "BOOSTERRUN_ACF_ID",
)
# Compiled code of the other side, or of another ACF, must not be found.
_CACHES = (
    "CUDA_CACHE_PATH",
    "TRITON_CACHE_DIR",
    "TORCHINDUCTOR_CACHE_DIR",
    "HELION_CACHE_DIR",
    "FLASHINFER_WORKSPACE_BASE",
)
# A little less than what a score may be searched in, so that the note about dropped output fits.
_OUTPUT_LIMIT = score.MAX_TEXT - 4096
_TAIL = 400
# A compiler that is called by the program itself.
_COMPILER_ERROR = re.compile(r"ptxas (fatal|error)|Invalid compiler controls|libnvvm : error", re.IGNORECASE)


class CommandSide(Closing):
    """Runs ``workload.command``. See :class:`boosterrun.measure.api.Side` for the methods.

    The program is told its ACF by placeholders and ``BOOSTERRUN_ACF``; not which side it is, so that it
    cannot behave. ``seed`` is that of the timed launches, the same on both sides. Methods raise SideFailed
    for the program's failures and UsageError for a workload that makes no sense.
    """

    def __init__(self, spec: SideSpec, workload: CommandWorkload, timeouts: Timeouts, seed: int) -> None:
        self.spec = spec
        self._workload = workload
        self._timeouts = timeouts
        self._seed = seed
        self._shapes: dict[str, Mapping[str, Any]] = {}

    def start(self) -> Hello:
        """Make the side's folder; nothing runs between launches. Raises RunError."""
        try:
            (self.spec.work / "cache").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(
                f"cannot write to {self.spec.work}: {error.strerror}", "Free some space"
            ) from error
        return Hello(versions={}, device=gpu.visible_device(self._environment({})), pid=None)

    def build(self, shape: str, params: Mapping[str, Any]) -> Built:
        """Run the build command, if any, and the program once: it may compile on its first launch."""
        self._shapes[shape] = params
        started = time.monotonic()
        command, output = self._workload.command, ""
        if self._workload.build is not None:
            command = self._workload.build
            values = self._values(shape, self._seed)
            done = self._run(command, "workload.build", values, self._timeouts.build, "compile_error")
            output = (done.stdout + done.stderr)[-4096:]
            if done.timed_out:
                self._fail("compile_timeout", f"the build took longer than {self._timeouts.build:g} s", done)
            if done.returncode != 0:
                self._fail("compile_error", f"the build {_how(done)}", done)
        done = self._launch(shape, self._seed, self._timeouts.build)
        if done.returncode != 0:
            compiler = _COMPILER_ERROR.search(done.stderr + done.stdout)
            self._fail(
                "compile_error" if compiler else "runtime_error", f"the first launch {_how(done)}", done
            )
        where = "workload.command" if command is self._workload.command else "workload.build"
        # A shell only where the user's YAML asks for it, here and below.
        used = self._values(shape, self._seed)
        argv = used.argv(command, where, shell=self._workload.shell)  # nosec B604
        return Built(
            seconds=time.monotonic() - started,
            detail={"command": argv, "output": output, "timer": TIMER},
        )

    def sample(self, shape: str, launches: int, timer: str, warmup: int = 0) -> Samples:
        """Launch the program ``launches`` times; a launch may print several scores.

        Every launch is a new process, so there is nothing to warm up and ``warmup`` is not used. To learn the
        timer (``auto``), one launch is enough, and it must succeed. A failed launch is None; why is in
        ``detail["failures"]``.
        """
        if timer not in ("auto", TIMER):
            raise UsageError(
                f"a command cannot be timed by {timer}", "Its own scores count: leave the timer alone"
            )
        values: list[float | None] = []
        failures: list[str] = []
        for _ in range(1 if timer == "auto" else launches):
            done = self._launch(shape, self._seed, self._timeouts.sample)
            try:
                values += self._scores(shape, done)
            except score.ScoreError as error:
                if timer == "auto":
                    self._fail("runtime_error", str(error), done)
                values.append(None)
                failures.append(f"{error.message}; {_last_words(done)}")
        return Samples(
            values=values, unit="ms", timer=TIMER, detail={"failures": failures} if failures else {}
        )

    def check(self, shape: str, seed: int) -> Checked:
        """Launch the program with ``{seed}`` and ask the check command or the reference output about it."""
        workload = self._workload
        if workload.check is None and workload.reference_output is None:
            return Checked(None, {"message": "the workload has neither check nor reference_output"})
        done = self._launch(shape, seed, self._timeouts.check)
        if done.returncode != 0:
            self._fail("runtime_error", f"the launch to be checked {_how(done)}", done)
        if workload.check is not None:
            values = self._values(shape, seed)
            verdict = self._run(workload.check, "workload.check", values, self._timeouts.check, None)
            if verdict.timed_out:
                self._fail(
                    "runtime_timeout", f"the check took longer than {self._timeouts.check:g} s", verdict
                )
            if verdict.returncode != 0:
                return Checked(
                    False, {"message": f"the check {_how(verdict)}", "output": _last_words(verdict)}
                )
        if workload.reference_output is not None:
            wrong = self._compare(shape, seed, done)
            if wrong:
                return Checked(False, {"message": wrong})
        return Checked(True)

    def check_timed(self, shape: str) -> Checked:
        """Check the very command that is timed: its seed, its folder."""
        return self.check(shape, self._seed)

    def close(self) -> None:
        """Nothing runs between launches."""

    def _values(self, shape: str, seed: int) -> Values:
        params = self._shapes[shape]
        folder = self.spec.work / f"shape-{list(self._shapes).index(shape)}"
        folder.mkdir(parents=True, exist_ok=True)
        acf = str(self.spec.acf) if self.spec.acf else ""
        acf_id = (self.spec.acf_id or "") if acf else ""
        return Values(shape, params, acf, acf_id, seed, str(folder), self.spec.name)

    def _environment(self, variables: Mapping[str, str | None]) -> dict[str, str]:
        """Return the shell's variables, scrubbed, with own caches, the ACF, and the workload's own on top."""
        environment = {name: value for name, value in os.environ.items() if name not in _SCRUBBED}
        environment |= {name: str(self.spec.work / "cache" / name.lower()) for name in _CACHES}
        if self.spec.acf is not None:
            environment["BOOSTERRUN_ACF"] = str(self.spec.acf)
            environment["BOOSTERRUN_ACF_ID"] = self.spec.acf_id or ""
        for name, value in variables.items():
            if value is None:
                environment.pop(name, None)
            else:
                environment[name] = value
        return environment

    def _run(
        self, command: Any, where: str, values: Values, timeout: float, broken: FailureKind | None
    ) -> Completed:
        """Run one of the commands. One that cannot be executed is ``broken`` (None: the workload's fault)."""
        variables = {n: values.variable(v, f"workload.env.{n}") for n, v in self._workload.env.items()}
        argv = values.argv(command, where, shell=self._workload.shell)  # nosec B604
        try:
            return process.run(
                argv,
                timeout=timeout,
                grace=self._timeouts.grace,
                env=self._environment(variables),
                cwd=self._cwd(values),
                stdout_limit=_OUTPUT_LIMIT,
            )
        except RunError as error:
            if broken is None:
                raise
            raise SideFailed(self.spec.name, broken, str(error), alive=True) from error

    def _launch(self, shape: str, seed: int, timeout: float) -> Completed:
        """Run the program once, after removing what an earlier launch left to be read."""
        values = self._values(shape, seed)
        for template in (self._workload.score.file, self._workload.output):
            if template is not None:
                with contextlib.suppress(FileNotFoundError):
                    self._path(template, values).unlink()
        done = self._run(self._workload.command, "workload.command", values, timeout, "runtime_error")
        if done.timed_out:
            self._fail("runtime_timeout", f"a launch took longer than {timeout:g} s", done)
        return done

    def _cwd(self, values: Values) -> Path:
        cwd = self._workload.cwd
        return Path.cwd() if cwd is None else Path(values.fill(cwd, "workload.cwd")).absolute()

    def _path(self, template: str, values: Values) -> Path:
        return self._cwd(values) / values.fill(template, "workload")

    def _scores(self, shape: str, done: Completed) -> list[float]:
        """Return the scores of a launch in ms. Raises ScoreError for a failed one."""
        config = self._workload.score
        if done.returncode != 0:
            raise score.ScoreError(f"the launch {_how(done)}")
        if config.file is not None:
            path = self._path(config.file, self._values(shape, self._seed))
            return score.parse(score.read(path), config)
        if done.truncated and config.select != "last":
            raise score.ScoreError(
                "part of the output was dropped", "Use select: last, or let it write score.file"
            )
        return score.parse(done.stdout, config)

    def _compare(self, shape: str, seed: int, done: Completed) -> str | None:
        values = self._values(shape, seed)
        reference = self._path(self._workload.reference_output or "", values)
        try:
            expected = reading.content(reference)
        except OSError as error:
            raise UsageError(
                f"workload.reference_output: cannot read {reference}: {error.strerror}",
                "Make it with a trusted build",
            ) from error
        output = self._workload.output
        if output is None:
            # What is printed includes the scores, which differ each time.
            try:
                printed = score.without(done.stdout, self._workload.score)
                wanted = score.without(expected.decode(errors="replace"), self._workload.score)
            except score.ScoreError as error:
                return f"what is printed beside the scores cannot be told: {error.message}"
            return outputs.difference(printed.encode(), wanted.encode(), self._workload.tolerance)
        try:
            found = reading.content(self._path(output, values))
        except OSError as error:
            return f"the program left no output: {error.strerror}"
        return outputs.difference(found, expected, self._workload.tolerance)

    def _fail(self, kind: FailureKind, message: str, done: Completed) -> NoReturn:
        raise SideFailed(
            self.spec.name,
            kind,
            message,
            exit_code=done.returncode,
            signal=done.signal,
            output_tail=_last_words(done),
            alive=True,
        )


def _how(done: Completed) -> str:
    if done.timed_out:
        return f"was stopped after {done.seconds:.1f} s"
    if done.signal is not None:
        return f"was killed by signal {done.signal}"
    return f"ended with exit code {done.returncode}"


def _last_words(done: Completed) -> str:
    return (done.stderr.strip() or done.stdout.strip())[-_TAIL:]
