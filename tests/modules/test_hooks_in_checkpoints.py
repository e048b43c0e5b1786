"""Hooks inside of checkpointed functions are called once, with PyTorch's gradients, and what they give back counts once."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import pytest

import flambeau

torch = pytest.importorskip("torch")

HOOKS = "none forward prehook changing backward changed_backward parameter accumulated tensor changed_tensor retained result argument closure".split()


def _trained(module: Any, hook: str, reentrant: bool) -> tuple[list[Any], list[float]]:
    log: list[Any] = []
    checkpoint = importlib.import_module(f"{module.__name__}.utils.checkpoint").checkpoint
    module.manual_seed(0)
    first, second = module.nn.Linear(3, 4), module.nn.Linear(4, 2)

    def note(kind: str, g: Any) -> None:
        log.append((kind, None if g is None else round(float(g.sum()), 3)))

    if hook == "forward":
        first.register_forward_hook(lambda m, given, made: note("forward", made.detach()))
    elif hook == "prehook":
        first.register_forward_pre_hook(lambda m, given: note("prehook", given[0].detach()))
    elif hook == "changing":
        first.register_forward_hook(lambda m, given, made: made * 2)
    elif hook == "backward":
        first.register_full_backward_hook(lambda m, to, of: note("backward", of[0]))
    elif hook == "changed_backward":
        second.register_full_backward_hook(lambda m, to, of: (to[0] * 2,))
    elif hook == "parameter":
        first.weight.register_hook(lambda g: (note("parameter", g), g * 2)[1])
    elif hook == "accumulated":
        first.weight.register_post_accumulate_grad_hook(lambda p: note("accumulated", p.grad))
    x = module.ones(2, 3, requires_grad=True)
    held = x * 2
    if hook == "closure":
        held.register_hook(lambda g: (note("closure", g), g * 3)[1])

    def function(x: Any) -> Any:
        h = first(x) if hook != "closure" or reentrant else first(x) * held.sum()
        if h.requires_grad and hook == "tensor":
            h.register_hook(lambda g: note("tensor", g))
        if h.requires_grad and hook == "changed_tensor":
            h.register_hook(lambda g: g * 3)
        if h.requires_grad and hook == "retained":
            h.retain_grad()
        return second(h.relu())

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        y = checkpoint(function, x, use_reentrant=reentrant)
    if hook == "result":
        y.register_hook(lambda g: note("result", g))
    if hook == "argument":
        x.register_hook(lambda g: note("argument", g))
    (y * y).sum().backward()
    return log, [round(float(p.grad.sum()), 2) for p in (x, first.weight, first.bias, second.weight, second.bias)]


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("hook", HOOKS)
def test_hooks(hook: str, reentrant: bool) -> None:
    assert _trained(flambeau, hook, reentrant) == _trained(torch, hook, reentrant)
