"""make_tensor: a tensor of random values for tests, PyTorch's values for the same seed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import flambeau as torch
from flambeau.dtypes import dtype as Dtype
from flambeau.ops.shape import sizes_of
from flambeau.tensor import Tensor


def make_tensor(
    *shape: int | Sequence[int], dtype: Dtype, device: Any = "cpu", low: float | None = None, high: float | None = None,
    requires_grad: bool = False, noncontiguous: bool = False, exclude_zero: bool = False, memory_format: Any = None,
) -> Tensor:  # fmt: skip
    """Values drawn uniformly from [low, high): by default [-9, 9) for floating and complex dtypes, -9 to 9 for whole numbers
    (0 to 9 for uint8), both bools.

    `noncontiguous`: every second element of a larger tensor, from the second one on. `exclude_zero`: zeros become 1, or the least
    normal number. ValueError for an empty interval, one outside of the dtype's range, or gradients of whole numbers.
    """
    if device is not None:
        torch.device(device)
    first = shape[0] if shape else ()
    try:
        sizes = sizes_of((first,) if len(shape) == 1 else shape)
    except TypeError as error:
        raise TypeError(f"make_tensor(): argument 'shape' (position 1) must be tuple of ints: {error}") from None
    if not isinstance(dtype, Dtype):
        raise TypeError(f"The requested dtype '{dtype}' is not supported by torch.testing.make_tensor().")
    if noncontiguous and memory_format is not None:
        raise ValueError(f"The parameters `noncontiguous` and `memory_format` are mutually exclusive, but got {noncontiguous=} and {memory_format=}")
    inexact = dtype.is_floating_point or dtype.is_complex
    if requires_grad and not inexact:
        raise ValueError(f"`requires_grad=True` is not supported for boolean and integral dtypes, but got {dtype=}")
    strided = noncontiguous and math.prod(sizes) > 1
    drawn = (*sizes[:-1], 2 * sizes[-1]) if strided else sizes
    if inexact:
        limits = torch.finfo(dtype)
        least, most = _interval(low, high, (-9.0, 9.0), (limits.min, limits.max), dtype)
        result = torch.empty(drawn, dtype=dtype)
        parts = torch.view_as_real(result) if dtype.is_complex else result
        # Half of each bound: their difference may be larger than the dtype's largest number.
        parts.uniform_(least / 2, most / 2).mul_(2) if most - least > limits.max else parts.uniform_(least, most)
    else:
        if dtype is torch.bool:
            bounds = _interval(low, high, (0, 2), (0, 2), dtype)
        else:
            whole = torch.iinfo(dtype)
            bounds = _interval(low, high, (-9, 10), (whole.min, whole.max + (dtype is not torch.int64)), dtype)
        result = torch.randint(math.ceil(bounds[0]), math.ceil(bounds[1]), drawn, dtype=dtype)
    if strided:
        result = result[..., 1::2]
    elif memory_format is not None:
        result = result.clone(memory_format=memory_format)
    if exclude_zero:
        result[result.eq(0)] = torch.finfo(dtype).tiny if inexact else 1
    return result.requires_grad_(requires_grad) if inexact else result


def _interval(low: float | None, high: float | None, default: tuple[float, float], range_: tuple[float, float], dtype: Dtype) -> tuple[float, float]:
    least, most = default[0] if low is None else low, default[1] if high is None else high
    if math.isnan(least) or math.isnan(most):
        raise ValueError(f"`low` and `high` cannot be NaN, but got low={least} and high={most}")
    if least > most or (least == most and not (dtype.is_floating_point or dtype.is_complex)):
        raise ValueError(f"`low` must be less than `high`, but got {least} >= {most}")
    if most < range_[0] or least >= range_[1]:
        raise ValueError(f"The value interval specified by `low` and `high` is [{least}, {most}), but {dtype} only supports [{range_[0]}, {range_[1]})")
    return min(max(least, range_[0]), range_[1]), min(max(most, range_[0]), range_[1])
