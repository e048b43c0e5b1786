"""embedding_bag beside PyTorch's: every mode, kind of bag, padding, weights of samples, dtype; values, gradients and errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as ft

torch = pytest.importorskip("torch")

LENGTHS = st.lists(st.integers(0, 4), min_size=1, max_size=5)


def outcome(m: Any, run: Any) -> Any:
    try:
        return run(m)
    except (RuntimeError, ValueError, NotImplementedError, AssertionError) as error:
        return type(error).__name__


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(["sum", "mean", "max"]), LENGTHS, st.booleans(), st.booleans(), st.none() | st.integers(-6, 6), st.booleans(), st.integers(0, 2**31),
    st.sampled_from(["float32", "float64", "bfloat16"]), st.sampled_from(["int64", "int32"]), st.sampled_from([0, 0, 0, 1]),
)  # fmt: skip
def test_beside_pytorch(
    mode: str, lengths: list[int], flat: bool, last: bool, padding: int | None, factors: bool, seed: int, dtype: str, index: str, wrong: int
) -> None:
    source = np.random.default_rng(seed)
    table = source.integers(-3, 4, (5, 3)).astype(float)  # with ties
    count = sum(lengths) if flat else 2 * max(*lengths, 1, 1)  # of bags without places PyTorch makes a step of 0
    indices = source.integers(0, 5, count)
    starts = np.cumsum([0, *lengths])
    starts[0] += wrong  # other wrong ones PyTorch does not see, and reads beyond
    starts = starts if last else starts[:-1]
    weights = source.integers(-2, 3, count)

    def run(m: Any) -> Any:
        w = m.tensor(table.tolist(), dtype=getattr(m, dtype), requires_grad=True)
        i = m.tensor(indices.tolist(), dtype=getattr(m, index))
        f = m.tensor(weights.tolist(), dtype=getattr(m, dtype), requires_grad=True) if factors and mode == "sum" else None
        offsets = m.tensor(starts.tolist(), dtype=getattr(m, index)) if flat else None
        given = (i, f) if flat else (i.reshape(2, -1), None if f is None else f.reshape(2, -1))
        y = m.nn.functional.embedding_bag(given[0], w, offsets, mode=mode, per_sample_weights=given[1], include_last_offset=last and flat, padding_idx=padding)
        (y * m.arange(float(y.numel()), dtype=y.dtype).reshape(y.shape)).sum().backward()
        return [str(y.dtype), y.tolist(), w.grad.tolist(), None if f is None else f.grad.tolist()]

    ours, theirs = outcome(ft, run), outcome(torch, run)
    if not isinstance(theirs, str) and not isinstance(ours, str) and dtype == "bfloat16":
        ours, theirs = ours[:2], theirs[:2]  # gradients of PyTorch's are rounded at each addition
    if isinstance(theirs, str) or isinstance(ours, str):
        assert ours == theirs
    else:
        assert ours[0] == theirs[0]
        for a, b in zip(ours[1:], theirs[1:], strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                assert np.allclose(a, b, rtol=1e-6, atol=1e-6), (a, b)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_lengths_are_not_recorded_one_by_one(mode: str) -> None:
    """The bags of a new batch are found by recorded operations: no number of it is in the program."""
    bag = ft.nn.EmbeddingBag(20, 4, mode=mode)
    other = torch.nn.EmbeddingBag(20, 4, mode=mode)
    with torch.no_grad():
        other.weight.copy_(torch.tensor(bag.weight.tolist()))
    source = np.random.default_rng(0)
    for count in (7, 9, 30, 11):
        indices, starts = source.integers(0, 20, count).tolist(), [0, 2, 2, 5]
        ours, theirs = (net(m.tensor(indices), m.tensor(starts)) for net, m in ((bag, ft), (other, torch)))
        assert np.allclose(ours.tolist(), theirs.tolist(), atol=1e-6)


def test_errors() -> None:
    w = ft.ones(4, 2)
    with pytest.raises(RuntimeError, match=r"padding_idx must be within the number of embeddings.*got 4"):
        ft.nn.functional.embedding_bag(ft.tensor([[1]]), w, padding_idx=4)
    with pytest.raises(RuntimeError, match=r"have the same type as per_sample_weights; but type .*float32 does not equal .*float64"):
        ft.nn.functional.embedding_bag(ft.tensor([[1]]), w, mode="sum", per_sample_weights=ft.ones(1, 1, dtype=ft.float64))
    with pytest.raises(RuntimeError, match=r"offsets\[-1\] can not be greater than input's length\(1\) but got offsets\[-1\] of 3"):
        ft.nn.functional.embedding_bag(ft.tensor([1]), w, ft.tensor([0, 3]))


def test_the_former_order_of_arguments() -> None:
    """weight before input, with PyTorch's warning."""
    weight, indices, starts = ft.eye(3), ft.tensor([0, 1, 2]), ft.tensor([0, 2])
    with pytest.warns(UserWarning, match="Argument order of nn.functional.embedding_bag was changed"):
        former = ft.nn.functional.embedding_bag(weight, indices, starts)
    assert former.tolist() == ft.nn.functional.embedding_bag(indices, weight, starts).tolist()
