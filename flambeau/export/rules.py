"""What results are like where the public function cannot be run over placeholders: it draws numbers, writes in place, or looks at sizes.

Each rule takes the operator's arguments and gives the layout of its results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import flambeau
from flambeau import symbols
from flambeau.dtypes import get_default_dtype
from flambeau.export.errors import data_dependent
from flambeau.export.shapes import layout_of
from flambeau.symbols import Sym
from flambeau.tensor import Tensor
from flambeau.trace.meta import Meta, meta

_END: Final = 9223372036854775807


def _like(x: Tensor, *args: Any, dtype: Any = None, **_: Any) -> Meta:
    m = layout_of(x)
    return meta(m.shape, m.strides, dtype or m.dtype)


def _normalised(x: Tensor, *args: Any) -> Meta:
    m = layout_of(x)
    return meta(m.shape, None, m.dtype)


def _filled(size: Sequence[Any], *args: Any, dtype: Any = None, **_: Any) -> Meta:
    return meta(tuple(size), None, dtype or get_default_dtype())


def _full(size: Sequence[Any], value: Any, dtype: Any = None, **_: Any) -> Meta:
    kind = flambeau.bool if isinstance(value, bool) else flambeau.int64 if isinstance(value, int) else get_default_dtype()
    return meta(tuple(size), None, dtype or kind)


def _randint(*args: Any, dtype: Any = None, **_: Any) -> Meta:
    return meta(tuple(next(a for a in args if isinstance(a, (list, tuple)))), None, dtype or flambeau.int64)


def _randperm(n: Any, dtype: Any = None, **_: Any) -> Meta:
    return meta((n,), None, dtype or flambeau.int64)


def _new(x: Tensor, size: Sequence[Any], *args: Any, dtype: Any = None, **_: Any) -> Meta:
    return meta(tuple(size), None, dtype or layout_of(x).dtype)


def _arange(*args: Any, dtype: Any = None, **_: Any) -> Meta:
    start, end, step = (0, args[0], 1) if len(args) == 1 else (*args, 1)[:3]
    if dtype is None:
        dtype = flambeau.int64 if all(isinstance(a, int) for a in (start, end, step)) else get_default_dtype()
    count = -((start - end) // step) if all(isinstance(a, int) for a in (start, end, step)) else -int((start - end) // step)
    return meta((count,), None, dtype)


def _eye(n: Any, m: Any = None, dtype: Any = None, **_: Any) -> Meta:
    return meta((n, n if m is None else m), None, dtype or get_default_dtype())


def _slice(x: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1) -> Meta:
    m = layout_of(x)
    dim = dim % m.ndim
    n = m.shape[dim]
    low = _place(0 if start is None else start, n)
    high = n if end is None or (not isinstance(end, Sym) and end == _END) else _place(end, n)
    size = high - low
    if step != 1:
        size = (size + step - 1) // step
    if not isinstance(size, Sym):
        size = max(size, 0)
    shape = (*m.shape[:dim], size, *m.shape[dim + 1 :])
    strides = (*m.strides[:dim], m.strides[dim] * step, *m.strides[dim + 1 :])
    return meta(shape, strides, m.dtype, m.offset + low * m.strides[dim])


def _place(i: Any, n: Any) -> Any:
    """Where a start or an end is: from the end if it is negative, and within the size."""
    if i < 0:
        i = i + n
        return 0 if i < 0 else i
    if not isinstance(i, Sym) and i == 0:
        return 0
    if isinstance(i, Sym) and isinstance(n, Sym) and symbols.same(i, n):
        return n
    return n if i > n else i


def _attention(q: Tensor, k: Tensor, v: Tensor, *args: Any, **_: Any) -> Meta:
    return meta((*layout_of(q).shape[:-1], layout_of(v).shape[-1]), None, layout_of(q).dtype)


def _one_hot(x: Tensor, num_classes: int = -1) -> Meta:
    if num_classes < 0:
        raise data_dependent("one_hot without num_classes", (x,))
    return meta((*layout_of(x).shape, num_classes), None, flambeau.int64)


def _scalar(value: Any, dtype: Any = None, **_: Any) -> Meta:
    return meta((), None, dtype or get_default_dtype())


def _upsample(x: Tensor, size: Any, *rest: Any, **_: Any) -> Meta:
    m = layout_of(x)
    factors = next((r for r in rest if isinstance(r, (list, tuple))), None)
    if size is None:
        assert factors is not None
        size = [n * int(f) if f == int(f) else int(n * f) for n, f in zip(m.shape[2:], factors, strict=True)]
    return meta((*m.shape[:2], *size), None, m.dtype)


def _pairs(x: Tensor, p: float = 2.0) -> Meta:
    m = layout_of(x)
    return meta((m.shape[0] * (m.shape[0] - 1) // 2,), None, m.dtype)


def _bags(
    weight: Tensor, indices: Tensor, offsets: Tensor, scale_grad_by_freq: bool = False, mode: int = 0, sparse: bool = False,
    per_sample_weights: Any = None, include_last_offset: bool = False, padding_idx: Any = -1,
) -> tuple[Meta, ...]:  # fmt: skip
    rows, places = layout_of(weight), layout_of(offsets)
    bags = places.shape[0] - include_last_offset
    counts = meta((bags,), None, places.dtype)
    return meta((bags, rows.shape[1]), None, rows.dtype), meta(layout_of(indices).shape, None, places.dtype), counts, counts


def _batch_normalised(x: Tensor, weight: Any, bias: Any, mean: Tensor, var: Tensor, *args: Any) -> tuple[Meta, ...]:
    m, statistics = layout_of(x), layout_of(mean)
    return meta(m.shape, None, m.dtype), *[meta(statistics.shape, None, statistics.dtype)] * 4


def _dropped(x: Tensor, *args: Any) -> tuple[Meta, Meta]:
    m = layout_of(x)
    return meta(m.shape, None, m.dtype), meta(m.shape, None, flambeau.bool)


def _like_second(gradient: Tensor, x: Tensor, *args: Any, **_: Any) -> Meta:
    m = layout_of(x)
    return meta(m.shape, None, m.dtype)


def _of_convolution(gradient: Tensor, x: Tensor, weight: Tensor, bias_sizes: Any, *args: Any) -> tuple[Meta | None, ...]:
    mask = args[-1]
    shapes = layout_of(x).shape, layout_of(weight).shape, tuple(bias_sizes) if bias_sizes is not None else ()
    return tuple([meta(s, None, layout_of(x).dtype) if wanted else None for s, wanted in zip(shapes, mask, strict=True)])


def _assertion(*args: Any, **_: Any) -> None:
    return None


RULES: Final[dict[str, Callable[..., Any]]] = {
    **dict.fromkeys("""dropout alpha_dropout feature_dropout feature_alpha_dropout bernoulli rand_like randn_like randint_like zeros_like ones_like
                       empty_like full_like select_scatter slice_scatter lift_fresh_copy lift_fresh detach alias fake_quantize_per_tensor_affine
                       fake_quantize_per_channel_affine""".split(), _like),
    **{f"upsample_{kind}": _upsample for kind in (
        "nearest1d", "nearest2d", "nearest3d", "linear1d", "bilinear2d", "trilinear3d", "bicubic2d",
    )},
    "one_hot": _one_hot, "scalar_tensor": _scalar, "roll": _like, "batch_norm": _normalised, "instance_norm": _normalised,
    **dict.fromkeys(("zeros", "ones", "empty", "rand", "randn"), _filled),
    "full": _full, "randint": _randint, "randperm": _randperm, "arange": _arange, "eye": _eye,
    **dict.fromkeys(("new_zeros", "new_ones", "new_empty", "new_full"), _new),
    "slice": _slice, "scaled_dot_product_attention": _attention,
    **dict.fromkeys(("pdist", "_pdist_forward"), _pairs), "fill": _like, "zero": _like, "_embedding_bag": _bags, "embedding_bag": _bags,
    "convolution_backward": _of_convolution, "_native_batch_norm_legit_functional": _batch_normalised,
    **dict.fromkeys(("_adaptive_avg_pool2d_backward", "avg_pool2d_backward"), _like_second),
    "native_dropout": _dropped, "_assert_tensor_metadata": _assertion, "_assert_scalar": _assertion, "_assert_async": _assertion,
}  # fmt: skip
