"""What DistributedDataParallel tells of itself (`_get_ddp_logging_data`): its settings, and the times of some of its steps."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from flambeau.distributed.debug import DebugLevel, get_debug_level

if TYPE_CHECKING:
    from flambeau.distributed.reducer import Reducer

_FIRST: Final = 10  # steps that are all measured
_TYPES: Final = {"float32": "float", "float64": "double", "float16": "c10::Half", "bfloat16": "c10::BFloat16"}
_SPANS: Final = "forward_compute_time", "backward_compute_time", "backward_comm_time", "backward_compute_comm_overlap_time"
VARIABLES: Final = tuple("MASTER_PORT MASTER_ADDR CUDA_VISIBLE_DEVICES GLOO_SOCKET_IFNAME GLOO_DEVICE_TRANSPORT TORCH_DISTRIBUTED_DEBUG".split())

_NCCL: Final = """P2P_DISABLE P2P_LEVEL SHM_DISABLE SOCKET_NTHREADS NSOCKS_PERTHREAD BUFFSIZE NTHREADS RINGS MAX_NCHANNELS MIN_NCHANNELS CHECKS_DISABLE
CHECK_POINTERS LAUNCH_MODE IB_HCA IB_TIMEOUT IB_RETRY_CNT IB_GID_INDEX IB_SL IB_TC IB_AR_THRESHOLD IB_CUDA_SUPPORT NET_GDR_LEVEL NET_GDR_READ
SINGLE_RING_THRESHOLD LL_THRESHOLD TREE_THRESHOLD ALGO PROTO IGNORE_CPU_AFFINITY DEBUG_FILE COLLNET_ENABLE TOPO_FILE TOPO_DUMP_FILE"""
RELEVANT: Final = (
    *"RANK LOCAL_RANK WORLD_SIZE MASTER_PORT MASTER_ADDR CUDA_VISIBLE_DEVICES GLOO_SOCKET_IFNAME GLOO_DEVICE_TRANSPORT NCCL_SOCKET_IFNAME".split(),
    *"TORCH_NCCL_BLOCKING_WAIT NCCL_DEBUG NCCL_DEBUG_SUBSYS NCCL_IB_DISABLE".split(), *[f"NCCL_{name}" for name in _NCCL.split()],
    "TORCH_NCCL_ASYNC_ERROR_HANDLING",
)  # fmt: skip


class StepTimes:
    """When a step's parts began and ended, in ns. Work is put off until somebody needs it, so what the forward pass has left counts as backward_compute."""

    def __init__(self) -> None:
        self.rate, self.steps = 100, 0
        self.error = ""
        self._now: dict[str, int] = {}
        self._last: dict[str, int] = {}
        self._sums = dict.fromkeys(_SPANS, 0)
        self._measured = 0

    def mark(self, name: str) -> None:
        """A part of the step begins or ends now; of several calls in a step the first counts, of an end the last."""
        if name.endswith("end"):
            self._now[name] = time.time_ns()
        else:
            self._now.setdefault(name, time.time_ns())

    def step_ends(self) -> None:
        """The gradients are exchanged. The first steps are kept, and then each `rate`-th."""
        number, now = self.steps, self._now
        self.steps, self._now = number + 1, {}
        if not number > 0 or (number >= _FIRST and number % self.rate) or not {"forward_start", "forward_end", "compute_start", "comm_start"} <= set(now):
            return
        comm_end = time.time_ns()
        forward, compute, comm = now["forward_end"] - now["forward_start"], now["comm_start"] - now["compute_start"], comm_end - now["comm_start"]
        spans = dict(zip(_SPANS, (forward, compute, comm, 0), strict=True))
        self._measured += 1
        for name, span in spans.items():
            self._sums[name] += span
        self._last = spans | {
            "iteration": number, "forward_compute_time_start": now["forward_start"], "backward_compute_time_start": now["compute_start"],
            "backward_compute_time_end": now["comm_start"], "backward_comm_time_start": now["comm_start"], "backward_comm_time_end": comm_end,
        }  # fmt: skip
        self._last |= {f"avg_{name}": total // self._measured for name, total in self._sums.items()}

    def told(self) -> dict[str, Any]:
        """What is known by now."""
        return {"iteration": max(0, self.steps - 1), **self._last} | ({"has_error": 1, "error": self.error} if self.error else {})


def logging_data(ddp: Any, reducer: Reducer) -> dict[str, Any]:
    """The settings of a DistributedDataParallel, what its reducer does, and the times of the last step that was measured."""
    parameters, group = reducer.parameters, reducer.group
    sizes = [p.numel() * p.dtype.itemsize for p in parameters]
    buckets = reducer.buckets(range(len(parameters)))
    bucket_sizes = ", ".join(str(sum(sizes[i] for i in bucket)) for bucket in buckets)
    data: dict[str, Any] = {
        "world_size": group.size(), "rank": group.rank(), "module_name": type(ddp.module).__name__, "device_ids": "", "output_device": -1,
        "broadcast_buffers": int(ddp.broadcast_buffers), "bucket_cap_bytes": ddp.bucket_bytes_cap, "find_unused_parameters": int(ddp.find_unused_parameters),
        "gradient_as_bucket_view": int(ddp.gradient_as_bucket_view), "backend_name": group.name(), "is_multi_device_module": 0,
        "dtypes": ", ".join(sorted({_TYPES.get(p.dtype.name, p.dtype.name) for p in parameters})), "total_parameter_size_bytes": sum(sizes),
        "num_parameter_tensors": len(parameters), "bucket_sizes": bucket_sizes, "has_rebuilt_buckets": int(reducer.times.steps > 0),
        "unused_parameter_size": sum(sizes[reducer.names.index(name)] for name in reducer.missing), "num_buckets_reduced": len(buckets),
        "has_sync_bn": int(any(type(m).__name__ == "SyncBatchNorm" for m in ddp.module.modules())), "gloo_num_threads": 2,  # the caller's, and the group's own
    }  # fmt: skip
    data |= {name.lower(): os.environ.get(name, "N/A") for name in VARIABLES}
    data |= {"static_graph": int(reducer.static), "can_set_static_graph": int(reducer.always_all)}
    if reducer.hook is not None:
        data["comm_hook"] = reducer.hook_name or getattr(reducer.hook, "__qualname__", str(reducer.hook))
    if reducer.times.steps:
        data["rebuilt_bucket_sizes"] = bucket_sizes
        if get_debug_level() >= DebugLevel.INFO:
            data["prev_iteration_grad_ready_order_indices"] = ", ".join(str(i) for bucket in buckets for i in bucket)
            data["rebuilt_per_bucket_param_indices"] = ", ".join(" ".join(map(str, bucket)) for bucket in buckets)
    return data | reducer.times.told()


def environment(names: Sequence[str]) -> str:
    """Environment variables, a line each."""
    return "".join(f"env:{name}={os.environ.get(name, 'N/A')}\n" for name in names)
