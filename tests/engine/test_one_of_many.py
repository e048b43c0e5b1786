"""Writes with gradients to views, however they were made: refused where PyTorch refuses them, and nowhere else.

All pairs of a way to make a view and a way to write to it, with the view still recorded or from an earlier trace.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

import flambeau as ft

torch = pytest.importorskip("torch")

Make = Callable[[Any, Any], Any]


def _custom(m: Any, forward: Callable[[Any], Any]) -> Any:
    class Custom(m.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return forward(x)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g.reshape(2, 2)

    return Custom.apply


def _two(m: Any, x: Any) -> Any:
    class Two(m.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.view(4), x * 2

        @staticmethod
        def backward(ctx: Any, g: Any, h: Any) -> Any:
            return g.view(2, 2)

    return Two.apply(x)


def _without(m: Any, call: Callable[[], Any]) -> Any:
    with m.no_grad():
        return call()


VIEWS: dict[str, Make] = {
    "select": lambda m, x: x[0], "slice": lambda m, x: x[:, 1:], "view": lambda m, x: x.view(4), "t": lambda m, x: x.t(),
    "unfold": lambda m, x: x.unfold(0, 1, 1),
    "unflatten": lambda m, x: x.unflatten(0, (1, 2)), "diagonal": lambda m, x: x.diagonal(), "real": lambda m, x: m.view_as_complex(x).real,
    "unbind": lambda m, x: x.unbind()[1], "iteration": lambda m, x: next(iter(x)), "split": lambda m, x: x.split(1)[1],
    "sizes": lambda m, x: x.split([1, 1])[0],
    "split_with_sizes": lambda m, x: x.split_with_sizes([1, 1])[0], "chunk": lambda m, x: x.chunk(2)[0], "one chunk": lambda m, x: x.chunk(1)[0],
    "tensor_split": lambda m, x: x.tensor_split(2)[0], "hsplit": lambda m, x: x.hsplit(2)[0], "vsplit": lambda m, x: m.vsplit(x, 2)[0],
    "unsafe_chunk": lambda m, x: m.unsafe_chunk(x, 2)[0], "unsafe_split": lambda m, x: m.unsafe_split(x, 1)[1],
    "unsafe_split_with_sizes": lambda m, x: x.unsafe_split_with_sizes([1, 1])[1],
    "many": lambda m, x: x.view(-1)[:1].expand(100).clone().unbind()[3],
    "view of a part": lambda m, x: x.split(1)[0].view(2),
    "slice of a part": lambda m, x: x.chunk(2)[0][:, :1], "part of a view": lambda m, x: x.view(4).split(2)[0],
    "copy of a part": lambda m, x: x.split(1)[0].clone(), "sum of a part": lambda m, x: (x.split(1)[0] + 1).view(2),
    "custom view": lambda m, x: _custom(m, lambda x: x.view(4))(x), "custom view of its own": lambda m, x: _custom(m, lambda x: x.clone().view(4))(x),
    "custom input": lambda m, x: _custom(m, lambda x: x)(x), "custom value": lambda m, x: _custom(m, lambda x: x.clone())(x),
    "first of two": lambda m, x: _two(m, x)[0], "second of two": lambda m, x: _two(m, x)[1],
    "no_grad": lambda m, x: _without(m, lambda: x.view(4)), "part in no_grad": lambda m, x: _without(m, lambda: x.split(1)[0]),
    "view of no_grad": lambda m, x: _without(m, lambda: x.view(4)).view(2, 2),
}  # fmt: skip
WRITES: dict[str, Make] = {
    "add_": lambda m, v: v.add_(1), "mul_ of a leaf": lambda m, v: v.mul_(m.ones(1, requires_grad=True)), "setitem": lambda m, v: v.__setitem__(..., 0.0),
    "copy_": lambda m, v: v.copy_(v.detach() * 2),
    "zero_": lambda m, v: v.zero_(), "unsqueeze_": lambda m, v: v.unsqueeze_(0), "relu_": lambda m, v: m.relu_(v),
    "iadd": lambda m, v: v.__iadd__(v), "in no_grad": lambda m, v: _without(m, lambda: v.add_(1)), "of detach": lambda m, v: v.detach().add_(1),
}  # fmt: skip


def _outcome(m: Any, make: Make, write: Make, ended: bool) -> str:
    x = m.arange(4.0).view(2, 2).clone().requires_grad_().clone()
    v = make(m, x)
    if ended:
        float((x * 2).sum()), float((v * 2).sum())
    try:
        write(m, v)
    except RuntimeError as error:
        text = str(error)
        return next(words for words in ("returns multiple views", "inside a custom Function", "created in no_grad mode") if words in text)
    return f"written {x.tolist()}"


@pytest.mark.parametrize("view", VIEWS)
def test_writes_to_views(view: str) -> None:
    for name, write in WRITES.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = _outcome(torch, VIEWS[view], write, False)
            for ended in (False, True):
                for _ in range(3):  # the call that is new, and those that are known
                    assert _outcome(ft, VIEWS[view], write, ended) == expected, (view, name, ended)


def test_a_known_write_to_another_view() -> None:
    """A write that is known for a view that may be written to is refused to one that may not, at the same place of the program."""

    def step(make: Callable[[Any], Any]) -> Any:
        x = ft.ones(2, 2, requires_grad=True) * 2
        v = make(x)
        v.tolist(), x.tolist()  # the view is an input of the next trace
        v.mul_(3.0)
        return x.sum()

    for _ in range(4):
        step(lambda x: x[0]).backward()
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"Output 0 of UnbindBackward0 is a view .* returns multiple views"):
            step(lambda x: x.unbind()[0])
    step(lambda x: x[0]).backward()
