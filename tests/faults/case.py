"""A Python case that is right and fast until its turn comes; :mod:`misbehave` says how it goes wrong."""

import os
import random
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
import misbehave

from boosterrun import Case

WHO = os.environ.get("BOOSTERRUN_ACF_ID", "baseline")
# A candidate's first process serves the screen, the others confirm.
SCREEN = WHO == "baseline" or misbehave.claim(f"screen-{WHO}", 1)
COUNT = {"made": 0, "sampled": 0}


def phase_of_sample():
    """The baseline is looked at to choose a timer, then it is calibrated."""
    COUNT["sampled"] += 1
    if WHO != "baseline":
        return "pairs" if SCREEN else "confirm"
    return "calibrate" if COUNT["sampled"] in misbehave.plan()["window"] else "later"


def make(*, seed, gains):
    """A sum of rows; a launch takes 1 ms, or as much less as ``gains`` says of an ACF's id."""
    COUNT["made"] += 1
    number = COUNT["made"]
    phase = "build" if number == 1 else "check" if number == 2 else "later"
    x = np.random.default_rng(seed).standard_normal((8, 16))
    y = np.empty(8)
    folder = misbehave.folder_of(WHO)
    noise = random.Random(f"{os.getpid()} {number}")
    state = {"runs": 0, "fault": None}

    def run():
        state["runs"] += 1
        if state["runs"] == 1:
            state["fault"] = misbehave.due(WHO, phase)
            misbehave.act(state["fault"], folder)
        y[:] = x.sum(1)
        if state["fault"] in misbehave.SAMPLES:
            y[3] = misbehave.SAMPLES[state["fault"]]
        return y

    def sample(count):
        fault = misbehave.due(WHO, phase_of_sample())
        misbehave.act(fault, folder)
        run()
        milliseconds = [noise.gauss(1.0, 0.002) / (1 + gains.get(WHO, 0.0)) for _ in range(count)]
        return [misbehave.SAMPLES.get(fault, value) for value in milliseconds]

    return Case(run=run, reference=lambda: x.sum(1), outputs=[y], sample=sample)
