"""torch.masked: reductions and normalisations over the elements where a mask is True.

A mask is broadcast to its tensor. What is masked out counts as the operation's identity; where there is none and all is masked
out (mean, median, var, std), the result is NaN. MaskedTensor is in masked_tensor.py.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

import flambeau as torch
from flambeau.tensor import Tensor

_ops = sys.modules[__name__]  # where PyTorch has the functions
Dims = int | Sequence[int] | None
_WIDE = (torch.uint8, torch.bool, torch.int8, torch.int16, torch.int32)


def _dims(dim: Dims, ndim: int) -> tuple[int, ...]:
    """Sorted dims, each from 0; None and () are all."""
    if dim is None or dim == ():
        return tuple(range(ndim))
    ndim = max(ndim, 1)
    found: list[int] = []
    for d in (dim,) if isinstance(dim, int) else dim:
        if d in found:
            raise RuntimeError(f"dim={d} appears multiple times in the list of dims")
        if d >= ndim or d < -ndim:
            raise IndexError(f"Dimension out of range (expected to be in range of [{-ndim}, {ndim - 1}], but got {d})")
        found.append(d % ndim)
    return tuple(sorted(found))


def _mask(input: Tensor, mask: Tensor) -> Tensor:
    """The mask as bool, of the input's shape."""
    if mask.ndim > input.ndim:
        raise IndexError(f"_input_mask expected broadcastable mask (got mask dimensionality higher than of the input: {mask.ndim} and {input.ndim})")
    wide = mask if mask.shape == input.shape else torch.broadcast_to(mask, input.shape)
    return wide if wide.dtype is torch.bool else wide.to(torch.bool)


def _lowest(input: Tensor) -> float:
    if input.dtype is torch.bool:
        raise NotImplementedError("a masked extreme of torch.bool has no identity: convert the input to uint8 first")
    return -math.inf if input.dtype.is_floating_point else torch.iinfo(input.dtype).min


def _highest(input: Tensor) -> float:
    if input.dtype is torch.bool:
        raise NotImplementedError("a masked extreme of torch.bool has no identity: convert the input to uint8 first")
    return math.inf if input.dtype.is_floating_point else torch.iinfo(input.dtype).max


def _filled(input: Tensor, mask: Tensor | None, name: str, value: float) -> Tensor:
    """The input with the operation's identity where it is masked out."""
    if mask is None:
        return input
    if input.dtype.is_complex and name in ("amax", "amin", "argmax", "argmin"):
        raise NotImplementedError(f"identity of {name} on {input.dtype} input")
    return torch.where(_mask(input, mask), input, torch.tensor(value, dtype=input.dtype))  # type: ignore[no-any-return, attr-defined]


def sum(input: Tensor, dim: Dims = None, *, keepdim: bool | None = False, dtype: Any = None, mask: Tensor | None = None) -> Tensor:
    """The sum of the unmasked elements."""
    dtype = dtype or (torch.int64 if input.dtype in _WIDE else input.dtype)
    return _filled(input, mask, "sum", 0).sum(_dims(dim, input.ndim), bool(keepdim), dtype=dtype)  # type: ignore[no-any-return, attr-defined]


def prod(input: Tensor, dim: Dims = None, *, keepdim: bool | None = False, dtype: Any = None, mask: Tensor | None = None) -> Tensor:
    """The product of the unmasked elements."""
    dtype = dtype or (torch.int64 if input.dtype in _WIDE else input.dtype)
    result = _filled(input, mask, "prod", 1)
    for d in reversed(_dims(dim, input.ndim)):
        result = result.prod(d, bool(keepdim))  # type: ignore[attr-defined]
    return result.to(dtype)


def cumsum(input: Tensor, dim: int, *, dtype: Any = None, mask: Tensor | None = None) -> Tensor:
    """Cumulative sums over a dim; masked elements add nothing."""
    dtype = dtype or input.dtype
    return torch.cumsum(_filled(input, mask, "cumsum", 0), _dims(dim, input.ndim)[0], dtype=dtype).to(dtype)  # type: ignore[no-any-return, attr-defined]


def cumprod(input: Tensor, dim: int, *, dtype: Any = None, mask: Tensor | None = None) -> Tensor:
    """Cumulative products over a dim; masked elements are factors of 1."""
    dtype = dtype or input.dtype
    return torch.cumprod(_filled(input, mask, "cumprod", 1), _dims(dim, input.ndim)[0], dtype=dtype).to(dtype)  # type: ignore[no-any-return, attr-defined]


def amax(input: Tensor, dim: Dims = None, *, keepdim: bool | None = False, dtype: Any = None, mask: Tensor | None = None) -> Tensor:
    """The largest unmasked element; the dtype's lowest value where all are masked out."""
    found = torch.amax(_filled(input, mask, "amax", _lowest(input) if mask is not None else 0), _dims(dim, input.ndim), bool(keepdim))  # type: ignore[attr-defined]
    return found.to(dtype or input.dtype)  # type: ignore[no-any-return]


def amin(input: Tensor, dim: Dims = None, *, keepdim: bool | None = False, dtype: Any = None, mask: Tensor | None = None) -> Tensor:
    """The smallest unmasked element; the dtype's highest value where all are masked out."""
    found = torch.amin(_filled(input, mask, "amin", _highest(input) if mask is not None else 0), _dims(dim, input.ndim), bool(keepdim))  # type: ignore[attr-defined]
    return found.to(dtype or input.dtype)  # type: ignore[no-any-return]


def argmax(input: Tensor, dim: int | None = None, *, keepdim: bool | None = False, dtype: Any = None, mask: Tensor | None = None) -> Tensor:
    """Where the largest unmasked element stands, in `dtype`, or (as PyTorch has it) in the input's dtype."""
    found = torch.argmax(_filled(input, mask, "argmax", _lowest(input) if mask is not None else 0), dim, bool(keepdim))  # type: ignore[attr-defined]
    return found.to(dtype or input.dtype)  # type: ignore[no-any-return]


def argmin(input: Tensor, dim: int | None = None, *, keepdim: bool | None = False, dtype: Any = None, mask: Tensor | None = None) -> Tensor:
    """Where the smallest unmasked element stands, in `dtype`, or (as PyTorch has it) in the input's dtype."""
    found = torch.argmin(_filled(input, mask, "argmin", _highest(input) if mask is not None else 0), dim, bool(keepdim))  # type: ignore[attr-defined]
    return found.to(dtype or input.dtype)  # type: ignore[no-any-return]


def _count(input: Tensor, dim: Dims, keepdim: bool, mask: Tensor | None) -> Tensor:
    """How many elements are not masked out."""
    inside = torch.ones(input.shape, dtype=torch.int64, device=input.device) if mask is None else _mask(input, mask).to(torch.int64)
    return inside.sum(_dims(dim, input.ndim), keepdim)  # type: ignore[no-any-return, attr-defined]


def mean(input: Tensor, dim: Dims = None, *, keepdim: bool | None = False, dtype: Any = None, mask: Tensor | None = None) -> Tensor:
    """The mean of the unmasked elements; NaN where all are masked out."""
    source, dtype = ("Input", input.dtype) if dtype is None else ("Optional", dtype)
    if not (dtype.is_floating_point or dtype.is_complex):
        raise ValueError(f"mean(): Could not infer output dtype. {source} dtype must be either a floating point or complex dtype. Got: {dtype}")
    return sum(input, dim, keepdim=keepdim, dtype=dtype, mask=mask) / _count(input, dim, bool(keepdim), mask)


def median(input: Tensor, dim: int = -1, *, keepdim: bool = False, dtype: Any = None, mask: Tensor | None = None) -> Tensor:
    """The median (the lower one of two) of the unmasked elements of a dim; NaN where all are masked out."""
    floating = input.dtype.is_floating_point
    x = _filled(input if floating else input.to(torch.float32), mask, "median", math.nan)
    result = torch.nanmedian(x, _dims(dim, input.ndim)[0], keepdim).values
    if floating:
        return result
    if bool(torch.isnan(result).any()):  # type: ignore[attr-defined]
        raise ValueError("masked median expects no fully masked out rows if dtype is not floating point")
    return result.to(dtype or input.dtype)


def logsumexp(input: Tensor, dim: Dims = None, *, keepdim: bool = False, dtype: Any = None, mask: Tensor | None = None) -> Tensor:
    """log of the sum of exp over the unmasked elements."""
    x = _filled(input, mask, "logsumexp", _lowest(input) if not input.dtype.is_complex else -math.inf)
    return torch.logsumexp(x, _dims(dim, input.ndim), keepdim=keepdim).to(dtype or input.dtype)  # type: ignore[no-any-return, attr-defined]


def logaddexp(input: Tensor, other: Tensor, *, dtype: Any = None, input_mask: Tensor | None = None, other_mask: Tensor | None = None) -> Tensor:
    """log(exp(input) + exp(other)), where masked elements count as log 0."""
    x = _filled(input, input_mask, "logaddexp", -math.inf)
    y = _filled(other, other_mask, "logaddexp", -math.inf)
    return torch.logaddexp(x, y).to(dtype or input.dtype)  # type: ignore[no-any-return, attr-defined]


def norm(
    input: Tensor, ord: float | None = 2.0, dim: Dims = None, *, keepdim: bool | None = False, dtype: Any = None,
    mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The vector norm of the unmasked elements."""
    x = _filled(input, mask, "norm", math.inf if ord == -math.inf else 0)
    return torch.linalg.vector_norm(x, ord, _dims(dim, input.ndim), bool(keepdim), dtype=dtype or input.dtype)  # type: ignore[no-any-return]


def _variance(input: Tensor, dim: Dims, unbiased: bool | None, correction: float | None, keepdim: bool | None, dtype: Any, mask: Tensor | None) -> Tensor:
    if unbiased is not None and correction is not None:
        raise AssertionError("Only one of unbiased and correction may be given")
    less = float(correction) if correction is not None else 1.0 if unbiased is None or unbiased else 0.0
    dtype = dtype or (input.dtype if input.dtype.is_floating_point or input.dtype.is_complex else torch.float32)
    kind = dtype if dtype.is_floating_point or dtype.is_complex else torch.float32
    centre = sum(input, dim, keepdim=True, dtype=dtype, mask=mask) / _count(input, dim, True, mask)
    x = input - centre
    total = sum(x * x.conj(), dim, keepdim=keepdim, dtype=kind, mask=mask)  # type: ignore[attr-defined]
    count = _count(input, dim, bool(keepdim), mask).to(kind.to_real() if kind.is_complex else kind)
    return (total / (count - less).clamp(min=0)).to(dtype)  # type: ignore[no-any-return, attr-defined]


def var(
    input: Tensor, dim: Dims = None, unbiased: bool | None = None, *, correction: float | None = None, keepdim: bool | None = False,
    dtype: Any = None, mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The variance of the unmasked elements (divisor: their number less `correction`, 1 by default)."""
    return _variance(input, dim, unbiased, correction, keepdim, dtype, mask)


def std(
    input: Tensor, dim: Dims = None, unbiased: bool | None = None, *, correction: int | None = None, keepdim: bool | None = False,
    dtype: Any = None, mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The standard deviation of the unmasked elements."""
    return _variance(input, dim, unbiased, correction, keepdim, dtype, mask).sqrt()  # type: ignore[no-any-return, attr-defined]


def softmax(input: Tensor, dim: int, *, dtype: Any = None, mask: Tensor | None = None) -> Tensor:
    """softmax over the unmasked elements of a dim; the others are 0."""
    x = _filled(input, mask, "softmax", _lowest(input))
    return torch.nn.functional.softmax(x, _dims(dim, input.ndim)[0], dtype=dtype or input.dtype)  # type: ignore[no-any-return]


def log_softmax(input: Tensor, dim: int, *, dtype: Any = None, mask: Tensor | None = None) -> Tensor:
    """log_softmax over the unmasked elements of a dim; the others are -inf."""
    x = _filled(input, mask, "log_softmax", _lowest(input))
    return torch.nn.functional.log_softmax(x, _dims(dim, input.ndim)[0], dtype=dtype or input.dtype)  # type: ignore[no-any-return]


def softmin(input: Tensor, dim: int, *, dtype: Any = None, mask: Tensor | None = None) -> Tensor:
    """softmax of -input over the unmasked elements of a dim; the others are 0."""
    x = _filled(input, mask, "softmin", _highest(input))
    return torch.nn.functional.softmin(x, _dims(dim, input.ndim)[0], dtype=dtype or input.dtype)  # type: ignore[no-any-return]


def normalize(input: Tensor, ord: float, dim: int, *, eps: float = 1e-12, dtype: Any = None, mask: Tensor | None = None) -> Tensor:
    """The unmasked elements of a dim divided by their norm (at least eps); the others are 0."""
    size = norm(input, ord, dim, keepdim=True, dtype=dtype or input.dtype, mask=mask)
    return _filled(input, mask, "normalize", 0) / torch.maximum(size, torch.tensor(eps, dtype=size.dtype))  # type: ignore[no-any-return, attr-defined]


__all__ = [
    "amax", "amin", "argmax", "argmin", "cumprod", "cumsum", "log_softmax", "logaddexp", "logsumexp", "mean", "median", "norm",
    "normalize", "prod", "softmax", "softmin", "std", "sum", "var",
]  # fmt: skip

from flambeau.ops.guard import guard as _guard  # noqa: E402 - all public names are there now

_guard("masked", globals())

from flambeau.masked_tensor import MaskedTensor, as_masked_tensor, is_masked_tensor, masked_tensor  # noqa: E402, F401
from flambeau.names import answering as _answering  # noqa: E402

__getattr__ = _answering("torch.masked", globals())
