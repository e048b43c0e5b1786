"""`_version`: writes in place and changes of shape count as in PyTorch, for the tensor and for views of it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

import flambeau as ft

torch = pytest.importorskip("torch")


def _set_data(m: Any, x: Any) -> None:
    x.data = m.ones(2, 3)


def _without(m: Any, x: Any) -> None:
    with m.no_grad():
        x.add_(1)


CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "add_": lambda m, x: x.add_(1), "copy_": lambda m, x: x.copy_(m.ones(2, 3)), "zero_": lambda m, x: x.zero_(), "item": lambda m, x: x.__setitem__(0, 1.0),
    "by a mask": lambda m, x: x.__setitem__(x > 0, 1.0), "all": lambda m, x: x.__setitem__(..., 1.0), "to itself": lambda m, x: x.copy_(x),
    "resize_": lambda m, x: x.resize_(3, 2), "resize_ grows": lambda m, x: x.resize_(5, 5), "resize_ to its shape": lambda m, x: x.resize_(2, 3),
    "resize_as_": lambda m, x: x.resize_as_(m.ones(6)), "t_": lambda m, x: x.t_(), "unsqueeze_": lambda m, x: x.unsqueeze_(0),
    "squeeze_": lambda m, x: x.squeeze_(), "transpose_": lambda m, x: x.transpose_(0, 1), "as_strided_": lambda m, x: x.as_strided_((2,), (1,)),
    "data": _set_data, "detach_": lambda m, x: x.detach_(), "requires_grad_": lambda m, x: x.requires_grad_(), "no_grad": _without,
    "out": lambda m, x: m.add(x.clone(), 1, out=x), "out of another shape": lambda m, x: m.add(m.ones(4), 1, out=x),
    "of detach": lambda m, x: x.detach().add_(1),
    "of data": lambda m, x: x.data.add_(1), "of a view": lambda m, x: x[0].add_(1), "foreach": lambda m, x: m._foreach_add_([x], 1),
    "normal_": lambda m, x: x.normal_(), "scatter_": lambda m, x: x.scatter_(0, m.tensor([[0]]), 1.0), "masked_fill_": lambda m, x: x.masked_fill_(x > 0, 1.0),
    "addmm_": lambda m, x: x.addmm_(m.ones(2, 2), m.ones(2, 3)), "relu_": lambda m, x: m.relu_(x), "init": lambda m, x: m.nn.init.ones_(x),
    "two of them": lambda m, x: x.t_().add_(1).unsqueeze_(0), "numpy": lambda m, x: x.numpy().__setitem__(0, 1),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_counts(name: str) -> None:
    found = []
    for m in (ft, torch):
        x = m.arange(6.0).view(2, 3).clone()
        view = x[0]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            CALLS[name](m, x)
        found.append((x._version, None if "grows" in name else view._version))  # what grows has other memory than its views
    assert found[0] == found[1]


@pytest.mark.parametrize("change", ["t_", "unsqueeze_", "view"])
@pytest.mark.parametrize("call", ["sin", "exp"])
def test_gradients_after_a_change_of_shape(change: str, call: str) -> None:
    """Either right, or refused in PyTorch's words (it refuses them all but those of views): never a gradient of the tensor's later shape."""
    for seen in (False, True):
        for again in (False, True):
            x = ft.tensor([[0.5, 1.0], [2.0, 3.0]], requires_grad=True)
            a = x.clone()
            if again:
                a.tolist()
            b = getattr(a, call)()
            if seen:
                b.tolist()
            if change == "view":
                a.view(4).t_()
            else:
                a.t_() if change == "t_" else a.unsqueeze_(0)
            try:
                b.sum().backward()
            except RuntimeError as error:
                assert change != "view" and "has been modified by an inplace operation" in str(error)
                continue
            expected = x.detach().cos() if call == "sin" else x.detach().exp()
            assert x.grad is not None
            assert x.grad.tolist() == expected.tolist(), (seen, again)


CHANGES: dict[str, Callable[[Any], Any]] = {
    "set_": lambda t: t.set_(ft.zeros(2, 2)), "set_ of a storage": lambda t: t.set_(ft.zeros(4).untyped_storage(), 0, (2, 2)), "t_": lambda t: t.t_(),
    "unsqueeze_": lambda t: t.unsqueeze_(0), "as_strided_": lambda t: t.as_strided_((2, 2), (0, 1)), "transpose_": lambda t: t.transpose_(0, 1),
    "resize_": lambda t: t.detach().resize_(4), "add_": lambda t: t.add_(1),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", ["leaf", "constant", "computed"])
def test_gradients_after_a_change_without_gradients(kind: str, change: str) -> None:
    """Of what is used first and given another shape, memory or value then: right, or refused, on known paths, too."""
    for seen in (False, True):
        for _ in range(5):
            x = ft.tensor([[0.5, 1.0], [2.0, 3.0]], requires_grad=True)
            first = x if kind == "leaf" else ft.tensor([[1.0, 2.0], [3.0, 4.0]]) if kind == "constant" else x.exp()
            values, rise = x.detach().clone(), first.detach().clone()
            product = first * x
            if seen:
                product.tolist()
            with ft.no_grad():
                CHANGES[change](first)
            expected = rise if kind == "constant" else 2 * values if kind == "leaf" else rise + values * rise
            try:
                (gradient,) = ft.autograd.grad(product.sum(), x)
                assert ft.allclose(gradient, expected), (kind, change, seen)
            except RuntimeError as error:
                assert "has been modified by an inplace operation" in str(error)


def test_pack_hooks_must_not_write() -> None:
    class Keep(ft.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2

    def write(t: Any) -> Any:
        return t.add_(1)

    x = ft.ones(3, requires_grad=True)
    for call in (lambda: x.clone().exp(), lambda: Keep.apply(x.clone())):
        with pytest.raises(RuntimeError, match="A saved tensor pack hook is modifying its input in place"), ft.autograd.graph.saved_tensors_hooks(write, write):
            made = call()  # type: ignore[no-untyped-call]
            made = made * made
    x.exp().sum().backward()


def test_lists_of_operators_of_selective_checkpoints() -> None:
    make = ft.utils.checkpoint.create_selective_checkpoint_contexts
    make([ft.ops.aten.sin.default])
    with pytest.raises(ValueError, match="Expected op in `op_list` to be an OpOverload but got: 2"):
        make([2])
    with pytest.raises(ValueError, match="update the OpOverloadPacket to a specific OpOverload"):
        make([ft.ops.aten.sin])
