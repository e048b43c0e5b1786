"""Which results are views, and that `detach_()` refuses them, beside PyTorch."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest

import flambeau as ft

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.usefixtures("short_collections")
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
                base = made._base
                kind = "none" if base is None else "t" if base is t else (tuple(base.shape), base.requires_grad, base.detach().reshape(-1).tolist())
                found.append((made._is_view(), refused, kind))
            assert found[0] == found[1], (number, looked)


@pytest.mark.parametrize("how", ("values", "leaf", "result", "leaf of an earlier trace", "of a view", "dropped"))
def test_bases_are_found_without_a_look_at_all_objects(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A base that lives is found where it usually is, and one that does not is looked for once."""
    looks = []
    referrers = gc.get_referrers
    monkeypatch.setattr(gc, "get_referrers", lambda *objects: (looks.append(1), referrers(*objects))[1])
    t = ft.arange(6.0).reshape(2, 3).clone()
    t = t.requires_grad_() if "leaf" in how else t.requires_grad_() * 2 if how == "result" else t
    if how == "leaf of an earlier trace":
        gc.collect()  # old now
    view = t[0][1:] if how == "of a view" else t[0]
    if how == "leaf of an earlier trace":
        view.sum().item()
        (ft.ones(2) + 1).sum().item()
    if how == "dropped":
        t.sum().item()
        del t
        for _ in range(3):
            assert view._base.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
        assert len(looks) <= 1
    else:
        assert view._base is t
        gc.collect()
        assert view._base is t
        assert looks == []


@pytest.mark.parametrize("how", [lambda t: t.mT, lambda t: t.movedim(0, 2), lambda t: t[:], lambda t: t.detach()[:].mT])
def test_a_base_that_is_gone_has_the_dims_of_its_memory(how: Callable[[Any], Any]) -> None:
    def layout(module: Any) -> tuple[Any, Any]:
        base = how(module.arange(24.0).reshape(2, 3, 4).clone())._base
        return tuple(base.shape), base.tolist()

    assert layout(ft) == layout(torch)


def test_views_of_one_memory_have_one_base_when_nobody_has_it() -> None:
    for m in (ft, torch):
        t = m.ones(1, 2, 3, 4).transpose(2, 3)
        assert t._base is t._base
        assert t.view(2, 4, 3)._base is t._base
        v = t.flatten(0, 1)
        v[0, 0, 0] = 0
        assert v._base is t._base is not t
        assert t[0, 0, 0, 0] == 0
