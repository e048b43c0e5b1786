"""torch.mps: Apple's GPUs, which are not here: questions are answered, all else is refused."""

from __future__ import annotations

from flambeau import absent as _absent
from flambeau.names import answering as _answering

_refuse = _absent.refusal(RuntimeError, "Cannot execute this without MPS backend")
_TABLE = """
is_available device_count manual_seed seed! get_rng_state set_rng_state! empty_cache!
synchronize() !
set_per_process_memory_fraction(fraction) !
current_allocated_memory() !
driver_allocated_memory() !
recommended_max_memory() !
compile_shader(source) !
load_metallib(source) !
"""
_NAMES = _absent.define(globals(), _TABLE, _refuse, "MPS")
_CLASSES = _absent.classes(globals(), ("Event",), _refuse, "MPS")

__getattr__ = _answering("torch.mps", globals())
