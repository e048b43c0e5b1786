"""Which elements dropout keeps: PyTorch's bernoulli_(1 - p), drawn at the call, or a counter-based stream inside the kernels."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from flambeau import dtypes
from flambeau.devices import CPU
from flambeau.ops import primitives as prim
from flambeau.ops.random import default_generator, draws
from flambeau.ops.registry import Number, operation
from flambeau.trace.existing import blank_tensor, maker
from flambeau.trace.recorder import Fragment, Trace, local

if TYPE_CHECKING:
    from flambeau.tensor import Tensor

STREAMS: Final = ("mt19937", "philox")
_stream = [os.environ.get("FLAMBEAU_DROPOUT_STREAM") or STREAMS[0]]


def _check(name: str) -> str:
    if name not in STREAMS:
        raise ValueError(f"dropout_stream: the streams are {' and '.join(map(repr, STREAMS))}, got {name!r}")
    return name


_check(_stream[0])


class dropout_stream:
    """From here on, or inside of a `with` block, dropout's masks come from this stream of the default generator.

    "mt19937": PyTorch's, number by number, which is drawn at the call (a byte of memory an element). "philox": Philox4x32-10, whose numbers are
    functions of the seed and of how many were taken before: kernels compute them where they are used, again in the backward pass, and
    nothing is kept. Both are part of the generator's state. ValueError for another name.
    """

    def __init__(self, name: str) -> None:
        self._before = _stream[0]
        _stream[0] = _check(name)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        _stream[0] = self._before


def kept(shape: tuple[int, ...], p: float, strides: tuple[int, ...] | None = None, generator: Any = None, device: Any = CPU) -> Tensor:
    """A bool tensor of this shape, false with probability `p`: what PyTorch's `bernoulli_(1 - p)` of a tensor of these (dense) strides draws.

    On `meta` nothing is drawn."""
    if device is not CPU:
        return blank_tensor(shape, dtypes.bool_, strides)  # type: ignore[no-any-return]
    if _stream[0] == "mt19937":
        draw = _draw if type(local.trace) is Trace else _drawn
        return draw(shape, 1.0 - p, strides, generator)  # type: ignore[no-any-return]
    count = math.prod(shape)
    if type(local.trace) is not Trace and not isinstance(local.trace, Fragment):
        count = local.trace.stream(count)
    state = (generator or default_generator).state
    return _counted(state.initial_seed & 0x7FFF_FFFF_FFFF_FFFF, state.count(count), shape, p)


def _draw(shape: tuple[int, ...], probability: float, strides: tuple[int, ...] | None, generator: Any) -> Any:
    """A draw at the call, in the order of the addresses."""
    kind = shape, strides
    found = _makers.get(kind)
    if found is None:
        if len(_makers) >= 4096:  # sizes that come once
            _makers.clear()
        found = _makers[kind] = maker(shape, dtypes.bool_, strides), math.prod(shape)
    make, numel = found
    mask, address = make()
    (generator or default_generator).state.keep(address, numel, probability)
    return mask


_makers: dict[Any, tuple[Callable[[], tuple[Any, int]], int]] = {}
_drawn = draws(_draw)


@operation(name="dropout_mask", public=False)  # type: ignore[untyped-decorator]
def _counted(seed: Number, offset: Number, shape: Any, p: float) -> Tensor:
    """Elements of the counter-based stream that are at least p, in row-major order."""
    return prim.random_uniform(seed, offset, shape=shape) >= p  # type: ignore[no-any-return]
