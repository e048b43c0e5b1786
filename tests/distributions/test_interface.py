"""What is around the families: errors and their texts, subclasses of users, signatures, loading."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flambeau as ft
from tests import processes
from tests.distributions.oracle import PACKAGES, both, outcome, torch

Build = Callable[[Any, Any], Any]  # of the package and its distributions
# What raises, with one text in both packages.
ERRORS: dict[str, Build] = {
    "normal scale": lambda t, D: D.Normal(t.tensor([0.0, 1.0]), t.tensor([1.0, -1.0])),
    "normal nan": lambda t, D: D.Normal(t.tensor([0.0, float("nan")]), t.tensor(1.0)),
    "normal arguments": lambda t, D: D.Normal("a", 1.0),
    "normal value": lambda t, D: D.Normal(0.0, 1.0).log_prob(t.tensor([0.0, float("nan")])),
    "normal no tensor": lambda t, D: D.Normal(0.0, 1.0).log_prob(1.0),
    "normal shape": lambda t, D: D.Normal(t.zeros(3), t.ones(3)).log_prob(t.zeros(2)),
    "gamma": lambda t, D: D.Gamma(t.tensor([1.0]), t.tensor([0.0])),
    "gamma value": lambda t, D: D.Gamma(t.tensor([1.0]), t.tensor([1.0])).log_prob(t.tensor([-1.0])),
    "uniform": lambda t, D: D.Uniform(t.tensor([1.0]), t.tensor([0.0])),
    "uniform value": lambda t, D: D.Uniform(0.0, 1.0).log_prob(t.tensor([2.0])),
    "uniform cdf": lambda t, D: D.Uniform(0.0, 1.0).cdf(t.tensor(2.0)),
    "bernoulli none": lambda t, D: D.Bernoulli(),
    "bernoulli both": lambda t, D: D.Bernoulli(t.tensor(0.5), t.tensor(0.5)),
    "bernoulli probs": lambda t, D: D.Bernoulli(t.tensor([0.5, 1.5])),
    "bernoulli value": lambda t, D: D.Bernoulli(t.tensor([0.5])).log_prob(t.tensor([0.5])),
    "categorical": lambda t, D: D.Categorical(t.tensor(0.5)),
    "categorical logits": lambda t, D: D.Categorical(logits=t.tensor(0.5)),
    "categorical negative": lambda t, D: D.Categorical(t.tensor([0.5, -0.5, 1.0])),
    "categorical value": lambda t, D: D.Categorical(t.tensor([0.5, 0.5])).log_prob(t.tensor([2])),
    "categorical icdf": lambda t, D: D.Categorical(t.tensor([0.5, 0.5])).icdf(t.tensor(0.5)),
    "one hot": lambda t, D: D.OneHotCategorical(t.tensor([0.5, 0.5])).log_prob(t.tensor([1.0, 1.0])),
    "multinomial": lambda t, D: D.Multinomial(t.tensor(3), t.tensor([0.5, 0.5])),
    "multinomial value": lambda t, D: D.Multinomial(3, t.tensor([0.5, 0.5])).log_prob(t.tensor([3.0, 1.0])),
    "binomial count": lambda t, D: D.Binomial(t.tensor([-1.0]), t.tensor([0.5])),
    "binomial entropy": lambda t, D: D.Binomial(t.tensor([1.0, 2.0]), t.tensor([0.5])).entropy(),
    "geometric": lambda t, D: D.Geometric(t.tensor([0.0, 0.5])),
    "negative binomial": lambda t, D: D.NegativeBinomial(t.tensor([1.0]), t.tensor([1.0])),
    "dirichlet": lambda t, D: D.Dirichlet(t.tensor(1.0)),
    "dirichlet value": lambda t, D: D.Dirichlet(t.ones(2)).log_prob(t.tensor([0.5, 0.6])),
    "dirichlet event": lambda t, D: D.Dirichlet(t.ones(2)).log_prob(t.tensor([0.5, 0.3, 0.2])),
    "poisson": lambda t, D: D.Poisson(t.tensor([-1.0])),
    "poisson value": lambda t, D: D.Poisson(t.tensor([1.0])).log_prob(t.tensor([0.5])),
    "continuous bernoulli": lambda t, D: D.ContinuousBernoulli(t.tensor([1.5]), validate_args=True),
    "mvn none": lambda t, D: D.MultivariateNormal(t.zeros(2)),
    "mvn loc": lambda t, D: D.MultivariateNormal(t.tensor(0.0), t.eye(2)),
    "mvn dims": lambda t, D: D.MultivariateNormal(t.zeros(2), t.ones(2)),
    "mvn tril dims": lambda t, D: D.MultivariateNormal(t.zeros(2), scale_tril=t.ones(2)),
    "mvn covariance": lambda t, D: D.MultivariateNormal(t.zeros(2), t.tensor([[1.0, 2.0], [2.0, 1.0]])),
    "mvn tril": lambda t, D: D.MultivariateNormal(t.zeros(2), scale_tril=t.tensor([[1.0, 2.0], [2.0, 1.0]])),
    "lowrank factor": lambda t, D: D.LowRankMultivariateNormal(t.zeros(2), t.ones(3, 1), t.ones(2)),
    "lowrank diagonal": lambda t, D: D.LowRankMultivariateNormal(t.zeros(2), t.ones(2, 1), t.ones(3)),
    "lowrank dims": lambda t, D: D.LowRankMultivariateNormal(t.zeros(2), t.ones(2), t.ones(2)),
    "lowrank batch": lambda t, D: D.LowRankMultivariateNormal(t.zeros(3, 2), t.ones(2, 2, 1), t.ones(2)),
    "wishart none": lambda t, D: D.Wishart(3.0),
    "wishart df": lambda t, D: D.Wishart(1.0, t.eye(3)),
    "lkj": lambda t, D: D.LKJCholesky(1),
    "mixture": lambda t, D: D.MixtureSameFamily(D.Normal(0.0, 1.0), D.Normal(t.zeros(2), t.ones(2))),
    "mixture component": lambda t, D: D.MixtureSameFamily(D.Categorical(t.ones(2)), 3),
    "mixture sizes": lambda t, D: D.MixtureSameFamily(D.Categorical(t.ones(3)), D.Normal(t.zeros(2), t.ones(2))),
    "mixture batch": lambda t, D: D.MixtureSameFamily(D.Categorical(t.ones(3, 2)), D.Normal(t.zeros(4, 2), t.ones(2))),
    "independent": lambda t, D: D.Independent(D.Normal(0.0, 1.0), 1),
    "independent enumeration": lambda t, D: D.Independent(D.Bernoulli(t.ones(2) * 0.5), 1).enumerate_support(),
    "transforms": lambda t, D: D.TransformedDistribution(D.Normal(0.0, 1.0), [1]),
    "transforms none": lambda t, D: D.TransformedDistribution(D.Normal(0.0, 1.0), None),
    "transforms shape": lambda t, D: D.TransformedDistribution(D.Normal(0.0, 1.0), D.StickBreakingTransform()),
    "rsample": lambda t, D: D.Poisson(1.0).rsample(),
    "default": lambda t, D: D.Distribution.set_default_validate_args(3),
    "base": lambda t, D: D.Distribution(validate_args=False).sample(),
    "mode": lambda t, D: D.LogisticNormal(t.zeros(2), t.ones(2)).mode,
    "kl": lambda t, D: D.kl_divergence(D.Normal(0.0, 1.0), D.Poisson(1.0)),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name: str) -> None:
    ours, theirs = (outcome(lambda t=t: ERRORS[name](t, t.distributions)) for t in PACKAGES)  # type: ignore[misc]
    assert isinstance(theirs, Exception)
    assert type(ours) is type(theirs), (ours, theirs)
    if name != "default":  # PyTorch's has no text
        text = re.sub(r"^\w+\(\): ", "", str(ours).replace("flambeau.", "torch."))  # the class whose constructor it is
        text = text.removesuffix(" Got str, float.")  # which PyTorch does not say
        assert " ".join(text.split()) == " ".join(str(theirs).split())


def test_numbers_and_dtypes() -> None:
    both(lambda t: t.distributions.Normal(0, 1).log_prob(t.tensor(0.5)), 1e-6)
    both(lambda t: t.distributions.Normal(t.zeros(2, dtype=t.float64), 1).log_prob(t.tensor(0.5, dtype=t.float64)))
    both(lambda t: t.distributions.Binomial(5, 0.25).log_prob(t.tensor(2.0)), 1e-6)
    both(lambda t: t.distributions.Binomial(t.tensor([5, 6]), t.tensor(0.25)).mean, 1e-6)
    both(lambda t: t.distributions.StudentT(3.0).log_prob(t.tensor(2.0)), 1e-6)
    both(lambda t: t.distributions.Beta(2, 3).log_prob(t.tensor(0.5)), 1e-6)
    both(lambda t: t.distributions.Categorical(logits=t.zeros(0, 3)).entropy())
    both(lambda t: t.distributions.Uniform(0, t.tensor([1.0, 2.0])).sample((2,)), 1e-6)
    # PyTorch makes a probability that is a number an integer where the count is one.
    assert float(ft.distributions.Binomial(ft.tensor(5), 0.5).mean) == 2.5


def test_validation_can_be_switched() -> None:
    for t in PACKAGES:
        D = t.distributions
        bad = t.tensor([-1.0])
        assert D.Normal(0.0, bad, validate_args=False).scale is not None
        assert bool(D.Exponential(1.0, validate_args=False).log_prob(bad).isfinite().all())
        try:
            D.Distribution.set_default_validate_args(False)
            D.Normal(0.0, bad)
            with pytest.raises(ValueError, match="Expected parameter scale"):
                D.Normal(0.0, bad, validate_args=True)
        finally:
            D.Distribution.set_default_validate_args(True)
        assert not D.Normal(0.0, 1.0, validate_args=False).expand((2,))._validate_args


def test_sample_n_warns() -> None:
    for t in PACKAGES:
        with pytest.warns(FutureWarning, match="sample_n"):
            assert tuple(t.distributions.Normal(t.zeros(2), 1.0).sample_n(3).shape) == (3, 2)


def test_samples_carry_no_gradients() -> None:
    D = ft.distributions
    scale = ft.tensor([1.0, 2.0], requires_grad=True)
    for d in (D.Normal(0.0, scale), D.Gamma(scale, scale), D.Beta(scale, scale), D.Poisson(scale), D.Bernoulli(logits=scale), D.OneHotCategorical(logits=scale),
              D.Multinomial(3, logits=scale), D.LogNormal(0.0, scale), D.Gumbel(0.0, scale), D.VonMises(0.0, scale), D.Geometric(logits=scale)):  # fmt: skip
        assert not d.sample((2,)).requires_grad
        assert not d.has_rsample or d.rsample((2,)).requires_grad


@pytest.mark.parametrize("t", PACKAGES, ids=lambda t: t.__name__)
def test_subclasses_of_users(t: Any) -> None:
    D = t.distributions

    class Plain(D.Normal):  # type: ignore[misc, name-defined]
        """Without an __init__ of its own: `expand` works."""

    class Own(D.Normal):  # type: ignore[misc, name-defined]
        def __init__(self, scale: Any) -> None:
            super().__init__(0.0, scale)

    class Squashed(D.TransformedDistribution):  # type: ignore[misc, name-defined]
        def __init__(self, loc: Any) -> None:
            super().__init__(D.Normal(loc, 1.0), [D.TanhTransform(cache_size=1)])

        @property
        def mean(self) -> Any:
            return self.base_dist.mean.tanh()

    class Written(D.Distribution):  # type: ignore[misc, name-defined]
        arg_constraints: dict[str, Any] = {}
        support = D.constraints.real

        def rsample(self, sample_shape: Any = ()) -> Any:
            return t.ones(self._extended_shape(sample_shape), requires_grad=True) * 2

        def log_prob(self, value: Any) -> Any:
            self._validate_sample(value)
            return -value.abs()

    assert type(Plain(t.zeros(2), 1.0).expand((3, 2))) is Plain
    text = r"Subclass Own of Normal that defines a custom __init__ method must also define a custom .expand\(\) method."
    with pytest.raises(NotImplementedError, match=text):
        Own(t.ones(2)).expand((3, 2))
    squashed = Squashed(t.tensor([0.5]))
    drawn = squashed.rsample()
    assert float(squashed.mean) == float(t.tensor(0.5).tanh())
    assert bool(squashed.log_prob(drawn).isfinite().all())
    written = Written(t.Size([2]), t.Size([3]))
    assert tuple(written.sample((4,)).shape) == (4, 2, 3) and not written.sample().requires_grad
    with pytest.raises(ValueError, match="right-most size"):
        written.log_prob(t.zeros(2, 4))
    with pytest.raises(NotImplementedError):
        written.expand((4, 2))
    with pytest.raises(NotImplementedError):
        _ = written.mean


def test_undefined_constraints_and_supports_warn() -> None:
    for t in PACKAGES:

        class Bare(t.distributions.Distribution):  # type: ignore[misc, name-defined]
            def log_prob(self, value: Any) -> Any:
                self._validate_sample(value)
                return value

        with pytest.warns(UserWarning, match="does not define `arg_constraints`"):
            bare = Bare(validate_args=True)
        with pytest.warns(UserWarning, match="does not define `support`"):
            bare.log_prob(t.tensor(1.0))


def test_lazy_properties() -> None:
    for t in PACKAGES:
        lazy = t.distributions.utils.lazy_property
        calls = []

        class Thing:
            @lazy
            def value(self) -> Any:
                """Computed once."""
                calls.append(t.is_grad_enabled())  # noqa: B023
                return len(calls)  # noqa: B023

        thing = Thing()
        with t.no_grad():
            assert thing.value == 1 and thing.value == 1
        assert calls == [True]
        assert isinstance(Thing.value, property)


SPACES = ["distribution", "constraints", "transforms", "utils", "kl", "constraint_registry", "exp_family"]


def signatures(holder: Any) -> dict[str, list[tuple[str, Any]]]:
    """{"name" or "Class.method": parameters with kinds and defaults} of what a module defines and shows."""
    found: dict[str, list[tuple[str, Any]]] = {}

    def note(name: str, function: Any) -> None:
        try:
            parameters = inspect.signature(function).parameters.values()
        except (TypeError, ValueError):
            return
        found[name] = [(p.name, p.kind, str(p.default).replace("flambeau.", "torch.").replace("torch.Size([])", "()")) for p in parameters]  # type: ignore[misc]

    for name in holder.__all__:
        value = getattr(holder, name)
        note(name, value)
        if isinstance(value, type):
            for method in dir(value):
                if not method.startswith("_"):
                    function = getattr(value, method, None)
                    if callable(function) and not isinstance(function, type) and hasattr(function, "__name__"):
                        note(f"{name}.{method}", function)
    return found


@pytest.mark.parametrize("space", ["", *SPACES])
def test_signatures(space: str) -> None:
    ours, theirs = (signatures(getattr(t.distributions, space) if space else t.distributions) for t in PACKAGES)
    assert theirs
    for name, parameters in theirs.items():
        assert name in ours, name
        assert ours[name] == parameters, name


def test_names_of_submodules() -> None:
    """Every submodule of torch.distributions, with what it exports."""
    import importlib
    import pkgutil

    for module in pkgutil.iter_modules(torch.distributions.__path__):
        theirs = importlib.import_module(f"torch.distributions.{module.name}")
        ours = importlib.import_module(f"flambeau.distributions.{module.name}")
        for name in getattr(theirs, "__all__", ()):
            assert hasattr(ours, name), f"{module.name}.{name}"
    assert sorted(torch.distributions.__all__) == sorted(ft.distributions.__all__)
    with pytest.raises(AttributeError, match="neither in PyTorch nor in flambeau"):
        _ = ft.distributions.Nomral


PROGRAM = """
import sys
import torch
assert "flambeau.distributions.normal" not in sys.modules  # loads on first use
x = torch.distributions.Normal(0.0, 1.0).log_prob(torch.tensor(0.0))
import torch.distributions as D
from torch.distributions import Categorical, constraints, kl_divergence
from torch.distributions.normal import Normal
from torch.distributions.utils import broadcast_all
assert D.Normal is Normal and isinstance(D.Gamma(1.0, 1.0).sample(), torch.Tensor)
print(f"{x.item():.4f}", torch.poisson(torch.zeros(2)).tolist(), D.Normal(0.0, 1.0))
"""


def test_as_torch_in_a_program(tmp_path: Any) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    done = processes.python("-m", "flambeau", "run", str(script), timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "-0.9189 [0.0, 0.0] Normal(loc: 0.0, scale: 1.0)"


def test_no_warnings() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ft.distributions.Wishart(ft.tensor(4.0), ft.eye(3)).rsample((5,))
        ft.distributions.LKJCholesky(3).sample((2,))
    assert np.isfinite(ft.distributions.LKJCholesky(4, 0.5).sample((50,)).numpy()).all()
