"""torch.cuda.random: there is no CUDA generator. Seeding is accepted, as scripts seed every device."""

from __future__ import annotations

from typing import Any

from flambeau import absent

_TABLE = """
get_rng_state(device='cuda') !
get_rng_state_all() = []
set_rng_state(new_state, device='cuda') ok
set_rng_state_all(new_states) ok
manual_seed(seed) ok
manual_seed_all(seed) ok
seed() ok
seed_all() ok
initial_seed() !
"""
__all__ = absent.define(globals(), _TABLE, absent.refusal(AssertionError, "Torch not compiled with CUDA enabled"), "CUDA")


def __getattr__(name: str) -> Any:
    from flambeau.names import missing

    raise missing("torch.cuda.random", name, globals())
