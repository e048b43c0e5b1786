"""Wrong ranks, sizes and lengths of tuples: a share of the calls of wrong_shapes.py, and single cases with their words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import flambeau as ft
from tests.nn import wrong_shapes

torch = pytest.importorskip("torch")
SHARE = 5  # of the wrong calls of a line: `python -m tests.nn.wrong_shapes` makes all


@pytest.mark.parametrize("part", range(8))
def test_the_same_types_of_errors(part: int) -> None:
    lines = wrong_shapes.lines()[part::8]
    found = [
        shown for i, line in enumerate(lines) for wrong in list(wrong_shapes.wrong_calls(line))[i % SHARE :: SHARE] if (shown := wrong_shapes.difference(wrong))
    ]
    assert not found, "\n".join(found)


def test_every_function_is_called() -> None:
    named = {line.partition("(")[0] for line in wrong_shapes.lines()}
    unnamed = {  # helpers, functions without shapes of their own, forms of others in place
        "assert_int_or_pair", "boolean_dispatch", "handle_torch_function", "has_torch_function", "has_torch_function_unary", "has_torch_function_variadic",
        "grouped_mm", "scaled_mm", "scaled_grouped_mm", "linear_cross_entropy", "fractional_max_pool2d_with_indices", "fractional_max_pool3d_with_indices",
        "celu_", "elu_", "hardtanh_", "leaky_relu_", "relu_", "rrelu_", "selu_", "threshold_",
    }  # fmt: skip
    F = ft.nn.functional
    there = {n for n in dir(F) if not n.startswith("_") and callable(getattr(F, n)) and not isinstance(getattr(F, n), type)} & set(dir(torch.nn.functional))
    assert there - unnamed == named


def test_a_difference_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ft.nn.functional, "pdist", lambda x, p=2.0: x.sum())
    shown = [wrong_shapes.difference(wrong) for wrong in wrong_shapes.wrong_calls("pdist(t(4, 3))")]
    assert sum(s is not None for s in shown) > 5


ERRORS: dict[str, tuple[Callable[[Any, Any], Any], type[Exception], tuple[str, ...]]] = {
    "adaptive pooling": (lambda F, t: F.adaptive_avg_pool2d(t(1, 1, 4, 4), (2,)), RuntimeError, ("adaptive_avg_pool2d", "output_size", "[2]")),
    "adaptive pooling of nothing": (lambda F, t: F.adaptive_avg_pool2d(t(1, 1, 4, 0), 2), RuntimeError, ("adaptive_avg_pool2d", "[1, 1, 4, 0]")),
    "instance_norm": (lambda F, t: F.instance_norm(t(3)), ValueError, ("instance_norm", "[3]")),
    "unfold": (lambda F, t: F.unfold(t(2, 2), 1), IndexError, ("unfold", "[2, 2]")),
    "unfold's tuple": (lambda F, t: F.unfold(t(1, 1, 4, 4), (2,)), RuntimeError, ("unfold", "kernel_size", "[2]")),
    "fractional pooling": (lambda F, t: F.fractional_max_pool2d(t(1, 1, 4, 4), 2, output_ratio=(0.5,)), IndexError, ("fractional_max_pool2d", "output_ratio")),
    "mse_loss": (lambda F, t: F.mse_loss(t(2, 3), t(2, 3), weight=t(3)), ValueError, ("mse_loss", "(3,)", "(2, 3)")),
    "l1_loss": (lambda F, t: F.l1_loss(t(2, 3), t(2, 3), weight=t(2, 1)), ValueError, ("l1_loss", "(2, 1)", "(2, 3)")),
    "huber_loss": (lambda F, t: F.huber_loss(t(2, 3), t(2, 3), weight=t(())), ValueError, ("huber_loss", "()", "(2, 3)")),
    "max_unpool2d": (lambda F, t: F.max_unpool2d(t(1, 1, 2, 2), t(1, 1, 2, 2).long(), 2, (2,)), IndexError, ("max_unpool2d", "stride")),
    "attention": (lambda F, t: F.multi_head_attention_forward(t(4, 1, 2), t(3, 1, 2), t(2, 1, 2), 2, 1, t(6, 2), None, None, None, False, 0.0, t(2, 2), None),
                  AssertionError, ("key shape", "value shape")),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_words(name: str) -> None:
    call, kind, words = ERRORS[name]
    with pytest.raises(kind):
        call(torch.nn.functional, torch.ones)
    with pytest.raises(kind) as caught:
        call(ft.nn.functional, ft.ones)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def _one_value(w: Any) -> list[Any]:
    m, v = w.ones(3), w.ones(3)
    numbers = w.tensor([[2.0, -3.0, 4.0]])
    return [
        w.group_norm(numbers, 3, w.ones(3) * 2, w.arange(3.0)), w.batch_norm(numbers, w.ones(3), w.arange(3.0), m, v, True, 0.1, 1e-5, False), m, v,
        w.instance_norm(numbers[..., None], w.ones(3), w.arange(3.0), None, None, True, 0.1, 1e-5, False),
        w.instance_norm(numbers, None, None, None, None, True, 0.1, 1e-5, False), *w.native_group_norm(numbers, None, None, 1, 3, 1, 3, 1e-5),
        w.batch_norm(numbers.repeat(2, 1), None, None, m.abs(), w.ones(3), False, 0.1, -1e-5, False),
        w.batch_norm(numbers[:0], None, w.ones(3), m, v, True, 0.1, 0.0, False),
    ]  # fmt: skip


def test_native_normalisation_takes_one_value() -> None:
    """The check for several values is of nn.functional alone."""
    for _ in range(3):
        for ours, theirs in zip(_one_value(ft), _one_value(torch), strict=True):
            torch.testing.assert_close(torch.tensor(ours.tolist()).reshape(tuple(ours.shape)), theirs, rtol=1e-4, atol=1e-4, equal_nan=True)
