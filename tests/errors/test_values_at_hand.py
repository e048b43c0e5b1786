"""Values that a function refuses, in tensors whose values are at hand: the call raises PyTorch's type of error; the stream of random numbers stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flambeau

torch = pytest.importorskip("torch")

NAN = float("nan")
CALLS: dict[str, Callable[[Any], Any]] = {
    "bernoulli": lambda m: m.bernoulli(m.tensor([0.5, 2.0])),
    "bernoulli of a NaN": lambda m: m.bernoulli(m.tensor([0.5, NAN])),
    "bernoulli_": lambda m: m.ones(2).bernoulli_(m.tensor([-0.1, 0.5], dtype=m.float64)),
    "normal": lambda m: m.normal(m.zeros(2), m.tensor([-1.0, 1.0])),
    "normal of a NaN": lambda m: m.normal(m.zeros(2), m.tensor([NAN, 1.0])),
    "normal of a number": lambda m: m.normal(0.0, m.tensor([-1.0, 1.0])),
    "multinomial": lambda m: m.multinomial(m.tensor([-2.0, 1.0]), 1),
    "poisson": lambda m: m.poisson(m.tensor([-2.0, 1.0])),
    "binomial": lambda m: m.binomial(m.tensor([2.0]), m.tensor([NAN])),
    "quantile": lambda m: m.quantile(m.ones(3), m.tensor([0.5, 1.5])),
    "nanquantile": lambda m: m.nanquantile(m.ones(3), m.tensor([NAN])),
    "lu_unpack": lambda m: m.lu_unpack(m.ones(2, 2), m.tensor([0, 1], dtype=m.int32)),
    "repeat_interleave": lambda m: m.repeat_interleave(m.tensor([1, 2]), m.tensor([-1, 1])),
    "bincount": lambda m: m.bincount(m.tensor([-1, 1])),
    "one_hot": lambda m: m.nn.functional.one_hot(m.tensor([5, 1]), 3),
    "nll_loss": lambda m: m.nn.functional.nll_loss(m.ones(2, 3), m.tensor([5, 1])),
    "multi_margin_loss": lambda m: m.nn.functional.multi_margin_loss(m.ones(2, 3), m.tensor([5, 1])),
    "gaussian_nll_loss": lambda m: m.nn.functional.gaussian_nll_loss(m.ones(2), m.ones(2), -m.ones(2)),
    "embedding_bag": lambda m: m.nn.functional.embedding_bag(m.tensor([1, 9]), m.ones(3, 2), m.tensor([0])),
    "max_unpool1d": lambda m: m.nn.functional.max_unpool1d(m.ones(1, 1, 2), m.tensor([[[0, 9]]]), 2),
    "searchsorted": lambda m: m.searchsorted(m.tensor([3, 1, 2]), m.tensor([2]), sorter=m.tensor([7, 1, 2])),
    "take": lambda m: m.take(m.ones(3), m.tensor([5])),
    "put_": lambda m: m.ones(3).put_(m.tensor([5]), m.ones(1)),
    "index_add_": lambda m: m.ones(3).index_add_(0, m.tensor([5]), m.ones(1)),
    "pack_padded_sequence": lambda m: m.nn.utils.rnn.pack_padded_sequence(m.ones(3, 2, 1), m.tensor([1, 2])),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_the_call_raises(name: str) -> None:
    call = CALLS[name]
    try:
        call(torch)
    except Exception as error:
        kind: type[Exception] = type(error)
    else:
        if name in ("poisson", "binomial"):
            return  # a draw of what is no probability is PyTorch's own matter
        raise AssertionError(f"{name}: PyTorch takes it")
    flambeau.manual_seed(3)
    expected = flambeau.rand(3).tolist()
    flambeau.manual_seed(3)
    with pytest.raises(kind):
        call(flambeau)
    assert flambeau.rand(3).tolist() == expected


def test_what_is_pending_stays_pending() -> None:
    """Deviations that a network computes are no reason to run it."""
    x = flambeau.ones(4)
    x.tolist()
    before = flambeau.stats()["plan_runs"]
    y = flambeau.normal(x, x.exp())
    assert flambeau.stats()["plan_runs"] == before
    assert y.shape == (4,)


def test_masks_that_take_more_than_there_is() -> None:
    """masked_scatter with masks of any layout, broadcast ones too: the call raises where PyTorch's does, and what is pending stays."""
    rng = np.random.default_rng(5)
    refused = 0
    for trial in range(120):
        shape = tuple(int(n) for n in rng.integers(0, 4, rng.integers(1, 4)))
        kind = ("plain", "expanded", "transposed", "sliced", "row")[trial % 5]
        bits = rng.random((*shape[:-1], 2 * shape[-1] + 1)) < 0.6
        have = int(rng.integers(0, int(np.prod(shape)) + 1))

        def call(m: Any, shape: Any = shape, kind: str = kind, bits: Any = bits, have: int = have) -> Any:
            mask = m.tensor(bits.tolist(), dtype=m.bool).reshape(bits.shape)[..., : shape[-1]]
            if kind == "expanded":
                mask = mask[..., :1].expand(shape)
            elif kind == "transposed":
                mask = mask.transpose(0, -1).contiguous().transpose(0, -1)
            elif kind == "row":
                mask = mask.reshape(-1, shape[-1])[:1] if mask.numel() else mask
            elif kind == "plain":
                mask = mask.contiguous()
            pending = m.ones(2) + 1
            try:
                result: Any = m.zeros(shape).masked_scatter(mask, m.arange(1.0, have + 1)).tolist()
            except RuntimeError as error:
                assert "Number of elements of source < number of ones in mask" in str(error)
                result = "refused"
            return result, pending.tolist()

        expected = call(torch)
        refused += expected[0] == "refused"
        for _ in range(1 + trial % 3):  # a known call, too
            assert call(flambeau) == expected, (shape, kind, have)
    assert 20 < refused < 100
    x, mask = flambeau.zeros(3), flambeau.tensor([True, False, False])
    for take in (1, 2, 1):  # a write to the mask in between
        mask[1] = take == 2
        mask.tolist()
        if take == 2:
            with pytest.raises(RuntimeError, match="argument 'mask' may be True for 1 of its elements at most"):
                x.masked_scatter_(mask, flambeau.ones(1))
        else:
            x.masked_scatter_(mask, flambeau.ones(1))
    assert x.tolist() == [1.0, 0.0, 0.0]
