"""A ptxas that misbehaves on its turn, and then is the real one, at ``FAULT_PTXAS``."""

import hashlib
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import misbehave

arguments = sys.argv[1:]
if "--apply-controls" in arguments:
    plan = misbehave.plan()
    path = Path(arguments[arguments.index("--apply-controls") + 1])
    canary = any(part.startswith("canary-") for part in path.parts)
    if canary:
        scratch = [path for path in (Path.cwd(), *Path.cwd().parents) if path.name.startswith("canary-")]
        misbehave.act(misbehave.due("canary", "canary"), scratch[-1])
    else:
        who = plan["acfs"].get(hashlib.sha256(path.read_bytes()).hexdigest())
        misbehave.act(misbehave.due(who, "build"), misbehave.folder_of(str(who)))
os.execv(os.environ["FAULT_PTXAS"], ["ptxas", *arguments])
