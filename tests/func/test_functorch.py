"""functorch, the package that PyTorch brings along beside torch: modules as functions of tuples, ensembles, chunks, its warnings."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau

OURS, THEIRS = importlib.import_module("flambeau.functorch"), importlib.import_module("functorch")
PAIRS = ((flambeau, OURS), (torch, THEIRS))
pytestmark = pytest.mark.filterwarnings("ignore:We've integrated functorch:FutureWarning")


def linear(m: Any) -> Any:
    """A module without buffers."""
    return m.nn.Linear(3, 2)


def normalised(m: Any) -> Any:
    """A module with buffers, of which one is replaced by a call in training."""
    return m.nn.Sequential(m.nn.Linear(3, 4), m.nn.BatchNorm1d(4), m.nn.Linear(4, 2)).eval()


def tied(m: Any) -> Any:
    """A module with one weight under two names."""
    made = m.nn.Sequential(m.nn.Linear(3, 3), m.nn.Tanh(), m.nn.Linear(3, 3))
    made[2].weight = made[0].weight
    return made


def filled(m: Any, build: Callable[[Any], Any], seed: int = 0) -> Any:
    """The module with seeded parameters, the same with both."""
    made, numbers = build(m), np.random.default_rng(seed)
    with m.no_grad():
        for p in made.parameters():
            p.copy_(m.from_numpy(numbers.standard_normal(tuple(p.shape)).astype(np.float32)))
    return made


def rows(m: Any) -> Any:
    """Seeded inputs."""
    return m.from_numpy(np.random.default_rng(9).standard_normal((5, 3)).astype(np.float32))


def agree(call: Callable[[Any, Any], list[Any]]) -> None:
    """What both give, number by number."""
    ours, theirs = (call(m, f) for m, f in PAIRS)
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_names() -> None:
    """Every public function and class is there."""
    assert {n for n, value in vars(THEIRS).items() if not n.startswith("_") and not isinstance(value, ModuleType)} <= set(dir(OURS))


@pytest.mark.parametrize("build", [linear, tied])
def test_make_functional(build: Callable[[Any], Any]) -> None:
    """The function's values, and gradients of what is tied, which is one parameter."""

    def call(m: Any, f: Any) -> list[Any]:
        function, params = f.make_functional(filled(m, build))
        return [function(params, rows(m)), *f.grad(lambda p: function(p, rows(m)).square().sum())(params), *params]

    agree(call)


@pytest.mark.parametrize("off", [False, True])
def test_parameters_are_copies(off: bool) -> None:
    """They have nothing to do with the module's, which keeps its own."""
    for m, f in PAIRS:
        model = filled(m, linear)
        before = model.weight.detach().clone()
        function, params = f.make_functional(model, disable_autograd_tracking=off)
        assert [p.requires_grad for p in params] == [not off] * 2
        with m.no_grad():
            params[0].zero_()
        assert bool((model.weight == before).all()) and bool((function(params, rows(m)) == params[1]).all())


def test_make_functional_with_buffers() -> None:
    """Buffers are arguments too."""

    def call(m: Any, f: Any) -> list[Any]:
        function, params, buffers = f.make_functional_with_buffers(filled(m, normalised))
        return [function(params, buffers, rows(m)), *params, *buffers]

    agree(call)


@pytest.mark.parametrize("build", [linear, normalised])
def test_ensembles(build: Callable[[Any], Any]) -> None:
    """Three modules at once."""

    def call(m: Any, f: Any) -> list[Any]:
        function, params, buffers = f.combine_state_for_ensemble([filled(m, build, i) for i in range(3)])
        return [f.vmap(function, (0, 0, None))(params, buffers, rows(m)), *params, *buffers]

    agree(call)


@settings(deadline=None)
@given(size=st.integers(1, 9), chunks=st.integers(1, 12), dim=st.integers(0, 1))
def test_chunks_change_nothing(size: int, chunks: int, dim: int) -> None:
    """vmap by chunks is vmap, for any number of chunks."""
    from flambeau.functorch.experimental import chunk_vmap

    x = flambeau.arange(size * 3.0).reshape((size, 3) if dim == 0 else (3, size))
    wanted = flambeau.vmap(lambda row: row.cumsum(0), dim)(x)
    assert flambeau.equal(chunk_vmap(lambda row: row.cumsum(0), dim, chunks=chunks)(x), wanted)


def test_map_of_slices() -> None:
    """control_flow.map over a tree of tensors, with another argument for all."""

    def call(m: Any, f: Any) -> list[Any]:
        control_flow = importlib.import_module(f"{f.__name__}.experimental.control_flow")
        made = control_flow.map(lambda xs, y: {"a": xs[0] + y, "b": xs[1].sum()}, (rows(m), rows(m) * 2), m.ones(3))
        return [made["a"], made["b"], control_flow.cond(m.tensor(True), lambda x: x + 1, lambda x: x - 1, (rows(m),))]

    agree(call)


def wrong_buffers(m: Any, f: Any) -> None:
    """A module with buffers for the function without."""
    f.make_functional(normalised(m))


def none(m: Any, f: Any) -> None:
    """No module at all."""
    f.combine_state_for_ensemble([])


def mixed(m: Any, f: Any) -> None:
    """Two classes."""
    f.combine_state_for_ensemble([linear(m), normalised(m).train()])


def modes(m: Any, f: Any) -> None:
    """One in training."""
    f.combine_state_for_ensemble([normalised(m), normalised(m).train()])


@pytest.mark.parametrize("call", [wrong_buffers, none, mixed, modes])
def test_errors(call: Callable[[Any, Any], None]) -> None:
    """PyTorch's types and words."""
    found = []
    for m, f in PAIRS:
        with pytest.raises(Exception) as e:
            call(m, f)
        found.append((type(e.value), str(e.value)))
    assert found[0] == found[1]


def test_number_of_parameters_is_said() -> None:
    """What is expected and what was given."""
    function, params = OURS.make_functional(linear(flambeau))
    with pytest.raises(RuntimeError, match="expected 2 parameters and buffers of Linear, got 1"):
        function(params[:1], rows(flambeau))


@pytest.mark.filterwarnings("default:We've integrated functorch:FutureWarning")
def test_names_warn_as_theirs() -> None:
    """Each function says where torch.func has it."""
    for name in ("vmap", "grad", "make_functional", "combine_state_for_ensemble", "jacrev"):
        texts = []
        for m, f in PAIRS:
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                argument: Any = linear(m) if name == "make_functional" else [linear(m)] if name.startswith("combine") else abs
                getattr(f, name)(argument)
            texts.append([str(w.message) for w in seen if issubclass(w.category, FutureWarning)])
        assert texts[0] == texts[1], name
