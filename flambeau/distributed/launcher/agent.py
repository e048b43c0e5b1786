"""The launcher of one machine: it meets those of other machines, starts the processes, watches them, and starts all again after a failure."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from flambeau.distributed.elastic.multiprocessing.errors import ChildFailedError
from flambeau.distributed.errors import DistError, DistNetworkError
from flambeau.distributed.launcher.arguments import LaunchConfig
from flambeau.distributed.launcher.worker import Worker, stop
from flambeau.distributed.store import PrefixStore, wait_for_count
from flambeau.distributed.tcp_store import TCPStore
from flambeau.runtime.target import usable_processors


class SignalException(BaseException):
    """The launcher was told to end."""

    def __init__(self, number: int) -> None:
        super().__init__(f"the launcher got signal {signal.Signals(number).name}")
        self.sigval = number


class Agent:
    """The processes of one machine."""

    def __init__(self, config: LaunchConfig, command: Sequence[str], arguments: Sequence[str]) -> None:
        self.config, self.command = config, [*command, *arguments]
        self.name = next((part for part in arguments if not part.startswith("-")), self.command[0]) if arguments else self.command[0]
        self.workers: list[Worker] = []
        self.temporary: str | None = None

    # -- meeting other machines ---------------------------------------------------------------------------------------------------
    def _connect(self) -> None:
        host, _, port = self.config.rdzv_endpoint.rpartition(":") if ":" in self.config.rdzv_endpoint else (self.config.rdzv_endpoint, "", "29400")
        wait = timedelta(seconds=self.config.join_timeout())
        first = self.config.rdzv_configs.get("rank")
        if first is None:  # c10d: whoever the address belongs to, and is first
            try:
                server = TCPStore(host, int(port), None, True, wait) if _is_own(host or "localhost") else None
            except DistNetworkError:
                server = None
            self.store = server or TCPStore(host, int(port), None, False, wait)
        else:
            self.store = TCPStore(host, int(port), None, int(first) == 0, wait)
        self.host, self.port = host, self.store.port
        self.meeting = PrefixStore(f"launch/{self.config.run_id}", self.store)

    def _join(self, attempt: int) -> tuple[int, list[int]]:
        """(number of this machine, processes of each machine)."""
        config, place = self.config, PrefixStore(f"{attempt}", self.meeting)
        given = config.rdzv_configs.get("rank")
        number = int(given) if given is not None else place.add("come", 1) - 1
        if given is not None:
            place.add("come", 1)
        if number >= config.max_nodes:
            raise ValueError(f"flambeau launch: this is machine {number}, and --nnodes says that there are at most {config.max_nodes}")
        place.set(f"node/{number}", str(config.nproc_per_node))
        came = wait_for_count(place, "come", config.min_nodes, config.join_timeout())
        if came < config.min_nodes:
            raise TimeoutError(f"flambeau launch: {came} of {config.min_nodes} machines came to {self.host}:{self.port} in {config.join_timeout():g} s")
        if config.max_nodes > config.min_nodes:
            came = wait_for_count(place, "come", config.max_nodes, float(config.rdzv_configs.get("last_call_timeout", 30)))
        if number == 0:
            place.set("count", str(min(came, config.max_nodes)))
        count = int(place.get("count"))
        return number, [int(place.get(f"node/{i}")) for i in range(count)]

    # -- one attempt ----------------------------------------------------------------------------------------------------------------
    def _start(self, attempt: int, folder: str) -> int:
        number, nodes = self._join(attempt)
        config, first, world = self.config, sum(nodes[:number]), sum(nodes)
        variables = dict(os.environ)
        if config.nproc_per_node > 1 and "OMP_NUM_THREADS" not in variables and "FLAMBEAU_NUM_THREADS" not in variables:
            variables["OMP_NUM_THREADS"] = str(max(1, usable_processors() // config.nproc_per_node))
        variables |= {
            "GROUP_RANK": str(number), "GROUP_WORLD_SIZE": str(len(nodes)), "LOCAL_WORLD_SIZE": str(config.nproc_per_node), "WORLD_SIZE": str(world),
            "ROLE_WORLD_SIZE": str(world), "ROLE_NAME": config.role, "MASTER_ADDR": self.host or "127.0.0.1", "MASTER_PORT": str(self.port),
            "TORCHELASTIC_RESTART_COUNT": str(attempt), "TORCHELASTIC_MAX_RESTARTS": str(config.max_restarts), "TORCHELASTIC_RUN_ID": config.run_id,
            "TORCHELASTIC_USE_AGENT_STORE": "True",
        }  # fmt: skip
        self.workers = []
        for local in range(config.nproc_per_node):
            rank = str(first + local)
            self.workers.append(
                Worker(
                    self.command, {**variables, "LOCAL_RANK": str(local), "RANK": rank, "ROLE_RANK": rank}, first + local, local,
                    os.path.join(folder, f"attempt_{attempt}", str(local)), config.redirects.get(local, 0), config.tee.get(local, 0), config.role,
                    config.shown is None or local in config.shown,
                )
            )  # fmt: skip
        return len(nodes)

    def _watch(self, attempt: int, machines: int) -> bool:
        """Wait for the end of all processes; whether all ended well. Where one did not, the others are stopped, also on other machines."""
        place = PrefixStore(f"{attempt}", self.meeting)
        told = False
        while True:
            codes = [worker.poll() for worker in self.workers]
            if any(code not in (None, 0) for code in codes):
                place.add("failed", 1)
                time.sleep(min(1.0, self.config.patience))  # others notice by themselves, and say so in their logs
                stop(self.workers, signal.SIGTERM, self.config.patience)
                return False
            if machines > 1 and place.add("failed", 0):
                stop(self.workers, signal.SIGTERM, self.config.patience)
                return False
            if all(code == 0 for code in codes):
                if not told:
                    place.add("done", 1)
                    told = True
                if machines == 1 or place.add("done", 0) >= machines:
                    return True
            time.sleep(self.config.monitor_interval)

    def run(self) -> None:
        """Start the processes and wait for their end. ChildFailedError once no restart is left."""
        folder = self.config.log_dir
        if folder is None:
            folder = self.temporary = tempfile.mkdtemp(prefix="flambeau-launch-")
        else:
            os.makedirs(folder, exist_ok=True)
            folder = tempfile.mkdtemp(prefix=f"{self.config.run_id}_", dir=folder)
        try:
            with _signals(self.config.signals):
                self._connect()
                for attempt in range(self.config.max_restarts + 1):
                    machines = self._start(attempt, folder)
                    if self._watch(attempt, machines):
                        self._say_goodbye(attempt, machines)
                        return
                    failures = self._failures()
                    left = self.config.max_restarts - attempt
                    if left:
                        _say(f"{_summary(failures)}; starting all again ({left} restarts left)")
            raise ChildFailedError(self.name, failures)
        except SignalException as told:
            stop(self.workers, told.sigval, self.config.patience)
            raise
        finally:
            stop(self.workers, signal.SIGKILL, 0)
            if self.temporary is not None:
                shutil.rmtree(self.temporary, ignore_errors=True)

    def _say_goodbye(self, attempt: int, machines: int) -> None:
        """The machine that has the store is the last to leave."""
        if machines == 1:
            return
        place = PrefixStore(f"{attempt}", self.meeting)
        with contextlib.suppress(DistError):
            place.add("left", 1)
            if self.store._server is not None:
                wait_for_count(place, "left", machines, 30.0)

    def _failures(self) -> list[dict[str, Any]]:
        """The failed processes, first the one that was the first to fail: one killed by a signal before those that complain of it."""
        # Those that the launcher has stopped have failed, too, by its signal: they come last; before them those that miss another rank.
        found = [worker.failure() for worker in self.workers if worker.poll() not in (None, 0)]
        return sorted(found, key=lambda f: (f["exitcode"] == -signal.SIGTERM, f["message"].startswith("Dist"), f["exitcode"] >= 0, f["at"]))


def _say(text: str) -> None:
    print(f"flambeau launch: {text}", file=sys.stderr, flush=True)


def _summary(failures: Sequence[dict[str, Any]]) -> str:
    if not failures:
        return "a process of another machine failed"
    first = failures[0]
    code = first["exitcode"]
    end = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    return f"rank {first['rank']} (process {first['pid']}) {end}" + (f": {first['message']}" if first["message"] else "")


def _is_own(host: str) -> bool:
    """Whether an address is one of this machine: a socket can be bound to it."""
    if host in ("localhost", platform.node()):
        return True
    try:
        for family, kind, _, _, address in socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM):
            with socket.socket(family, kind) as probe:
                probe.bind(address)
                return True
    except OSError:
        return False
    return False


@contextlib.contextmanager
def _signals(names: Sequence[str]) -> Iterator[None]:
    """A block in which these signals raise SignalException."""

    def told(number: int, frame: Any) -> None:
        raise SignalException(number)

    before = {}
    try:
        for name in names:
            with contextlib.suppress(ValueError):  # not the main thread
                number = getattr(signal, name)
                before[number] = signal.signal(number, told)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
