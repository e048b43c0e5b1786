"""Numbers that have no place in a dtype, beside PyTorch: refused by the same calls, with the same error, also where the call is known by then."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flambeau as ft

torch = pytest.importorskip("torch")

DTYPES = "float32 float64 float16 bfloat16 int64 int32 int8 uint8 bool complex64".split()
NUMBERS = (300, -1, 70000, 2**40, 1e300, float("inf"), float("nan"), 0.5, 1j, 1e5)
MASK = [[True, False], [False, True]]

Call = Callable[[Any, Any, Any], Any]
CALLS: dict[str, Call] = {
    "masked_fill": lambda m, x, n: x.masked_fill(m.tensor(MASK), n), "masked_fill_": lambda m, x, n: x.masked_fill_(m.tensor(MASK), n),
    "index_fill": lambda m, x, n: x.index_fill(0, m.tensor([0]), n), "scatter": lambda m, x, n: x.scatter(0, m.tensor([[0, 0]]), n),
    "scatter add": lambda m, x, n: x.scatter(0, m.tensor([[0, 0]]), n, reduce="add"), "scatter_": lambda m, x, n: x.scatter_(0, m.tensor([[0, 0]]), n),
    "where": lambda m, x, n: m.where(m.tensor(MASK), x, n), "where first": lambda m, x, n: m.where(m.tensor(MASK), n, x),
    "clamp": lambda m, x, n: x.clamp(0, n), "clamp max": lambda m, x, n: x.clamp(max=n), "clamp_min": lambda m, x, n: x.clamp_min(n),
    "clamp_": lambda m, x, n: x.clamp_(0, n), "threshold": lambda m, x, n: m.nn.functional.threshold(x, 1, n),
    "threshold at": lambda m, x, n: m.nn.functional.threshold(x, n, 1), "pad": lambda m, x, n: m.nn.functional.pad(x, (1, 1), value=n),
    "lerp": lambda m, x, n: m.lerp(x, x, n), "add": lambda m, x, n: m.add(x, x, alpha=n), "add_": lambda m, x, n: x.add_(x, alpha=n),
    "sub": lambda m, x, n: m.sub(x, x, alpha=n), "rsub": lambda m, x, n: m.rsub(x, x, alpha=n), "add number": lambda m, x, n: m.add(x, 1, alpha=n),
    "addmm": lambda m, x, n: m.addmm(x, x, x, alpha=n), "addmm beta": lambda m, x, n: m.addmm(x, x, x, beta=n),
    "addmv": lambda m, x, n: m.addmv(x[0], x, x[0], alpha=n), "addmv beta": lambda m, x, n: m.addmv(x[0], x, x[0], beta=n),
    "addr": lambda m, x, n: m.addr(x, x[0], x[0], alpha=n), "baddbmm": lambda m, x, n: m.baddbmm(x[None], x[None], x[None], beta=n),
    "addbmm": lambda m, x, n: m.addbmm(x, x[None], x[None], alpha=n), "addcmul": lambda m, x, n: m.addcmul(x, x, x, value=n),
    "addcdiv": lambda m, x, n: m.addcdiv(x, x, x, value=n), "plus": lambda m, x, n: x + n, "times": lambda m, x, n: x.mul_(n), "below": lambda m, x, n: x < n,
    "equal": lambda m, x, n: x == n, "pow": lambda m, x, n: x**n, "index_add": lambda m, x, n: x.index_add(0, m.tensor([0]), x[:1], alpha=n),
    "x[0] = n": lambda m, x, n: x.__setitem__(0, n), "x[mask] = n": lambda m, x, n: x.__setitem__(m.tensor(MASK), n), "fill_": lambda m, x, n: x.fill_(n),
    "full_like": lambda m, x, n: m.full_like(x, n), "full": lambda m, x, n: m.full((2,), n, dtype=x.dtype), "new_full": lambda m, x, n: x.new_full((2,), n),
    "leaky_relu": lambda m, x, n: m.nn.functional.leaky_relu(x, n), "elu": lambda m, x, n: m.nn.functional.elu(x, n),
    "celu": lambda m, x, n: m.nn.functional.celu(x, n), "hardtanh": lambda m, x, n: m.nn.functional.hardtanh(x, -1, n),
    "softplus": lambda m, x, n: m.nn.functional.softplus(x, n), "hardshrink": lambda m, x, n: m.nn.functional.hardshrink(x, n),
    "softshrink": lambda m, x, n: m.nn.functional.softshrink(x, n), "huber": lambda m, x, n: m.nn.functional.huber_loss(x, x, delta=n),
    "smooth": lambda m, x, n: m.nn.functional.smooth_l1_loss(x, x, beta=n), "arange": lambda m, x, n: m.arange(n - 2, n, 1, dtype=x.dtype),
    "linspace": lambda m, x, n: m.linspace(0, n, 3, dtype=x.dtype), "isin": lambda m, x, n: m.isin(x, n), "renorm": lambda m, x, n: x.renorm(2, 0, n),
    "logit": lambda m, x, n: m.logit(x, n), "uniform_": lambda m, x, n: x.uniform_(0, n), "normal_": lambda m, x, n: x.normal_(0, n),
}  # fmt: skip
# What is not compared, as (call, dtype, number); None: any. half of a number's error may be told by another type.
LEFT_OUT = {("linspace", "complex64", 1j), ("linspace", "bool", 1j)}


def came_to(m: Any, call: Call, kind: str, n: Any) -> str:
    """An error's type, or the dtype of the result."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = call(m, m.tensor([[1.0, 2.0], [3.0, 4.0]]).to(getattr(m, kind)), n)
            return str(made.dtype).replace("flambeau", "torch") if isinstance(made, m.Tensor) else "done"
    except Exception as error:
        return type(error).__name__


@pytest.mark.parametrize("name", CALLS)
def test_numbers_that_do_not_fit(name: str) -> None:
    compared = 0
    for kind in DTYPES:
        for n in NUMBERS:
            theirs, ours = (came_to(m, CALLS[name], kind, n) for m in (torch, ft))
            if (isinstance(n, complex) and kind == "float16") or (name, kind, n) in LEFT_OUT:  # which of complex32 there are is another test
                continue
            if theirs != ours and {theirs, ours} <= {"RuntimeError", "NotImplementedError", "TypeError"}:
                continue  # two faults: the dtype has no kernel, and the number does not fit
            assert ours == theirs, (name, kind, n)
            compared += 1
    assert compared > 50


KNOWN = ("masked_fill", "index_fill", "scatter", "where", "clamp max", "add", "rsub", "addmm", "addmv", "addcmul", "index_add", "lerp")


@pytest.mark.parametrize("looked_at", (False, True))  # recorded, and learned as an immediate call
@pytest.mark.parametrize("name", KNOWN)
def test_known_calls_look_at_their_numbers(name: str, looked_at: bool) -> None:
    call = CALLS[name]
    for kind, good, bad in (("float32", 2.5, 1e300), ("float32", 2.5, -1e39), ("int8", 3, 300), ("int8", 3, -129)):
        if name == "lerp" and kind == "int8":
            continue
        x, y = (m.tensor([[1.0, 2.0], [3.0, 4.0]]).to(getattr(m, kind)) for m in (ft, torch))
        wanted = [call(torch, y, n).double().numpy() for n in (good, good + 1)]
        pending = x * 2
        for _ in range(12):
            results = [call(ft, x, n) for n in (good, good + 1)]
            if looked_at:
                results[0][0, 0].item() if results[0].ndim == 2 else results[0][0].item()
        with pytest.raises(RuntimeError, match="without overflow"):
            call(ft, x, bad)
        results = [call(ft, x, n) for n in (good, good + 1)]
        for got, right in zip(results, wanted, strict=True):
            np.testing.assert_array_equal(got.double().numpy(), right)
        np.testing.assert_array_equal(pending.double().numpy(), (y * 2).double().numpy())
    if name not in ("scatter", "index_fill"):
        assert np.isinf(call(ft, ft.ones(2, 2), float("inf")).numpy()).any() or name in ("clamp max", "lerp")


def test_a_known_call_under_a_transform() -> None:
    batched = ft.vmap(lambda t: t.masked_fill(t > 1, 2.0))(ft.ones(2, 3))
    assert batched.shape == (2, 3)
    with pytest.raises(RuntimeError, match="without overflow"):
        ft.vmap(lambda t: t.masked_fill(t > 1, 1e300))(ft.ones(2, 3))
