"""Hooks of `grad_fn`, beside PyTorch's: when they are called, with which gradients, and what they may change."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import flambeau as ft


def _program(w: Any) -> list[Any]:
    x = w.tensor([1.0, 2.0, 3.0], requires_grad=True)
    seen: list[Any] = []
    y = (x * 2).squeeze()
    y.grad_fn.register_prehook(lambda gradients: seen.append(["before", [g.tolist() for g in gradients]]))
    handle = y.grad_fn.register_hook(lambda inputs, outputs: seen.append(["after", [g.tolist() for g in outputs]]))
    z = y * y
    del y
    z.sum().backward(retain_graph=True)
    handle.remove()
    z.sum().backward()
    a = x.sin()
    a.grad_fn.register_prehook(lambda gradients: (gradients[0] * 10,))
    a.sum().backward()
    return [sorted(seen), x.grad.tolist()]


def test_they_are_called_as_in_pytorch() -> None:
    ours, theirs = _program(ft), _program(torch)
    assert ours[0] == theirs[0] and ours[1] == pytest.approx(theirs[1], rel=1e-6)


def test_what_is_not_kept_says_so() -> None:
    x = ft.ones(2, requires_grad=True)
    for hook in (lambda inputs, outputs: print(inputs[0]), lambda inputs, outputs: list(inputs), lambda inputs, outputs: (outputs[0] * 2,)):
        y = x * 2
        y.grad_fn.register_hook(hook)
        with pytest.raises(NotImplementedError, match=r"hooks of grad_fn: .*register a hook on the input tensors"):
            y.sum().backward()
    y = x * 2
    node = y.grad_fn
    y.add_(1)
    with pytest.raises(RuntimeError, match="MulBackward0 takes none, as the tensor was written to since"):
        node.register_hook(lambda inputs, outputs: None)


@pytest.mark.parametrize("shapes", [((2,), (3,)), ((2, 1, 3), (4,)), ((5, 1), (1, 4), (3, 2)), ((0,), (2,))])
def test_shapes_that_do_not_broadcast(shapes: tuple[tuple[int, ...], ...]) -> None:
    with pytest.raises(RuntimeError) as theirs:
        torch.broadcast_shapes(*shapes)
    with pytest.raises(RuntimeError) as ours:
        ft.broadcast_shapes(*shapes)
    assert str(ours.value) == f"broadcast_shapes: {theirs.value}"
