"""flambeau.distributed.ray: the ranks of a training function as actors of a Ray cluster. Needs the extra flambeau[ray]."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

_PATIENCE = 5.0  # seconds that the other ranks have to say why they failed, before all are replaced


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise ImportError("flambeau.distributed.ray needs Ray: pip install 'flambeau[ray]'") from None
    return ray


class _Rank:
    """An actor: one rank in a process of its own."""

    def place(self) -> tuple[str, str, int]:
        """(node, its address, a free port there)."""
        ray = _ray()
        with socket.socket() as probe:
            probe.bind(("", 0))
            port = int(probe.getsockname()[1])
        return str(ray.get_runtime_context().get_node_id()), str(ray.util.get_node_ip_address()), port

    def run(self, variables: dict[str, str], under_torch: bool, call: bytes) -> Any:
        """What a function returns in the environment of a launched rank. `call`: it and its arguments, which may need `import torch` to be flambeau."""
        os.environ.update(variables)
        if under_torch:
            from flambeau.as_torch import install

            install()
        from flambeau.distributed.group import destroy_process_group, is_initialized

        function, args = _ray().cloudpickle.loads(call)
        try:
            return function(*args)
        finally:
            if is_initialized():
                destroy_process_group()


def _environments(places: Sequence[tuple[str, str, int]], attempt: int, restarts: int) -> list[dict[str, str]]:
    """The variables of each rank, as `flambeau launch` sets them; ranks of a node are numbered in their order."""
    nodes = list(dict.fromkeys(node for node, _, _ in places))
    found, local = [], dict.fromkeys(nodes, 0)
    count = {node: sum(other == node for other, _, _ in places) for node in nodes}
    _, address, port = places[0]
    for rank, (node, _, _) in enumerate(places):
        found.append({
            "RANK": str(rank), "WORLD_SIZE": str(len(places)), "LOCAL_RANK": str(local[node]), "LOCAL_WORLD_SIZE": str(count[node]),
            "GROUP_RANK": str(nodes.index(node)), "GROUP_WORLD_SIZE": str(len(nodes)), "MASTER_ADDR": address, "MASTER_PORT": str(port),
            "TORCHELASTIC_RESTART_COUNT": str(attempt), "TORCHELASTIC_MAX_RESTARTS": str(restarts),
        })  # fmt: skip
        local[node] += 1
    return found


def _failure(ray: Any, tasks: Sequence[Any]) -> tuple[int, Exception]:
    """(rank, error) of the first to fail: one that died before one that raised, and both before those that miss another rank."""
    end = time.monotonic() + _PATIENCE
    left = list(tasks)
    while left and time.monotonic() < end:
        _, left = ray.wait(left, num_returns=1, timeout=max(0.0, end - time.monotonic()))
    found: list[tuple[int, int, Exception]] = []
    for rank, task in enumerate(tasks):
        if task in left:
            continue
        try:
            ray.get(task)
        except ray.exceptions.RayActorError as error:
            found.append((0, rank, error))
        except Exception as error:
            raised = getattr(error, "cause", error)
            found.append((2 if type(raised).__name__.startswith("Dist") else 1, rank, error))
    _, first, cause = min(found, key=lambda item: item[:2])
    return first, cause


def run(
    function: Callable[..., Any], *args: Any, num_workers: int = 2, max_restarts: int = 0, cpus_per_worker: float = 1, options: dict[str, Any] | None = None
) -> list[Any]:  # fmt: skip
    """Run `function(*args)` in `num_workers` ranks, which are actors of the Ray cluster; what each has returned, in the ranks' order.

    The function is one for `flambeau launch`: it calls `init_process_group("gloo")`, and goes on from its last checkpoint. When an actor dies or raises,
    all are replaced by new ones, wherever the cluster has room, up to `max_restarts` times; then the first failure is raised. `options`: of the actors, for
    Ray (resources, runtime_env, scheduling_strategy). Without a cluster Ray starts one of this machine.
    """
    ray = _ray()
    if num_workers < 1:
        raise ValueError(f"num_workers must be at least 1, got {num_workers}")
    if max_restarts < 0:
        raise ValueError(f"max_restarts must be at least 0, got {max_restarts}")
    from flambeau.module_names import is_installed

    if not ray.is_initialized():
        ray.init()
    call = ray.cloudpickle.dumps((function, args))
    kind = ray.remote(_Rank).options(num_cpus=cpus_per_worker, **(options or {}))
    for attempt in range(max_restarts + 1):
        actors = [kind.remote() for _ in range(num_workers)]
        try:
            places = ray.get([actor.place.remote() for actor in actors])
            variables = _environments(places, attempt, max_restarts)
            tasks = [actor.run.remote(each, is_installed(), call) for actor, each in zip(actors, variables, strict=True)]
            left = list(tasks)
            while left:
                done, left = ray.wait(left, num_returns=1)
                try:
                    ray.get(done)
                except Exception:
                    rank, failed = _failure(ray, tasks)
                    break
            else:
                return list(ray.get(tasks))
        finally:
            for actor in actors:
                ray.kill(actor)
        if attempt == max_restarts:
            failed.add_note(f"rank {rank} of {num_workers} failed, and no restart was left")
            raise failed
        text = str(failed).strip().splitlines()
        print(
            f"flambeau.distributed.ray: rank {rank} failed ({type(failed).__name__}: {text[-1] if text else ''}); "
            f"all are replaced ({max_restarts - attempt} restarts left)", file=sys.stderr, flush=True,
        )  # fmt: skip
    raise AssertionError("the last attempt returns or raises")
