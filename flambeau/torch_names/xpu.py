"""torch.xpu: Intel's GPUs, which are not here: questions are answered, devices are refused."""

from __future__ import annotations

from typing import Any

from flambeau import absent as _absent
from flambeau.cuda.streams import StreamContext as StreamContext
from flambeau.cuda.streams import set_stream as set_stream
from flambeau.cuda.streams import stream as stream

_refuse = _absent.refusal(AssertionError, "Torch not compiled with XPU enabled")
_TABLE = """
is_available() = False
is_initialized() = False
is_bf16_supported(including_emulation=True) = False
is_tf32_supported() = False
is_current_stream_capturing() = False
device_count() = 0
get_arch_list() = []
get_gencode_flags() = ''
empty_cache() ok
memory_allocated(device=None) = 0
max_memory_allocated(device=None) = 0
memory_reserved(device=None) = 0
max_memory_reserved(device=None) = 0
memory_stats(device=None) = OrderedDict()
memory_stats_as_nested_dict(device=None) = {}
memory_snapshot(mempool_id=None) = []
reset_accumulated_memory_stats(device=None) ok
reset_peak_memory_stats(device=None) ok
manual_seed(seed) ok
manual_seed_all(seed) ok
seed() ok
seed_all() ok
set_rng_state(new_state, device='xpu') ok
set_rng_state_all(new_states) ok
get_rng_state_all() = []
get_rng_state(device='xpu') !
initial_seed() !
init() !
current_device() !
set_device(device) !
current_stream(device=None) !
get_stream_from_external(data_ptr, device=None) !
can_device_access_peer(device, peer) !
change_current_allocator(allocator) !
get_device_capability(device=None) !
get_device_name(device=None) !
get_device_properties(device=None) !
get_per_process_memory_fraction(device=None) !
set_per_process_memory_fraction(fraction, device=None) !
graph_pool_handle() !
make_graphed_callables(callables, sample_args, num_warmup_iters=3, allow_unused_input=False, pool=None) !
mem_get_info(device=None) !
device_memory_used(device=None) !
memory_usage(device=None) !
clock_rate(device=None) !
power_draw(device=None) !
temperature(device=None) !
utilization(device=None) !
use_mem_pool(pool, device=None) !
synchronize(device=None) !
"""
_NAMES = _absent.define(globals(), _TABLE, _refuse, "XPU")
_CLASSES = _absent.classes(globals(), "Event Stream XPUPluggableAllocator XPUGraph MemPool device device_of graph".split(), _refuse, "XPU")
default_generators: tuple[Any, ...] = ()


def __getattr__(name: str) -> Any:
    from flambeau.names import missing

    raise missing("torch.xpu", name, globals())
