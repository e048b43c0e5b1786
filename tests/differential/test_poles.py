"""Values and slopes of all pointwise operators at poles, ends of domains, infinities and NaN, as PyTorch has them: NaN where it has NaN."""

from __future__ import annotations

import itertools
import math
import warnings
from typing import Any

import numpy as np
import pytest

from tests.differential.known import INTERNAL
from tests.differential.samples import OPERATORS, for_flambeau, torch

import flambeau  # isort: skip
from torch.testing._internal.opinfo.core import BinaryUfuncInfo, UnaryUfuncInfo  # isort: skip

POINTS = (
    -math.inf, -1e3, -7.0, -2.0, -1.5, -1.0, -0.5, -1e-300, -0.0, 0.0, 1e-300, 0.5, 1.0, 1.5, 2.0, 3.0, 5.5, 7.0, 1e3, math.inf, math.nan,
)  # fmt: skip
PAIRS = tuple(itertools.product(POINTS, POINTS))
MORE: dict[str, tuple[dict[str, Any], ...]] = {
    "logit": ({}, {"eps": 0.2}, {"eps": 0.0}), "nn.functional.threshold": ({"threshold": 1.0, "value": 2.0},), "nn.functional.prelu": (), "fill": (),
    **{f"mvlgamma/mvlgamma_p_{p}": ({"p": p},) for p in (1, 3, 5)},
}  # fmt: skip
KNOWN = {  # which points may differ: (value, slopes) of the two frameworks
    "__rdiv__": "quotients of 1e-300, whose squares PyTorch forms",
    "digamma": "poles, where PyTorch's slope is a large number",
    "frexp": "a power beyond the range",
    "logaddexp": "two equal infinities: NaN in PyTorch (docs/differences.md)",
    "logit": "the sign of an infinite slope at -0",
    "mvlgamma/mvlgamma_p_1": "the sign of an infinite slope at -0",
    **dict.fromkeys(
        [f"nn.functional.{n}" for n in "softshrink elu celu selu".split()],
        "the slope of NaN is 0, 1 or NaN in PyTorch, by its place in a vector",
    ),
    "sinc": "1e-300, where the slope is no smaller than a number can be and PyTorch's is 0",
    "special.entr": "minus infinity",
    "special.i1": "NaN has the slope of 0 in PyTorch",
    "special.i1e": "NaN has the slope of 0 in PyTorch",
    "special.ndtr": "the far tail has few digits in PyTorch",
    "special.xlog1py": "0 times infinity counts as 0, the slope too",
    "xlogy": "0 times infinity counts as 0, the slope too",
}


KNOWN_SECOND = {  # which points' second slopes may differ, and how many of them
    **KNOWN,
    "__rpow__": "infinite terms of both signs",
    "float_power": "infinite terms of both signs",
    "pow": "infinite terms of both signs",
    "atan2": "squares of 1e-300 are 0, and at the origin there is a number here",
    "hypot": "infinite or NaN: third powers of 1e-300",
    "i0": "infinite beyond the range, NaN in PyTorch",
    "lgamma": "poles, where PyTorch's slopes are large numbers",
    **dict.fromkeys([f"mvlgamma/mvlgamma_p_{p}" for p in (1, 3, 5)], "poles, where PyTorch's slopes are large numbers"),
    "logit": "NaN outside of its domain, and infinite at its ends",
    "nn.functional.mish": "NaN in PyTorch where its slope is 1",
    "nn.functional.softplus": "exactly at its threshold that of the curve, 0 in PyTorch",
    "sinc": "its limit at 0, NaN in PyTorch",
    "special.entr": "NaN below 0, where the slope is NaN",
    "special.erfcx": "PyTorch's formula cancels",
    "special.i0e": "the kink at 0 counts nothing here",
    "special.log_ndtr": "PyTorch's formula cancels",
    "special.ndtri": "infinite near 0",
}
MOST_SECOND = {
    "__rpow__": 18, "float_power": 18, "pow": 18, "atan2": 64, "hypot": 48, "logaddexp": 288, "logit": 31, "nn.functional.softplus": 1, "xlogy": 26,
    "special.xlog1py": 20,
}  # fmt: skip
SECOND: dict[str, tuple[dict[str, Any], ...]] = {  # with thresholds among the points
    "nn.functional.softplus": ({}, {"beta": 2.0, "threshold": 1.0}), "nn.functional.elu": ({}, {"alpha": 0.5}), "nn.functional.celu": ({}, {"alpha": 2.0}),
}  # fmt: skip
# Those whose formula of the slope breaks somewhere; the others' second slopes are compared with `-m slow`.
BREAKING = (
    "__rdiv__ float_power hypot logit nn.functional.celu nn.functional.elu nn.functional.mish nn.functional.selu nn.functional.softplus pow sinc "
    "special.entr special.erfcx special.ndtri sqrt"
).split()


def _names() -> list[str]:
    def usable(op: Any) -> bool:
        return isinstance(op, (UnaryUfuncInfo, BinaryUfuncInfo)) and op.supports_autograd and torch.float64 in op.supported_dtypes("cpu")

    others = ("bfloat16", "cdouble", "cfloat", "complex", "polar", "sgn", "fill", "nn.functional.prelu")  # complex results, other arguments
    return [label for label, op in sorted(OPERATORS.items()) if usable(op) and label not in INTERNAL and label not in others and "polygamma" not in label]


def _answers(module: Any, function: Any, points: Any, named: dict[str, Any]) -> list[Any]:
    given = [module.tensor(x, dtype=module.float64, requires_grad=True) for x in points]
    result = function(*given, **named)
    result = result[0] if isinstance(result, (tuple, list)) else result
    slopes = module.autograd.grad(result.sum(), given, allow_unused=True) if result.requires_grad else [None] * len(given)
    return [t if t is None else t.detach().numpy() for t in (result, *slopes)]


@pytest.mark.parametrize("label", _names())
def test_values_and_slopes(label: str) -> None:
    op = OPERATORS[label]
    points = [POINTS] if isinstance(op, UnaryUfuncInfo) else list(zip(*PAIRS, strict=True))
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for named in MORE.get(label, ({},)):
            theirs = _answers(torch, op.op, points, named)
            ours = _answers(flambeau, for_flambeau(op.op, op.name), points, named)
            for name, x, y in zip(("value", *(f"slope {i}" for i in range(len(points)))), ours, theirs, strict=True):
                if x is None or y is None:
                    assert not np.any(x if y is None else y), (label, name)
                    continue
                for i in np.flatnonzero(~np.isclose(x.astype(complex), y.astype(complex), rtol=1e-6, atol=1e-300, equal_nan=True)):
                    found.append(f"{label}{tuple(p[i] for p in points)} {named}: {name} {x[i]}, expected {y[i]}")
    if label in KNOWN:
        assert len(found) <= 8, "\n".join(found)
    else:
        assert not found, "\n".join(found)


def _second_slopes(module: Any, function: Any, points: Any, named: dict[str, Any]) -> dict[tuple[int, int], Any]:
    """Slopes of each slope by each argument; those of a slope that requires no gradient are 0."""
    given = [module.tensor(x, dtype=module.float64, requires_grad=True) for x in points]
    result = function(*given, **named)
    result = result[0] if isinstance(result, (tuple, list)) else result
    slopes = module.autograd.grad(result.sum(), given, create_graph=True, allow_unused=True) if result.requires_grad else ()
    found = {}
    for i, slope in enumerate(slopes):
        again: Any = [None] * len(given)
        if slope is not None and slope.requires_grad:
            again = module.autograd.grad(slope.sum(), given, allow_unused=True, retain_graph=True)
        found.update({(i, j): np.zeros(len(points[0])) if t is None else np.array(t.detach().tolist()) for j, t in enumerate(again)})
    return found


@pytest.mark.parametrize("label", [pytest.param(n, marks=() if n in BREAKING else pytest.mark.slow) for n in _names()])
def test_second_slopes(label: str) -> None:
    """Slopes of slopes at the same points; NaN where no number is known to be right, PyTorch's where it has one."""
    op = OPERATORS[label]
    points = [POINTS] if isinstance(op, UnaryUfuncInfo) else list(zip(*PAIRS, strict=True))
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for named in SECOND.get(label, MORE.get(label, ({},))):
            try:
                theirs = _second_slopes(torch, op.op, points, named)
            except (NotImplementedError, RuntimeError):  # it has none
                continue
            ours = _second_slopes(flambeau, for_flambeau(op.op, op.name), points, named)
            for k, y in theirs.items():
                x = ours.get(k, np.zeros(len(y)))
                for i in np.flatnonzero(~np.isclose(x.astype(complex), y.astype(complex), rtol=1e-6, atol=1e-15, equal_nan=True)):
                    found.append(f"{label}{tuple(p[i] for p in points)} {named}: second slope {k} {x[i]}, expected {y[i]}")
    assert len(found) <= (MOST_SECOND.get(label, 24) if label in KNOWN_SECOND else 0), "\n".join(found)


def test_second_slopes_where_limits_are_known() -> None:
    """Where PyTorch has none, or its formula cancels: in closed form."""
    x = flambeau.tensor([0.0, -0.0, 1e-300, 0.01, -0.1], dtype=flambeau.float64, requires_grad=True)
    (slope,) = flambeau.autograd.grad(flambeau.sinc(x).sum(), x, create_graph=True)
    (second,) = flambeau.autograd.grad(slope.sum(), x)
    s = np.pi * x.detach().numpy()
    np.testing.assert_allclose(second.numpy(), np.pi**2 * (-1 / 3 + s**2 / 10 - s**4 / 168 + s**6 / 6480), rtol=1e-7)
    x = flambeau.tensor([-1000.0, 1000.0, np.nan], dtype=flambeau.float64, requires_grad=True)
    (slope,) = flambeau.autograd.grad(flambeau.i0(x).sum(), x, create_graph=True)
    np.testing.assert_array_equal(flambeau.autograd.grad(slope.sum(), x)[0].numpy(), [np.inf, np.inf, np.nan])


@pytest.mark.parametrize("name", "clamp margin_ranking cosine_embedding hinge_embedding multi_margin multilabel_margin triplet softshrink".split())
def test_slopes_of_losses_at_nan_and_ties(name: str) -> None:
    nan = math.nan

    def slopes(m: Any) -> str:
        f = m.nn.functional
        x, y = (m.tensor(v, dtype=m.float64, requires_grad=True) for v in ([[nan, 1.0, 0.0], [1.0, 0.0, 0.0], [1.0, nan, 3.0]], [[1.0, nan, 0.0]] * 3))
        sign = m.tensor([1.0, -1.0, -1.0], dtype=m.float64)
        whole = m.tensor([[0, -1, 0], [0, 1, -1], [1, -1, -1]])
        loss = {
            "clamp": lambda: x.clamp(0.0, 1.0) + x.clamp(y, y + 1) + x.clamp_min(0) * 2 + y.clamp_max(0) * 3,
            "margin_ranking": lambda: f.margin_ranking_loss(x, y, sign.expand(3, 3), reduction="none"),
            "cosine_embedding": lambda: f.cosine_embedding_loss(x, y, sign, reduction="none"),
            "hinge_embedding": lambda: f.hinge_embedding_loss(x - y, sign, reduction="none"),
            "multi_margin": lambda: f.multi_margin_loss(x, whole[0].clamp(0), reduction="none") + f.multi_margin_loss(y, whole[1].clamp(0), p=2),
            "multilabel_margin": lambda: f.multilabel_margin_loss(x, whole, reduction="none") + f.multilabel_margin_loss(y, whole),
            "triplet": lambda: f.triplet_margin_loss(x, y, y + 1, eps=0.0, reduction="none"),
            # Without NaN: of that PyTorch's slope is another on another processor (docs/differences.md, "By the place in a vector").
            "softshrink": lambda: f.softshrink(x.nan_to_num()) + f.hardsigmoid(y),
        }[name]()
        grads = m.autograd.grad(loss.sum(), (x, y), allow_unused=True)
        return str([loss.tolist(), *[None if g is None else (g + 0.0).round(decimals=6).tolist() for g in grads]]).replace("-0.0", "0.0")

    assert slopes(flambeau) == slopes(torch)
