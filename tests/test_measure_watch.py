"""What disturbs a pair: another's process on the GPU does, a side of the same run that starts does not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import drivers
from command import environment

PROGRAM = """
import subprocess, sys, time
from pathlib import Path
from boosterrun.system import process
from boosterrun.measure.api import Hello
from boosterrun.measure.watch import Watch

def has(*pids):
    lines = "".join(f"process GPU-ab12 {pid} 50\\n" for pid in pids)
    Path(sys.argv[1]).write_text("gpu GPU-ab12 NVIDIA_H200 9\\n" + lines)

sleeping = [sys.executable, "-c", "input()"]
has()
watch = Watch([Hello({}, {"uuid": "GPU-ab12"}, None)])
print(watch())
ours = process.spawn([sys.executable, "-c", "import time; time.sleep(60)"])
has(ours.pid)
print(watch())
stranger = subprocess.Popen(sleeping, stdin=subprocess.PIPE, env={})
has(ours.pid, stranger.pid)
print(str(watch()).replace(str(stranger.pid), "STRANGER"))
stranger.kill()
stranger.wait()
process.kill_group(ours, grace=0.0)
"""


def test_only_a_process_of_somebody_else_disturbs(tmp_path: Path) -> None:
    machine = tmp_path / "machine"
    variables = drivers.variables(drivers.build(tmp_path), machine, tmp_path / "locks")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(machine)],
        env=environment(**variables),
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["None", "None", "another process uses the GPU: pid STRANGER"]
