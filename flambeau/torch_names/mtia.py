"""torch.mtia: Meta's accelerators, which are not here: questions are answered, devices are refused."""

from __future__ import annotations

from typing import Any

from flambeau import absent as _absent
from flambeau.cuda.streams import StreamContext as StreamContext
from flambeau.cuda.streams import set_stream as set_stream
from flambeau.cuda.streams import stream as stream

_refuse = _absent.refusal(RuntimeError, "Torch not compiled with MTIA enabled")
_TABLE = """
is_available() = False
is_initialized() = False
is_bf16_supported(including_emulation=True) = False
device_count() = 0
memory_stats(device=None) = {}
memory_allocated(device=None) = 0
max_memory_allocated(device=None) = 0
reset_peak_memory_stats(device=None) ok
record_memory_history(enabled='all', stacks='python', max_entries=0) ok
manual_seed(seed) ok
manual_seed_all(seed) ok
seed() ok
seed_all() ok
set_rng_state(new_state, device='mtia') ok
set_rng_state_all(new_states) ok
get_rng_state_all() = []
get_rng_state(device='mtia') !
initial_seed() !
init() !
synchronize(device=None) !
current_device() !
set_device(device) !
current_stream(device=None) !
default_stream(device=None) !
get_device_capability(device=None) !
get_device_properties(device=None) !
snapshot() !
attach_out_of_memory_observer(observer) !
empty_cache() !
graph_pool_handle() !
"""
_NAMES = _absent.define(globals(), _TABLE, _refuse, "MTIA")
_CLASSES = _absent.classes(globals(), "MTIAGraph device graph".split(), _refuse, "MTIA")


def __getattr__(name: str) -> Any:
    from flambeau.names import missing

    raise missing("torch.mtia", name, globals())
