"""One side of a measurement as its parent sees it: a worker that may die, hang or babble at any time."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import IO, Any, NoReturn, TypeVar, cast

from boosterrun.errors import RunError
from boosterrun.measure import protocol, warm
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
from boosterrun.system import redact
from boosterrun.system.capture import CappedFile, Drain
from boosterrun.system.process import Child, kill_group, spawn

_T = TypeVar("_T")

OUTPUT_LIMIT = 4 << 20
_PIPE_PATIENCE = 0.5
# A worker whose pipe has ended is ending too: its exit status is worth a short wait.
_LAST_WORDS = 1.0


class WorkerSide(Closing):
    """A resident Python worker. See :class:`boosterrun.measure.api.Side` for the methods.

    ``seed`` makes the inputs of the case that is timed; it must be the same on both sides.
    """

    def __init__(self, spec: SideSpec, timeouts: Timeouts, seed: int = 0) -> None:
        self.spec = spec
        self._timeouts = timeouts
        self._seed = seed
        self._count = 0
        self._child: Child | None = None
        self._open = False
        self._start = "spawn"

    def start(self) -> Hello:
        """Start the worker and import the case. Raises SideFailed, and RunError without Python."""
        if self._child is not None:
            raise RuntimeError("a side is started once")
        self._child = self._spawn()
        try:
            spec = self.spec
            hello = self._request(
                "start_error",
                self._timeouts.start,
                protocol.hello,
                op="hello",
                case=spec.case,
                options=dict(spec.options),
                adapter=spec.adapter,
                work=str(spec.work),
            )
            return replace(hello, versions={**hello.versions, "worker_start": self._start})
        except BaseException:
            self.close()
            raise

    def build(self, shape: str, params: Mapping[str, Any]) -> Built:
        """Compile a shape, run it once, keep it for timing. Raises SideFailed."""
        return self._request(
            "compile_error",
            self._timeouts.build,
            protocol.built,
            op="build",
            shape=shape,
            params=dict(params),
            seed=self._seed,
        )

    def check(self, shape: str, seed: int) -> Checked:
        """Compare the outputs for fresh inputs made from ``seed`` with the reference. Raises SideFailed."""
        timeout = self._timeouts.check
        return self._request("runtime_error", timeout, protocol.checked, op="check", shape=shape, seed=seed)

    def check_timed(self, shape: str) -> Checked:
        """Poison and run the very case that is timed, and compare with its reference. Raises SideFailed."""
        return self._request(
            "runtime_error", self._timeouts.check, protocol.checked, op="check_timed", shape=shape
        )

    def ready(self, shape: str, launches: int, timer: str, warmup: int = 0) -> None:
        """Do what the first such block needs, a CUDA graph say, but time nothing. Raises SideFailed."""
        self._request(
            "runtime_error",
            self._timeouts.sample,
            lambda _: None,
            op="ready",
            shape=shape,
            launches=launches,
            timer=timer,
            warmup=warmup,
        )

    def sample(self, shape: str, launches: int, timer: str, warmup: int = 0) -> Samples:
        """Time one block in ms. ``timer``: see boosterrun.measure.timers. Raises SideFailed."""
        begin = time.monotonic()
        return self._request(
            "runtime_error",
            self._timeouts.sample,
            lambda result: protocol.samples(result, time.monotonic() - begin),
            op="sample",
            shape=shape,
            launches=launches,
            timer=timer,
            warmup=warmup,
        )

    def abort(self) -> None:
        """Kill the worker from another thread: a request that waits raises SideFailed. Never raises."""
        if self._child is not None:
            self._child.signal_group(signal.SIGKILL)

    def pause(self) -> None:
        """Stop the worker and what it started where they are. Never raises."""
        if self._child is not None:
            self._child.signal_group(signal.SIGSTOP)

    def unpause(self) -> None:
        """Let them go on. Never raises."""
        if self._child is not None:
            self._child.signal_group(signal.SIGCONT)

    def alive(self) -> bool:
        """Whether the worker is there. Never raises."""
        return self._child is not None and self._open and not self._child.ended()

    def close(self) -> None:
        """Ask the worker to end, then end it and everything it started. Never raises; may be called twice."""
        child = self._child
        if child is None or not self._open:
            return
        grace = self._timeouts.grace
        with contextlib.suppress(protocol.ProtocolError, protocol.Ended, TimeoutError):
            line = protocol.encode({"id": self._count + 1, "op": "bye"})
            protocol.send(self._write, line, time.monotonic() + grace)
            child.wait(grace)
        self._end(grace)

    def worker(self) -> list[str]:
        """The command line of the worker, which answers on the descriptors that its environment names."""
        return [sys.executable, "-m", "boosterrun.measure.worker"]

    def _spawn(self) -> Child:
        work = self.spec.work
        try:
            work.mkdir(parents=True, exist_ok=True)
            self._files = [CappedFile(work / name, OUTPUT_LIMIT) for name in ("stdout.log", "stderr.log")]
        except OSError as error:
            raise RunError(f"cannot write to {work}: {error.strerror}", "Free some space") from error
        child_read, self._write = os.pipe()
        self._read, child_write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        environment = _environment(self.spec)
        try:
            child, streams = self._begin(environment, child_read, child_write)
        except RunError:
            self._close_pipes()
            for file in self._files:
                file.close()
            raise
        finally:
            os.close(child_read)
            os.close(child_write)
        self._drain = Drain(dict(zip(streams, self._files, strict=True)))
        self._lines = protocol.Lines(self._read)
        self._open = True
        return child

    def _begin(
        self, environment: dict[str, str], read: int, write: int
    ) -> tuple[Child, tuple[IO[bytes], IO[bytes]]]:
        """Fork the worker from a warm process if one may and can; else start a process of its own."""
        if self.spec.preload is not None:
            try:
                return self._fork(self.spec.preload, environment, read, write)
            except warm.Unavailable as reason:
                self._start = f"spawn ({reason})"
        environment[protocol.DESCRIPTORS] = f"{read},{write}"
        child = spawn(self.worker(), env=environment, pass_fds=(read, write))
        return child, (cast(IO[bytes], child.popen.stdout), cast(IO[bytes], child.popen.stderr))

    def _fork(
        self, modules: tuple[str, ...], environment: dict[str, str], read: int, write: int
    ) -> tuple[Child, tuple[IO[bytes], IO[bytes]]]:
        pipes = os.pipe(), os.pipe()
        streams = tuple(os.fdopen(source, "rb", buffering=0) for source, _ in pipes)
        try:
            descriptors = (read, write, pipes[0][1], pipes[1][1])
            child = warm.fork(modules, environment, _own(self.spec), descriptors, self._timeouts.start)
        except BaseException:
            for stream in streams:
                stream.close()
            raise
        finally:
            for _, target in pipes:
                os.close(target)
        self._start = "fork"
        return child, (streams[0], streams[1])

    def _request(
        self, kind: FailureKind, timeout: float, read: Callable[[dict[str, Any]], _T], **message: Any
    ) -> _T:
        if not self._open:
            raise RuntimeError(f"the {self.spec.name} side is not running")
        self._count += 1
        try:
            answer = self._exchange({"id": self._count, **message}, time.monotonic() + timeout)
            return read(protocol.result_of(answer, self._count))
        except protocol.WorkerError as error:
            if error.fatal:
                self._end(self._timeouts.grace)
            raise self._failure(
                error.kind, error.message, traceback=error.traceback, alive=not error.fatal
            ) from None
        except protocol.ProtocolError as error:
            self._end(self._timeouts.grace)
            raise self._failure("protocol_error", f"{error}, during {message['op']}") from error
        except TimeoutError:
            self._end(self._timeouts.grace)
            late: dict[FailureKind, FailureKind] = {
                "compile_error": "compile_timeout",
                "runtime_error": "runtime_timeout",
            }
            raise self._failure(
                late.get(kind, kind), f"{message['op']} took longer than {timeout:g} s"
            ) from None
        except protocol.Ended:
            self._died(kind, str(message["op"]))
        except BaseException:
            self._end(0.0)
            raise

    def _exchange(self, message: dict[str, Any], deadline: float) -> dict[str, Any]:
        """Send a request and wait for the next line. Raises Ended, TimeoutError, ProtocolError."""
        child = cast(Child, self._child)
        # A dead worker may have answered before it died: what it wrote is still read.
        with contextlib.suppress(protocol.Ended):
            protocol.send(self._write, protocol.encode(message), deadline)
        while True:
            # Whether it has ended is asked before the pipe is read, or a last line could be missed.
            ended = child.ended()
            line = self._lines.next()
            if line is not None:
                return protocol.decode(line)
            if ended:  # a descendant may still hold the pipe open
                raise protocol.Ended
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            child.wait_readable(left, self._read)

    def _died(self, kind: FailureKind, operation: str) -> NoReturn:
        child = cast(Child, self._child)
        alone = child.wait(_LAST_WORDS)
        code = self._end(self._timeouts.grace)
        if not alone:
            message = f"the worker closed its pipe but went on, during {operation}"
            raise self._failure("protocol_error", message)
        if code is not None and code < 0:
            name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
            raise self._failure(kind, f"the worker was killed by {name} during {operation}", signal=-code)
        if code is None:
            raise self._failure(kind, f"the worker ended during {operation}, how is not known")
        raise self._failure(kind, f"the worker exited with code {code} during {operation}", exit_code=code)

    def _failure(
        self,
        kind: FailureKind,
        message: str,
        *,
        exit_code: int | None = None,
        signal: int | None = None,
        traceback: str = "",
        alive: bool = False,
    ) -> SideFailed:
        tail = "\n".join(text for text in (file.tail().strip() for file in self._files) if text)
        return SideFailed(
            self.spec.name,
            kind,
            message,
            exit_code=exit_code,
            signal=signal,
            output_tail=tail,
            traceback=traceback,
            alive=alive,
        )

    def _end(self, grace: float) -> int | None:
        """End what is left of the worker; return its return code."""
        child = cast(Child, self._child)
        code = kill_group(child, grace=grace)
        self._drain.finish(_PIPE_PATIENCE)
        for file in self._files:
            redact.file(file.path)
        self._close_pipes()
        self._open = False
        return code

    def _close_pipes(self) -> None:
        os.close(self._read)
        os.close(self._write)


def warm_up(spec: SideSpec) -> None:
    """Begin to import what a side like this needs, before the first one starts: it takes seconds."""
    if spec.preload is not None:
        warm.begin(spec.preload, _environment(spec), _own(spec))


def _own(spec: SideSpec) -> tuple[str, ...]:
    """The variables that one side has for itself."""
    return ("BOOSTERRUN_ACF", "BOOSTERRUN_ACF_ID", *spec.env)


def _environment(spec: SideSpec) -> dict[str, str]:
    """Return the worker's environment: ours, the ACF on the candidate only, and the changes of the spec."""
    environment = dict(os.environ)
    for name in ("BOOSTERRUN_ACF", "BOOSTERRUN_ACF_ID"):
        environment.pop(name, None)
    if spec.acf is not None:
        environment["BOOSTERRUN_ACF"] = str(spec.acf)
        environment["BOOSTERRUN_ACF_ID"] = spec.acf_id or spec.acf.stem
    for name, value in spec.env.items():
        if value is None:
            environment.pop(name, None)
        else:
            environment[name] = value
    return environment
