"""Full backward hooks of modules and tables of global hooks, beside PyTorch's."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest

import flambeau as ft

torch = pytest.importorskip("torch")
BOTH = (ft, torch)


def test_inputs_without_gradients_stay_without() -> None:
    found = []
    for m in BOTH:
        seen: list[Any] = []

        class Sums(m.nn.Module):  # type: ignore[misc, name-defined]
            def forward(self, *given: Any, seen: list[Any] = seen) -> Any:
                seen.append([t.requires_grad for t in given])
                return sum(t.sum() * (i + 1) for i, t in enumerate(given))

        x = m.ones(2, requires_grad=True)
        module = Sums()
        module.register_full_backward_hook(lambda module, gi, go, seen=seen: seen.append([None if g is None else g.tolist() for g in gi]))
        module(x, x.detach(), x).backward()
        found.append((seen, x.grad.tolist()))
    assert found[0] == found[1]


def test_no_input_with_a_gradient() -> None:
    for m in BOTH:
        linear = m.nn.Linear(2, 2)
        seen: list[Any] = []
        handle = linear.register_full_backward_hook(lambda module, gi, go, seen=seen: seen.append(gi))
        with pytest.warns(UserWarning, match="Full backward hook is firing when gradients are computed with respect to module outputs"):
            linear(m.ones(3, 2)).sum().backward()
        assert seen == [(None,)]
        handle.remove()
        linear.register_full_backward_hook(lambda module, gi, go, m=m: (m.ones(3, 2),))
        with pytest.warns(UserWarning), pytest.raises(RuntimeError, match="where no input requires gradient should always return None"):
            linear(m.ones(3, 2)).sum().backward()


def test_a_second_pass_does_not_come_through_the_outputs() -> None:
    found = []
    for m in BOTH:
        linear = m.nn.Linear(2, 2, bias=False)
        with m.no_grad():
            linear.weight.fill_(1)
        seen: list[Any] = []
        linear.register_full_backward_hook(lambda module, gi, go, seen=seen: seen.append([g.tolist() for g in gi]))
        x = m.ones(3, 2, requires_grad=True)
        (g,) = m.autograd.grad((linear(x) ** 2).sum(), x, create_graph=True)
        (g * g).sum().backward()
        found.append((seen, x.grad.tolist()))
    assert found[0] == found[1]


def test_another_table_in_the_place_of_a_global_one() -> None:
    for m in BOTH:
        tables = m.nn.modules.module
        seen: list[int] = []
        handle = m.nn.modules.module.register_module_forward_hook(lambda *_, seen=seen: seen.append(1))
        m.nn.Sigmoid()(m.ones(1))
        before = tables._global_forward_hooks
        assert handle.id in before and handle.hooks_dict_ref() is before
        tables._global_forward_hooks = OrderedDict()
        m.nn.Sigmoid()(m.ones(1))
        assert seen == [1] and not tables._global_forward_hooks_always_called
        tables._global_forward_hooks = before
        handle.remove()
        assert not before


def test_handles_of_ones_own_tables() -> None:
    for m in BOTH:
        hooks: Any = OrderedDict()
        marks: Any = OrderedDict()
        handle = m.utils.hooks.RemovableHandle(hooks, extra_dict=marks)
        hooks[handle.id] = marks[handle.id] = print
        with handle:
            assert handle.hooks_dict_ref() is hooks
        assert not hooks and not marks
