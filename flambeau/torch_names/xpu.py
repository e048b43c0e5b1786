"""torch.xpu: Intel's GPUs, which are not here: questions are answered, devices are refused."""

from __future__ import annotations

from typing import Any

from flambeau import absent as _absent
from flambeau.cuda.streams import StreamContext as StreamContext
from flambeau.cuda.streams import set_stream as set_stream
from flambeau.cuda.streams import stream as stream
from flambeau.names import answering as _answering

_refuse = _absent.not_compiled("XPU")
_TABLE = """
is_available is_initialized is_bf16_supported is_tf32_supported is_current_stream_capturing device_count get_arch_list get_gencode_flags empty_cache
memory_allocated max_memory_allocated memory_reserved max_memory_reserved memory_stats memory_stats_as_nested_dict reset_accumulated_memory_stats
reset_peak_memory_stats manual_seed manual_seed_all seed seed_all set_rng_state set_rng_state_all get_rng_state_all get_rng_state initial_seed init
current_device set_device current_stream get_stream_from_external change_current_allocator get_device_capability get_device_name get_device_properties
get_per_process_memory_fraction set_per_process_memory_fraction graph_pool_handle make_graphed_callables mem_get_info device_memory_used memory_usage
clock_rate power_draw temperature utilization synchronize
memory_snapshot(mempool_id=None) = []
can_device_access_peer(device, peer) !
use_mem_pool(pool, device=None) !
"""
_NAMES = _absent.define(globals(), _TABLE, _refuse, "XPU")
_CLASSES = _absent.classes(globals(), "Event Stream XPUPluggableAllocator XPUGraph MemPool device device_of graph".split(), _refuse, "XPU")
default_generators: tuple[Any, ...] = ()

__getattr__ = _answering("torch.xpu", globals())
