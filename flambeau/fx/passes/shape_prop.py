"""torch.fx.passes.shape_prop: shapes and dtypes of all nodes, by running the graph on an example."""

from __future__ import annotations

from typing import Any, NamedTuple

from flambeau.fx.interpreter import Interpreter
from flambeau.fx.node import Node, map_aggregate
from flambeau.tensor import Tensor


class TensorMetadata(NamedTuple):
    """What is known of a tensor without its values."""

    shape: Any
    dtype: Any
    requires_grad: bool
    stride: tuple[int, ...]
    memory_format: Any
    is_quantized: bool
    qparams: dict[str, Any]


def _extract_tensor_metadata(result: Tensor, include_contiguity: bool = True) -> TensorMetadata:
    import flambeau

    formats = (flambeau.contiguous_format, flambeau.channels_last)
    memory_format = next((f for f in formats if include_contiguity and result.is_contiguous(memory_format=f)), None)
    return TensorMetadata(result.shape, result.dtype, result.requires_grad, result.stride(), memory_format, False, {})


class ShapeProp(Interpreter):
    """`ShapeProp(gm).propagate(*example)` notes in each node's `meta` "tensor_meta" (where there are tensors) and "type"."""

    def __init__(self, gm: Any, fake_mode: Any = None) -> None:
        super().__init__(gm)

    def run_node(self, n: Node) -> Any:
        """The value, noted."""
        result = super().run_node(n)
        found = False

        def note(a: Any) -> Any:
            nonlocal found
            if isinstance(a, Tensor):
                found = True
                return _extract_tensor_metadata(a)
            return a

        meta = map_aggregate(result, note)
        if found:
            n.meta["tensor_meta"] = meta
        n.meta["type"] = type(result)
        return result

    def propagate(self, *args: Any) -> Any:
        """Run on an example; what the module returns."""
        return super().run(*args)
