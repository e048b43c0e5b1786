"""Edges of arguments beside PyTorch: dims without elements, numbers beyond the dtype, factors of zero over infinities, views that are detached in place."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flambeau

torch = pytest.importorskip("torch")


def outcome(call: Callable[[Any], Any], m: Any) -> str:
    """The values of a call, or the type of its error."""
    try:
        return repr(call(m))
    except (RuntimeError, IndexError, NotImplementedError, OverflowError, TypeError, ValueError, AssertionError) as error:
        return next(kind.__name__ for kind in (NotImplementedError, IndexError, RuntimeError, type(error)) if isinstance(error, kind))


def agree(call: Callable[[Any], Any], text: str) -> None:
    ours, theirs = outcome(call, flambeau), outcome(call, torch)
    assert ours == theirs, f"{text}: {ours}, PyTorch {theirs}"


# -- searches ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["median", "nanmedian", "mode", "kthvalue", "cummax", "cummin", "max", "min", "sort", "topk"])
def test_dims_without_elements(name: str) -> None:
    def shapes(m: Any, shape: tuple[int, ...], arguments: tuple[int, ...]) -> Any:
        found = getattr(m, name)(m.ones(shape), *arguments)
        return [tuple(t.shape) for t in found] if isinstance(found, tuple) else tuple(found.shape)

    for shape, dim in itertools.product([(), (0,), (2, 0), (0, 3), (2, 3)], [-1, 0, 1]):
        if name in ("cummax", "cummin") and dim >= max(len(shape), 1) and 0 in shape:
            continue  # PyTorch takes any dim there
        arguments = (1, dim) if name in ("kthvalue", "topk") else (dim,)
        agree(lambda m, s=shape, a=arguments: shapes(m, s, a), f"{name} of {shape} over {dim}")


# -- numbers ----------------------------------------------------------------------------------------------------------
NUMBERS: dict[str, Callable[[Any, float], Any]] = {
    "hardshrink": lambda m, n: m.nn.functional.hardshrink(m.ones(2), n), "softshrink": lambda m, n: m.nn.functional.softshrink(m.ones(2), abs(n)),
    "logit": lambda m, n: m.logit(m.ones(2), n), "addmm": lambda m, n: m.addmm(m.ones(2, 2), m.ones(2, 2), m.ones(2, 2), alpha=n),
    "addmm beta": lambda m, n: m.addmm(m.ones(2, 2), m.ones(2, 2), m.ones(2, 2), beta=n),
    "addr": lambda m, n: m.addr(m.ones(1, 2), m.ones(1), m.ones(2), alpha=n),
    "addmv": lambda m, n: m.addmv(m.ones(2), m.ones(2, 2), m.ones(2), alpha=n), "linspace": lambda m, n: m.linspace(0, n, 3),
    "baddbmm": lambda m, n: m.baddbmm(m.ones(1, 2, 2), m.ones(1, 2, 2), m.ones(1, 2, 2), alpha=n), "logspace": lambda m, n: m.logspace(0, n, 3),
    "addbmm": lambda m, n: m.addbmm(m.ones(2, 2), m.ones(1, 2, 2), m.ones(1, 2, 2), alpha=n), "full": lambda m, n: m.full((2,), n),
}  # fmt: skip


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_beyond_float32(name: str) -> None:
    for n in (1e300, -1e300, 3.5e38, 1e39):
        agree(lambda m, n=n: NUMBERS[name](m, n).tolist(), f"{name} {n}")


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
@pytest.mark.parametrize("size", [2, 32])
def test_a_product_times_zero(dtype: str, size: int) -> None:
    """BLAS does not read what is multiplied by 0; what does not go to it has NaN."""

    def product(m: Any, name: str, value: float) -> Any:
        a, b = (m.full((size, size), v, dtype=getattr(m, dtype)) for v in (value, 1.0))
        given = {"addmm": (b, a, b), "addmv": (b[0], a, b[0]), "addbmm": (b, a[None], b[None]), "baddbmm": (b[None], a[None], b[None]), "addr": (b, a[0], b[0])}
        found = getattr(m, name)(*given[name], alpha=0).reshape(-1)[0].item()
        return found == found

    for name, value in itertools.product(["addmm", "addmv", "addbmm", "baddbmm", "addr"], [1.0, math.inf, math.nan]):
        agree(lambda m, a=name, v=value: product(m, a, v), f"{name} of {value}")


# -- losses -----------------------------------------------------------------------------------------------------------
LOSSES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "binary_cross_entropy": lambda F, x, w: F.binary_cross_entropy(x, x, weight=w),
    "with logits": lambda F, x, w: F.binary_cross_entropy_with_logits(x, x, weight=w),
    "with logits, pos_weight": lambda F, x, w: F.binary_cross_entropy_with_logits(x, x, pos_weight=w),
    "soft_margin_loss": lambda F, x, w: F.soft_margin_loss(x, w), "triplet_margin_loss": lambda F, x, w: F.triplet_margin_loss(x, w, x),
    **{f"cosine_embedding_loss {n}D": lambda F, x, w, n=n: F.cosine_embedding_loss(x, w, x.new_ones((2,) * n)) for n in range(3)},
}  # fmt: skip


@pytest.mark.parametrize("name", LOSSES)
def test_losses_of_operands_that_do_not_fit(name: str) -> None:
    """What is larger than the loss, or of another kind, is refused where PyTorch multiplies in place; what broadcasts is taken."""

    def accepted(m: Any, shape: tuple[int, ...], other: tuple[int, ...], dtype: str) -> bool:
        LOSSES[name](m.nn.functional, m.full(shape, 0.5), m.ones(other).to(getattr(m, dtype)))
        return True

    for shape, other in itertools.product([(2, 3), (3,), ()], [(2, 3), (3,), (1, 3), (2, 1), (), (4, 2, 3), (1, 2, 3)]):
        agree(lambda m, s=shape, o=other: accepted(m, s, o, "float32"), f"{name} {shape} {other}")
    for dtype in ("int64", "bool", "complex64", "float64"):
        if "weight" in name or "entropy" in name:
            agree(lambda m, d=dtype: accepted(m, (3,), (3,), d), f"{name} {dtype}")


def test_connectionist_losses_of_lengths_that_do_not_fit() -> None:
    def loss(m: Any, case: dict[str, Any]) -> float:
        given: dict[str, Any] = {"targets": (2, 2), "times": (4, 4), "sizes": (2, 2), "blank": 0, "dtype": "float32", "labels": "int64", **case}
        log_probs = m.ones((4, 2, 3), dtype=getattr(m, given["dtype"])).log()
        targets = m.ones(given["targets"], dtype=getattr(m, given["labels"]))
        return float(m.nn.functional.ctc_loss(log_probs, targets, given["times"], given["sizes"], given["blank"]) > 0)

    changes: list[dict[str, Any]] = [
        *[{"targets": shape} for shape in [(), (0,), (3,), (4,), (5,), (3, 2), (2, 1), (2, 3), (2, 2, 1)]],
        *[{"times": t} for t in [(5, 4), (-1, 4), (4,), (4.0, 4), 4, None]],
        *[{"sizes": t} for t in [(3, 2), (-1, 2), (2,), (1, 1), ("a", 2)]],
        *[{"blank": n} for n in (-1, 3, 2)], *[{"dtype": d} for d in ("int64", "float16", "float64")],
        {"labels": "float32"}, {"labels": "bool"},
    ]  # fmt: skip
    for case in changes:
        agree(lambda m, c=case: loss(m, c), f"ctc_loss {case}")


# -- detach_ ----------------------------------------------------------------------------------------------------------
VIEWS: dict[str, Callable[[Any, Any], Any]] = {
    "slice": lambda m, x: x[1:], "column": lambda m, x: x.view(2, 2)[:, 1], "step": lambda m, x: x[::2], "expanded": lambda m, x: x.expand(2, 4),
    "diagonal": lambda m, x: x.view(2, 2).diagonal(), "unfolded": lambda m, x: x.unfold(0, 2, 1), "real": lambda m, x: m.view_as_complex(x.view(2, 2)).imag,
    "detached": lambda m, x: x.detach(), "a detached slice": lambda m, x: x[1:].detach(), "data": lambda m, x: x.data, "a copy": lambda m, x: x[1:].clone(),
    "indexed": lambda m, x: x[[1, 2]], "a parameter": lambda m, x: m.nn.Parameter(x.detach()[1:]), "itself": lambda m, x: x,
}  # fmt: skip


@pytest.mark.parametrize("name", VIEWS)
def test_detach_of_views(name: str) -> None:
    for history in (False, True):

        def detached(m: Any, history: bool = history) -> Any:
            x = m.ones(4, requires_grad=history) * 2
            return VIEWS[name](m, x).detach_().requires_grad

        agree(detached, f"{name} {history}")


# -- assert_close -----------------------------------------------------------------------------------------------------
def test_numbers_of_numpy_are_numbers() -> None:
    values = [1, 1.0, 1j, np.float64(1), np.float32(1), np.int64(1), np.complex128(1), np.array(1.0), np.array([1.0])]
    for a, b in [*itertools.product(values, values), *itertools.product([True, np.bool_(True)], [True, False, np.bool_(True)])]:
        agree(lambda m, a=a, b=b: m.testing.assert_close(a, b), f"{a!r} {type(a)} and {b!r} {type(b)}")
        agree(lambda m, a=a, b=b: m.testing.assert_close([a], [b], check_dtype=False), f"{a!r} {type(a)} and {b!r} {type(b)}, of any dtype")
