"""nn.utils and nn.init against PyTorch."""

from __future__ import annotations

import re

import pytest

import flambeau
from flambeau import nn
from tests.nn.oracle import close, ours, torch


@pytest.mark.parametrize("norm_type", [2, 1.5, float("inf")])
def test_clip_grad_norm(norm_type):
    theirs = [torch.nn.Parameter(torch.randn(3, 2)), torch.nn.Parameter(torch.randn(4))]
    mine = [nn.Parameter(ours(p.detach())) for p in theirs]
    for a, b in zip(mine, theirs, strict=True):
        b.grad = torch.randn(b.shape)
        a.grad = ours(b.grad)
    close(nn.utils.clip_grad_norm_(mine, 0.5, norm_type), torch.nn.utils.clip_grad_norm_(theirs, 0.5, norm_type))
    for a, b in zip(mine, theirs, strict=True):
        close(a.grad, b.grad)
    nn.utils.clip_grad_value_(mine, 0.05)
    torch.nn.utils.clip_grad_value_(theirs, 0.05)
    for a, b in zip(mine, theirs, strict=True):
        close(a.grad, b.grad)


def test_clip_grad_norm_nonfinite():
    p = nn.Parameter(flambeau.ones(1))
    p.grad = flambeau.tensor([float("nan")])
    with pytest.raises(RuntimeError, match="non-finite"):
        nn.utils.clip_grad_norm_([p], 1.0, error_if_nonfinite=True)


def test_vectors():
    layer = nn.Linear(2, 3)
    vector = nn.utils.parameters_to_vector(layer.parameters())
    assert vector.shape == (9,)
    nn.utils.vector_to_parameters(flambeau.arange(9.0), layer.parameters())
    assert layer.bias.tolist() == [6.0, 7.0, 8.0]


@pytest.mark.parametrize(
    "call",
    [
        "xavier_uniform_(x)", "xavier_normal_(x, gain=2.0)", "kaiming_uniform_(x, a=0.2)", "kaiming_normal_(x, mode='fan_out')",
        "orthogonal_(x)", "trunc_normal_(x)", "trunc_normal_(x, a=1.0, b=1.5)", "uniform_(x, -1, 2)", "normal_(x, 1, 3)",
        "sparse_(x, 0.3)", "eye_(x)", "constant_(x, 3)", "dirac_(x.reshape(4, 2, 5), 2)",
    ],
)  # fmt: skip
def test_init_draws_the_same_values(call):
    torch.manual_seed(4)
    expected = eval("init." + call, {"init": torch.nn.init, "x": torch.empty(8, 5)})
    flambeau.manual_seed(4)
    got = eval("init." + call, {"init": nn.init, "x": flambeau.empty(8, 5)})
    close(got, expected, 2e-6)


@pytest.mark.parametrize("name", ["weight_norm", "spectral_norm"])
def test_reparametrisations(name):
    flambeau.manual_seed(1)
    torch.manual_seed(1)
    mine, theirs = nn.Linear(3, 2), torch.nn.Linear(3, 2)
    getattr(nn.utils, name)(mine)
    getattr(torch.nn.utils, name)(theirs)
    assert sorted(mine.state_dict()) == sorted(theirs.state_dict())
    x = torch.randn(2, 3)
    expected = theirs(x)
    close(mine(ours(x)), expected)
    getattr(nn.utils, f"remove_{name}")(mine)
    close(mine(ours(x)), expected)
    assert sorted(mine.state_dict()) == ["bias", "weight"]


def test_parametrize():
    mine, theirs = nn.Linear(3, 2), torch.nn.Linear(3, 2)
    nn.utils.parametrizations.weight_norm(mine)
    torch.nn.utils.parametrizations.weight_norm(theirs)
    assert list(mine.state_dict()) == list(theirs.state_dict()) and repr(mine) == repr(theirs)
    mine.load_state_dict({k: ours(v) for k, v in theirs.state_dict().items()})
    x = torch.randn(2, 3)
    close(mine(ours(x)), theirs(x))
    nn.utils.parametrize.remove_parametrizations(mine, "weight")
    close(mine(ours(x)), theirs(x))
    assert type(mine) is nn.Linear


def test_functional_calls_set_what_is_not_there_and_refuse_what_is_no_tensor():
    for m in (flambeau, torch):

        class Bar(m.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner, self.number = m.nn.Linear(1, 1), 0.0  # noqa: B023

            def forward(self, x):
                return self.inner(x) + getattr(self, "extra", 0.0)

        bar = Bar()
        before = dict(bar.__dict__), dict(bar.inner._parameters)
        call = m.func.functional_call
        weights = {"inner.weight": m.ones(1, 1), "inner.bias": m.zeros(1)}
        assert call(bar, {**weights, "extra": m.full((1,), 3.0)}, m.ones(1)).tolist() == [4.0] and not hasattr(bar, "extra")
        for given, kind, text in (
            ({"inner.weight": 3.0}, TypeError, "3.0 is not an instance of torch.Tensor"),
            ({**weights, "number": m.ones(1)}, TypeError, "attribute `number`: 0.0 is not an instance of torch.Tensor"),
            ({**weights, "outer.bias": m.ones(1)}, AttributeError, "has no attribute `outer`"),
        ):
            with pytest.raises(kind, match=re.escape(text)):
                call(bar, given, m.ones(1))
            assert (dict(bar.__dict__), dict(bar.inner._parameters)) == before
        with pytest.raises(RuntimeError, match="used with Jitted modules"):
            call(m.jit.script(bar.inner), {}, m.ones(1))
