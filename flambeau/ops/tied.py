"""Results that depend on an input in autograd's eyes only: its gradient is zero (a count, a sample), or is not implemented and says so.

PyTorch's results require gradients wherever an input does; whether a value follows from the input by a formula does not matter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flambeau import dtypes
from flambeau.ops import primitives as prim
from flambeau.ops.primitive import constant, laid_out
from flambeau.ops.promotion import convert
from flambeau.ops.registry import operation
from flambeau.trace.recorder import local
from flambeau.trace.strides import like_strides

if TYPE_CHECKING:
    from flambeau.tensor import Tensor


def tied(result: Any, *inputs: Any, refused: str = "") -> Any:
    """`result`, which requires gradients if an input does, inside a body. Their gradients are zeros. With `refused`, the name of a function, to ask
    for them is a NotImplementedError that says so; with a whole sentence, a RuntimeError of these words. An input has a shape that broadcasts to the
    result's, or is summed."""
    for x in inputs:
        if not x._meta.requires_grad:
            continue
        shape, wanted = tuple(x._meta.shape), tuple(result._meta.shape)
        if len(shape) > len(wanted) or any(n not in (1, m) for n, m in zip(shape[::-1], wanted[::-1], strict=False)):
            x = prim.sum(x, dims=tuple(range(len(shape))))
        if x.dtype.is_complex and not (result.dtype.is_complex and refused):
            x = prim.real_part(x)
        if not refused:
            x = prim.floor(x)  # a step: its gradient's zeros depend on nothing, so a second one has no path
        never = constant(False, dtypes.bool_)
        made = prim.where(never, convert(x, result.dtype), result, **({"refused": refused} if refused else {}))
        result = laid_out(made, like_strides(result._meta.shape, result._meta.strides))
    return result


@operation(name="tied_to", public=False)
def _tied(result: Tensor, input: Tensor, refused: str) -> Tensor:
    return tied(result, input, refused=refused)  # type: ignore[no-any-return]


def tied_to(result: Tensor, *inputs: Any, refused: str = "") -> Tensor:
    """As `tied`, outside of a body: of a fresh result, floating or complex."""
    d = result.dtype
    if local.main.grad_enabled and (d.is_floating_point or d.is_complex):
        for x in inputs:
            if getattr(x, "requires_grad", False):
                result = _tied(result, x, refused)
    return result
