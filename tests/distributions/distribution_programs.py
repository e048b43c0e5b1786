"""Random distributions beside PyTorch's: `python -m tests.distributions.distribution_programs [SEED] [--count N]`.

A program makes a distribution of random parameters (shapes that broadcast, with dims of no elements, wrong ones, with validation and without), may wrap it
(expand, Independent, transforms, a mixture), and looks at shapes, support, moments, densities, distribution functions, samples after one seed, divergences,
types of errors, and gradients by parameters and values. Without a seed: 300 programs of today's.
"""

from __future__ import annotations

import random
import sys
import warnings
from collections.abc import Callable
from typing import Any

import flambeau
import flambeau.distributions  # a submodule that loads on first use
from tests import daily
from tests.nn.module_programs import Run, Seen, compared

# Parameters with their regions, and the region of values.
FAMILIES: dict[str, tuple[dict[str, str], str]] = {
    "Normal": ({"loc": "real", "scale": "positive"}, "real"), "Laplace": ({"loc": "real", "scale": "positive"}, "real"),
    "Cauchy": ({"loc": "real", "scale": "positive"}, "real"), "Gumbel": ({"loc": "real", "scale": "positive"}, "real"),
    "StudentT": ({"df": "positive", "loc": "real", "scale": "positive"}, "real"), "Uniform": ({"low": "real", "high": "high"}, "unit"),
    "Exponential": ({"rate": "positive"}, "positive"), "Gamma": ({"concentration": "positive", "rate": "positive"}, "positive"),
    "Chi2": ({"df": "positive"}, "positive"), "InverseGamma": ({"concentration": "positive", "rate": "positive"}, "positive"),
    "FisherSnedecor": ({"df1": "positive", "df2": "positive"}, "positive"), "Beta": ({"concentration1": "positive", "concentration0": "positive"}, "unit"),
    "Poisson": ({"rate": "positive"}, "count"), "HalfNormal": ({"scale": "positive"}, "positive"), "HalfCauchy": ({"scale": "positive"}, "positive"),
    "LogNormal": ({"loc": "real", "scale": "positive"}, "positive"), "Kumaraswamy": ({"concentration1": "positive", "concentration0": "positive"}, "unit"),
    "Pareto": ({"scale": "positive", "alpha": "positive"}, "high"), "Weibull": ({"scale": "positive", "concentration": "positive"}, "positive"),
    "VonMises": ({"loc": "real", "concentration": "positive"}, "real"), "Bernoulli": ({"probs": "unit"}, "bit"), "Geometric": ({"probs": "unit"}, "count"),
    "ContinuousBernoulli": ({"probs": "unit"}, "unit"), "Binomial": ({"probs": "unit"}, "count"),
    "NegativeBinomial": ({"total_count": "positive", "probs": "unit"}, "count"), "RelaxedBernoulli": ({"probs": "unit"}, "unit"),
    "Categorical": ({"probs": "simplex"}, "class"), "OneHotCategorical": ({"probs": "simplex"}, "one"), "Multinomial": ({"probs": "simplex"}, "totals"),
    "RelaxedOneHotCategorical": ({"probs": "simplex"}, "simplex"), "OneHotCategoricalStraightThrough": ({"probs": "simplex"}, "one"),
    "Dirichlet": ({"concentration": "positives"}, "simplex"), "MultivariateNormal": ({"loc": "reals", "scale_tril": "triangle"}, "reals"),
    "LowRankMultivariateNormal": ({"loc": "reals", "cov_factor": "factor", "cov_diag": "positives"}, "reals"),
}  # fmt: skip
VECTORS = frozenset("simplex positives reals one totals factor triangle".split())
FIXED: dict[str, dict[str, Any]] = {"Binomial": {"total_count": 6}, "Multinomial": {"total_count": 4}}
TEMPERED = ("RelaxedBernoulli", "RelaxedOneHotCategorical")
# Whose samples' gradients PyTorch approximates (docs/differences.md).
ROUGH = frozenset("StudentT Gamma Chi2 InverseGamma FisherSnedecor Beta Dirichlet".split())
SINGLE = ("VonMises", "Multinomial")  # PyTorch's Bessel functions have 7 digits, and its factorial of a number of draws
CLASSES = 3


def region(s: Run, name: str, shape: tuple[int, ...], wrong: bool = False) -> Any:
    """Numbers of a region, of a batch of a shape; `wrong`: the first is outside."""
    m = s.m
    x = s.input(
        (*shape, CLASSES, 2) if name == "factor" else (*shape, CLASSES, CLASSES) if name == "triangle" else (*shape, CLASSES) if name in VECTORS else shape
    )
    if name in ("positive", "positives"):
        x = x.abs() * 2 + 0.3
    elif name == "unit":
        x = x.abs() * 0.8 + 0.1
    elif name == "high":
        x = x.abs() + 2.5
    elif name == "count":
        x = (x.abs() * 6).floor()
    elif name == "bit":
        x = (x > 0).to(x.dtype)
    elif name == "class":
        x = (x.abs() * CLASSES).floor()
    elif name == "simplex":
        x = x.abs() + 0.1
        x = x / x.sum(-1, keepdim=True)
    elif name == "one":
        x = m.nn.functional.one_hot(x.argmax(-1), CLASSES).to(x.dtype) if 0 not in shape else x
    elif name == "totals":
        x = m.nn.functional.one_hot(x.argmax(-1), CLASSES).to(x.dtype) * 4 if 0 not in shape else x
    elif name == "triangle":
        x = x.tril(-1) + m.diag_embed(m.diagonal(x, 0, -2, -1).abs() + 0.5)
    return x - 3.3 if wrong else x


def _shape(r: random.Random) -> tuple[int, ...]:
    return r.choice(((), (), (2,), (3,), (2, 3), (2, 1), (1, 3), (0,), (0, 3), (1,)))


def made(s: Run, family: str, leaves: list[Any], batch: tuple[int, ...] | None = None) -> Any:
    """A distribution of random parameters, which are appended to `leaves` where they take gradients."""
    r = s.draw
    regions, _ = FAMILIES[family]
    options: dict[str, Any] = dict(FIXED.get(family, {}))
    wrong = r.choice(list(regions)) if r.random() < 0.06 else None
    logits = "probs" in regions and r.random() < 0.5
    whole = batch if batch is not None else _shape(r)
    for name, where in regions.items():
        shape = whole if r.random() < 0.6 or (batch is not None) else r.choice((whole[1:], (), (*whole[:-1], 1) if whole else (), (4,)))
        if s.dtype == "float32" and where not in VECTORS and r.random() < 0.2 and batch is None and name != "probs":
            options[name] = {"real": 0.5, "positive": 1.5, "high": 3, "unit": 0.25}[where]
            continue
        if name == "probs" and logits:
            x, name = s.input((*shape, CLASSES) if where == "simplex" else shape), "logits"
        else:
            x = region(s, where, shape, wrong == name)
        x = x.detach()
        if r.random() < 0.7:
            leaves.append(x.requires_grad_())
        options[name] = x
    if family in TEMPERED:
        options["temperature"] = s.m.tensor(0.7, dtype=getattr(s.m, s.dtype))
    if r.random() < 0.4:
        options["validate_args"] = r.random() < 0.6
    return getattr(s.m.distributions, family)(**options)


def _wrapped(s: Run, d: Any, family: str, leaves: list[Any]) -> Any:
    """The distribution in another one, now and then."""
    r, D = s.draw, s.m.distributions
    kind = r.randrange(10)
    if kind == 0 and family != "Multinomial":  # whose entropy PyTorch loses
        return d.expand((*r.choice(((2,), (), (4, 1))), *d.batch_shape))
    if kind == 1:
        return D.Independent(d, r.randrange(0, 3))
    if kind == 2:
        transforms = [
            D.AffineTransform(0.5, -1.5),
            D.ExpTransform(),
            D.SigmoidTransform(),
            D.TanhTransform(),
            D.PowerTransform(s.m.tensor(2.0)),
            D.SoftplusTransform(),
        ]
        return D.TransformedDistribution(d, r.sample(transforms, r.randrange(1, 3)))
    if kind == 3:
        weights = s.input(tuple(d.batch_shape)).detach().requires_grad_()
        leaves.append(weights)
        return D.MixtureSameFamily(D.Categorical(logits=weights), d)
    return d


def _gradients(s: Run, what: str, x: Any, leaves: list[Any]) -> None:
    if not x.requires_grad:
        return
    weights = s.m.linspace(0.5, 1.5, max(x.numel(), 1), dtype=x.dtype)[: x.numel()].reshape(x.shape)
    for leaf, g in zip(leaves, s.m.autograd.grad((x * weights).sum(), leaves, allow_unused=True, retain_graph=True), strict=True):
        s.see(what, s.m.zeros_like(leaf).detach() if g is None else g.detach())  # None for zeros where a function does not depend on it


def _value(s: Run, d: Any, family: str) -> Any:
    """A value to take the density of: mostly of the support and of a shape that fits."""
    r = s.draw
    vector = FAMILIES[family][1] in VECTORS
    shape = tuple(d.batch_shape) + tuple(d.event_shape)
    shape = shape[:-1] if vector and shape else shape
    shape = r.choice((shape, shape, (2, *shape), shape[1:], (4, *shape)))
    value = region(s, FAMILIES[family][1], shape, r.random() < 0.06).detach()
    return value.requires_grad_() if r.random() < 0.5 and FAMILIES[family][1] not in ("count", "bit", "class", "one", "totals") else value


def _looks(s: Run, d: Any, family: str, leaves: list[Any]) -> list[tuple[str, Callable[[], Any], list[Any]]]:
    """What is asked of a distribution: its name, the call, and what has gradients."""
    r = s.draw
    value = _value(s, d, family)
    inputs = [*leaves, value] if value.requires_grad else leaves
    shares = region(s, "unit", tuple(d.batch_shape)).detach()
    other: list[Any] = []
    rough: list[Any] = [] if family in ROUGH else leaves
    count = r.choice(((), (2,), (0,), (2, 3)))

    def after_a_seed(call: Callable[[], Any]) -> Any:
        s.m.manual_seed(5)
        return call()

    def divergence() -> Any:
        # Of one shape: PyTorch's of two `Bernoulli` that broadcast ends in an IndexError.
        again = made(s, family if r.random() < 0.7 else r.choice(list(FAMILIES)), other, tuple(d.batch_shape))
        return s.m.distributions.kl_divergence(d, again)

    return [
        ("mean", lambda: d.mean, leaves), ("variance", lambda: d.variance, leaves), ("mode", lambda: d.mode, leaves), ("stddev", lambda: d.stddev, leaves),
        ("entropy", lambda: d.entropy(), leaves), ("log_prob", lambda: d.log_prob(value), inputs), ("cdf", lambda: d.cdf(value), inputs),
        ("icdf", lambda: d.icdf(shares), leaves), ("sample", lambda: after_a_seed(lambda: d.sample(count)), []),
        ("rsample", lambda: after_a_seed(lambda: d.rsample(count)), rough), ("support", lambda: d.support.check(value), []),
        ("perplexity", lambda: d.perplexity(), leaves), ("enumerate_support", lambda: d.enumerate_support(), []), ("divergence", divergence, leaves),
    ]  # fmt: skip


def run(m: Any, seed: int, nudge: int = 0) -> list[Seen]:
    """What one library shows."""
    s = Run(m, seed, nudge)
    leaves: list[Any] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        family = s.draw.choice(list(FAMILIES))
        s.dtype = "float32" if family in SINGLE else s.dtype
        try:
            d = _wrapped(s, made(s, family, leaves), family, leaves)
            s.seen.append(("shapes", f"{tuple(d.batch_shape)} {tuple(d.event_shape)} {d.has_rsample} {type(d).__name__}"))
            looks = _looks(s, d, family, leaves)
        except Exception as error:
            s.seen.append(("refused", type(error).__name__))
            return s.seen
        for name, call, inputs in s.draw.sample(looks, 6):
            try:
                x = call()
                s.see(name, x)
                _gradients(s, f"gradient of {name}", x, inputs)
            except Exception as error:
                # PyTorch divides sizes of no elements by each other before it reshapes.
                s.seen.append((name, type(error).__name__.replace("ZeroDivisionError", "RuntimeError")))
    return s.seen


def difference(seed: int) -> str | None:
    """In what the two libraries differ, or None."""
    return compared(run, seed, _named)


def _named(seed: int) -> str:
    s = Run(flambeau, seed)
    leaves: list[Any] = []
    family = s.draw.choice(list(FAMILIES))
    try:
        return repr(_wrapped(s, made(s, family, leaves), family, leaves))
    except Exception as error:
        return f"{family}: {error!r}"


if __name__ == "__main__":
    sys.exit(daily.run("programs of distributions", difference, 300))
