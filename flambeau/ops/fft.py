"""torch.fft: discrete Fourier transforms over one or more dims.

Every function pads or cuts its dims, then records a transform for each of them (the primitive `fourier`). The transformed dims of a result are the
fastest in memory. 16-bit inputs are refused, integers are taken to the default floating dtype.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import index
from typing import TYPE_CHECKING, Any

from flambeau import dtypes
from flambeau.layouts import strided
from flambeau.ops import primitives as prim
from flambeau.ops.primitive import laid_out
from flambeau.ops.promotion import convert
from flambeau.ops.registry import operation
from flambeau.ops.shape import dim_of, roll
from flambeau.trace.mutation import into
from flambeau.trace.strides import like_strides

if TYPE_CHECKING:
    from flambeau.tensor import Tensor

# What `norm` means for a transform that has exp(-i ...), and for one that has exp(+i ...); `_factor` has the values.
_FORWARD = {None: "none", "backward": "none", "forward": "full", "ortho": "ortho"}
_BACKWARD = {None: "full", "backward": "full", "forward": "none", "ortho": "ortho"}


# -- the three transforms -----------------------------------------------------------------------------------------
# Dim after dim; the results between lie as the last one does, whose factor is applied once, at the end.
def _c2c(x: Any, dims: tuple[int, ...], inverse: bool, scale: str) -> Any:
    strides = _strides(x._meta.strides, tuple(x._meta.shape), _sorted(x._meta.strides, dims))
    return _over(x, dims, inverse, strides, _factor(scale, [x._meta.shape[d] for d in dims]))


def _over(x: Any, dims: Sequence[int], inverse: bool, strides: tuple[int, ...], factor: float) -> Any:
    """Complex transforms over dims, those first that are the fastest in memory."""
    order = sorted(dims, key=lambda d: strides[d])
    for i, d in enumerate(order):
        made = prim.fourier(x, dim=d, kind="complex", size=x._meta.shape[d], inverse=inverse, scale=factor if i == len(order) - 1 else 1.0)
        x = laid_out(made, strides)
    return x


def _r2c(x: Any, dims: tuple[int, ...], scale: str) -> Any:
    last, size = dims[-1], x._meta.shape[dims[-1]]
    shape = tuple([n // 2 + 1 if d == last else n for d, n in enumerate(x._meta.shape)])
    strides = _strides(x._meta.strides, shape, (*_sorted(x._meta.strides, dims[:-1]), last))
    factor = _factor(scale, [x._meta.shape[d] for d in dims])
    made = prim.fourier(x, dim=last, kind="real", size=size, inverse=False, scale=factor if len(dims) == 1 else 1.0)
    return _over(laid_out(made, strides), dims[:-1], False, strides, factor)


def _c2r(x: Any, dims: tuple[int, ...], size: int, scale: str) -> Any:
    shape = tuple([size if d == dims[-1] else n for d, n in enumerate(x._meta.shape)])
    strides = x._meta.strides
    if len(dims) > 1:  # the others first, as complex numbers
        strides = _strides(strides, tuple(x._meta.shape), _sorted(strides, dims[:-1]))
        x = _over(x, dims[:-1], True, like_strides(x._meta.shape, x._meta.strides), 1.0)
    factor = _factor(scale, [shape[d] for d in dims])
    made = prim.fourier(x, dim=dims[-1], kind="hermitian", size=size, inverse=True, scale=factor)
    return laid_out(made, _strides(strides, shape, dims[-1:]))


def _factor(scale: str, sizes: Sequence[int]) -> float:
    """By what the result is multiplied, from "none", "ortho" and "full": 1, 1 / sqrt(n) and 1 / n of the number of transformed points."""
    count = math.prod([index(n) for n in sizes])  # asks for lengths: they are facts of a path
    return 1.0 if scale == "none" or not count else 1 / math.sqrt(count) if scale == "ortho" else 1 / count


def _sorted(strides: tuple[int, ...], dims: Sequence[int]) -> tuple[int, ...]:
    """The dims from the slowest to the fastest."""
    return tuple(sorted(dims, key=lambda d: -strides[d]))


def _others(ndim: int, dims: Sequence[int]) -> list[int]:
    """The dims that are not transformed, as C++'s std::partition leaves them: that decides among dims of equal strides."""
    order = list(range(ndim))
    first, last = 0, ndim
    while first < last:
        if order[first] not in dims:
            first += 1
            continue
        last -= 1
        if order[last] not in dims:
            order[first], order[last] = order[last], order[first]
            first += 1
    return order[:first]


def _strides(strides: tuple[int, ...], shape: tuple[int, ...], dims: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of a transform along `dims`: these are the fastest, the last one first, as PyTorch transforms one batch of
    contiguous signals; the others are in the order that they have in the input."""
    order = (*_sorted(strides, _others(len(shape), dims)), *dims)
    out, step = [0] * len(shape), 1
    for d in reversed(order):
        out[d] = step
        step *= max(shape[d], 1)
    return tuple(out)


def _resized(x: Any, d: int, n: int) -> Any:
    """Dim d cut, or padded with zeros at its end, to n."""
    have = x._meta.shape[d]
    if n <= have:
        return x if n == have else x.narrow(d, 0, n)
    shape = [n - have if i == d else s for i, s in enumerate(x._meta.shape)]
    return prim.concatenate(x, prim.zeros_of(tuple(shape), x.dtype), dim=d)


# -- arguments ----------------------------------------------------------------------------------------------------
def _norm(name: str, norm: Any, forward: bool) -> str:
    table = _FORWARD if forward else _BACKWARD
    if norm not in table:
        raise RuntimeError(f'{name}: Invalid normalization mode: "{norm}"; it must be "forward", "backward" or "ortho"')
    return table[norm]


def _input(name: str, x: Any, real: bool = False, complex: bool = False) -> Any:
    d = x.dtype
    if d in (dtypes.float16, dtypes.bfloat16):
        raise RuntimeError(f"Unsupported dtype {'Half' if d is dtypes.float16 else 'BFloat16'} ({name}): convert the input to float32 first")
    if real and d.is_complex:
        raise RuntimeError(f"{name} expects a real input tensor, but got {d}; use the complex transform, or take .real")
    if d.category < 2:
        d = dtypes.get_default_dtype()
    return convert(x, d.to_complex() if complex else d)


def _length(name: str, x: Any, dim: int, n: int | None) -> tuple[int, int]:
    """(the dim, the number of points)."""
    if x._meta.ndim == 0:
        raise IndexError(f"{name}: Dimension specified as {dim} but tensor has no dimensions: it must have at least 1")
    d = dim_of(dim, x._meta.ndim)
    size = x._meta.shape[d] if n is None else n
    if size < 1:
        raise RuntimeError(f"Invalid number of data points ({size}) specified ({name}, dim {dim} of shape {tuple(x.shape)})")
    return d, size


def _lengths(name: str, x: Any, s: Any, dim: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(dims, points of each); -1 in `s` keeps the size."""
    ndim = x._meta.ndim
    s = (s,) if isinstance(s, int) else s
    if dim is not None:
        dims = tuple([dim_of(d, ndim) for d in ((dim,) if isinstance(dim, int) else dim)])
        if len(set(dims)) != len(dims):
            raise RuntimeError(f"{name}: FFT dims must be unique, got {dim}")
        if s is not None and len(s) != len(dims):
            raise RuntimeError(f"{name}: When given, dim and shape arguments must have the same length, got {len(dims)} and {len(s)}")
    elif s is not None:
        if len(s) > ndim:
            raise RuntimeError(f"{name}: Got shape with {len(s)} values but input tensor only has {ndim} dimensions.")
        dims = tuple(range(ndim - len(s), ndim))
    else:
        dims = tuple(range(ndim))
    if dims and not x._meta.ndim:
        raise IndexError(f"Dimension specified as {dims[0]} but tensor has no dimensions")
    sizes = tuple([x._meta.shape[d] for d in dims]) if s is None else tuple([x._meta.shape[d] if n == -1 else n for d, n in zip(dims, s, strict=True)])
    for n in sizes:
        if n < 1:
            raise RuntimeError(f"Invalid number of data points ({n}) specified ({name}, shape {tuple(x.shape)})")
    return dims, sizes


def _conj(x: Any) -> Any:
    return laid_out(prim.conj_physical(x), like_strides(x._meta.shape, x._meta.strides))


# -- one dim ------------------------------------------------------------------------------------------------------
def _complex_transform(name: str, forward: bool, text: str) -> Any:
    def body(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
        scale = _norm(name, norm, forward)
        x = _input(name, input)
        d, size = _length(name, x, dim, n)
        return _c2c(_resized(x, d, size), (d,), not forward, scale)  # type: ignore[no-any-return]

    body.__doc__ = text
    return operation(name=f"fft_{name}", out=True, public=False)(body)


fft = _complex_transform("fft", True, "The Fourier transform along a dim, of n points (cut, or padded with zeros).")
ifft = _complex_transform("ifft", False, "The inverse Fourier transform along a dim.")


@operation(name="fft_rfft", out=True, public=False)
def rfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The Fourier transform of real numbers: the first n // 2 + 1 points, which determine the others."""
    scale = _norm("rfft", norm, True)
    x = _input("rfft", input, real=True)
    d, size = _length("rfft", x, dim, n)
    return _r2c(_resized(x, d, size), (d,), scale)  # type: ignore[no-any-return]


def _real_size(x: Any, dim: int, n: int | None) -> int | None:
    """The default number of real points for half a spectrum."""
    return 2 * (x._meta.shape[dim_of(dim, x._meta.ndim)] - 1) if n is None and x._meta.ndim else n


@operation(name="fft_irfft", out=True, public=False)
def irfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of rfft: n real points (by default 2 (m - 1)) from half a spectrum."""
    scale = _norm("irfft", norm, False)
    x = _input("irfft", input, complex=True)
    d, size = _length("irfft", x, dim, _real_size(x, dim, n))
    return _c2r(_resized(x, d, size // 2 + 1), (d,), size, scale)  # type: ignore[no-any-return]


@operation(name="fft_hfft", out=True, public=False)
def hfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The Fourier transform of a Hermitian signal given by its first half: n real points."""
    scale = _norm("hfft", norm, True)
    x = _input("hfft", input, complex=True)
    d, size = _length("hfft", x, dim, _real_size(x, dim, n))
    return _c2r(_conj(_resized(x, d, size // 2 + 1)), (d,), size, scale)  # type: ignore[no-any-return]


@operation(name="fft_ihfft", out=True, public=False)
def ihfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of hfft: half of a Hermitian signal from n real points."""
    scale = _norm("ihfft", norm, False)
    x = _input("ihfft", input, real=True)
    d, size = _length("ihfft", x, dim, n)
    return _conj(_r2c(_resized(x, d, size), (d,), scale))  # type: ignore[no-any-return]


# -- several dims -------------------------------------------------------------------------------------------------
def _resize_all(x: Any, dims: tuple[int, ...], sizes: Sequence[int]) -> Any:
    for d, n in zip(dims, sizes, strict=True):
        x = _resized(x, d, n)
    return x


def _fftn(name: str, input: Any, s: Any, dim: Any, norm: Any) -> Any:
    forward = "ifft" not in name
    scale = _norm(name, norm, forward)
    x = _input(name, input)
    dims, sizes = _lengths(name, x, s, dim)
    if not x.dtype.is_complex:  # PyTorch makes it complex, in a dense tensor
        x = laid_out(prim.alias(x), like_strides(x._meta.shape, x._meta.strides)) if not x._meta.is_dense else x
    if not dims:
        return convert(x, x.dtype.to_complex())
    return _c2c(_resize_all(x, dims, sizes), dims, not forward, scale)


def _rfftn(name: str, input: Any, s: Any, dim: Any, norm: Any) -> Any:
    """rfft over the last of the dims, fft over the others; ihfft has the conjugate of the backward transform."""
    hermitian = "ihfft" in name
    scale = _norm(name, norm, not hermitian)
    x = _input(name, input, real=True)
    dims, sizes = _lengths(name, x, s, dim)
    if not dims:
        raise RuntimeError(f"{name} must transform at least one axis")
    x = _resize_all(x, dims, sizes)
    made = _r2c(x, dims, scale)
    if not hermitian:
        return made
    shape = tuple(made._meta.shape)
    strides = _strides(x._meta.strides, shape, dims[-1:])
    if len(dims) > 1:  # PyTorch transforms the last dim first here
        strides = _strides(strides, shape, _sorted(strides, dims[:-1]))
    return laid_out(prim.conj_physical(made), strides)


def _irfftn(name: str, input: Any, s: Any, dim: Any, norm: Any) -> Any:
    hermitian = "hfft" in name
    scale = _norm(name, norm, hermitian)
    x = _input(name, input, complex=True)
    given = tuple(s) if isinstance(s, (tuple, list)) else (s,) if s is not None else None
    dims, sizes = _lengths(name, x, None if given is None else (*given[:-1], 1) if given[-1] == -1 else given, dim)
    if not dims:
        raise RuntimeError(f"{name} must transform at least one axis")
    last = 2 * (x._meta.shape[dims[-1]] - 1) if given is None or given[-1] == -1 else sizes[-1]
    if last < 1:
        raise RuntimeError(f"Invalid number of data points ({last}) specified ({name}, shape {tuple(x.shape)})")
    x = _resize_all(x, dims, (*sizes[:-1], last // 2 + 1))
    return _c2r(_conj(x) if hermitian else x, dims, last, scale)


def _over_dims(name: str, make: Callable[..., Any], two: bool, text: str) -> Any:
    if two:

        def body(input: Tensor, s: Any = None, dim: Any = (-2, -1), norm: str | None = None) -> Tensor:
            return make(name, input, s, dim, norm)  # type: ignore[no-any-return]

    else:

        def body(input: Tensor, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
            return make(name, input, s, dim, norm)  # type: ignore[no-any-return]

    body.__doc__ = text
    return operation(name=f"fft_{name}", out=True, public=False)(body)


_WHERE = ("over the given dims (all by default), each of s points.", "over two dims (the last by default).")
fftn, fft2 = (_over_dims(f"fft{k}", _fftn, k == "2", f"The Fourier transform {w}") for k, w in zip("n2", _WHERE, strict=True))
ifftn, ifft2 = (_over_dims(f"ifft{k}", _fftn, k == "2", f"The inverse Fourier transform {w}") for k, w in zip("n2", _WHERE, strict=True))
rfftn, rfft2 = (_over_dims(f"rfft{k}", _rfftn, k == "2", f"The half spectrum of real numbers {w}") for k, w in zip("n2", _WHERE, strict=True))
irfftn, irfft2 = (_over_dims(f"irfft{k}", _irfftn, k == "2", f"Real numbers from half a spectrum {w}") for k, w in zip("n2", _WHERE, strict=True))
hfftn, hfft2 = (_over_dims(f"hfft{k}", _irfftn, k == "2", f"The transform of a Hermitian signal {w}") for k, w in zip("n2", _WHERE, strict=True))
ihfftn, ihfft2 = (_over_dims(f"ihfft{k}", _rfftn, k == "2", f"The inverse of hfft{k} {w}") for k, w in zip("n2", _WHERE, strict=True))


# -- helpers ------------------------------------------------------------------------------------------------------
def _frequencies(places: Any, n: int, d: float, dtype: Any, device: Any, requires_grad: bool, out: Any) -> Any:
    kind = dtype or dtypes.get_default_dtype()
    span = float(n * d)
    step = 1.0 / span if span else math.copysign(math.inf, span)
    result = (places.to(device=device, dtype=kind) * step).requires_grad_(requires_grad)
    return into(out, result, fft.operation.name)


def fftfreq(
    n: int, d: float = 1.0, *, out: Any = None, dtype: Any = None, layout: Any = strided, device: Any = None, requires_grad: bool = False,
    pin_memory: bool = False,
) -> Any:  # fmt: skip
    """The frequencies of the points of an FFT of n samples that are d apart: 0, 1, ..., -2, -1, over n d."""
    from flambeau.ops.creation import arange

    if n < 0:
        raise RuntimeError(f"fftfreq(): Trying to create tensor with negative dimension {n}: [{n}]; n must be 0 or more")
    places = arange(n)
    return _frequencies(places.where(places < (n + 1) // 2, places - n), n, d, dtype, device, requires_grad, out)


def rfftfreq(
    n: int, d: float = 1.0, *, out: Any = None, dtype: Any = None, layout: Any = strided, device: Any = None, requires_grad: bool = False,
    pin_memory: bool = False,
) -> Any:  # fmt: skip
    """The frequencies of the points of an rfft."""
    from flambeau.ops.creation import arange

    return _frequencies(arange(max(int(n / 2) + 1, 0)), n, d, dtype, device, requires_grad, out)


def _shift(x: Any, dim: Any, halves: Callable[[int], int]) -> Any:
    dims = tuple(range(x.ndim)) if dim is None else (dim,) if isinstance(dim, int) or getattr(dim, "ndim", 1) == 0 else tuple(dim)
    return roll(x, tuple([halves(x.shape[d]) for d in dims]), dims)


def fftshift(input: Tensor, dim: Any = None) -> Any:
    """The dims rolled so that frequency 0 is in the middle."""
    return _shift(input, dim, lambda n: n // 2)


def ifftshift(input: Tensor, dim: Any = None) -> Any:
    """The inverse of fftshift."""
    return _shift(input, dim, lambda n: (n + 1) // 2)
