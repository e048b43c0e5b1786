"""The arguments of `flambeau launch`: PyTorch's torchrun."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from flambeau.runtime.target import usable_processors


def get_args_parser() -> argparse.ArgumentParser:
    """The parser. Each option also has an environment variable, `PET_` and its name in capitals."""
    parser = argparse.ArgumentParser(
        prog="flambeau launch", allow_abbrev=False,
        description="Start a script in several processes that train together. The arguments are those of PyTorch's torchrun.",
    )  # fmt: skip

    def option(name: str, default: Any = None, **more: Any) -> None:
        given = os.environ.get("PET_" + name.upper().replace("-", "_"))
        flags = [f"--{name}", *([f"--{name.replace('-', '_')}"] if "-" in name else [])]
        if more.get("action") == "store_true":
            parser.add_argument(*more.pop("short", ()), *flags, default=given == "1", **more)
        else:
            parser.add_argument(*more.pop("short", ()), *flags, type=more.pop("type", str), default=default if given is None else given, **more)

    option("nnodes", "1:1", help="machines: a number, or MIN:MAX")
    option("nproc-per-node", "1", help="processes of each machine: a number, or auto, cpu, gpu")
    option("rdzv-backend", "static", help="static (with --node-rank) or c10d (machines are numbered as they come)")
    option("rdzv-endpoint", "", help="HOST[:PORT] where machines meet")
    option("rdzv-id", "none", help="the same for all machines of one run")
    option("rdzv-conf", "", help="KEY=VALUE,...: timeout, join_timeout, last_call_timeout (seconds)")
    option("standalone", action="store_true", help="one machine, on a free port")
    option("max-restarts", 0, type=int, help="how often all are started again after a failure")
    option("monitor-interval", 0.1, type=float, help="seconds between two looks at the processes")
    option("start-method", "spawn", choices=["spawn", "fork", "forkserver"], help="accepted: each process is a new program")
    option("event-log-handler", "null", help="accepted")
    option("role", "default", help="a name, before each line of --tee")
    option("module", action="store_true", short=("-m",), help="the script is a module, as for python -m")
    option("no-python", action="store_true", help="the script is a program of its own")
    option("run-path", action="store_true", help="accepted: the script runs as with python SCRIPT")
    option("log-dir", None, help="where logs go")
    option("redirects", "0", short=("-r",), help="what goes to files in place of here: 0 nothing, 1 stdout, 2 stderr, 3 both; or LOCAL_RANK:WHAT,...")
    option("tee", "0", short=("-t",), help="what goes to files and here, as for --redirects")
    option("local-ranks-filter", "", help="local ranks whose output is shown: 0,1")
    option("duplicate-stdout-filters", None, help="accepted")
    option("duplicate-stderr-filters", None, help="accepted")
    option("logs-specs", None, help="accepted")
    option("numa-binding", None, help="accepted")
    option("signals-to-handle", "SIGTERM,SIGINT,SIGHUP,SIGQUIT", help="signals that are passed on")
    option("shutdown-timeout", 30.0, type=float, help="seconds that processes have to end after a signal")
    option("virtual-local-rank", action="store_true", help="accepted")
    option("node-rank", 0, type=int, help="the number of this machine (static)")
    option("master-addr", "127.0.0.1", help="the address of machine 0 (static)")
    option("master-port", None, type=int, help="its port (static); 29500, on one machine a free one")
    option("local-addr", None, help="the address of this machine")
    parser.add_argument("training_script", help="the script, or module, or program")
    parser.add_argument("training_script_args", nargs=argparse.REMAINDER, help="its own arguments")
    return parser


def parse_args(args: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments, of this process by default."""
    return get_args_parser().parse_args(args)


def parse_min_max_nnodes(nnodes: str) -> tuple[int, int]:
    """(least, most) of "N" or "MIN:MAX"."""
    parts = str(nnodes).split(":")
    if not 1 <= len(parts) <= 2 or not all(part.isdigit() and int(part) > 0 for part in parts) or int(parts[0]) > int(parts[-1]):
        raise RuntimeError(f'nnodes={nnodes} is not in "MIN:MAX" format')
    return int(parts[0]), int(parts[-1])


def determine_local_world_size(nproc_per_node: str) -> int:
    """The number of processes of this machine."""
    if nproc_per_node in ("auto", "cpu"):
        return usable_processors()
    if nproc_per_node in ("gpu", "xpu"):
        raise ValueError(f"nproc_per_node={nproc_per_node}: flambeau runs on the CPU so far; give a number")
    try:
        count = int(nproc_per_node)
    except ValueError:
        raise ValueError(f"Unsupported nproc_per_node value: {nproc_per_node}") from None
    if count < 1:
        raise ValueError(f"nproc_per_node must be at least 1, got {count}")
    return count


def streams(given: str, count: int, option: str) -> dict[int, int]:
    """For each local rank what is redirected: 1 stdout, 2 stderr, 3 both."""
    try:
        if given.isdigit():
            found = dict.fromkeys(range(count), int(given))
        else:
            found = dict.fromkeys(range(count), 0) | {int(a): int(b) for a, b in (part.split(":") for part in given.split(","))}
    except ValueError:
        raise ValueError(f"--{option} must be 0, 1, 2, 3 or LOCAL_RANK:WHAT,..., got {given!r}") from None
    if not all(0 <= what <= 3 for what in found.values()):
        raise ValueError(f"--{option} must be 0, 1, 2, 3 or LOCAL_RANK:WHAT,..., got {given!r}")
    return found


@dataclass
class LaunchConfig:
    """How many processes are started, where they meet, and what happens when one fails."""

    min_nodes: int
    max_nodes: int
    nproc_per_node: int
    run_id: str = "none"
    role: str = "default"
    rdzv_endpoint: str = ""
    rdzv_backend: str = "static"
    rdzv_configs: dict[str, Any] = field(default_factory=dict)
    rdzv_timeout: int = -1
    max_restarts: int = 3
    monitor_interval: float = 0.1
    start_method: str = "spawn"
    log_dir: str | None = None
    redirects: dict[int, int] = field(default_factory=dict)
    tee: dict[int, int] = field(default_factory=dict)
    shown: tuple[int, ...] | None = None
    signals: tuple[str, ...] = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT")
    patience: float = 30.0
    local_addr: str | None = None

    def join_timeout(self) -> float:
        """Seconds that machines wait for each other."""
        return float(self.rdzv_timeout if self.rdzv_timeout >= 0 else self.rdzv_configs.get("join_timeout", self.rdzv_configs.get("timeout", 600)))


def config_from_args(args: argparse.Namespace) -> tuple[LaunchConfig, list[str], list[str]]:
    """(configuration, the command that starts a worker, its arguments)."""
    least, most = parse_min_max_nnodes(args.nnodes)
    if args.max_restarts < 0:
        raise ValueError(f"--max-restarts must be at least 0, got {args.max_restarts}")
    count = determine_local_world_size(str(args.nproc_per_node))
    configs = dict(part.split("=", 1) for part in args.rdzv_conf.split(",") if "=" in part)
    backend, endpoint, port = args.rdzv_backend.lower(), args.rdzv_endpoint, args.master_port
    if args.standalone:
        backend, endpoint, least, most = "static", "127.0.0.1:0", 1, 1
        configs["rank"] = 0
    elif backend == "static":
        if not endpoint:
            endpoint = f"{args.master_addr}:{port if port is not None else (0 if most == 1 else 29500)}"
        configs["rank"] = args.node_rank
    elif backend != "c10d":
        raise ValueError(f"--rdzv-backend must be static or c10d, got {args.rdzv_backend!r}: there is no etcd here")
    config = LaunchConfig(
        least, most, count, args.rdzv_id, args.role, endpoint, backend, configs, -1, args.max_restarts, args.monitor_interval, args.start_method, args.log_dir,
        streams(args.redirects, count, "redirects"), streams(args.tee, count, "tee"),
        tuple(int(part) for part in args.local_ranks_filter.split(",")) if args.local_ranks_filter else None,
        tuple(name.strip() for name in args.signals_to_handle.split(",") if name.strip()), args.shutdown_timeout, args.local_addr,
    )  # fmt: skip
    if args.no_python:
        if args.module:
            raise ValueError("Don't use both the '--no-python' flag and the '--module' flag at the same time.")
        return config, [args.training_script], list(args.training_script_args)
    import sys

    command = [sys.executable, "-u", "-m", "flambeau.distributed.launcher.child"]
    return config, command, [*(["-m"] if args.module else []), args.training_script, *args.training_script_args]
