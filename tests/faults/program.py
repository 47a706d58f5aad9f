"""The same as a program that is started for each launch: ``program.py ACTION WORK SEED GAINS``.

Actions: build; run, which prints a time and writes an output; check, which judges that output.
"""

import json
import os
import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import misbehave

WHO = os.environ.get("BOOSTERRUN_ACF_ID", "baseline")
ACTION, WORK, SEED, GAINS = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4])
TIMED_SEED = 0
SESSION = int(WORK.parts[-3].removeprefix("session-"))  # session-0/candidate/shape-0
ANSWER = {"answer": 2.5 * SEED + 1}


def phase():
    """Which launch of this side and session it is tells what it is for."""
    if ACTION == "build":
        return "build"
    if SEED != TIMED_SEED:
        return "check"
    counter = WORK / "launches"
    count = len(counter.read_bytes()) if counter.exists() else 0
    counter.write_bytes(b"x" * (count + 1))
    if WHO == "baseline":  # 0: after the build, 1: to choose a timer
        return "calibrate" if SESSION == 0 and count in misbehave.plan()["window"] else "later"
    return "later" if count == 0 else "pairs" if SESSION == 0 else "confirm"


if ACTION == "check":
    sys.exit(json.loads((WORK / "output.json").read_text()) != ANSWER)
fault = misbehave.due(WHO, phase())
misbehave.act(fault, WORK if WHO == "baseline" else misbehave.folder_of(WHO))
if fault in misbehave.SAMPLES and SEED != TIMED_SEED:
    ANSWER["answer"] = misbehave.SAMPLES[fault]
if WORK.exists():
    (WORK / "output.json").write_text(json.dumps(ANSWER))
milliseconds = random.gauss(1.0, 0.002) / (1 + GAINS.get(WHO, 0.0))
print("time:", misbehave.SAMPLES.get(fault, milliseconds) if SEED == TIMED_SEED else milliseconds)
