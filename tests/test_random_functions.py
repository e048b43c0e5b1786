"""The public random functions and the initialisers: after the same seed, PyTorch's numbers, dtypes, shapes and
state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flambeau

torch = pytest.importorskip("torch")

Function = Callable[[Any], Any]
EXACT: dict[str, Function] = {
    "rand": lambda t: t.rand(3, 5),
    "rand float64": lambda t: t.rand(10, dtype=t.float64),
    "rand complex": lambda t: t.rand(20, dtype=t.complex64),
    "randint": lambda t: t.randint(5, (10,)),
    "randint int32": lambda t: t.randint(-5, 10, (10,), dtype=t.int32),
    "randperm": lambda t: t.randperm(100),
    "randperm float": lambda t: t.randperm(50, dtype=t.float32),
    "uniform_": lambda t: t.empty(20).uniform_(-2, 3),
    "uniform_ transposed": lambda t: t.empty(4, 6).t().uniform_(),
    "uniform_ permuted": lambda t: t.zeros(4, 5, 6).permute(2, 0, 1).uniform_(),
    "uniform_ permuted with gaps": lambda t: t.zeros(4, 5, 6).permute(2, 0, 1)[:, ::2].uniform_(),
    "geometric_": lambda t: t.empty(30).geometric_(0.3),
    "random_": lambda t: t.empty(30, dtype=t.int64).random_(),
    "random_ to": lambda t: t.empty(30).random_(10),
    "random_ float": lambda t: t.empty(30).random_(),
    "random_ from": lambda t: t.empty(30, dtype=t.int32).random_(5, None),
    "random_ from, int8": lambda t: t.empty(30, dtype=t.int8).random_(5, None),
    "bernoulli": lambda t: t.bernoulli(t.full((30,), 0.3)),
    "bernoulli p": lambda t: t.bernoulli(t.zeros(30), 0.3),
    "bernoulli_": lambda t: t.empty(30).bernoulli_(0.3),
    "bernoulli_ broadcast": lambda t: t.empty(6, 5).bernoulli_(t.full((5,), 0.3)),
    "bernoulli_ with gaps": lambda t: t.zeros(6, 8).t()[::2].bernoulli_(0.4),
    "multinomial": lambda t: t.multinomial(t.tensor([0.1, 0.5, 0.4]), 1),
    "multinomial replacement": lambda t: t.multinomial(t.tensor([[0.1, 0.5, 0.4], [1.0, 2.0, 3.0]]), 20, True),
    "multinomial many": lambda t: t.multinomial(t.arange(1.0, 51.0), 10),
    "rand_like": lambda t: t.rand_like(t.zeros(3, 4)),
    "rand_like transposed": lambda t: t.rand_like(t.zeros(30, 4).t()),
    "randint_like": lambda t: t.randint_like(t.zeros(3, 4), 10),
    "randint_like transposed": lambda t: t.randint_like(t.zeros(30, 4).t(), 10),
}
CLOSE: dict[str, Function] = {
    "randn": lambda t: t.randn(100, 7),
    "randn few": lambda t: t.randn(7),
    "randn complex": lambda t: t.randn(20, dtype=t.complex64),
    "randn_like transposed": lambda t: t.randn_like(t.zeros(30, 4).t()),
    "normal_ transposed": lambda t: t.empty(8, 6).t().normal_(),
    "normal_ with gaps": lambda t: t.zeros(6, 8)[::2, ::3].normal_(),
    "normal of tensors": lambda t: t.normal(t.zeros(20), t.ones(20)),
    "normal of a mean": lambda t: t.normal(t.zeros(20), 2.0),
    "normal of deviations": lambda t: t.normal(1.0, t.ones(20)),
    "normal broadcast": lambda t: t.normal(t.zeros(4, 1), t.ones(5)),
    "normal size": lambda t: t.normal(0.0, 1.0, (20,)),
    "exponential_": lambda t: t.empty(30).exponential_(),
    "cauchy_": lambda t: t.empty(30).cauchy_(),
    "log_normal_": lambda t: t.empty(30).log_normal_(),
    **{
        name: lambda t, name=name, options=options: getattr(t.nn.init, name.split()[0])(t.empty(33, 17), **options)
        for name, options in {
            "uniform_": {}, "normal_": {}, "trunc_normal_": {},
            "trunc_normal_ narrow": {"std": 0.02, "a": -0.04, "b": 0.04},
            "xavier_uniform_": {}, "xavier_normal_": {}, "kaiming_uniform_": {"a": 5**0.5}, "kaiming_normal_": {},
            "sparse_": {"sparsity": 0.3},
        }.items()
    },
    **{
        name: lambda t, make=make: np.concatenate([p.detach().numpy().ravel() for p in make(t.nn).parameters()])
        for name, make in {
            "Linear": lambda nn: nn.Linear(20, 30), "Conv2d": lambda nn: nn.Conv2d(3, 8, 3),
            "LSTM": lambda nn: nn.LSTM(5, 6),
            "Embedding": lambda nn: nn.Embedding(20, 5), "Attention": lambda nn: nn.MultiheadAttention(16, 4),
        }.items()
    },
}  # fmt: skip


def numbers(x: Any) -> Any:
    return x if isinstance(x, np.ndarray) else x.detach().numpy()


@pytest.mark.parametrize("name", [*EXACT, *CLOSE])
def test_same_numbers_as_pytorch(name: str) -> None:
    call = EXACT.get(name) or CLOSE[name]
    flambeau.manual_seed(11)
    torch.manual_seed(11)
    for _ in range(2):
        ours, theirs = numbers(call(flambeau)), numbers(call(torch))
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        assert np.array_equal(ours, theirs) if name in EXACT else np.allclose(ours, theirs, rtol=1e-6, atol=1e-6)
    ours, theirs = flambeau.get_rng_state().numpy(), torch.get_rng_state().numpy()
    cached_normal = np.arange(5024, 5032)  # a double, equal but for its last places
    assert set(np.flatnonzero(ours != theirs)) <= set(cached_normal)


def test_a_generator_of_its_own() -> None:
    ours, theirs = flambeau.Generator().manual_seed(3), torch.Generator().manual_seed(3)
    for _ in range(2):
        assert np.array_equal(flambeau.randperm(9, generator=ours).numpy(), torch.randperm(9, generator=theirs).numpy())
    state = theirs.get_state()
    expected = torch.rand(5, generator=theirs).numpy()
    ours.set_state(flambeau.from_numpy(state.numpy()))
    assert np.array_equal(flambeau.rand(5, generator=ours).numpy(), expected)
