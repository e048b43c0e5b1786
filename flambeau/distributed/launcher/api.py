"""torch.distributed.launcher.api: a function or a command in several processes, started from a program."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from flambeau.distributed.elastic.multiprocessing.api import DefaultLogsSpecs, LogsSpecs

_JOIN_TIMEOUT = 900  # seconds that machines wait for each other, as PyTorch's do


@dataclass
class LaunchConfig:
    """How many processes are started, where machines meet (`rdzv_backend` "static" or "c10d"), and what happens when a process fails."""

    min_nodes: int
    max_nodes: int
    nproc_per_node: int
    logs_specs: LogsSpecs | None = None
    run_id: str = ""
    role: str = "default_role"
    rdzv_endpoint: str = ""
    rdzv_backend: str = "etcd"
    rdzv_configs: dict[str, Any] = field(default_factory=dict)
    rdzv_timeout: int = -1
    max_restarts: int = 3
    monitor_interval: float = 0.1
    start_method: str = "spawn"
    log_line_prefix_template: str | None = None
    metrics_cfg: dict[str, str] = field(default_factory=dict)
    local_addr: str | None = None
    event_log_handler: str = "null"
    numa_options: Any = None
    signals_to_handle: str = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"
    duplicate_stdout_filters: list[str] | None = None
    duplicate_stderr_filters: list[str] | None = None
    virtual_local_rank: bool = False
    shutdown_timeout: int | None = None

    def __post_init__(self) -> None:
        if self.rdzv_timeout != -1:
            self.rdzv_configs["timeout"] = self.rdzv_timeout
        self.rdzv_configs.setdefault("timeout", _JOIN_TIMEOUT)
        if self.logs_specs is None:
            self.logs_specs = DefaultLogsSpecs()
        if self.shutdown_timeout is None:
            self.shutdown_timeout = int(os.environ.get("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "30"))
        elif self.shutdown_timeout < 0:
            raise ValueError(f"shutdown_timeout must be non-negative, got {self.shutdown_timeout}")

    def join_timeout(self) -> float:
        """Seconds that machines wait for each other."""
        return float(self.rdzv_configs.get("join_timeout", self.rdzv_configs["timeout"]))


def check(config: LaunchConfig) -> None:
    """Raise where a run cannot be as the configuration says."""
    if config.rdzv_backend not in ("static", "c10d"):
        raise ValueError(f"rdzv_backend must be 'static' or 'c10d', got {config.rdzv_backend!r}: there is no etcd here")
    if not 1 <= config.min_nodes <= config.max_nodes:
        raise ValueError(f"min_nodes must be at least 1 and at most max_nodes, got {config.min_nodes} and {config.max_nodes}")
    if config.nproc_per_node < 1:
        raise ValueError(f"nproc_per_node must be at least 1, got {config.nproc_per_node}")
    if config.max_restarts < 0:
        raise ValueError(f"max_restarts must be at least 0, got {config.max_restarts}")
    if config.rdzv_backend == "static":
        if "rank" not in config.rdzv_configs:
            raise ValueError("rdzv_backend 'static' needs the number of this machine: rdzv_configs={'rank': 0}")
        if ":" not in config.rdzv_endpoint:
            raise ValueError(f"rdzv_backend 'static' needs rdzv_endpoint='HOST:PORT', got {config.rdzv_endpoint!r}")


def _get_entrypoint_name(entrypoint: Callable[..., Any] | str | None, args: Sequence[Any]) -> str:
    """What a run is called: the function, the program, or the script that Python runs."""
    if callable(entrypoint):
        return str(getattr(entrypoint, "__name__", type(entrypoint).__name__))
    if entrypoint == sys.executable:
        return next((str(part) for part in args if not str(part).startswith("-")), "")
    return entrypoint or ""


def python_command(args: Sequence[Any]) -> list[str]:
    """Python's command line in which `import torch` gives flambeau: options of Python, then a script, or -m and a module."""
    words = [str(part) for part in args]
    count = next((i for i, word in enumerate(words) if not word.startswith("-") or word in ("-m", "-c", "-")), len(words))
    if words[count : count + 1] in ([], ["-c"], ["-"]):
        return [sys.executable, *words]
    return [sys.executable, *words[:count], "-m", "flambeau.distributed.launcher.child", *words[count:]]


def launch_agent(config: LaunchConfig, entrypoint: Callable[..., Any] | str | None, args: list[Any], health_check_server: Any = None) -> dict[int, Any]:
    """Start `entrypoint(*args)` (a function that can be pickled) or a program with arguments in several processes, and wait for their end.

    Returns what each of this machine's processes has returned (None for programs), by global rank. ChildFailedError once a process
    failed and no restart is left. Functions run in new processes, whatever `start_method` is.
    """
    from flambeau import module_names
    from flambeau.distributed.launcher.agent import Agent
    from flambeau.distributed.launcher.function import Function

    check(config)
    if entrypoint is None:
        raise ValueError("entrypoint must be a function or a program, got None")
    config.run_id = config.run_id or str(uuid.uuid4().int)
    name = _get_entrypoint_name(entrypoint, args)
    if callable(entrypoint):
        with Function(entrypoint, args) as function:
            return Agent(config, function.command, name, function.result).run()
    command = python_command(args) if entrypoint == sys.executable and module_names.is_installed() else [entrypoint, *map(str, args)]
    return Agent(config, command, name).run()


class elastic_launch:
    """`elastic_launch(config, entrypoint)(*args)`: see `launch_agent`."""

    def __init__(self, config: LaunchConfig, entrypoint: Callable[..., Any] | str | None, health_check_server: Any = None) -> None:
        self._config, self._entrypoint, self._health_check_server = config, entrypoint, health_check_server

    def __call__(self, *args: Any) -> dict[int, Any]:
        return launch_agent(self._config, self._entrypoint, list(args), self._health_check_server)
