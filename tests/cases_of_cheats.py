"""Workloads that cheat, each in its own way: `CHEATS` maps a name to a function that makes the case."""

import contextlib
import json
import os
import stat
import sys
import time

import numpy as np

from boosterrun import Case
from boosterrun.measure import timers

CANDIDATE = "BOOSTERRUN_ACF" in os.environ
MEMORY = {}


class Honest:
    """Rows times a matrix, some 0.4 ms; cheats replace parts of it on the candidate's side."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.x = rng.standard_normal((192, 192))
        self.w = rng.standard_normal((192, 192))
        self.y = np.empty((192, 192))
        self.answer = None
        self.runs = 0

    def work(self):
        for _ in range(3):
            np.matmul(self.x, self.w, out=self.y)

    def run(self):
        self.work()
        return self.y

    def reference(self):
        self.answer = self.x @ self.w
        return self.answer

    def case(self):
        return Case(run=self.run, reference=self.reference, outputs=[self.y])


class TheReferencesArray(Honest):
    def run(self):
        return self.answer if CANDIDATE else super().run()


class ACopyOfTheReferencesArray(Honest):
    def run(self):
        if CANDIDATE:
            self.y[:] = self.answer
            return self.y
        return super().run()


class AHiddenCopyOfTheAnswer(Honest):
    def reference(self):
        super().reference()
        self.hidden = self.answer.copy()
        return self.answer

    def run(self):
        if CANDIDATE:
            self.y[:] = self.hidden
            return self.y
        return super().run()


class RepeatedInputs(Honest):
    def run(self):
        if not CANDIDATE:
            return super().run()
        key = self.x.tobytes()[:64]
        if key not in MEMORY:
            MEMORY[key] = super().run().copy()
        self.y[:] = MEMORY[key]
        return self.y


class Once(Honest):
    def run(self):
        self.runs += 1
        return self.y if CANDIDATE and self.runs > 1 else super().run()


class SkipsWhileItIsTimed(Honest):
    def run(self):
        self.runs += 1
        return self.y if CANDIDATE and self.runs > 4 else super().run()


class LooksForTheFill(Honest):
    def run(self):
        if CANDIDATE and self.runs > 0 and not np.isnan(self.y[0, 0]):
            return self.y
        self.runs += 1
        return super().run()


class SleepingBaseline(Honest):
    def run(self):
        if not CANDIDATE:
            time.sleep(0.001)
        return super().run()


class Clock(Honest):
    """Replaces the clock of the time module: a quarter of every time on the candidate's side."""

    def __init__(self, seed):
        super().__init__(seed)
        if CANDIDATE and "clock" not in MEMORY:
            MEMORY["clock"] = real = time.perf_counter_ns
            time.perf_counter_ns = lambda: real() // 4


class OurClockSlowsTheBaseline(Honest):
    """Replaces the clock inside of boosterrun: the baseline says thrice of what it took."""

    def __init__(self, seed):
        super().__init__(seed)
        if not CANDIDATE and "clock" not in MEMORY:
            MEMORY["clock"] = real = timers.perf_counter_ns
            timers.perf_counter_ns = lambda: 3 * real()


class OurClockSpeedsTheCandidate(Honest):
    """Replaces the clock inside of boosterrun: the candidate says a quarter of what it took."""

    def __init__(self, seed):
        super().__init__(seed)
        if CANDIDATE and "clock" not in MEMORY:
            MEMORY["clock"] = real = timers.perf_counter_ns
            timers.perf_counter_ns = lambda: real() // 4


class OwnTimes(Honest):
    def case(self):
        def sample(count):
            for _ in range(count):
                self.run()
            return list((0.25 if CANDIDATE else 1.0) * np.random.default_rng().normal(1, 0.01, count))

        return Case(run=self.run, reference=self.reference, outputs=[self.y], sample=sample)


class ForgedAnswer(Honest):
    """Answers in the worker's place: a block of short times, on whatever pipe takes it."""

    def run(self):
        frame = sys._getframe()
        while frame is not None and frame.f_code.co_name != "_answer":
            frame = frame.f_back
        request = frame.f_locals["request"]
        if CANDIDATE and request["op"] == "sample" and request["id"] not in MEMORY:
            MEMORY[request["id"]] = True
            result = {"values": [0.001] * request["launches"], "timer": "host", "detail": {}}
            line = json.dumps({"id": request["id"], "ok": True, "result": result}).encode() + b"\n"
            for descriptor in range(3, 1024):
                with contextlib.suppress(OSError):
                    if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
                        os.write(descriptor, line)
        return super().run()


class ReferenceIsAnInput(Honest):
    """No cheat: what comes out is what went in, and the reference hands out the input itself."""

    def work(self):
        self.y[:] = self.x

    def reference(self):
        return self.x


def make(*, seed, cheat):
    return globals()[cheat](seed).case()
