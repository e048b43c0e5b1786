"""torch.cuda.random: there is no CUDA generator. Seeding is accepted, as scripts seed every device."""

from __future__ import annotations

from flambeau import absent
from flambeau.names import answering as _answering

_TABLE = """
get_rng_state get_rng_state_all set_rng_state set_rng_state_all manual_seed manual_seed_all seed seed_all initial_seed
"""
__all__ = absent.define(globals(), _TABLE, absent.not_compiled("CUDA"), "CUDA")

__getattr__ = _answering("torch.cuda.random", globals())
