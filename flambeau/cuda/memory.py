"""torch.cuda.memory: statistics of a device that is not here are zero or empty; resets are accepted."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from flambeau import absent

_refuse = absent.not_compiled("CUDA")
_TABLE = """
empty_cache memory_allocated max_memory_allocated memory_reserved max_memory_reserved memory_stats memory_stats_as_nested_dict
reset_accumulated_memory_stats reset_peak_memory_stats mem_get_info device_memory_used memory_usage get_per_process_memory_fraction
set_per_process_memory_fraction change_current_allocator
memory_cached(device=None) = 0
max_memory_cached(device=None) = 0
host_memory_stats() = OrderedDict()
host_memory_stats_as_nested_dict() = {}
memory_snapshot(mempool_id=None, include_traces=True) = []
memory_summary(device=None, abbreviated=False) = 'no CUDA device'
list_gpu_processes(device=None) = 'no CUDA device'
reset_accumulated_host_memory_stats() ok
reset_max_memory_allocated(device=None) ok
reset_max_memory_cached(device=None) ok
reset_peak_host_memory_stats() ok
caching_allocator_alloc(size, device=None, stream=None) !
caching_allocator_delete(mem_ptr) !
caching_allocator_enable(value=True) ok
get_allocator_backend() !
_record_memory_history(enabled='all', *args, **kwargs) ok
_snapshot(device=None) = {}
_dump_snapshot(filename='dump_snapshot.pickle') !
"""
__all__ = [n for n in absent.define(globals(), _TABLE, _refuse, "CUDA") if not n.startswith("_")]
__all__ += absent.classes(globals(), ("CUDAPluggableAllocator", "MemPool"), _refuse, "CUDA")


def caching_allocator_disabled() -> AbstractContextManager[None]:
    """A block that changes nothing."""
    return nullcontext()


def use_mem_pool(pool: Any, device: Any = None) -> AbstractContextManager[None]:
    """A block that changes nothing."""
    return nullcontext()


__all__ += ["caching_allocator_disabled", "use_mem_pool"]
