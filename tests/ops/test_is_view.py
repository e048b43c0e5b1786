"""Which results are views, and that `detach_()` refuses them, beside PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import flambeau as ft

torch = pytest.importorskip("torch")
MADE: tuple[Callable[[Any], Any], ...] = (
    lambda t: t[:], lambda t: t[1:], lambda t: t[0], lambda t: t[None], lambda t: t.view(6), lambda t: t.reshape(6), lambda t: t.reshape(2, 3), lambda t: t * 1,
    lambda t: t.mT, lambda t: t.T, lambda t: t.mT.contiguous(), lambda t: t.mT.reshape(6), lambda t: t.detach(), lambda t: t.detach()[:], lambda t: t.data[1:],
    lambda t: t.expand(2, 2, 3), lambda t: t.contiguous(), lambda t: t.flatten(), lambda t: t.squeeze(), lambda t: t.chunk(2)[0], lambda t: t.unbind()[1],
    lambda t: t.split(1)[0], lambda t: t.real, lambda t: t.narrow(0, 0, 2), lambda t: t.unfold(0, 2, 1), lambda t: t.diagonal(), lambda t: t.tril(),
    lambda t: t.as_strided((2,), (1,)), lambda t: t.movedim(0, 1), lambda t: t.ravel(), lambda t: t.to(t.dtype), lambda t: t.double(), lambda t: t.clone(),
    lambda t: t.unsqueeze(0), lambda t: t.swapaxes(0, 1), lambda t: t.mH, lambda t: +t, lambda t: t.sum(), lambda t: t.max(0)[0], lambda t: t.softmax(1),
)  # fmt: skip


@pytest.mark.parametrize("how", ("values", "leaf", "result"))
def test_views(how: str) -> None:
    for number, make in enumerate(MADE):
        for looked in range(6):  # recorded, learned, at once and in native code
            found = []
            for m in (ft, torch):
                t = m.arange(6.0).reshape(2, 3).clone()
                t = t if how == "values" else t.requires_grad_() if how == "leaf" else t.requires_grad_() * 2
                if looked % 2:
                    t.sum().item()
                made = make(t)
                if looked > 2:
                    made.sum().item()
                refused = False
                try:
                    made.detach_()
                except RuntimeError as error:
                    refused = "Can't detach views in-place" in str(error)
                found.append((made._is_view(), refused))
            assert found[0] == found[1], (number, looked)
