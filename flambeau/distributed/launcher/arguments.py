"""The arguments of `flambeau launch`: PyTorch's torchrun."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import sys
import uuid
from collections.abc import Sequence
from typing import Any

from flambeau.distributed.elastic.multiprocessing.api import DefaultLogsSpecs, LogsSpecs, Std, to_map
from flambeau.distributed.launcher.api import LaunchConfig
from flambeau.runtime.resources import usable_processors

LOCAL_RANK = "${local_rank}"  # in a command: each process gets its own


def get_args_parser() -> argparse.ArgumentParser:
    """The parser. Each option also has an environment variable, `PET_` and its name in capitals."""
    parser = argparse.ArgumentParser(
        prog="flambeau launch",
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
    option("event-log-handler", "null", help="where the launcher's events go: null, console, or a name in torch.distributed.elastic.events.handlers")
    option("role", "default", help="a name, before each line of --tee")
    option("module", action="store_true", short=("-m",), help="the script is a module, as for python -m")
    option("no-python", action="store_true", help="the script is a program of its own")
    option("run-path", action="store_true", help="accepted: the script runs as with python SCRIPT")
    option("log-dir", None, help="where logs go")
    option("redirects", "0", short=("-r",), help="what goes to files in place of here: 0 nothing, 1 stdout, 2 stderr, 3 both; or LOCAL_RANK:WHAT,...")
    option("tee", "0", short=("-t",), help="what goes to files and here, as for --redirects")
    option("local-ranks-filter", "", help="local ranks whose output is shown: 0,1")
    option("duplicate-stdout-filters", None, type=_list, help="TEXT,...: lines of stdout with one of these also go to filtered_stdout.log")
    option("duplicate-stderr-filters", None, type=_list, help="the same of stderr")
    option("logs-specs", None, help="an entry point of the group torchrun.logs_specs: a class that says where output goes")
    option("numa-binding", None, help="accepted")
    option("signals-to-handle", "SIGTERM,SIGINT,SIGHUP,SIGQUIT", help="signals that are passed on")
    option("shutdown-timeout", None, type=int, help="seconds that processes have to end after a signal (30, or TORCH_ELASTIC_SHUTDOWN_TIMEOUT)")
    option("virtual-local-rank", action="store_true", help="LOCAL_RANK is 0 in each process")
    option("node-rank", 0, type=int, help="the number of this machine (static)")
    option("master-addr", "127.0.0.1", help="the address of machine 0 (static)")
    option("master-port", None, type=int, help="its port (static); 29500, on one machine a free one")
    option("local-addr", None, help="the address of this machine")
    parser.add_argument("training_script", help="the script, or module, or program")
    parser.add_argument("training_script_args", nargs=argparse.REMAINDER, help="its own arguments")
    return parser


def _list(text: str) -> list[str]:
    return [part for part in text.split(",") if part]


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


def _logs(args: argparse.Namespace, count: int) -> LogsSpecs:
    """Where output goes: as the options say, by the class that --logs-specs names, if one is named."""
    kind: Any = DefaultLogsSpecs
    if args.logs_specs is not None:
        found = {point.name: point for point in importlib.metadata.entry_points(group="torchrun.logs_specs")}
        if args.logs_specs not in found:
            raise ValueError(f"--logs-specs: no entry point {args.logs_specs!r} in the group torchrun.logs_specs")
        kind = found[args.logs_specs].load()
    streams = []
    for name in ("redirects", "tee"):
        try:
            streams.append(to_map(Std.from_str(getattr(args, name)), count))
        except ValueError as error:
            raise ValueError(f"--{name}: {error}") from None
    shown = {int(part) for part in args.local_ranks_filter.split(",")} if args.local_ranks_filter else None
    return kind(log_dir=args.log_dir, redirects=streams[0], tee=streams[1], local_ranks_filter=shown)


def config_from_args(args: argparse.Namespace) -> tuple[LaunchConfig, str, list[str]]:
    """(configuration, the program that is started, its arguments)."""
    least, most = parse_min_max_nnodes(args.nnodes)
    if args.max_restarts < 0:
        raise ValueError(f"--max-restarts must be at least 0, got {args.max_restarts}")
    count = determine_local_world_size(str(args.nproc_per_node))
    configs: dict[str, Any] = dict(part.split("=", 1) for part in args.rdzv_conf.strip(" '\"").split(",") if "=" in part)
    backend, endpoint, port, run_id = args.rdzv_backend.lower(), args.rdzv_endpoint, args.master_port, args.rdzv_id
    if args.standalone:
        backend, endpoint, least, most, run_id = "c10d", "localhost:0", 1, 1, str(uuid.uuid4())
    elif backend == "static":
        if not endpoint:
            endpoint = f"{args.master_addr}:{port if port is not None else (0 if most == 1 else 29500)}"
        configs["rank"] = args.node_rank
    elif backend != "c10d":
        raise ValueError(f"--rdzv-backend must be static or c10d, got {args.rdzv_backend!r}: there is no etcd here")
    config = LaunchConfig(
        least, most, count, _logs(args, count), run_id, args.role, endpoint, backend, configs, max_restarts=args.max_restarts,
        monitor_interval=args.monitor_interval, start_method=args.start_method, local_addr=args.local_addr, event_log_handler=args.event_log_handler,
        signals_to_handle=args.signals_to_handle, duplicate_stdout_filters=args.duplicate_stdout_filters,
        duplicate_stderr_filters=args.duplicate_stderr_filters, virtual_local_rank=args.virtual_local_rank, shutdown_timeout=args.shutdown_timeout,
        log_line_prefix_template=os.environ.get("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"),
    )  # fmt: skip
    arguments = [*([] if getattr(args, "use_env", True) else [f"--local-rank={LOCAL_RANK}"]), *args.training_script_args]
    if args.no_python:
        if args.module:
            raise ValueError("Don't use both the '--no-python' flag and the '--module' flag at the same time.")
        return config, args.training_script, arguments
    return config, sys.executable, ["-u", *(["-m"] if args.module else []), args.training_script, *arguments]
