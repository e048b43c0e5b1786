"""Calls that PyTorch takes and flambeau refused or took otherwise: frequencies in embeddings, empty indices, wrapped optimizers, checkpoints, ..."""

from __future__ import annotations

import importlib
import itertools
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flambeau

torch = pytest.importorskip("torch")

MODULES = (flambeau, torch)


def outcome(call: Callable[[], Any]) -> Any:
    """What a call gives: nested lists, or the type of its error."""
    try:
        return call()
    except (RuntimeError, ValueError) as error:
        return "RuntimeError" if isinstance(error, RuntimeError) else "ValueError"


def both(call: Callable[[Any], Any]) -> None:
    ours, theirs = (outcome(lambda m=m: call(m)) for m in MODULES)
    assert str(type(ours)) == str(type(theirs)), (ours, theirs)
    if isinstance(theirs, str):
        assert ours == theirs
        return
    for a, b in zip(ours, theirs, strict=True):
        assert (a == b) if b is None or isinstance(b, (str, bool, tuple)) else np.allclose(a, b, rtol=1e-5, atol=1e-6, equal_nan=True), (ours, theirs)


# -- embeddings ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("padding", [None, 1])
@pytest.mark.parametrize("index", [[[0, 1, 1], [3, 1, 0]], [2], 3, [[]]])
def test_embedding_by_frequency(index: Any, padding: int | None) -> None:
    def call(m: Any) -> Any:
        weight = m.arange(12.0).reshape(4, 3).requires_grad_()
        y = m.nn.functional.embedding(m.tensor(index, dtype=m.int64), weight, padding, scale_grad_by_freq=True)
        (g,) = m.autograd.grad((y * m.arange(1.0, y.numel() + 1).reshape(y.shape)).sum(), weight)
        return y.tolist(), g.tolist()

    both(call)


def test_embedding_bag_by_frequency_is_the_sum_of_scaled_rows() -> None:
    index, starts = flambeau.tensor([0, 1, 1, 3, 1, 0]), flambeau.tensor([0, 3])
    for mode in ("sum", "mean"):
        weight = flambeau.arange(12.0).reshape(4, 3).requires_grad_()
        y = flambeau.nn.functional.embedding_bag(index, weight, starts, mode=mode, scale_grad_by_freq=True)
        plain = flambeau.nn.functional.embedding_bag(index, weight, starts, mode=mode)
        assert y.tolist() == plain.tolist()
        (g,), (h,) = (flambeau.autograd.grad((t * flambeau.arange(6.0).reshape(2, 3)).sum(), weight) for t in (y, plain))
        assert np.allclose(g.numpy() * np.array([[2.0], [3.0], [1.0], [1.0]]), h.numpy())
    with pytest.raises(ValueError, match="frequency"):
        flambeau.nn.functional.embedding_bag(index, weight, starts, mode="max", scale_grad_by_freq=True)


# -- indices without elements -------------------------------------------------------------------------------------
@pytest.mark.parametrize("shape", [(0,), (2, 0), (0, 5), (5, 0), (1, 0, 2)])
def test_empty_indices(shape: tuple[int, ...]) -> None:
    for dtype, dim in itertools.product(("int64", "float32"), (0, 1)):

        def gathered(m: Any, dtype: str = dtype, dim: int = dim) -> Any:
            x = m.ones(2, 3, requires_grad=True)
            y = m.gather(x, dim, m.zeros(shape, dtype=getattr(m, dtype)))
            return tuple(y.shape), y.requires_grad, m.autograd.grad(y.sum(), x)[0].tolist()

        both(gathered)

    def scattered(m: Any) -> Any:
        index = m.zeros(shape, dtype=m.int64)
        return [getattr(m.ones(2, 3), name)(0, index, m.ones(shape)).tolist() for name in ("scatter", "scatter_add", "scatter_", "scatter_add_")]

    both(scattered)


# -- small calls --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("shape", [(4, 3), (4, 1), (1, 3), (4,), (3,), (1, 1), (4, 3, 1), (2, 3)])
def test_variances_that_broadcast(shape: tuple[int, ...]) -> None:
    def call(m: Any) -> Any:
        var = m.linspace(0.5, 1.5, int(np.prod(shape))).reshape(shape).requires_grad_()
        y = m.nn.functional.gaussian_nll_loss(m.arange(12.0).reshape(4, 3), m.ones(4, 3), var)
        return y.tolist(), m.autograd.grad(y, var)[0].tolist()

    both(lambda m: [np.asarray(x) for x in call(m)])


@pytest.mark.parametrize("shape", [(2, 4), (4,), (1, 4), (2, 1), (1, 1), (5, 5)])
def test_addbmm_resizes(shape: tuple[int, ...]) -> None:
    def call(m: Any) -> Any:
        t = m.arange(float(np.prod(shape))).reshape(shape)
        expected = m.addbmm(t, m.ones(3, 2, 3), m.ones(3, 3, 4), beta=2)  # PyTorch's in-place form loses elements of a repeated tensor
        y = t.addbmm_(m.ones(3, 2, 3), m.ones(3, 3, 4), beta=2)
        return y is t, tuple(t.shape), (t if m is flambeau else expected).tolist()

    both(call)


# -- optimizers that hold another -----------------------------------------------------------------------------------
def lookahead(m: Any) -> Any:
    """Zhang et al., 2019, as the package torch_optimizer has it: its `__init__` does not call the base class's."""

    class Lookahead(m.optim.Optimizer):
        def __init__(self, optimizer: Any, k: int = 2, alpha: float = 0.5) -> None:
            self.optimizer, self.k, self.alpha = optimizer, k, alpha
            self.param_groups, self.state, self.defaults = optimizer.param_groups, {}, optimizer.defaults
            for group in self.param_groups:
                group["counter"] = 0

        def step(self, closure: Any = None) -> Any:
            loss = self.optimizer.step(closure)
            for group in self.param_groups:
                if group["counter"] == 0:
                    for p in group["params"]:
                        state = self.state.setdefault(p, {})
                        slow = state.setdefault("slow", p.data.clone())
                        slow.add_(p.data - slow, alpha=self.alpha)
                        p.data.copy_(slow)
                group["counter"] = (group["counter"] + 1) % self.k
            return loss

    return Lookahead


def test_optimizer_without_the_base_class() -> None:
    def call(m: Any) -> Any:
        w = m.arange(4.0).requires_grad_()
        opt = lookahead(m)(m.optim.SGD([w], lr=0.1, momentum=0.9))
        for _ in range(5):
            opt.optimizer.zero_grad()
            (w * w).sum().backward()
            opt.step()
        return w.tolist(), len(opt.param_groups) == 1

    both(call)
    opt = flambeau.optim.SGD([flambeau.ones(2, requires_grad=True)], lr=0.5)
    seen: list[int] = []
    opt.register_step_pre_hook(lambda *a: seen.append(1))
    assert pickle.loads(pickle.dumps(flambeau.optim.SGD([flambeau.ones(2)], lr=0.5))).param_groups[0]["lr"] == 0.5
    opt.step()
    assert seen == [1]


# -- checkpoints --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("needs", [True, False])
@pytest.mark.parametrize("held", [True, False])
def test_checkpoint_asks_who_needs_gradients(reentrant: bool, needs: bool, held: bool) -> None:
    def call(m: Any) -> Any:
        layer = m.nn.Linear(3, 2)
        with m.no_grad():
            layer.weight.copy_(m.arange(6.0).reshape(2, 3))
            layer.bias.zero_()
        x = m.arange(3.0).requires_grad_(needs)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            y = m.utils.checkpoint.checkpoint(layer if held else lambda t: t.sin(), x, use_reentrant=reentrant)
        if y.requires_grad:
            y.sum().backward()
        grads = [None if t.grad is None else tuple(t.grad.reshape(-1).tolist()) for t in (x, layer.weight)]
        return (y.requires_grad, y.tolist(), *[None if g is None else np.asarray(g) for g in grads], [str(w.message) for w in told] != [])

    both(call)


def test_checkpoint_of_named_and_nested_arguments() -> None:
    def call(m: Any) -> Any:
        x, z = m.arange(3.0).requires_grad_(), m.ones(3).requires_grad_()
        inner = z * 2
        y = m.utils.checkpoint.checkpoint(lambda t, pair, scale: (t * pair[0]).sin() * scale, x, [inner], use_reentrant=False, scale=inner * 3)
        y.sum().backward()
        return x.grad.tolist(), z.grad.tolist()

    both(call)
    both(lambda m: m.utils.checkpoint.checkpoint(lambda t, k: t * k, m.ones(2, requires_grad=True), use_reentrant=True, k=2).tolist())


# -- torch.nn.parallel --------------------------------------------------------------------------------------------
def test_modules_of_the_package_parallel() -> None:
    names = ("_functions", "comm", "data_parallel", "distributed", "parallel_apply", "replicate", "scatter_gather")
    for name in names:
        ours, theirs = (importlib.import_module(f"{m.__name__}.nn.parallel.{name}") for m in MODULES)
        for public in getattr(theirs, "__all__", []):
            if public != "DistributedDataParallel":
                assert callable(getattr(ours, public)), (name, public)
    from flambeau.nn.parallel.parallel_apply import get_a_var, parallel_apply
    from flambeau.nn.parallel.scatter_gather import scatter_kwargs

    x = flambeau.arange(4.0)
    shares, named = scatter_kwargs((x,), {"k": 2}, ["cpu", "cpu"])
    assert [t.tolist() for (t,) in shares] == [[0.0, 1.0], [2.0, 3.0]] and named == ({"k": 2}, {"k": 2})
    assert [y.tolist() for y in parallel_apply([lambda t, k: t * k] * 2, shares, named)] == [[0.0, 2.0], [4.0, 6.0]]
    assert get_a_var({"a": [1, (x,)]}) is x and get_a_var([1]) is None


# -- saturated probabilities --------------------------------------------------------------------------------------
def test_binary_cross_entropy_at_both_ends() -> None:
    """Its slope there is PyTorch's (a denominator of 1e-12), not that of the logarithm's floor."""

    def call(m: Any) -> Any:
        x = m.tensor([8e-40, 1e-10, 0.0, 1.0, 0.0, 1.0, 0.25, 0.999999]).requires_grad_()
        y = m.nn.functional.binary_cross_entropy(x, m.tensor([1.0, 1.0, 1.0, 0.0, 0.0, 1.0, 0.5, 1.0]), reduction="none")
        return y.tolist(), m.autograd.grad(y.sum(), x)[0].tolist()

    both(call)
