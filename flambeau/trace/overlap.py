"""Memory that a write and what it reads have in common: what PyTorch refuses, and where elements of one tensor repeat."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from flambeau.trace.meta import Meta
from flambeau.trace.objects import _TENSOR
from flambeau.trace.strides import expanded_strides

# PyTorch has no rule for which functions refuse to read in part what they write: these are what 2.13 does (the operators of its own test
# database, called so). The others compute as if it had been copied first, or from memory that is half written; here it is always the former.
OUT_REFUSES = frozenset(
    "abs acos acosh add addcdiv addcmul addr airy_ai aminmax angle asin asinh atan atan2 atanh bessel_j0 bessel_j1 bessel_y0 bessel_y1 "
    "bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor cat ceil chebyshev_polynomial_t chebyshev_polynomial_u "
    "chebyshev_polynomial_v chebyshev_polynomial_w clamp clamp_max clamp_min column_stack complex conj_physical copysign cos cosh cross cumprod "
    "cumsum deg2rad digamma div dstack entr eq erf erfc erfcx erfinv exp exp2 expit expm1 fix float_power floor floor_divide fmax fmin fmod frac "
    "frexp gather gcd ge gelu gt hardshrink heaviside hermite_polynomial_h hermite_polynomial_he hstack hypot i0 i0e i1 i1e igamma igammac "
    "index_add index_copy index_reduce index_select isneginf isposinf laguerre_polynomial_l lcm le legendre_polynomial_p lerp lgamma log log10 "
    "log1p log2 log_ndtr logaddexp logaddexp2 logcumsumexp logical_and logical_not logical_or logical_xor logit lt masked_select max_over maximum "
    "min_over minimum modified_bessel_i0 modified_bessel_i1 modified_bessel_k0 modified_bessel_k1 msort mul nan_to_num ndtri ne neg nextafter "
    "outer polar polygamma pow rad2deg reciprocal remainder renorm round rsqrt scaled_modified_bessel_k0 scaled_modified_bessel_k1 scatter "
    "scatter_add scatter_reduce sgn kron nonzero shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v "
    "shifted_chebyshev_polynomial_w sigmoid sign signbit sin sinc sinh softplus softshrink sort spherical_bessel_j0 sqrt square stack sub take "
    "tan tanh topk true_divide trunc vstack where xlog1py xlogy zeta".split()
)
_IN_PLACE_TAKES = frozenset("addbmm addmm addmv baddbmm ldexp masked_scatter masked_fill index_fill resize_as".split())
_CHOOSES = {"index_fill": ("int64", "int32"), "masked_fill": ("bool",)}  # but not in what says which elements they write: its dtypes
# Those that refuse to read what they write altogether.
_BY_INDEX = frozenset("index_add index_copy index_fill index_put index_reduce put scatter scatter_add scatter_reduce index_select take".split())
APART = _BY_INDEX | frozenset("gather cross linalg_cross cat stack hstack vstack dstack column_stack outer kron nonzero masked_select".split())
# Those that go element by element: an `out` that is an operand, too, keeps its shape.
OUT_KEEPS = OUT_REFUSES.union(["ldexp"]) - APART - frozenset("addr aminmax cumprod cumsum logcumsumexp max_over min_over msort renorm sort topk".split())
STARTS_AS_INPUT = frozenset("scatter_add scatter_reduce index_add index_copy index_reduce".split())  # whose `out` begins as a copy of the first argument
NONE, PART, ALL = 0, 1, 2
_seen: dict[tuple[Any, ...], int] = {}  # how two views overlap, by metadata and where they begin
_MOST_SEEN = 4096


def overlap(target: Any, source: Any) -> int:
    """Whether two tensors of one storage have no elements in common, some, or ALL: the same ones in the same order.

    As in PyTorch, only of tensors without gaps; of others it is not known, and NONE.
    """
    a, b = target._meta, source._meta
    key = (a, b, target.storage_offset(), source.storage_offset())
    found = _seen.get(key)
    if found is None:
        if len(_seen) >= _MOST_SEEN:
            _seen.clear()
        found = _seen[key] = _overlap(*key)
    return found


def _overlap(a: Meta, b: Meta, offset: int, other_offset: int) -> int:
    if not (a.numel and b.numel and a.is_dense and b.is_dense):
        return NONE
    first, second = offset * a.dtype.itemsize, other_offset * b.dtype.itemsize
    end, other_end = first + a.numel * a.dtype.itemsize, second + b.numel * b.dtype.itemsize
    if (first, end) == (second, other_end):
        return ALL if a.strides == b.strides else PART
    return PART if first < other_end and second < end else NONE


def is_assigned_to_itself(target: Any, source: Any) -> bool:
    """Whether x[...] = y gives the elements to themselves: y, without sizes of 1 in front and expanded, is what is written, or one number."""
    m, s = target._meta, source._meta
    if not s.ndim:
        return True  # PyTorch fills with it
    return m.dtype is s.dtype and assigned_strides(m, s) == m.strides and target.storage_offset() == source.storage_offset()


def assigned_strides(target: Meta, value: Meta) -> tuple[int, ...] | None:
    """The strides of a value of one dim or more that is assigned, as PyTorch expands it: without sizes of 1 in front. None: it has too many dims."""
    lead = next((d for d, size in enumerate(value.shape) if size != 1), value.ndim)
    return expanded_strides(value.shape[lead:], value.strides[lead:], target.shape) if value.ndim - lead <= target.ndim else None


def refuse_overlap(target: Any, source: Any, name: str) -> None:
    """RuntimeError, as PyTorch's, if what the function reads is in part what it writes to. Both are of one storage."""
    plain = name.rsplit(".", 1)[-1].rstrip("_")
    # PyTorch's functions with an index refuse the very tensor that they write, even without elements
    common = (ALL if target._meta.numel or plain in _BY_INDEX else NONE) if source is target else overlap(target, source)
    chooses = source._meta.ndim and source._meta.dtype.name in _CHOOSES.get(plain, ())
    if common == NONE or (plain in _IN_PLACE_TAKES and not chooses) or (common == ALL and plain not in APART):
        return
    m, s = target._meta, source._meta
    raise RuntimeError(
        f"{name}: unsupported operation: some elements of the input tensor and the written-to tensor refer to a single memory location. "
        f"Please clone() the tensor before performing the operation. (Input: shape {list(s.shape)}, strides {list(s.strides)}, offset "
        f"{source.storage_offset()}; written to: shape {list(m.shape)}, strides {list(m.strides)}, offset {target.storage_offset()}.)"
    )


def refuse_unlike(target: Any, sources: Iterable[Any], name: str, call: Callable[[], Any]) -> None:
    """`refuse_overlaps`, but arguments of wrong types, for which `call` raises TypeError, are told of first."""
    refused = None
    try:
        refuse_overlaps(target, sources, name)
    except RuntimeError as error:
        refused = error
    if refused is not None:
        try:
            call()
        except TypeError:
            raise
        except Exception:
            pass  # said once the overlap is gone
        raise refused


def refuse_overlaps(target: Any, sources: Iterable[Any], name: str) -> None:
    """`refuse_overlap` of those of the arguments that are tensors of the same storage. Of conjugate and negative views PyTorch reads and writes copies."""
    plain = _TENSOR[0]
    if target.__class__ is not plain or target._meta.bits:
        return
    storage = target._storage
    for source in sources:
        if source.__class__ is plain:
            if source is target or (storage is not None and source._storage is storage and not source._meta.bits):
                refuse_overlap(target, source, name)
        elif source.__class__ in (list, tuple):
            refuse_overlaps(target, source, name)
