"""Pooling of volumes, fractional and adaptive maxima, unpooling, and the older resampling names against PyTorch."""

from __future__ import annotations

import pytest

import flambeau
import flambeau.nn.functional as F
from tests.nn.oracle import compare, ours, raises_as_torch, torch

TF = torch.nn.functional


def r(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), requires_grad=True)


def check(name, *args, **kwargs):
    compare(getattr(F, name), getattr(TF, name), *args, **kwargs)


@pytest.mark.parametrize("ceil_mode", [False, True])
def test_volumes_with_indices(ceil_mode):
    check("max_pool3d", r(2, 2, 5, 7, 6), 3, 2, 1, 1, ceil_mode, True)
    check("max_pool3d", r(2, 5, 7, 6), (2, 3, 2), None, 0, (1, 1, 2), ceil_mode, True)
    check("lp_pool3d", torch.rand(1, 2, 5, 6, 7), 3, 2, None, ceil_mode)
    check("lp_pool2d", r(1, 2, 6, 7), float("inf"), 2, None, ceil_mode)


def test_equal_values_take_the_first():
    x = torch.zeros(1, 1, 4, 4, 4)
    x[0, 0, 1, 2, 0] = x[0, 0, 1, 1, 3] = 1.0
    check("max_pool3d", x, 3, 1, 1, 1, False, True)
    check("adaptive_max_pool3d", x, 3, True)
    samples = torch.tensor([[[0.3, 0.6, 0.9]]])
    check("fractional_max_pool3d", x, 2, 2, return_indices=True, _random_samples=samples)


@pytest.mark.parametrize("size", [3, (2, 3, 1), (None, 2, 4), (5, 4, 6)])
def test_adaptive_max_pool3d(size):
    check("adaptive_max_pool3d", r(2, 3, 5, 4, 6), size, True)
    check("adaptive_max_pool3d", r(3, 5, 4, 6), size)


def test_fractional():
    samples = torch.rand(2, 3, 2, generator=torch.Generator().manual_seed(1))
    check("fractional_max_pool2d", r(2, 3, 9, 8), 3, (4, 5), return_indices=True, _random_samples=samples)
    check("fractional_max_pool2d", r(2, 3, 9, 8), (2, 3), output_ratio=(0.5, 0.7), _random_samples=samples)
    check("fractional_max_pool2d", r(3, 9, 8), 2, 1, _random_samples=samples[:1])
    samples = torch.rand(2, 3, 3, generator=torch.Generator().manual_seed(2))
    check("fractional_max_pool3d", r(2, 3, 7, 9, 8), (2, 3, 2), (3, 4, 5), return_indices=True, _random_samples=samples)
    check("fractional_max_pool3d", r(3, 7, 9, 8), 2, output_ratio=0.5, _random_samples=samples[:1])


def test_fractional_draws_as_torch():
    x = r(2, 3, 9, 8)
    torch.manual_seed(5)
    flambeau.manual_seed(5)
    mine, theirs = (m.nn.FractionalMaxPool2d(3, output_ratio=0.5, return_indices=True) for m in (flambeau, torch))
    compare(mine, theirs, x)


def test_unpool():
    values, where = TF.max_pool3d(r(2, 2, 5, 7, 6), 2, return_indices=True)
    check("max_unpool3d", values.detach().requires_grad_(), where, 2, None, 0, (5, 7, 6))
    check("max_unpool3d", values.detach(), where, 2, None, 0, (2, 2, 5, 7, 6))
    for arguments in ((2, None, 0, (9, 7, 6)), (2, None, 0, (5, 7))):
        raises_as_torch(F.max_unpool3d, TF.max_unpool3d, values.detach(), where, *arguments)
    raises_as_torch(F.max_unpool3d, TF.max_unpool3d, values.detach(), where.int(), 2)
    raises_as_torch(F.max_unpool3d, TF.max_unpool3d, values.detach(), where[:1], 2)


@pytest.mark.filterwarnings("ignore:.*deprecated")
def test_older_resampling():
    check("upsample_nearest", r(1, 2, 3, 4), scale_factor=2)
    check("upsample_bilinear", r(1, 2, 3, 4), (5, 7))


def test_errors():
    x = r(1, 2, 5, 5)
    raises_as_torch(F.fractional_max_pool2d, TF.fractional_max_pool2d, x, 3)
    raises_as_torch(F.fractional_max_pool2d, TF.fractional_max_pool2d, x, 3, 4)
    raises_as_torch(F.adaptive_max_pool3d, TF.adaptive_max_pool3d, x[0], (1, 1, 1))
    for options in ({}, {"output_size": 2, "output_ratio": 0.5}, {"output_ratio": 1.5}):
        raises_as_torch(flambeau.nn.FractionalMaxPool3d, torch.nn.FractionalMaxPool3d, 2, **options)


@pytest.mark.parametrize(("name", "arguments"), [("AdaptiveMaxPool3d", (2,)), ("LPPool3d", (2, 2)), ("MaxUnpool3d", (2,))])
def test_modules(name, arguments):
    mine, theirs = getattr(flambeau.nn, name)(*arguments), getattr(torch.nn, name)(*arguments)
    assert repr(mine) == repr(theirs)
    if name == "MaxUnpool3d":
        values, where = TF.max_pool3d(torch.rand(1, 1, 4, 4, 4), 2, return_indices=True)
        assert mine(ours(values), ours(where)).shape == theirs(values, where).shape
    else:
        compare(mine, theirs, torch.rand(1, 2, 4, 5, 6))


@pytest.mark.parametrize("arguments", [(2,), ((2, 3, 2), 1), (2, 2, 1), ((2, 2, 3), 1, 1, False, False), (2, 1, 0, True), (2, 1, 0, False, True, 3)])
def test_means_of_whole_numbers_are_rounded_once(arguments):
    x = torch.randint(-9, 10, (2, 2, 3, 5, 4), generator=torch.Generator().manual_seed(3))
    assert F.avg_pool3d(flambeau.tensor(x.numpy()), *arguments).tolist() == TF.avg_pool3d(x, *arguments).tolist()
