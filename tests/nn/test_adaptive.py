"""AdaptiveLogSoftmaxWithLoss and the cross entropy of a linear layer against PyTorch."""

from __future__ import annotations

import pytest

import flambeau
import flambeau.nn.functional as F
from tests.nn.oracle import close, compare, ours, raises_as_torch, torch

TF = torch.nn.functional


def r(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), requires_grad=True)


def pair(name, *arguments, **options):
    """The same module in both frameworks, with the same weights."""
    made = []
    for m in (flambeau, torch):
        m.manual_seed(2)
        made.append(getattr(m.nn, name)(*arguments, **options))
    assert list(made[0].state_dict()) == list(made[1].state_dict())
    return made


def test_adaptive_softmax():
    mine, theirs = pair("AdaptiveLogSoftmaxWithLoss", 8, 20, [4, 9, 15], 2.0, head_bias=True)
    assert repr(mine) == repr(theirs)
    target = torch.tensor([0, 19, 5, 3, 12, 16, 9])
    compare(mine, theirs, r(7, 8), target)
    for (name, a), (_, b) in zip(mine.named_parameters(), theirs.named_parameters(), strict=True):
        assert name in dict(theirs.named_parameters())
        close(a.grad, b.grad, 2e-5)
    compare(mine.log_prob, theirs.log_prob, r(7, 8).detach())
    assert mine.predict(ours(r(30, 8).detach())).tolist() == theirs.predict(r(30, 8)).tolist()
    compare(mine, theirs, r(8), torch.tensor(6), gradients=False)
    compare(mine, theirs, r(2, 8), torch.tensor([1, 2]))


def test_adaptive_softmax_errors():
    for cutoffs in ([], [3, 2], [0, 3], [3, 20], [2, 2], [1.5]):
        raises_as_torch(flambeau.nn.AdaptiveLogSoftmaxWithLoss, torch.nn.AdaptiveLogSoftmaxWithLoss, 8, 20, cutoffs)
    mine, theirs = pair("AdaptiveLogSoftmaxWithLoss", 8, 20, [4])
    for x, target in ((r(2, 8), [1, 20]), (r(2, 8), [-1, 2]), (r(2, 8), [1]), (r(8), [1, 2]), (r(2, 8), [[1, 2]]), (r(2, 8), 1)):
        raises_as_torch(mine, theirs, x, torch.tensor(target))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_linear_cross_entropy(reduction):
    def check(*arguments, **options):
        compare(F.linear_cross_entropy, TF.linear_cross_entropy, *arguments, reduction=reduction, **options)

    check(r(5, 4), r(7, 4), torch.tensor([0, 6, 2, 2, 1]), label_smoothing=0.1)
    check(r(5, 4), r(7, 4), torch.tensor([0, 6, 2, 2, 1]), ignore_index=2, weight=torch.rand(7), linear_bias=torch.rand(7))
    check(r(4), r(7, 4), torch.tensor(3))
    check(r(2, 4), r(7, 3, 2, 4), torch.randint(0, 7, (2, 3, 2)), linear_bias=torch.rand(7, 3, 2))
    check(r(5, 4), r(7, 4), torch.rand(5, 7))


def test_linear_cross_entropy_module():
    mine, theirs = pair("LinearCrossEntropyLoss", 4, 7, out_features=(3,), bias=True)
    assert repr(mine) == repr(theirs)
    compare(mine, theirs, r(2, 4), torch.randint(0, 7, (2, 3)))
    close(mine.linear.weight.grad, theirs.linear.weight.grad)


def test_linear_cross_entropy_errors():
    target = torch.tensor([1, 2])
    for x, weight, options in ((r(2, 2, 4), r(7, 4), {}), (r(2, 4), r(4), {}), (r(2, 4), r(7, 5), {}), (r(4), r(7, 3, 4), {}),
                               (r(2, 4), r(7, 4), {"linear_bias": torch.rand(3)})):  # fmt: skip
        raises_as_torch(F.linear_cross_entropy, TF.linear_cross_entropy, x, weight, target, **options)
    raises_as_torch(F.linear_cross_entropy, TF.linear_cross_entropy, r(2, 4), r(7, 4), torch.rand(2, 7), ignore_index=1)
    for options in ({"weight": torch.rand(3)}, {"label_smoothing": 2.0}):
        raises_as_torch(flambeau.nn.LinearCrossEntropyLoss, torch.nn.LinearCrossEntropyLoss, 4, 7, **options)
