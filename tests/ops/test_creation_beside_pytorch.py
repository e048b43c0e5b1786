"""Errors, warnings and values of functions that make tensors, beside PyTorch: what its own tests of them ask for."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

import flambeau as ft

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.usefixtures("short_collections")
INF = float("inf")


def outcome(call: Callable[[Any], Any], m: Any) -> tuple[Any, list[str]]:
    """The values or the error of a call, and the beginnings of its warnings."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            found = call(m)
            result = repr(found.tolist()) if hasattr(found, "tolist") else found
        except Exception as e:
            result = next(k.__name__ for k in type(e).__mro__ if k.__module__ == "builtins")
    return result, [str(w.message)[:30] for w in told]


CALLS: tuple[Callable[[Any], Any], ...] = (
    lambda m: m.tensor([1, "a"]), lambda m: m.tensor(["a"]), lambda m: m.tensor("a"), lambda m: m.tensor([[1, 2], ["a", 3]]), lambda m: m.as_tensor([1, "a"]),
    lambda m: m.tensor((float("nan"), 0, -(2**63) - 1), dtype=m.bool), lambda m: m.tensor(2**70, dtype=m.bool), lambda m: m.tensor([2**70]),
    lambda m: m.tensor([1j, 0], dtype=m.bool),
    lambda m: float(m.tensor(1.5j)), lambda m: int(m.tensor(1.5j)), lambda m: int(m.tensor(2 + 0j)), lambda m: float(m.tensor([2 + 0j])),
    lambda m: m.meshgrid(indexing="ij"), lambda m: m.meshgrid(m.ones(1), m.ones(2).double(), indexing="ij"),
    lambda m: m.meshgrid(m.ones(1), m.ones(2, device="meta"), indexing="xy"),
    lambda m: m.empty(2).uniform_(-3e38, 3e38), lambda m: m.empty(2, dtype=m.float16).uniform_(-65000, 65000), lambda m: m.empty(2).uniform_(1, 0),
    lambda m: m.empty(2, dtype=m.float16).random_(-(2**13), 2**12).shape, lambda m: m.empty(2, dtype=m.bfloat16).random_(0, 2**12).shape,
    lambda m: m.empty(2).random_(-(2**30), 2**30).shape, lambda m: m.empty(2, dtype=m.float16).random_(-(2**17), 2**17).shape,
    lambda m: m.empty(2, dtype=m.float64).random_(-(2**30), 2**30).shape,
    lambda m: m.polar(m.ones(2).int(), m.ones(2).int()), lambda m: m.polar(m.ones(2), m.ones(2).double()), lambda m: m.complex(m.ones(2), m.ones(2).double()),
    lambda m: m.complex(m.ones(2).bfloat16(), m.ones(2).bfloat16()),
    lambda m: m.Tensor(m.ones(1), device="cpu"),
    lambda m: m.hann_window(3, dtype=m.int64), lambda m: m.bartlett_window(3, dtype=m.int64), lambda m: m.kaiser_window(3, dtype=m.int64),
    lambda m: m.kaiser_window(3, dtype=m.bfloat16).shape, lambda m: m.kaiser_window(-1),
    lambda m: m.empty(()).resize_([2, 4, 2**29, 2**29]), lambda m: m.empty(2, 4, 2**29, 2**29), lambda m: m.empty(()).resize_([0, 4, 2**61]),
    lambda m: m.logaddexp(*[m.tensor([1 + 1j, complex(INF, 0), complex(-INF, 2)], dtype=m.complex64)] * 2),
    lambda m: m.tensor_split(m.ones(4), m.tensor(1.1)), lambda m: m.tensor_split(m.ones(4), m.tensor([[1]])),
    lambda m: m.movedim(m.ones(2, 2), (0, 0), (0, 1)), lambda m: m.view_as_complex(m.ones(2, 2).T), lambda m: m.view_as_complex(m.ones(2, 2).int()),
)  # fmt: skip


@pytest.mark.parametrize("call", CALLS)
def test_results_errors_and_warnings(call: Callable[[Any], Any]) -> None:
    for _ in range(2):
        assert outcome(call, ft) == outcome(call, torch)


def test_warnings_that_are_given_once_are_given_always_if_that_is_wanted() -> None:
    mask, x = ft.tensor([1, 0], dtype=ft.uint8), ft.arange(2.0)
    try:
        ft.set_warn_always(True)
        assert ft.is_warn_always_enabled()
        for _ in range(2):
            with pytest.warns(UserWarning, match="required to pass the indexing argument") as told:
                ft.meshgrid(x, x)
            with pytest.warns(UserWarning, match="buffer is not writable") as also:
                ft.frombuffer(b"1234", dtype=ft.uint8)
            assert {w.filename for w in (*told, *also)} == {__file__}
    finally:
        ft.set_warn_always(False)
    ft.where(mask, x, x).tolist()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        ft.meshgrid(x, x)
        ft.frombuffer(b"1234", dtype=ft.uint8)
        ft.where(mask, x, x).tolist()
    assert not told


def test_the_sign_of_copysign_has_a_gradient_of_zeros() -> None:
    for first, second in ((ft.bfloat16, ft.float64), (ft.float32, ft.float32)):
        x, y = ft.ones(3, dtype=first, requires_grad=True), ft.tensor([-1.0, 0.0, 1.0], dtype=second, requires_grad=True)
        ft.copysign(x, y).sum().backward()
        assert x.grad is not None and y.grad is not None
        assert x.grad.tolist() == [-1, 1, 1] and y.grad.tolist() == [0, 0, 0] and y.grad.dtype is second


def test_an_operator_in_place_gives_the_other_operand_its_chance() -> None:
    class Other:
        def __radd__(self, other: Any) -> str:
            return "added"

        def __rpow__(self, other: Any) -> str:
            return "raised"

    for m in (ft, torch):
        x: Any = m.ones(2)
        x += Other()
        y: Any = m.ones(2)
        y **= Other()
        assert (x, y) == ("added", "raised")
        z: Any = m.ones(2)
        with pytest.raises(TypeError, match="unsupported operand type"):
            z += None
        with pytest.raises(TypeError):
            z.add_(None)
        assert z.tolist() == [1, 1]


def _aliases(t: Any) -> Any:
    class Made(t.Tensor):  # type: ignore[misc]
        def __new__(cls, data: Any) -> Any:
            return super().__new__(cls, data)

    x, bytes_ = t.ones(2, requires_grad=True), t.ones(2, dtype=t.uint8)
    found = []
    for made in (t.Tensor(x), Made(x), t.Tensor(x * 2), Made(Made(x)), t.Tensor(Made(x)), t.Tensor(bytes_), Made(bytes_), x.new(x * 2)):
        found.append((type(made).__name__, type(made.grad_fn).__name__, made.is_leaf, str(made.dtype).split(".")[1]))
    (t.Tensor(x) * Made(x)).sum().backward()
    for refused in (lambda: t.FloatTensor(bytes_), lambda: x.new(bytes_)):
        with pytest.raises(TypeError):
            refused()
    return found, x.grad.tolist(), t.Tensor(bytes_).data_ptr() == bytes_.data_ptr()


def test_a_tensor_of_a_tensor_is_its_alias() -> None:
    assert _aliases(ft) == _aliases(torch)
