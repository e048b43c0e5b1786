"""Products of 16 bits to which something is added: `linear`, `addmm` and their like round once, as PyTorch does; `x @ w + b` rounds twice.

Operands are small whole numbers, whose products have exact sums in float32: every order of the additions gives the same bits.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as ft

KINDS = ("bfloat16", "float16")


def whole(rows: int, columns: int, seed: int, kind: str) -> torch.Tensor:
    """Whole numbers whose sums of products leave the digits of their dtype, but not float32's."""
    drawn = torch.randint(-8, 9, (rows, columns), generator=torch.Generator().manual_seed(seed))
    return (drawn * (1 if kind == "bfloat16" else 32)).to(getattr(torch, kind))


def odd(shape: tuple[int, ...], seed: int, kind: str) -> torch.Tensor:
    """Numbers with all digits of their dtype."""
    return (torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 300).to(getattr(torch, kind))


def ours(x: torch.Tensor) -> Any:
    return ft.from_numpy(x.float().numpy()).to(getattr(ft, str(x.dtype).removeprefix("torch.")))


def agree(call: Any, *given_: torch.Tensor) -> torch.Tensor:
    """What `call` gives with PyTorch, once the same bits are what it gives here."""
    theirs: torch.Tensor = call(torch, *given_)
    found = call(ft, *map(ours, given_))
    assert str(found.dtype).split(".")[-1] == str(theirs.dtype).split(".")[-1]
    assert found.float().numpy().tolist() == theirs.float().numpy().tolist()
    return theirs


def linear(m: ModuleType, x: Any, w: Any, b: Any, *_: Any) -> Any:
    return m.nn.functional.linear(x, w, b)


CALLS: dict[str, Any] = {
    "linear": linear,
    "linear of three dims": lambda m, x, w, b, base: m.nn.functional.linear(x[None], w, b),
    "linear of a vector": lambda m, x, w, b, base: m.nn.functional.linear(x[0], w, b),
    "addmm": lambda m, x, w, b, base: m.addmm(base, x, w.t()),
    "addmm of a row": lambda m, x, w, b, base: m.addmm(b, x, w.t(), beta=0.5, alpha=0.25),
    "addmm_": lambda m, x, w, b, base: base.clone().addmm_(x, w.t()),
    "addmv": lambda m, x, w, b, base: m.addmv(base[:, 0].clone(), x, w[0].clone()),
    "baddbmm": lambda m, x, w, b, base: m.baddbmm(base[None], x[None], w.t()[None]),
    "a product and a sum": lambda m, x, w, b, base: x @ w.t() + b,
    "linear and gelu": lambda m, x, w, b, base: m.nn.functional.relu(m.nn.functional.linear(x, w, b)) * 2,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CALLS)
@settings(max_examples=8, deadline=None)
@given(st.sampled_from((1, 3, 17, 40, 70)), st.sampled_from((1, 8, 33, 64, 130)), st.sampled_from((1, 5, 16, 50, 97)), st.integers(0, 99))
def test_the_bits_are_pytorch_s(name: str, kind: str, m: int, k: int, n: int, seed: int) -> None:
    agree(CALLS[name], whole(m, k, seed, kind), whole(n, k, seed + 1, kind), odd((n,), seed, kind), odd((m, n), seed, kind))


@pytest.mark.parametrize("kind", KINDS)
def test_once_and_twice_differ(kind: str) -> None:
    """So that the test above can tell them apart."""
    x, w, b = whole(64, 200, 0, kind), whole(96, 200, 1, kind), odd((96,), 2, kind)
    once = (x.float() @ w.float().t() + b.float()).to(x.dtype)
    assert agree(linear, x, w, b).equal(once)
    assert not agree(CALLS["a product and a sum"], x, w, b, b).equal(once)


@pytest.mark.parametrize("kind", KINDS)
def test_an_input_that_is_not_contiguous_is_rounded_twice(kind: str) -> None:
    x, w, b = whole(64, 200, 0, kind), whole(96, 200, 1, kind), odd((96,), 2, kind)
    twice = agree(lambda m, x, w, b: m.nn.functional.linear(m.stack([x, x], 1)[:, 0][None], w, b), x, w, b)
    assert twice[0].equal((x.float() @ w.float().t()).to(x.dtype) + b)


@pytest.mark.parametrize("kind", KINDS)
def test_under_autocast(kind: str) -> None:
    def call(m: ModuleType, x: Any, w: Any, b: Any) -> Any:
        with m.autocast("cpu", dtype=getattr(m, kind)):
            return m.nn.functional.linear(x.float(), w.float(), b.float())

    agree(call, whole(64, 200, 0, kind), whole(96, 200, 1, kind), odd((96,), 2, kind))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("m", "k", "n"), [(64, 200, 96), (5, 1, 7), (1, 64, 64), (3, 0, 2)])
def test_gradients(kind: str, m: int, k: int, n: int) -> None:
    def call(t: ModuleType, x: Any, w: Any, b: Any, g: Any) -> Any:
        given_ = [v.clone().requires_grad_() for v in (x, w, b)]
        found = t.autograd.grad(t.nn.functional.linear(*given_), given_, g)
        assert [f.dtype for f in found] == [x.dtype] * 3
        return t.cat([f.flatten() for f in found[:2]])

    agree(call, whole(m, k, 0, kind), whole(n, k, 1, kind), odd((n,), 2, kind), whole(m, n, 3, kind))


@pytest.mark.parametrize("kind", KINDS)
def test_under_transforms(kind: str) -> None:
    """Under `vmap` as without it (PyTorch's `linear` rounds twice there); tangents in the dtype of their primals."""
    x, w, b = (ours(v) for v in (whole(24, 64, 0, kind), whole(40, 64, 1, kind), odd((40,), 2, kind)))
    plain = linear(ft, x, w, b)
    assert ft.equal(ft.func.vmap(lambda x: linear(ft, x, w, b))(x.reshape(4, 6, 64)).reshape(24, 40), plain)
    assert ft.equal(ft.func.vmap(lambda x, w: ft.addmm(b, x, w.t()))(x.reshape(4, 6, 64), w.expand(4, 40, 64)).reshape(24, 40), plain)
    found, tangents = ft.func.jvp(lambda x, w: linear(ft, x, w, b), (x, w), (x, w))
    assert ft.equal(found, plain) and tangents.dtype is getattr(ft, kind)
    assert ft.equal(tangents, (2 * (x.float() @ w.float().t())).to(x.dtype))
