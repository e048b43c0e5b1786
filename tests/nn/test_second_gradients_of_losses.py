"""Second gradients of every loss of nn.functional, with each reduction, beside PyTorch in float64."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import flambeau

torch = pytest.importorskip("torch")

NUMBERS = [0.3, -1.2, 0.8, 1.7, -0.4, 0.9, -2.1, 0.15, 1.1, -0.65, 0.55, 2.3]
SIGNS = [1.0, -1.0, -1.0, 1.0, 1.0, -1.0, 1.0, -1.0, 1.0, 1.0, -1.0, 1.0]
REDUCED = sorted(
    name for name, f in vars(torch.nn.functional).items() if inspect.isfunction(f) and "reduction" in inspect.signature(f).parameters and name[0] != "_"
)  # fmt: skip


def arguments(m: Any, name: str) -> tuple[list[Any], list[Any], dict[str, Any]]:
    """A loss's tensors that take gradients, what comes after them, and its options."""

    def numbers(shift: int, *shape: int) -> Any:
        return m.tensor(NUMBERS[shift:] + NUMBERS[:shift], dtype=m.float64).reshape(shape or (4, 3)).clone().requires_grad_()

    classes = m.tensor([0, 2, 1, 2])
    x, y = numbers(0), numbers(5)
    with m.no_grad():
        some = m.sigmoid(numbers(3))
    row = m.tensor([1.0, -1.0, -1.0, 1.0], dtype=m.float64)
    table: dict[str, tuple[list[Any], list[Any], dict[str, Any]]] = {
        "binary_cross_entropy": ([m.sigmoid(x).detach().requires_grad_(), some.clone().requires_grad_()], [some], {}),
        "binary_cross_entropy_with_logits": ([x, y], [some], {"pos_weight": some[0]}),
        "cosine_embedding_loss": ([x, y], [row], {"margin": 0.1}),
        "cross_entropy": ([x], [classes, some[0]], {"label_smoothing": 0.1}),
        "ctc_loss": ([numbers(0, 4, 1, 3)], [m.tensor([[1, 2]]), m.tensor([4]), m.tensor([2])], {}),
        "gaussian_nll_loss": ([x, y, (some + 0.5).requires_grad_()], [], {"full": True}),
        "hinge_embedding_loss": ([x], [m.tensor(SIGNS, dtype=m.float64).reshape(4, 3)], {}),
        "huber_loss": ([x, y], [], {"delta": 0.7, "weight": some}),
        "kl_div": ([x, some.clone().requires_grad_()], [], {}),
        "linear_cross_entropy": ([x, y], [m.tensor([0, 2, 1, 3])], {}),
        "margin_ranking_loss": ([x[:, 0].detach().requires_grad_(), y[:, 0].detach().requires_grad_()], [row], {"margin": 0.2}),
        "multi_margin_loss": ([x], [classes], {"p": 2, "weight": some[0]}),
        "multilabel_margin_loss": ([x], [m.tensor([[0, 2, -1], [1, -1, 0], [2, 1, 0], [-1, 0, 0]])], {}),
        "multilabel_soft_margin_loss": ([x], [some], {}),
        "nll_loss": ([x], [classes, some[0]], {}),
        "poisson_nll_loss": ([x, y], [], {}),
        "smooth_l1_loss": ([x, y], [], {"beta": 0.7}),
        "soft_margin_loss": ([x], [m.tensor(SIGNS, dtype=m.float64).reshape(4, 3)], {}),
        "triplet_margin_loss": ([x, y, numbers(8)], [], {"swap": True}),
        "triplet_margin_with_distance_loss": ([x, y, numbers(8)], [], {}),
    }
    return table.get(name, ([x, y], [], {"weight": some} if name in ("mse_loss", "l1_loss") else {}))


def second(m: Any, name: str, reduction: str) -> list[list[float]]:
    """The loss, its gradients and the gradients of their weighted sum, flat; zeros for none (PyTorch tells constant slopes by None or zeros)."""
    inputs, rest, options = arguments(m, name)
    loss = getattr(m.nn.functional, name)(*inputs, *rest, reduction=reduction, **options)
    weights = m.arange(1, loss.numel() + 1, dtype=m.float64).reshape(loss.shape)

    def slopes(of: Any, create: bool) -> list[Any]:
        found = m.autograd.grad(of, inputs, create_graph=create, allow_unused=True) if of.requires_grad else [None] * len(inputs)
        return [m.zeros_like(x) if g is None else g for x, g in zip(inputs, found, strict=True)]

    first = slopes((loss * weights).sum(), True)
    mixed = sum([(g * m.arange(2, g.numel() + 2, dtype=m.float64).reshape(g.shape).sqrt()).sum() for g in first])
    return [(t.detach() + m.zeros_like(t)).flatten().tolist() for t in (loss, *first, *slopes(mixed, False))]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", REDUCED)
def test_second_gradients(name: str) -> None:
    for reduction in ("none", "mean", "sum", *(["batchmean"] if name == "kl_div" else [])):
        try:
            expected = second(torch, name, reduction)
        except RuntimeError as error:
            assert "derivative" in str(error) or "not implemented" in str(error), error  # PyTorch has no second gradient: CTC's
            continue
        for ours, theirs in zip(second(flambeau, name, reduction), expected, strict=True):
            assert ours == pytest.approx(theirs, rel=1e-8, abs=1e-10), reduction  # binary_cross_entropy's slope there adds 1e-12
