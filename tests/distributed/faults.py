"""Faults at random moments of a training run on two machines, which are two network namespaces: `python -m tests.distributed.faults [MOMENTS] [KINDS ...]`.

kill: SIGKILL to a rank. stop: SIGSTOP to a rank. cut: the link between the machines goes down for some seconds. The run must go on after each from the
last checkpoint or a later one, end with the bits of a run without faults, and leave no process, no listening port and no folder. It needs root and `ip`.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests import processes
from tests.distributed.ranks import HERE, ROOT, environment

SCRIPT = str(HERE / "faulty.py")
LAUNCH = [sys.executable, "-m", "flambeau", "launch"]
CUT = 7.0  # seconds that a link is down: longer than a machine may be silent


def ip(*arguments: str) -> None:
    processes.run(["ip", *arguments], check=True, capture_output=True, text=True)


@contextlib.contextmanager
def machines() -> Iterator[list[str]]:
    """Two network namespaces with a link; the addresses are 10.213.0.1 and 10.213.0.2."""
    names = [f"flambeau-{os.getpid()}-{i}" for i in range(2)]
    try:
        for name in names:
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        ip("link", "add", "link0", "netns", names[0], "type", "veth", "peer", "name", "link1", "netns", names[1])
        for i, name in enumerate(names):
            ip("-n", name, "addr", "add", f"10.213.0.{i + 1}/24", "dev", f"link{i}")
            ip("-n", name, "link", "set", f"link{i}", "up")
        yield names
    finally:
        for name in names:
            processes.run(["ip", "netns", "delete", name], capture_output=True)


def can_run() -> bool:
    """Whether this process may make network namespaces."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        return False
    try:
        with machines():
            return True
    except subprocess.CalledProcessError:
        return False


class Run:
    """A training run on two machines."""

    def __init__(self, names: list[str], folder: Path, timeout: float) -> None:
        self.names, self.folder, self.mark = names, folder, f"FAULTS={folder}"
        variables = environment(FAULTS=str(folder), FAULTS_TIMEOUT=str(timeout), TMPDIR=str(folder))
        common = ["--nnodes=2", "--nproc-per-node=1", "--max-restarts=1000", "--shutdown-timeout=1", "--master-addr=10.213.0.1", "--master-port=29571"]
        self.log = (folder / "log").open("w")
        self.launchers = [
            processes.popen(
                ["ip", "netns", "exec", name, *LAUNCH, *common, f"--node-rank={i}", SCRIPT, str(folder)],
                env=variables, cwd=ROOT, stdout=self.log, stderr=self.log,
            ) for i, name in enumerate(names)
        ]  # fmt: skip

    def step(self) -> int:
        """The last step of which there is a checkpoint."""
        try:
            return int((self.folder / "step").read_text())
        except FileNotFoundError:
            return 0

    def goes_on(self, limit: float) -> bool:
        """Wait until there is a checkpoint of ten later steps."""
        wanted, end = self.step() + 20, time.monotonic() + limit
        while self.step() < wanted:
            if time.monotonic() > end or any(launcher.poll() is not None for launcher in self.launchers):
                return False
            time.sleep(0.02)
        return True

    def starts(self) -> list[int]:
        """From which steps it has gone on."""
        path = self.folder / "starts"
        return [json.loads(line)["step"] for line in path.read_text().splitlines()] if path.exists() else []

    def fault(self, kind: str) -> None:
        """One fault, at once."""
        if kind == "cut":
            ip("-n", self.names[1], "link", "set", "link1", "down")
            time.sleep(CUT)
            ip("-n", self.names[1], "link", "set", "link1", "up")
            return
        number = signal.SIGKILL if kind == "kill" else signal.SIGSTOP
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
            os.kill(int((self.folder / f"process-{random.randrange(2)}").read_text()), number)

    def end(self, limit: float) -> list[int | None]:
        """Let it end; the launchers' exit codes."""
        (self.folder / "enough").touch()
        stop = time.monotonic() + limit
        while any(launcher.poll() is None for launcher in self.launchers) and time.monotonic() < stop:
            time.sleep(0.05)
        return [launcher.poll() for launcher in self.launchers]

    def processes(self) -> list[int]:
        """What still runs of it."""
        found = []
        for path in Path("/proc").iterdir():
            if path.name.isdigit() and int(path.name) != os.getpid():
                with contextlib.suppress(OSError):
                    if self.mark.encode() in (path / "environ").read_bytes().split(b"\0"):
                        found.append(int(path.name))
        return found

    def listening(self) -> int:
        """How many ports are listened to on both machines."""
        count = 0
        for name in self.names:
            tables = processes.run(["ip", "netns", "exec", name, "cat", "/proc/net/tcp", "/proc/net/tcp6"], capture_output=True, text=True, check=True).stdout
            count += sum(line.split()[3:4] == ["0A"] for line in tables.splitlines())
        return count

    def close(self) -> None:
        """Kill what still runs."""
        for process in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        for launcher in self.launchers:
            processes.end(launcher)
        self.log.close()


def suffer(kind: str, moments: int, timeout: float = 10.0, limit: float = 120.0, seed: int = 0) -> dict[str, object]:
    """A run with this many faults of a kind: what was seen. `wrong` is empty if all was well."""
    random.seed(seed)
    wrong: list[str] = []
    waits: list[float] = []
    lost: list[int] = []
    with machines() as names, tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        run = Run(names, folder, timeout)
        try:
            if not run.goes_on(limit):
                return {"kind": kind, "wrong": ["the run did not begin"], "log": (folder / "log").read_text()[-4000:]}
            for moment in range(moments):
                time.sleep(random.random() * 1.5)
                before, starts = run.step(), len(run.starts())
                begun = time.monotonic()
                run.fault(kind)
                if not run.goes_on(limit):
                    wrong.append(f"moment {moment}: no progress in {limit:g} s; launchers {[p.poll() for p in run.launchers]}")
                    break
                waits.append(time.monotonic() - begun)
                later = run.starts()[starts:]
                lost += [before - step for step in later if step < before]
                if moment % 10 == 9:
                    print(f"{kind}: {moment + 1} moments, {len(run.starts())} starts, step {run.step()}", file=sys.stderr, flush=True)
            codes = run.end(limit)
            if codes != [0, 0]:
                wrong.append(f"the launchers ended with {codes}")
            time.sleep(0.3)
            if run.processes():
                wrong.append(f"processes are left: {run.processes()}")
            if run.listening():
                wrong.append(f"{run.listening()} ports are still listened to")
            if left := [path.name for path in folder.glob("flambeau-launch-*")]:
                wrong.append(f"folders are left: {left}")
            if lost:
                wrong.append(f"steps with a checkpoint were lost: {lost}")
            ends = [json.loads((folder / f"end-{rank}.json").read_text()) for rank in range(2) if (folder / f"end-{rank}.json").exists()]
            steps = ends[0][0] if ends else 0
            if len(ends) != 2 or ends[0] != ends[1]:
                wrong.append("the ranks have not ended with the same weights")
            elif ends[0] != undisturbed(steps):
                wrong.append(f"after {steps} steps the weights are not those of a run without faults")
            log = (folder / "log").read_text()
        finally:
            run.close()
        found: dict[str, object] = {
            "kind": kind, "moments": len(waits), "starts": len(run.starts()), "steps": steps, "longest": round(max(waits, default=0), 1),
            "mean": round(sum(waits) / max(1, len(waits)), 1), "wrong": wrong,
        }  # fmt: skip
        return found | ({"log": log[-6000:]} if wrong else {})


def undisturbed(steps: int) -> list[object]:
    """What a run of two ranks without faults ends with."""
    with tempfile.TemporaryDirectory() as place:
        processes.run([*LAUNCH, "--nproc-per-node=2", SCRIPT, place, str(steps)], env=environment(), cwd=ROOT, check=True, capture_output=True, timeout=600)
        found: list[object] = json.loads((Path(place) / "end-0.json").read_text())
        return found


def main(arguments: list[str]) -> int:
    """Print a line of JSON for each kind; 0 if all went well."""
    moments = int(arguments[0]) if arguments and arguments[0].isdigit() else 50
    kinds = [a for a in arguments if not a.isdigit()] or ["kill", "stop", "cut"]
    failed = 0
    for kind in kinds:
        found = suffer(kind, moments)
        log = found.pop("log", "")
        print(json.dumps(found), flush=True)
        if found["wrong"]:
            failed = 1
            print(log, file=sys.stderr)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
