"""What `cat` and `stack` put together is channels last where PyTorch's is: where all that they are given is."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as ft

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.usefixtures("short_collections")


def lists(m: Any) -> list[list[Any]]:
    x = m.arange(120.0).reshape(2, 3, 4, 5)
    last = x.to(memory_format=m.channels_last)
    one = m.ones(2, 1, 4, 5)
    volume = m.arange(240.0).reshape(2, 3, 2, 4, 5).to(memory_format=m.channels_last_3d)
    return [
        [last, last], [x, last], [last, x], [x, x], [last], [m.zeros(0), last], [one, last], [last, one.to(memory_format=m.channels_last)], [volume, volume],
        [last[:, :2], last], [x.permute(0, 2, 3, 1)] * 2, [last.double(), last], [last[0], last[0]], [m.ones(2, 3, 1, 1)] * 2, [last[:, :, ::2]] * 2,
    ]  # fmt: skip


def test_strides_and_values_are_pytorchs() -> None:
    for _ in range(2):
        for ours, theirs in zip(lists(ft), lists(torch), strict=True):
            for name in ("cat", "stack"):
                for d in range(theirs[-1].ndim + 1):
                    try:
                        wanted = getattr(torch, name)(theirs, d)
                    except (RuntimeError, IndexError):
                        continue
                    found = getattr(ft, name)(ours, d)
                    assert found.stride() == wanted.stride(), (name, d, [t.stride() for t in theirs])
                    assert found.tolist() == wanted.tolist()
                    assert not found._is_view()


def test_gradients_follow_the_layout_of_what_was_given() -> None:
    for m in (ft, torch):
        a = lists(m)[0][0].clone().requires_grad_()
        (m.cat([a, a * 2], 1) ** 2 + m.stack([a, a], 1).sum()).sum().backward()
        assert a.grad.stride() == (60, 1, 15, 3)
        assert (a.grad - 10 * a - 480).abs().max().item() < 1e-3
