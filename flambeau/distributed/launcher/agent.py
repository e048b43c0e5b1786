"""The launcher of one machine: it meets those of other machines, starts the processes, watches them, and starts all again after a failure.

Machines meet in rounds, whose number the store has. A round is closed by its first machine; who comes later waits for the next one, and the
machines of the round, if there is room, end it and begin the next with the newcomer.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import platform
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from string import Template
from typing import Any

from flambeau.distributed.elastic import events
from flambeau.distributed.elastic.multiprocessing.api import DefaultLogsSpecs, SignalException
from flambeau.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from flambeau.distributed.errors import DistError, DistNetworkError
from flambeau.distributed.launcher.api import LaunchConfig
from flambeau.distributed.launcher.arguments import LOCAL_RANK
from flambeau.distributed.launcher.function import RESULT
from flambeau.distributed.launcher.worker import Output, Worker, stop
from flambeau.distributed.rendezvous import ROUND
from flambeau.distributed.store import PrefixStore, Store, wait_for_count
from flambeau.distributed.tcp_store import TCPStore
from flambeau.runtime.resources import usable_processors
from flambeau.runtime.signals import caught


@dataclass
class Round:
    """The machines that have started together."""

    number: int
    place: Store
    machine: int  # this one's number
    processes: list[int]  # of each machine
    beats: dict[int, tuple[int, float]] = field(default_factory=dict)  # of each other machine: its last sign of life, and when it came
    beaten: float = 0.0

    @property
    def machines(self) -> int:
        """How many there are."""
        return len(self.processes)


class Agent:
    """The processes of one machine. `result`: where a process writes what it returns (of the number of starts before, and the local rank)."""

    def __init__(self, config: LaunchConfig, command: Sequence[str], name: str, result: Callable[[int, int], str] | None = None) -> None:
        self.config, self.command, self.name, self.result = config, list(command), name, result
        self.workers: list[Worker] = []
        self.starts, self.restarts, self.begun = 0, 0, time.monotonic()
        self.patience = float(config.shutdown_timeout or 0)
        given = config.rdzv_configs.get("rank")
        self.number = None if given is None else int(given)  # of this machine, where it is known beforehand (static)

    # -- meeting other machines ---------------------------------------------------------------------------------------------------
    def _connect(self) -> None:
        endpoint = self.config.rdzv_endpoint
        host, _, port = endpoint.rpartition(":") if ":" in endpoint else (endpoint, "", "29400")
        wait = timedelta(seconds=self.config.join_timeout())
        if self.number is None:  # c10d: whoever the address belongs to, and is first
            try:
                server = TCPStore(host or "localhost", int(port), None, True, wait) if _is_own(host or "localhost") else None
            except DistNetworkError:
                server = None
            self.store = server or TCPStore(host or "localhost", int(port), None, False, wait)
        else:
            self.store = TCPStore(host, int(port), None, self.number == 0, wait)
        self.host, self.port = host, self.store.port
        self.meeting = PrefixStore(f"launch/{self.config.run_id}", self.store)

    def _join(self) -> Round | None:
        """The next round that this machine takes part in; None if the run ended before there was one."""
        while True:
            number = self.meeting.add("round", 0)
            place = PrefixStore(f"{number}", self.meeting)
            found = self._take_part(number, place)
            if found is not None:
                return found
            place.add("waiting", 1)
            try:
                while self.meeting.add("round", 0) == number:
                    if self.meeting.add("ended", 0):
                        self._say_goodbye(place, int(place.get("count")), False)
                        return None
                    time.sleep(max(0.05, self.config.monitor_interval))
            except DistError:  # the store has gone with the machine that had it
                return None

    def _take_part(self, number: int, place: Store) -> Round | None:
        config = self.config
        if place.check(["count"]):
            return None
        come = place.add("come", 1) - 1
        machine = come if self.number is None else self.number
        if machine >= config.max_nodes:
            if self.number is None:
                return None
            raise ValueError(f"flambeau launch: this is machine {machine}, and --nnodes says that there are at most {config.max_nodes}")
        place.set(f"node/{machine}", str(config.nproc_per_node))
        limit = config.join_timeout()
        if machine == 0:
            came = wait_for_count(place, "come", config.min_nodes, limit)
            if came >= config.min_nodes and config.max_nodes > config.min_nodes:
                came = wait_for_count(place, "come", config.max_nodes, float(config.rdzv_configs.get("last_call_timeout", 30)))
            if came >= config.min_nodes:
                place.set("count", str(min(came, config.max_nodes)))
        try:
            place.wait(["count"], timedelta(seconds=limit if machine else 0.1))
        except DistError:
            came = place.add("come", 0)
            raise TimeoutError(f"flambeau launch: {came} of {config.min_nodes} machines came to {self.host}:{self.port} in {limit:g} s") from None
        count = int(place.get("count"))
        if machine >= count:
            return None
        return Round(number, place, machine, [int(place.get(f"node/{i}")) for i in range(count)])

    def _end_round(self, round_: Round) -> None:
        """The next round begins, if nobody has begun it."""
        if round_.place.add("over", 1) == 1:
            self.meeting.add("round", 1)

    def _lost(self, round_: Round) -> list[int]:
        """Machines that have given no sign of life for some time."""
        every = float(self.config.rdzv_configs.get("keep_alive_interval", 5))
        now = time.monotonic()
        if now - round_.beaten < every:
            return []
        round_.beaten = now
        round_.place.add(f"beat/{round_.machine}", 1)
        lost = []
        for machine in range(round_.machines):
            beat = round_.place.add(f"beat/{machine}", 0)
            if machine not in round_.beats or round_.beats[machine][0] != beat:
                round_.beats[machine] = beat, now
            elif now - round_.beats[machine][1] > every * int(self.config.rdzv_configs.get("keep_alive_max_attempt", 3)):
                lost.append(machine)
        return lost

    # -- one start ------------------------------------------------------------------------------------------------------------------
    def _variables(self, round_: Round) -> dict[int, dict[str, str]]:
        """The environment of each process."""
        config, world, first = self.config, sum(round_.processes), sum(round_.processes[: round_.machine])
        variables = dict(os.environ)
        if config.nproc_per_node > 1 and "OMP_NUM_THREADS" not in variables and "FLAMBEAU_NUM_THREADS" not in variables:
            variables["OMP_NUM_THREADS"] = str(max(1, usable_processors() // config.nproc_per_node))
        variables |= {
            "GROUP_RANK": str(round_.machine), "GROUP_WORLD_SIZE": str(round_.machines), "LOCAL_WORLD_SIZE": str(config.nproc_per_node),
            "WORLD_SIZE": str(world), "ROLE_WORLD_SIZE": str(world), "ROLE_NAME": config.role, "MASTER_ADDR": self.host or "127.0.0.1",
            "MASTER_PORT": str(self.port), "TORCHELASTIC_RESTART_COUNT": str(self.restarts), "TORCHELASTIC_MAX_RESTARTS": str(config.max_restarts),
            "TORCHELASTIC_RUN_ID": config.run_id, "TORCHELASTIC_USE_AGENT_STORE": "True", ROUND: str(round_.number),
        }  # fmt: skip
        found = {}
        for local in range(config.nproc_per_node):
            rank = str(first + local)
            found[local] = {**variables, "LOCAL_RANK": "0" if config.virtual_local_rank else str(local), "RANK": rank, "ROLE_RANK": rank}
            if self.result is not None:
                found[local][RESULT] = self.result(self.starts, local)
        return found

    def _start(self, round_: Round) -> None:
        config, environments = self.config, self._variables(round_)
        assert config.logs_specs is not None
        files = config.logs_specs.reify(environments)
        template = Template(config.log_line_prefix_template or "[${role_name}${local_rank}]:")
        self.workers = []
        for local, variables in environments.items():
            rank = int(variables["RANK"])
            prefix = template.safe_substitute(role_name=config.role, rank=rank, local_rank=local)
            outputs = [
                Output(name, paths[local], local in tees or not paths[local], prefix, filters or (), filtered)
                for name, paths, tees, filters, filtered in (
                    ("stdout", files.stdouts, files.tee_stdouts, config.duplicate_stdout_filters, files.filtered_stdout),
                    ("stderr", files.stderrs, files.tee_stderrs, config.duplicate_stderr_filters, files.filtered_stderr),
                )
            ]
            command = [part.replace(LOCAL_RANK, str(local)) for part in self.command]
            self.workers.append(Worker(command, variables, rank, local, outputs, files.error_files[local]))
        self.starts += 1

    def _watch(self, round_: Round) -> str:
        """Wait until all processes have ended ("done"), one has failed ("failed"), or machines begin anew ("changed"); then all here are stopped."""
        place, told = round_.place, False
        shared = round_.machines > 1 or (self.number is None and self.config.max_nodes > 1)
        while True:
            codes = [worker.poll() for worker in self.workers]
            if any(code not in (None, 0) for code in codes):
                place.add("failed", 1)
                self._end_round(round_)
                time.sleep(min(1.0, self.patience))  # others notice by themselves, and say so in their logs
                stop(self.workers, signal.SIGTERM, self.patience)
                return "failed"
            if shared and self.meeting.add("round", 0) > round_.number:
                failed = place.add("failed", 0)
                stop(self.workers, signal.SIGTERM, self.patience)
                return "failed" if failed else "changed"
            if all(code == 0 for code in codes):
                if not told:
                    place.add("done", 1)
                    told = True
                if round_.machines == 1 or place.add("done", 0) >= round_.machines:
                    return "done"
            elif shared and round_.machines < self.config.max_nodes and place.add("waiting", 0) and not place.add("done", 0):
                self._end_round(round_)
                continue
            lost = self._lost(round_) if self.number is None and round_.machines > 1 else []
            if lost:
                _say(f"machine{'s' * (len(lost) > 1)} {', '.join(map(str, lost))} of {round_.machines} gave no sign of life")
                place.add("failed", 1)
                self._end_round(round_)
            time.sleep(self.config.monitor_interval)

    def run(self) -> dict[int, Any]:
        """Start the processes and wait for their end; what they have returned, by rank. ChildFailedError once no restart is left."""
        config = self.config
        try:
            with _signals([name.strip() for name in config.signals_to_handle.split(",") if name.strip()]):
                self._connect()
                while True:
                    round_ = self._join()
                    if round_ is None:
                        _say("the run ended before this machine was taken in")
                        return {}
                    self._start(round_)
                    outcome = self._watch(round_)
                    if outcome == "done":
                        results = {worker.rank: self._result(worker) for worker in self.workers}
                        self._say_goodbye(round_.place, round_.machines, True)
                        self._record("SUCCEEDED", round_.machine)
                        return results
                    if outcome == "changed":
                        _say("machines have come; starting all again")
                        continue
                    failures = {worker.rank: worker.failure() for worker in self.workers if worker.poll() not in (None, 0)}
                    left = config.max_restarts - self.restarts
                    if not left:
                        self._record("FAILED", round_.machine)
                        raise ChildFailedError(self.name, failures)
                    _say(f"{_summary(failures)}; starting all again ({left} restarts left)")
                    self.restarts += 1
        except SignalException as told:
            stop(self.workers, told.sigval, self.patience)
            self._record("FAILED", None)
            raise
        finally:
            stop(self.workers, signal.SIGKILL, 0)
            if isinstance(config.logs_specs, DefaultLogsSpecs):
                config.logs_specs.clean()

    def _record(self, state: str, machine: int | None) -> None:
        """Tell how the run has ended here (`--event-log-handler`)."""
        config = self.config
        found: dict[str, events.EventMetadataValue] = {
            "run_id": config.run_id, "global_rank": None, "group_rank": machine, "worker_id": None, "role": config.role, "hostname": platform.node(),
            "state": state, "total_run_time": int(time.monotonic() - self.begun), "rdzv_backend": config.rdzv_backend,
            "raw_error": traceback.format_exc() if state == "FAILED" and sys.exc_info()[0] is not None else None, "agent_restarts": self.restarts,
            "metadata": json.dumps({"entry_point": self.name}),
        }  # fmt: skip
        events.record(events.Event(f"torchelastic.worker.status.{state}", events.EventSource.AGENT, metadata=found), config.event_log_handler)

    def _result(self, worker: Worker) -> Any:
        if self.result is None:
            return None
        with open(self.result(self.starts - 1, worker.local_rank), "rb") as file:
            return pickle.load(file)

    def _say_goodbye(self, place: Store, machines: int, took_part: bool) -> None:
        """The machine that has the store is the last to leave."""
        with contextlib.suppress(DistError):
            if took_part:
                self.meeting.add("ended", 1)
                place.add("left", 1)
            if self.store._server is not None and machines > 1:
                wait_for_count(place, "left", machines, 30.0)


def _say(text: str) -> None:
    print(f"flambeau launch: {text}", file=sys.stderr, flush=True)


def _summary(failures: Mapping[int, ProcessFailure]) -> str:
    if not failures:
        return "a process of another machine failed, or a machine was lost"
    rank, first = ChildFailedError("", failures).get_first_failure()
    if first.exitcode < 0:
        return f"rank {rank} (process {first.pid}) was killed by {first.signal_name()}"
    return f"rank {rank} (process {first.pid}) ended with exit code {first.exitcode}" + (f": {first.text()}" if isinstance(first.message, dict) else "")


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
        raise SignalException(f"the launcher got signal {signal.Signals(number).name}", signal.Signals(number))

    with caught([getattr(signal, name) for name in names], told):
        yield
