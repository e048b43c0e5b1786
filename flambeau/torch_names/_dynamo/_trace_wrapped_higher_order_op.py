"""torch._dynamo._trace_wrapped_higher_order_op: a block in which `x[i]` may have an index that is mapped by vmap, as it always may here."""

from __future__ import annotations

from contextlib import nullcontext


class TransformGetItemToIndex(nullcontext[None]):
    """A `with` block without effect."""
