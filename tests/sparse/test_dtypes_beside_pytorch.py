"""Sparse tensors with sparse ones, dense ones and numbers, in all pairs of dtypes: nothing is refused that PyTorch takes, what both take is equal."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import flambeau as ft

torch = pytest.importorskip("torch")

DTYPES = "bool int8 uint8 int16 int32 int64 float16 float32 float64 bfloat16 complex64".split()
KINDS = ("sparse sparse", "sparse dense", "dense sparse", "sparse zero-dim", "uncoalesced sparse", "sparse number")
OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a.add(b), "sub": lambda a, b: a.sub(b), "mul": lambda a, b: a.mul(b), "div": lambda a, b: a.div(b),
    "floor_divide": lambda a, b: a.floor_divide(b), "div floor": lambda a, b: a.div(b, rounding_mode="floor"),
    "div trunc": lambda a, b: a.div(b, rounding_mode="trunc"), "add_": lambda a, b: a.add_(b), "sub_": lambda a, b: a.sub_(b),
    "mul_": lambda a, b: a.mul_(b), "div_": lambda a, b: a.div_(b), "add alpha": lambda a, b: a.add(b, alpha=3), "sub alpha": lambda a, b: a.sub(b, alpha=3),
}  # fmt: skip


def _operand(m: Any, kind: str, name: str) -> Any:
    d = getattr(m, name)
    if kind == "number":
        return {"b": True, "i": 3, "u": 3}.get(name[0], 2.5)
    if kind == "zero-dim":
        return m.tensor(3).to(d)
    if kind == "dense":
        return m.tensor([1, 0, 1, 1] if d is m.bool else [5, 250 if d is m.uint8 else 50, 2, 1]).to(d)
    t = m.sparse_coo_tensor(m.tensor([[0, 1, 1]]), m.tensor([1, 0, 1] if d is m.bool else [100, 3, 7]).to(d), (4,))
    return t if kind == "uncoalesced" else t.coalesce()


def _outcome(m: Any, operation: Callable[[Any, Any], Any], kinds: str, names: tuple[str, str]) -> Any:
    try:
        r = operation(*[_operand(m, kind, name) for kind, name in zip(kinds.split(), names, strict=True)])
    except (RuntimeError, TypeError):
        return None
    sparse = r.layout is not m.strided
    return sparse, str(r.dtype), [complex(v) for v in (r.to_dense() if sparse else r).to(m.complex128).tolist()]


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("kinds", KINDS)
def test_all_pairs_of_dtypes(name: str, kinds: str) -> None:
    seen = 0
    for names in itertools.product(DTYPES, DTYPES):
        if names == ("float16", "complex64"):
            continue  # a result of complex32, of which there are no sums
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ours, theirs = (_outcome(m, OPERATIONS[name], kinds, names) for m in (ft, torch))
        if theirs is None:
            continue
        seen += 1
        assert ours is not None, (names, theirs)
        assert ours[:2] == theirs[:2], (names, ours, theirs)
        assert ours[2] == pytest.approx(theirs[2], rel=1e-6), (names, ours, theirs)
    takes = not name.startswith(("div", "floor")) or kinds in ("sparse zero-dim", "sparse number")
    assert seen or not takes or (name[:3] in ("add", "sub") and kinds in ("sparse dense", "sparse zero-dim", "sparse number"))


def test_indices_and_values_keep_their_shape() -> None:
    """The program may change the shape of what it has given in place."""
    for m in (ft, torch):
        i, v = m.tensor([[0], [1]]), m.tensor([[3.0, 4.0, 5.0]])
        t = m.sparse_coo_tensor(i, v, (1, 2, 3))
        i.resize_(2, 3)
        v.resize_(4, 5)
        assert t.coalesce().indices().tolist() == [[0], [1]]
        assert t.coalesce().values().tolist() == [[3.0, 4.0, 5.0]]
        weight = m.tensor([3.0, 4.0], requires_grad=True)
        (m.sparse_coo_tensor(m.tensor([[0, 1]]), weight, (3,)).to_dense() ** 2).sum().backward()
        assert weight.grad is not None and weight.grad.tolist() == [6.0, 8.0]


def test_conjugates() -> None:
    for m in (ft, torch):
        for values in ([1 + 2j, 0], [1, 0]):
            assert m.tensor(values).to_sparse().conj_physical().to_dense().tolist() == [complex(values[0]).conjugate(), 0]
