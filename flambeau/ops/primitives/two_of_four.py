"""Products with weights of which two of four neighbours are zero. Described in compiler/graph.py."""

from __future__ import annotations

from typing import Any

from flambeau import dtypes
from flambeau.compiler.graph import Value, contiguous_strides
from flambeau.ops.primitive import primitive
from flambeau.ops.primitives.contract import matmul
from flambeau.trace.meta import Meta


def _rule(metas: list[Meta], attrs: dict[str, Any]) -> list[Value]:
    shape = (metas[0].shape[0], metas[1].shape[0])
    return [Value(shape, dtypes.float32, contiguous_strides(shape))]


@primitive("two_of_four_matmul", _rule)
def two_of_four_matmul(c: Any, g: Any) -> Any:
    if any(c.needs(i) for i in (1, 2)):
        raise RuntimeError("two_of_four_matmul: values and places have no gradients; train the dense weight with a mask (torch.nn.utils.prune)")
    return matmul(g, spread(c.input(1), c.input(2)).float()), None, None


def spread(values: Any, places: Any) -> Any:
    """(N, K): the dense weight, by recorded operations."""
    import flambeau as torch

    bits = (places.unsqueeze(-1) >> torch.arange(8, dtype=dtypes.uint8, device=places.device)) & 1  # (N, K / 8, 8)
    there = bits.view(places.shape[0], -1).bool()
    number = (there.view(values.shape[0], -1, 4).cumsum(-1) - 1).clamp(min=0).view(there.shape)  # 0 or 1 within its four
    four = torch.arange(there.shape[1] // 4, device=places.device).repeat_interleave(4) * 2
    return torch.where(there, values.gather(1, number + four), torch.zeros((), dtype=values.dtype, device=values.device))
