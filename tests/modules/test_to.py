"""`Module.to`: its forms, what fits none of them, and memory formats of parameters, beside PyTorch."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as ft

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.usefixtures("short_collections")


def forms(m: Any) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
    x, cpu = m.ones(2), m.device("cpu")
    return [
        ((cpu,), {}), (("cpu", m.float64), {}), (("cpu", None, True), {}), ((m.float64, True), {}), ((x.double(),), {}), ((x, True), {}), ((float,), {}),
        ((None,), {}),
        ((), {}), ((), {"device": "cpu", "dtype": m.float64, "non_blocking": True}), ((), {"tensor": x.double()}), ((), {"memory_format": m.channels_last}),
        (("cpu",), {"dtype": m.float16}), ((m.float64,), {"memory_format": m.channels_last}),
        ((cpu, True), {}), ((m.long,), {}), ((None, True), {}), ((cpu, m.long, True), {}), ((cpu,), {"dtype": m.long}), (([],), {}),
        (({},), {"non_blocking": True}),
        ((m.tensor(3),), {"non_blocking": True}), ((cpu, m.tensor(3)), {}), (("cpu", "cpu"), {}), (("cpu", True, True), {}), ((m.float32, m.float32), {}),
        ((m.float32, True, True), {}), ((x, 1.0), {}), ((m.float32, 1), {}), ((), {"foo": 1}), (("cpu",), {"device": "cpu"}),
        (("cpu", None, True, False, True), {}),
    ]  # fmt: skip


def test_forms_and_errors() -> None:
    for (args, kwargs), (their_args, their_kwargs) in zip(forms(ft), forms(torch), strict=True):
        said: list[Any] = []
        for m, a, k in ((ft, args, kwargs), (torch, their_args, their_kwargs)):
            net = m.nn.Sequential(m.nn.Conv2d(3, 4, 3), m.nn.Linear(2, 2))
            try:
                assert net.to(*a, **k) is net
                said.append([(str(p.dtype), p.stride()) for p in net.parameters()])
            except (TypeError, RuntimeError) as error:
                said.append(type(error).__name__)
        assert said[0] == said[1], (their_args, their_kwargs)


def test_a_network_that_is_channels_last_gives_what_is() -> None:
    for m in (ft, torch):
        net: Any = m.nn.Sequential(m.nn.Conv2d(3, 4, 3), m.nn.BatchNorm2d(4), m.nn.ReLU(), m.nn.Conv2d(4, 2, 1)).to(memory_format=m.channels_last)
        plain = m.nn.Sequential(m.nn.Conv2d(3, 4, 3), m.nn.BatchNorm2d(4), m.nn.ReLU(), m.nn.Conv2d(4, 2, 1))
        plain.load_state_dict(net.state_dict())
        x = m.rand(2, 3, 6, 6)
        assert net[0].weight.stride() == (27, 1, 9, 3) and net[0].weight.requires_grad and net[0].weight.is_leaf
        y = net(x)
        assert y.is_contiguous(memory_format=m.channels_last)
        assert m.allclose(y, plain(x), atol=1e-5)
        y.square().mean().backward()
        m.optim.SGD(net.parameters(), 0.1, momentum=0.9).step()
        assert net[0].weight.stride() == (27, 1, 9, 3) == net[0].weight.grad.stride()


def test_functions_that_draw_the_same_numbers_each_time() -> None:
    wrapper_set_seed = ft.testing._utils.wrapper_set_seed
    ft.manual_seed(1)
    after = ft.rand(2).tolist()
    ft.manual_seed(1)
    drawn = [wrapper_set_seed(ft.rand, 3).tolist() for _ in range(2)]
    assert drawn[0] == drawn[1] and ft.rand(2).tolist() == after
