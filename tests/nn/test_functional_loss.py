"""Losses against PyTorch, in every reduction."""

from __future__ import annotations

import pytest

import flambeau
import flambeau.nn.functional as F
from tests.nn.oracle import compare, raises_as_torch, torch

TF = torch.nn.functional
REDUCTIONS = pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
TARGETS = torch.tensor([1, 0, -100, 2, 4])


def r(*shape):
    return torch.randn(*shape, requires_grad=True)


def check(name, *args, **kwargs):
    compare(getattr(F, name), getattr(TF, name), *args, **kwargs)


@REDUCTIONS
def test_cross_entropy(reduction):
    check("cross_entropy", r(5, 5), TARGETS, reduction=reduction)
    check("cross_entropy", r(5, 5), TARGETS, weight=torch.rand(5), reduction=reduction, label_smoothing=0.1)
    check("cross_entropy", r(5, 5), torch.rand(5, 5), weight=torch.rand(5), reduction=reduction, label_smoothing=0.1)
    check("cross_entropy", r(2, 5, 3), torch.randint(0, 5, (2, 3)), reduction=reduction, ignore_index=1, label_smoothing=0.2)
    check("cross_entropy", r(5), torch.tensor(3), reduction=reduction)
    check("nll_loss", r(5, 5), TARGETS, reduction=reduction)
    check("nll_loss", r(2, 5, 3, 4), torch.randint(0, 5, (2, 3, 4)), torch.rand(5), reduction=reduction)


@pytest.mark.parametrize("target", [[5], [-1]])
def test_class_out_of_range_is_detected(target):
    with pytest.raises(IndexError):
        F.cross_entropy(flambeau.randn(1, 5), flambeau.tensor(target)).item()


@REDUCTIONS
def test_binary(reduction):
    check("binary_cross_entropy", torch.rand(4, 3, requires_grad=True), torch.rand(4, 3), torch.rand(3), reduction=reduction)
    check("binary_cross_entropy", torch.tensor([0.0, 1.0, 0.5]), torch.rand(3), reduction=reduction)
    name = "binary_cross_entropy_with_logits"
    check(name, r(4, 3), torch.rand(4, 3), torch.rand(3), reduction=reduction, pos_weight=torch.rand(3))
    check(name, torch.tensor([200.0, -200.0], requires_grad=True), torch.tensor([0.0, 1.0]), reduction=reduction)


@REDUCTIONS
@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "poisson_nll_loss"])
def test_regression(name, reduction):
    check(name, r(4, 3), torch.randn(4, 3) * 2, reduction=reduction)


@REDUCTIONS
def test_divergences(reduction):
    check("kl_div", r(4, 3), TF.softmax(torch.randn(4, 3), 1), reduction=reduction)
    check("kl_div", r(4, 3), torch.randn(4, 3), reduction=reduction, log_target=True)
    check("poisson_nll_loss", r(4, 3), torch.rand(4, 3) * 5, full=True, reduction=reduction)
    check("gaussian_nll_loss", r(4, 3), r(4, 3), torch.rand(4, 3, requires_grad=True), full=True, reduction=reduction)


def test_batchmean():
    check("kl_div", r(4, 3), TF.softmax(torch.randn(4, 3), 1), reduction="batchmean")


@REDUCTIONS
def test_margins(reduction):
    signs = torch.tensor([1.0, -1, 1, -1])
    check("hinge_embedding_loss", r(4), signs, reduction=reduction)
    check("margin_ranking_loss", r(4), r(4), signs, 0.3, reduction=reduction)
    check("soft_margin_loss", r(4), signs, reduction=reduction)
    check("cosine_embedding_loss", r(4, 3), r(4, 3), signs, 0.1, reduction=reduction)
    check("multi_margin_loss", r(4, 3), torch.tensor([0, 1, 2, 1]), 2, weight=torch.rand(3), reduction=reduction)
    check("multilabel_margin_loss", r(2, 4), torch.tensor([[3, 0, -1, 1], [2, -1, 0, 0]]), reduction=reduction)
    check("multilabel_soft_margin_loss", r(4, 3), torch.rand(4, 3).round(), torch.rand(3), reduction=reduction)
    check("triplet_margin_loss", r(4, 3), r(4, 3), r(4, 3), reduction=reduction, swap=True)


@REDUCTIONS
def test_ctc(reduction):
    def through_softmax(function):
        return lambda x, *args, **kwargs: function(x.log_softmax(2), *args, **kwargs)

    logits = torch.randn(12, 3, 5, requires_grad=True)
    args = (torch.randint(1, 5, (3, 4)), torch.tensor([12, 10, 9]), torch.tensor([4, 3, 2]))
    compare(through_softmax(F.ctc_loss), through_softmax(TF.ctc_loss), logits, *args, reduction=reduction, tolerance=1e-4)


@REDUCTIONS
@pytest.mark.parametrize("zero_infinity", [False, True])
@pytest.mark.parametrize("steps", [[0, 0, 0], [0, 1, 1], [2, 0, 1]])
def test_ctc_of_no_steps(reduction, zero_infinity, steps):
    """Labels that no step can give are infinitely unlikely."""
    for labels in ([0, 0, 0], [1, 1, 1], [0, 1, 2]):
        args = (torch.tensor([[1, 2], [3, 4], [2, 1]], dtype=torch.int32), torch.tensor(steps), torch.tensor(labels))
        found = []
        for library in (torch, flambeau):
            x = library.tensor([[[0.5] * 5] * 3] * 2).log_softmax(2).detach().requires_grad_()
            given = [library.tensor(a.numpy()) for a in args]
            loss = library.nn.functional.ctc_loss(x, *given, reduction=reduction, zero_infinity=zero_infinity)
            loss.sum().backward()
            found.append(loss.detach().flatten().tolist() + x.grad.flatten().tolist())
        assert found[1] == pytest.approx(found[0], rel=1e-5, abs=1e-6, nan_ok=True), labels


@pytest.mark.parametrize(
    ("name", "args", "part"),
    [
        ("cross_entropy", (torch.randn(3, 5), torch.randint(0, 5, (4,))), "batch_size (3)"),
        ("cross_entropy", (torch.randn(3, 5, 2), torch.randint(0, 5, (3,))), "[3, 2], got [3]"),
        ("binary_cross_entropy", (torch.rand(3, 5), torch.rand(3)), "different to the input size"),
        ("binary_cross_entropy_with_logits", (torch.rand(3, 5), torch.rand(3)), "must be the same as input size"),
    ],
)
def test_error_texts(name, args, part):
    assert part in raises_as_torch(getattr(F, name), getattr(TF, name), *args)


def test_broadcast_warns():
    with pytest.warns(UserWarning, match="different to the input size"):
        F.mse_loss(flambeau.randn(3, 1), flambeau.randn(3))
