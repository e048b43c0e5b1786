"""torch.distributed.tensor.experimental: plain tensors beside DTensors, functions of local tensors, context parallelism."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from flambeau.distributed.tensor.api import DTensor
from flambeau.distributed.tensor.calls import state as _state
from flambeau.distributed.tensor.experimental._attention import context_parallel as context_parallel


@contextmanager
def implicit_replication() -> Iterator[None]:
    """A block in which plain tensors beside DTensors are Replicate."""
    _state.implicit += 1
    try:
        yield
    finally:
        _state.implicit -= 1


def local_map(
    func: Callable[..., Any], out_placements: Any, in_placements: Any = None, in_grad_placements: Any = None, device_mesh: Any = None, *,
    redistribute_inputs: bool = False,
) -> Callable[..., Any]:  # fmt: skip
    """A function of DTensors that is one of local tensors. `in_placements`: what the arguments must have, one entry each (None for others than DTensors).

    ValueError where an argument has others, unless `redistribute_inputs`.
    """

    @wraps(func)
    def call(*args: Any, **kwargs: Any) -> Any:
        mesh, locals_ = device_mesh, []
        for i, a in enumerate(args):
            if isinstance(a, DTensor):
                mesh = mesh or a.device_mesh
                wanted = None if in_placements is None else in_placements[i]
                if wanted is not None and tuple(wanted) != a.placements:
                    if not redistribute_inputs:
                        raise ValueError(
                            f"arg {a} in local_map has a mismatched placements: arg placements is {a.placements} but the input placements is {wanted}! "
                            "If redistribute_inputs is wanted, set redistribute_inputs=True to local_map."
                        )
                    a = a.redistribute(placements=wanted)
                a = a.to_local(grad_placements=None if in_grad_placements is None else in_grad_placements[i])
            locals_.append(a)
        result = func(*locals_, **kwargs)
        if mesh is None:
            return result
        several = isinstance(result, (list, tuple))
        outs = [
            r if p is None or not hasattr(r, "ndim") else DTensor.from_local(r, mesh, p)
            for r, p in zip(result if several else [result], out_placements if several else [out_placements], strict=True)
        ]
        return type(result)(outs) if several else outs[0]

    return call
