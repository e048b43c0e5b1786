"""torch.distributed.autograd: gradients across remote calls (torch.distributed.rpc), which are not there."""

from __future__ import annotations

from flambeau.distributed.several import define as _define


def is_available() -> bool:
    """False."""
    return False


_define(
    globals(),
    """
backward(context_id, roots, retain_graph=False) !
get_gradients(context_id) !
context() !
""",
    "DistAutogradContext",
)
