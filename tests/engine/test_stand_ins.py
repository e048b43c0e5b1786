"""A thread records with what another one has pending in the middle of a call: values, gradients and flags are those of one thread, in both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import flambeau as ft
from flambeau.trace import elsewhere, stand_ins
from flambeau.trace.evaluate import end_traces_of_dead_threads
from flambeau.trace.tiers import MODE, PIECES, WHOLE
from tests.threads import Thread, join

Maker = Callable[[Any], Any]
PENDING: dict[str, Maker] = {  # what the thread has pending, made of a leaf of six elements
    "result": lambda x: x * 2, "view of a result": lambda x: (x * 2)[1:], "view of a leaf": lambda x: x[:4], "view of a view": lambda x: x.reshape(2, 3).t()[1],
    "written": lambda x: x.clone().mul_(3), "view that was written": lambda x: (x * 2)[2:].mul_(3), "observed before": lambda x: _observed(x * 2),
    "view of what was observed": lambda x: _observed(x * 2)[1:], "detached": lambda x: (x * 2).detach(), "leaf": lambda x: x.detach().mul(2).requires_grad_(),
    "conjugate": lambda x: ft.complex(x, x * 2).conj().imag,
}  # fmt: skip
USES: dict[str, Maker] = {  # what the other thread records with it
    "operation": lambda y: y * y, "view": lambda y: y[1:], "operation of a view": lambda y: y[1:] * 3, "twice": lambda y: y * 2 + y.exp(),
    "observed": lambda y: _observed(y.sin()) * 2, "observed view": lambda y: _observed(y[1:]) * 2, "gradient of its own": lambda y: _inner(y),
    "written copy": lambda y: y.clone().mul_(y),
}  # fmt: skip
AFTER: dict[str, Maker] = {  # what the first thread does with both, to get one number
    "both": lambda s: (s["z"] * 3).sum() + (s["y"] * s["y"]).sum(), "the other alone": lambda s: (s["z"] * 3).sum(),
    "the first alone": lambda s: (s["y"] * 3).sum(), "with the call": lambda s: (s["z"].sum() * s["w"]).sum() + s["y"].sum(),
}  # fmt: skip


def _observed(t: Any) -> Any:
    t.tolist()
    return t


def _inner(y: Any) -> Any:
    leaf = ft.ones(y.shape, requires_grad=True)
    (leaf * y.detach()).sum().backward()
    return y * leaf.grad


@pytest.fixture(autouse=True, params=(WHOLE, PIECES))
def tier(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """With little patience, so that what is tested here begins at once."""
    before, MODE[0] = MODE[0], request.param
    monkeypatch.setattr(elsewhere, "_PATIENCE_TO_RECORD", 0.01)
    monkeypatch.setattr(elsewhere, "_PATIENCE", 0.01)
    yield
    MODE[0] = before
    end_traces_of_dead_threads()


def _call(meanwhile: Callable[[], None]) -> Maker:
    """A custom function that calls `meanwhile` in the middle of its forward pass."""

    class Call(ft.autograd.Function):
        @staticmethod
        def forward(ctx: Any, t: Any) -> Any:
            meanwhile()
            return t * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2

    return Call.apply


def _in_a_thread(function: Callable[[], None]) -> None:
    thread = Thread(target=function)
    thread.start()
    join(thread)


def _scene(pending: str, use: str, after: str, apart: bool) -> list[Any]:
    """Numbers, gradients and flags; `apart`: what the second thread does is done by one."""
    x = ft.arange(1.0, 7.0).requires_grad_()
    s = {"x": x, "y": PENDING[pending](x)}

    def meanwhile() -> None:
        with ft.enable_grad():  # a custom function's forward pass records no gradients; another thread knows nothing of that
            s["z"] = USES[use](s["y"])

    s["w"] = _call((lambda: _in_a_thread(meanwhile)) if apart else meanwhile)(x)
    seen = [s["y"].requires_grad, s["z"].requires_grad, s["y"].is_leaf]
    loss = AFTER[after](s)
    if loss.requires_grad:
        loss.backward()
    return [*seen, *[s[name].tolist() for name in "yzw"], loss.item(), *[None if s[n].grad is None else s[n].grad.tolist() for n in "xy" if s[n].is_leaf]]


@pytest.mark.parametrize("pending", PENDING)
@pytest.mark.parametrize("use", USES)
def test_as_in_one_thread(pending: str, use: str) -> None:
    for after in AFTER:
        apart, together = _scene(pending, use, after, True), _scene(pending, use, after, False)
        for p, q in zip(apart, together, strict=True):  # a trace that ends elsewhere fuses otherwise, so the last bit may differ
            assert p == (pytest.approx(q, rel=1e-6) if isinstance(q, (list, float)) else q), after


def test_a_gradient_that_leads_into_the_call_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stand_ins, "GIVE_UP", 0.05)
    x = ft.ones(3, requires_grad=True)
    y = x * 2
    errors: list[str] = []

    def meanwhile() -> None:
        with pytest.raises(RuntimeError) as error:
            (y * 3).sum().backward()
        errors.append(str(error.value))

    _call(lambda: _in_a_thread(meanwhile))(x)
    assert "in the middle of a call" in errors[0]
    y.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [2, 2, 2]


def test_what_is_written_to_afterwards_cannot_be_followed() -> None:
    x = ft.ones(3, requires_grad=True)
    y = x * 2
    used: list[Any] = []
    _call(lambda: _in_a_thread(lambda: used.append(y * 3)))(x)
    y.mul_(5)
    with pytest.raises(RuntimeError, match="has written to it since"):
        used[0].sum().backward()
    assert used[0].tolist() == [6, 6, 6] and y.tolist() == [10, 10, 10] and y.requires_grad


def test_the_other_thread_writes() -> None:
    y = ft.ones(3) * 2
    _call(lambda: _in_a_thread(lambda: y.mul_(10)))(ft.ones(3, requires_grad=True))
    assert y.tolist() == [20, 20, 20]
