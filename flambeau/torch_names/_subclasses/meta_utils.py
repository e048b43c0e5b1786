"""torch._subclasses.meta_utils: whether two tensors agree in all but their values, as tests of programs ask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau.layouts import sparse_coo, strided
from flambeau.tensor import Tensor


def assert_eq(a: Any, b: Any) -> None:
    """AssertionError unless they are equal."""
    if a != b:
        raise AssertionError(f"{a} != {b}")


def _described(t: Tensor, skip_symbolic: bool, skip_leaf: bool) -> dict[str, Any]:
    """What there is to know of a tensor without its values, by name."""
    found: dict[str, Any] = {"dtype": t.dtype, "requires_grad": t.requires_grad, "layout": t.layout, "inference": t.is_inference()}
    if not skip_leaf:
        found["leaf"] = t.is_leaf
    if not skip_symbolic:
        found["shape"] = t.shape
    if t.layout is not strided:
        found |= {"sparse dims": t.sparse_dim(), "dense dims": t.dense_dim()}
        return found | ({"coalesced": t.is_coalesced()} if t.layout is sparse_coo else {})
    if not skip_symbolic:
        found |= {"strides": t.stride(), "storage offset": t.storage_offset()}
    return found | {"conjugate": t.is_conj(), "negative": t.is_neg(), "view": t._is_view()}


def assert_metadata_eq(assert_eq: Callable[[Any, Any], None], m1: Tensor, m2: Tensor, *, skip_symbolic: bool = False, skip_leaf: bool = False) -> None:
    """`assert_eq` of each kind of metadata of two tensors, of their gradients, and of their bases where they are views."""
    first, second = (_described(m, skip_symbolic, skip_leaf) for m in (m1, m2))
    for name, value in first.items():
        assert_eq(value, second.get(name))
    gradients = [m.grad if m.is_leaf else None for m in (m1, m2)]
    assert_eq(gradients[0] is not None, gradients[1] is not None)
    for one, other in (gradients, [m._base if m.layout is strided else None for m in (m1, m2)]):
        if one is not None and other is not None:
            assert_metadata_eq(assert_eq, one, other, skip_symbolic=skip_symbolic, skip_leaf=skip_leaf)
