"""Forms of calls that PyTorch's samples reach only now and then: `out=` tensors, NaN in bounds and grids, 16 bits, wrong arguments."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

import flambeau as ft

torch = pytest.importorskip("torch")

FACTORIES: dict[str, Callable[[Any, Any], Any]] = {
    "linspace": lambda m, out: m.linspace(0, 1, 3, out=out), "logspace": lambda m, out: m.logspace(0, 1, 3, out=out),
    "eye": lambda m, out: m.eye(3, out=out), "quantile": lambda m, out: m.quantile(m.arange(4.0), m.tensor([0.25, 0.5]), out=out),
    "nanquantile": lambda m, out: m.nanquantile(m.arange(4.0), 0.5, out=out), "histc": lambda m, out: m.histc(m.arange(4.0), bins=3, out=out),
    "tensordot": lambda m, out: m.tensordot(m.ones(2, 3), m.ones(3, 2), 1, out=out), "norm": lambda m, out: m.norm(m.ones(2, 2), "nuc", out=out),
    "alias_copy": lambda m, out: m.alias_copy(m.ones(2), out=out), "aminmax": lambda m, out: m.aminmax(m.arange(4.0), out=(out, m.empty(0)))[0],
    "add": lambda m, out: m.add(m.ones(2, 2), 1, out=out), "max": lambda m, out: m.max(m.arange(4.0), out=out),
}  # fmt: skip


@pytest.mark.parametrize("name", FACTORIES)
def test_out_holds_the_result(name: str) -> None:
    answers = []
    for m in (ft, torch):
        out = m.empty(0)
        result = FACTORIES[name](m, out)
        assert result is out
        answers.append(result)
    assert answers[0].shape == answers[1].shape
    assert answers[0].flatten().tolist() == pytest.approx(answers[1].flatten().tolist())


@pytest.mark.parametrize("m", [ft, torch], ids=["flambeau", "torch"])
def test_out_of_another_shape_is_resized_with_a_warning(m: Any) -> None:
    out = m.ones(5)
    with pytest.warns(UserWarning, match="An output with one or more elements was resized since it had shape"):
        m.add(m.ones(2, 2), 1, out=out)
    assert out.tolist() == [[2, 2], [2, 2]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        m.add(m.ones(2, 2), 1, out=m.empty(0))


@pytest.mark.parametrize("m", [ft, torch], ids=["flambeau", "torch"])
def test_out_of_another_dtype(m: Any) -> None:
    x = m.ones(2, 2)
    assert m.add(x, 1, out=m.empty(2, 2, dtype=m.float64)).dtype is m.float64
    for call in (lambda: m.mm(x, x, out=m.empty(2, 2, dtype=m.float64)), lambda: m.floor(x, out=m.empty(2, 2, dtype=m.float64))):
        with pytest.raises(RuntimeError, match="dtype"):
            call()
    with pytest.raises(RuntimeError, match="cast"):
        m.add(x, 1, out=m.empty(2, 2, dtype=m.int64))
    with pytest.raises(TypeError, match="cast"):
        m.cat([x, x], out=m.empty(4, 2, dtype=m.int64))
    with pytest.raises(RuntimeError, match="single memory location"):
        m.add(x, 1, out=m.empty(1, 1).expand(2, 2))


def test_out_may_overlap_the_input() -> None:
    memory = ft.arange(12.0)
    ft.mm(memory[:4].view(2, 2), memory[:4].view(2, 2), out=memory[1:5].view(2, 2))  # PyTorch reads what it has written
    assert memory.tolist() == [0, 2, 3, 6, 11, *range(5, 12)]
    ft.cumsum(memory[:4:2], 0, out=memory[1:5:2])
    assert memory.tolist() == [0, 0, 3, 3, 11, *range(5, 12)]


def test_nan_is_a_bound_and_a_place() -> None:
    nan, inf = float("nan"), float("inf")
    for m in (ft, torch):
        bounded = m.clamp(m.tensor([1.0, 2.0, 3.0]), m.tensor([nan, 0.0, 5.0]))
        assert str(bounded.tolist()) == "[nan, 2.0, 5.0]"
        assert m.tensor([nan, 1.0]).isreal().tolist() == [True, True]
        assert m.angle(m.tensor([inf, -inf])).tolist() == pytest.approx([0, 3.14159265])
        assert m.mvlgamma(m.tensor(inf), 2).item() == inf
        grid = m.tensor([[[[nan, 0.0], [inf, 0.0], [0.0, 0.0]]]])
        sampled = m.nn.functional.grid_sample(m.ones(1, 1, 3, 3), grid, mode="nearest", align_corners=True)
        assert sampled.flatten().tolist() == [0, 0, 1]
        with pytest.raises(RuntimeError, match="positive-definite"):
            m.linalg.cholesky(m.full((2, 2), nan))


@pytest.mark.parametrize("name", ["sinc", "polygamma", "xlogy"])
@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_compositions_of_16_bits_round_once(name: str, kind: str) -> None:
    calls = {
        "sinc": lambda m, x: m.sinc(x), "polygamma": lambda m, x: m.polygamma(2, x), "xlogy": lambda m, x: m.xlogy(x, x),
    }  # fmt: skip
    got, exact = (calls[name](m, (m.arange(1, 60, dtype=m.float32) / 4).to(getattr(m, kind))) for m in (ft, torch))
    gap = (torch.tensor(got.double().tolist(), dtype=torch.float64) - exact.double()).abs() / exact.double().abs().clamp(min=1e-3)
    assert gap.nan_to_num().max() <= (2**-7 if kind == "bfloat16" else 2**-9)


def test_gradients_at_borders() -> None:
    slopes = []
    for m in (ft, torch):
        x = m.tensor([1.0, 0.5], requires_grad=True)
        y = m.tensor([[[[-1.0, 0.0], [1.0, 0.5]]]], requires_grad=True)
        loss = m.nn.functional.hinge_embedding_loss(x, m.tensor([-1.0, -1.0]), margin=1.0, reduction="sum")
        sample = m.nn.functional.grid_sample(m.arange(9.0).reshape(1, 1, 3, 3), y, padding_mode="border", align_corners=True)
        (loss + sample.sum()).backward()
        slopes.append((x.grad.tolist(), y.grad.flatten().tolist()))
    assert slopes[0] == slopes[1]


def test_errors_name_the_operation() -> None:
    x = ft.ones(2, 3)
    for call, error, text in (
        (lambda: ft.diagonal(x, dim1=7), IndexError, r"diagonal\(\): Dimension out of range"),
        (lambda: ft.eq(2, x), TypeError, r"eq\(\): argument 'input' \(position 1\) must be Tensor, not int"), (lambda: ft.cat([]), ValueError, "cat"),
        (lambda: ft.cat([x, None]), TypeError, "element 1"), (lambda: x.sum_to_size(2, 2), RuntimeError, "sum_to_size"),
        (lambda: ft.fft.fft(ft.tensor(1.0)), IndexError, "fft"), (lambda: ft.diff(x, n=-1), RuntimeError, "diff"),
    ):  # fmt: skip
        with pytest.raises(error, match=text):
            call()
    assert (1 - x).sum() == 0  # a number on the left of an operator is right
