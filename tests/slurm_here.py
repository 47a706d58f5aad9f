"""A real Slurm of two nodes on this machine: munged, slurmctld and two slurmd in a folder of their own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "squeue", "scancel", "sinfo")
NODES = ("n0", "n1")
GPUS = 2

CONF = """\
ClusterName=boosterrun
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ctld}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=2,batch_sched_delay=0
SlurmdTimeout=6
MessageTimeout=4
KillWait=5
ReturnToService=2
MpiDefault=none
GresTypes=gpu
{nodes}
PartitionName=main Nodes={names} Default=YES MaxTime=60 State=UP
"""


def why_not() -> str | None:
    """Why there can be no Slurm here; None: there can."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    missing = [name for name in PROGRAMS if shutil.which(name, path=path) is None]
    if missing:
        return f"not installed: {', '.join(missing)} (Debian: apt-get install slurm-wlm munge)"
    return None if os.geteuid() == 0 else "slurmd must run as root"


class Slurm:
    """The daemons, started. ``environment``: what Slurm's commands need to find them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.host = socket.gethostname()
        self.environment = {
            "SLURM_CONF": str(folder / "slurm.conf"),
            "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin",
        }
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}
        self.gpus = self._devices()
        self._configure()

    def _devices(self) -> bool:
        """Device files that stand for GPUs: Slurm only looks at their numbers. Whether they can be made."""
        try:
            for number in range(GPUS):
                os.mknod(self.folder / f"gpu{number}", 0o20600, os.makedev(1, 3))
        except OSError:
            return False
        return True

    def _configure(self) -> None:
        (self.folder / "state").mkdir()
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        ports = _free_ports(1 + len(NODES))
        gres = f" Gres=gpu:{GPUS}" if self.gpus else ""
        nodes = "\n".join(
            f"NodeName={name} NodeHostname={self.host} NodeAddr=127.0.0.1 Port={port} CPUs=8"
            f" RealMemory=65536{gres}"
            for name, port in zip(NODES, ports[1:], strict=True)
        )
        (self.folder / "slurm.conf").write_text(
            CONF.format(host=self.host, ctld=ports[0], folder=self.folder, nodes=nodes, names=",".join(NODES))
        )
        if self.gpus:
            (self.folder / "gres.conf").write_text(
                "".join(
                    f"NodeName={name} Name=gpu File={self.folder}/gpu{number}\n"
                    for name in NODES
                    for number in range(GPUS)
                )
            )

    def start(self) -> None:
        """Start all daemons, and wait for the nodes."""
        at = self.folder
        self._daemon(
            "munged",
            *("--foreground", "--force", f"--socket={at}/munge.sock", f"--key-file={at}/munge.key"),
            *(f"--pid-file={at}/munged.pid", f"--log-file={at}/munged.log", f"--seed-file={at}/seed"),
        )
        self._wait((at / "munge.sock").exists, "munged")
        self._daemon("slurmctld", "-D")
        for name in NODES:
            self.start_node(name)
        self.wait_for_nodes()

    def wait_for_nodes(self) -> None:
        """Wait until all nodes are there and have nothing to do."""
        self._wait(
            lambda: self.ask("sinfo", "-h", "-N", "-o", "%T").split() == ["idle"] * len(NODES), "nodes"
        )

    def start_node(self, name: str) -> None:
        self._daemon("slurmd", "-D", "-N", name, key=name)

    def kill_node(self, name: str) -> None:
        """End a node as a power cut would: its daemon and all that it runs."""
        daemon = self.daemons.pop(name)
        doomed = [daemon.pid, *_with(f"SLURMD_NODENAME={name}")]
        doomed += [
            parent for pid in doomed[1:] if (parent := _parent(pid)) and "slurmstepd" in _command(parent)
        ]
        for pid in doomed:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        daemon.wait()

    def measures(self, name: str) -> bool:
        """Whether a worker of a job runs on a node: its job cannot have a result yet."""
        return any("boosterrun.measure" in _command(pid) for pid in _with(f"SLURMD_NODENAME={name}"))

    def ask(self, *command: str) -> str:
        """What one of Slurm's commands says."""
        done = subprocess.run(
            command, env={**os.environ, **self.environment}, capture_output=True, text=True, check=False
        )
        return done.stdout

    def stop(self) -> None:
        """End everything."""
        self.ask("scancel", "--signal=KILL", "--full", "--user=root")
        for daemon in reversed(self.daemons.values()):
            daemon.terminate()
            try:
                daemon.wait(timeout=20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        for pid in _with(f"SLURM_CONF={self.environment['SLURM_CONF']}"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _daemon(self, program: str, *arguments: str, key: str | None = None) -> None:
        with (self.folder / f"{key or program}.out").open("ab") as log:
            self.daemons[key or program] = subprocess.Popen(
                [program, *arguments], env={**os.environ, **self.environment}, stdout=log, stderr=log
            )

    def _wait(self, what: object, name: str) -> None:
        deadline = time.monotonic() + 60
        while not what():  # type: ignore[operator]
            if time.monotonic() > deadline:
                logs = {path.name: path.read_text()[-500:] for path in self.folder.glob("*.log")}
                raise RuntimeError(f"{name}: {self.ask('sinfo', '-N', '-l')}{logs}")
            time.sleep(0.1)


@contextlib.contextmanager
def slurm(folder: Path) -> Iterator[Slurm]:
    """Slurm for as long as the block."""
    here = Slurm(folder)
    try:
        here.start()
        yield here
    finally:
        here.stop()


def _free_ports(number: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _with(variable: str) -> list[int]:
    """Processes with this in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if variable.encode() in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found


def _parent(pid: int) -> int | None:
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return None


def _command(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""
