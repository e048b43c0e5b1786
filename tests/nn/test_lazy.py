"""Lazy modules against PyTorch: the same values from the same seed, and the plain class afterwards."""

from __future__ import annotations

import copy
import pickle

import pytest

import flambeau
from tests.nn.oracle import close, ours, raises_as_torch, torch

CASES = [
    ("LazyLinear", (4,), {}, (2, 3)), ("LazyLinear", (4,), {"bias": False}, (5,)),
    *((f"LazyConv{d}d", (4, 2), {"stride": 2, "groups": 2}, (2, 6, *(5,) * d)) for d in (1, 2, 3)), ("LazyConv2d", (4, 3), {"padding": "same"}, (3, 5, 5)),
    *((f"LazyConvTranspose{d}d", (4, 2), {"stride": 2, "bias": False}, (2, 6, *(3,) * d)) for d in (1, 2, 3)),
    *((f"Lazy{kind}Norm{d}d", (), options, (2, 3, *(4,) * d)) for kind in ("Batch", "Instance") for d, options in
      ((1, {}), (2, {"affine": False}), (3, {"track_running_stats": False, "bias": False}))),
]  # fmt: skip


@pytest.mark.parametrize(("name", "arguments", "options", "shape"), CASES)
def test_lazy(name, arguments, options, shape):
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(1))
    results = []
    for m, data in ((flambeau, ours(x)), (torch, x)):
        m.manual_seed(4)
        module = getattr(m.nn, name)(*arguments, **options)
        text = repr(module)
        y = module(data)
        results.append((text, repr(module), type(module).__name__, y, module.state_dict()))
    assert results[0][:3] == results[1][:3]
    close(results[0][3], results[1][3], 2e-5)
    assert list(results[0][4]) == list(results[1][4])
    for key, value in results[1][4].items():
        close(results[0][4][key], value, 1e-5)


def test_before_the_first_input():
    for m in (flambeau, torch):
        module = m.nn.Sequential(m.nn.LazyConv2d(4, 3), m.nn.LazyBatchNorm2d())
        assert module[0].has_uninitialized_params()
        assert isinstance(module[0].weight, m.nn.UninitializedParameter)
        assert len(list(module.parameters())) == 4
        for value in (module[0].weight, module[1].running_mean):
            with pytest.raises(RuntimeError, match="uninitialized parameter"):
                value.shape
        module.double()
        if m is flambeau:  # PyTorch copies no uninitialized buffer
            original, module = module, copy.deepcopy(module)
        module(m.ones(1, 2, 5, 5, dtype=m.float64))
        assert tuple(module[0].weight.shape) == (4, 2, 3, 3)
        assert module[0].weight.dtype == module[1].running_mean.dtype == m.float64
    assert original[0].has_uninitialized_params()
    assert original[1].has_uninitialized_params()


def test_state_of_both_kinds():
    for m in (flambeau, torch):
        plain, lazy, other = m.nn.Linear(3, 2), m.nn.LazyLinear(2), m.nn.LazyLinear(2)
        other.load_state_dict(lazy.state_dict())
        assert other.has_uninitialized_params()
        lazy.load_state_dict(plain.state_dict())
        assert not lazy.has_uninitialized_params()
        x = m.ones(1, 3)
        assert lazy(x).tolist() == plain(x).tolist()
        assert type(lazy) is m.nn.Linear
        again = pickle.loads(pickle.dumps(lazy))
        assert again(x).tolist() == plain(x).tolist()


def test_state_of_a_module_that_is_no_lazy_one():
    for m in (flambeau, torch):
        first, second, plain = m.nn.Module(), m.nn.Module(), m.nn.Module()
        first.w, second.w, plain.w = (m.nn.parameter.UninitializedParameter() for _ in range(3))
        assert not any(second.load_state_dict(first.state_dict(keep_vars=True)))
        assert type(second.w) is m.nn.parameter.UninitializedParameter
        plain.w.materialize((2,))
        with pytest.raises(RuntimeError, match="uninitialized"):
            plain.load_state_dict(first.state_dict(keep_vars=True))


def test_errors():
    x = torch.zeros(3, 4)
    raises_as_torch(lambda t: flambeau.nn.LazyConv2d(4, 3)(t), lambda t: torch.nn.LazyConv2d(4, 3)(t), x)
    raises_as_torch(lambda t: flambeau.nn.LazyConv1d(4, 3, groups=2)(t), lambda t: torch.nn.LazyConv1d(4, 3, groups=2)(t), x)


def test_trains():
    module = flambeau.nn.LazyLinear(1)
    module(flambeau.ones(2, 3))
    optimizer = flambeau.optim.SGD(module.parameters(), lr=0.1)
    before = module.weight.tolist()
    module(flambeau.ones(2, 3)).sum().backward()
    optimizer.step()
    assert module.weight.tolist() != before
