"""torch.mps: Apple's GPUs, which are not here: questions are answered, all else is refused."""

from __future__ import annotations

from typing import Any

from flambeau import absent as _absent

_refuse = _absent.refusal(RuntimeError, "Cannot execute this without MPS backend")
_TABLE = """
is_available() = False
device_count() = 0
manual_seed(seed) ok
seed() !
get_rng_state(device='mps') !
set_rng_state(new_state, device='mps') !
synchronize() !
empty_cache() !
set_per_process_memory_fraction(fraction) !
current_allocated_memory() !
driver_allocated_memory() !
recommended_max_memory() !
compile_shader(source) !
load_metallib(source) !
"""
_NAMES = _absent.define(globals(), _TABLE, _refuse, "MPS")
_CLASSES = _absent.classes(globals(), ("Event",), _refuse, "MPS")


def __getattr__(name: str) -> Any:
    from flambeau.names import missing

    raise missing("torch.mps", name, globals())
