"""Activations against PyTorch: values, gradients, infinities and NaN, half precision, in-place forms."""

from __future__ import annotations

import pytest

import flambeau
import flambeau.nn.functional as F
from tests.nn.oracle import close, compare, ours, raises_as_torch, torch

TF = torch.nn.functional
PLAIN = (
    "relu relu6 leaky_relu elu celu selu silu mish gelu softplus logsigmoid hardtanh hardsigmoid hardswish hardshrink "
    "softshrink tanhshrink softsign sigmoid tanh"
).split()


def finite():
    torch.manual_seed(0)
    edges = torch.tensor([[0.0, -1, 1, 6, 3, -3], [0.5, 100, -100, -0.5, -30, 30]])
    return torch.cat([torch.randn(4, 6) * 4, edges]).requires_grad_()


@pytest.mark.parametrize("name", PLAIN)
def test_values_and_gradients(name):
    compare(getattr(F, name), getattr(TF, name), finite())


@pytest.mark.parametrize("name", PLAIN)
def test_nan_stays_nan_and_half_is_rounded_once(name):
    x = torch.tensor([float("nan"), -50.0, 50.0, 0.25])
    compare(getattr(F, name), getattr(TF, name), x)
    compare(getattr(F, name), getattr(TF, name), torch.randn(40).half(), tolerance=2e-3)
    compare(getattr(F, name), getattr(TF, name), torch.randn(40).bfloat16(), tolerance=2e-2)


@pytest.mark.parametrize(
    ("name", "kwargs"),
    [
        ("gelu", {"approximate": "tanh"}),
        ("elu", {"alpha": 0.7}),
        ("celu", {"alpha": 0.7}),
        ("leaky_relu", {"negative_slope": 0.3}),
        ("hardtanh", {"min_val": -2.0, "max_val": 0.5}),
        ("softplus", {"beta": 2.0, "threshold": 3.0}),
        ("threshold", {"threshold": 0.1, "value": 20.0}),
        ("glu", {"dim": 0}),
        ("rrelu", {}),
    ],
)
def test_arguments(name, kwargs):
    compare(getattr(F, name), getattr(TF, name), finite(), **kwargs)


def test_prelu():
    compare(F.prelu, TF.prelu, finite(), torch.tensor([0.25], requires_grad=True))
    compare(F.prelu, TF.prelu, torch.randn(2, 3, 4, requires_grad=True), torch.rand(3, requires_grad=True))


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "softmin"])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_softmax_family(name, dim):
    compare(getattr(F, name), getattr(TF, name), finite(), dim)
    compare(getattr(F, name), getattr(TF, name), torch.randn(3, 4).double(), dim)


def test_softmax_corners():
    compare(F.softmax, TF.softmax, finite(), 1, dtype=torch.float64)
    compare(F.softmax, TF.softmax, torch.tensor(3.0), 0)
    compare(F.softmax, TF.softmax, torch.zeros(0, 3), 1)
    compare(F.softmax, TF.softmax, torch.full((2, 3), float("-inf")), 1)


@pytest.mark.parametrize("name", ["relu", "leaky_relu", "elu", "silu", "hardtanh"])
def test_in_place(name):
    x = ours(torch.randn(3, 4))
    view = x[1]
    result = getattr(F, name)(x, inplace=True)
    assert result is x
    close(view, getattr(TF, name)(torch.as_tensor(view.numpy().copy())), 1.0)  # the view sees the write
    y = ours(torch.tensor([-1.0, 2.0]))
    F.relu_(y)
    assert y.tolist() == [0.0, 2.0]


def test_errors():
    assert "size 3" in raises_as_torch(F.glu, TF.glu, torch.randn(3, 3))
    with pytest.raises(RuntimeError, match="floating"):
        F.softmax(flambeau.tensor([1, 2]), 0)


def test_gumbel_softmax_is_one_hot():
    flambeau.manual_seed(0)
    y = F.gumbel_softmax(flambeau.randn(5, 4), hard=True)
    assert [round(v, 5) for v in y.sum(1).tolist()] == [1.0] * 5


@pytest.mark.parametrize("name", "relu relu6 leaky_relu elu celu selu silu mish hardtanh hardsigmoid hardswish".split())
def test_gradient_through_the_value_that_was_written_over(name):
    """A layer's output is replaced by its activation, whose gradient may need what was there: nn.SiLU(inplace=True), ..."""

    def twice(functional):
        return lambda x, w: (getattr(functional, name)(getattr(functional, name)(x @ w, inplace=True) * 1.5, inplace=True) * w).sum()

    compare(twice(F), twice(TF), finite(), torch.randn(6, 6).requires_grad_(), tolerance=1e-4)
