"""torch.mtia: Meta's accelerators, which are not here: questions are answered, devices are refused."""

from __future__ import annotations

from flambeau import absent as _absent
from flambeau.cuda.streams import StreamContext as StreamContext
from flambeau.cuda.streams import set_stream as set_stream
from flambeau.cuda.streams import stream as stream
from flambeau.names import answering as _answering

_refuse = _absent.not_compiled("MTIA", RuntimeError)
_TABLE = """
is_available is_initialized is_bf16_supported device_count memory_allocated max_memory_allocated reset_peak_memory_stats manual_seed manual_seed_all
seed seed_all set_rng_state set_rng_state_all get_rng_state_all get_rng_state initial_seed init synchronize current_device set_device current_stream
default_stream get_device_capability get_device_properties empty_cache! graph_pool_handle
memory_stats(device=None) = {}
record_memory_history(enabled='all', stacks='python', max_entries=0) ok
snapshot() !
attach_out_of_memory_observer(observer) !
"""
_NAMES = _absent.define(globals(), _TABLE, _refuse, "MTIA")
_CLASSES = _absent.classes(globals(), "MTIAGraph device graph".split(), _refuse, "MTIA")

__getattr__ = _answering("torch.mtia", globals())
