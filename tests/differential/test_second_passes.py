"""A second backward pass is refused where PyTorch refuses it, for all of its operators: what a call gives up is what its node saves there (given_up.py)."""

from __future__ import annotations

import random
import signal
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

import flambeau
from flambeau.testing.compare import Input, _built
from flambeau.trace import tiers
from tests.differential.forms import hash_of
from tests.differential.known import INTERNAL
from tests.differential.samples import OPERATORS, Case, Unsupported, cases, supported, torch
from tests.differential.sweep import on_alarm

# Documented (docs/differences.md, "A second backward pass"): compositions that keep more here, or whose further results are calls of their own.
OTHERWISE = {"linalg.lstsq", "native_group_norm", "native_layer_norm", "triangular_solve"}
LABELS = sorted(label for label in set(OPERATORS) - INTERNAL - OTHERWISE if OPERATORS[label].supports_autograd and supported(label, "float64"))


@pytest.fixture(autouse=True)
def alarm() -> Iterator[None]:
    """A case that does not end fails; the tier is afterwards as it was."""
    tier, before = tiers.MODE[0], signal.signal(signal.SIGALRM, on_alarm)
    signal.alarm(240)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
    tiers.MODE[0] = tier


def given(m: Any, x: Any, alone: int | None, made: list[Any]) -> Any:
    """An argument in a package; its tensors are put into `made`. `alone`: the only one of them that requires gradients."""
    if isinstance(x, Input):
        t = _built(m, x).detach()
        if t.is_floating_point() or t.is_complex():
            t.requires_grad_(alone is None or len(made) == alone)
            made.append(t)
        return t
    if isinstance(x, (list, tuple)) and not hasattr(x, "_fields"):
        return type(x)([given(m, v, alone, made) for v in x])
    return _built(m, x)


def tensors_of(m: Any, result: Any) -> list[Any]:
    if isinstance(result, m.Tensor):
        return [result] if result.requires_grad else []
    return [t for x in result for t in tensors_of(m, x)] if isinstance(result, (list, tuple)) else []


def what_comes(m: Any, case: Case, alone: int | None, how: str, looks: bool) -> str:
    """Of two passes: "fine", or which of them is refused; "" where there is nothing to be seen."""
    made: list[Any] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            args = given(m, case.args, alone, made)
            results = tensors_of(m, case.function[m is torch](*args, **{k: given(m, v, alone, made) for k, v in case.kwargs.items()}))
        except Exception:  # other tests compare errors of calls
            return ""
        leaves = [t for t in made if t.requires_grad]
        if not results or not leaves:
            return ""
        for turn, roots in enumerate((results[:1], results[-1:]) if how == "parts" else (results, results)):
            try:
                gradients = [m.ones_like(t) for t in roots]
                if how == "grad":
                    m.autograd.grad(roots, leaves, gradients, allow_unused=True)
                else:
                    m.autograd.backward(roots, gradients)
            except RuntimeError as error:
                return f"refused {turn}" if "Trying to backward through the graph a second time" in str(error) else ""
            if looks:
                (roots[0].detach() + 0).sum().item()
    return "fine"


@pytest.mark.parametrize("label", LABELS)
def test_operator(label: str) -> None:
    draw = random.Random(hash_of(label))
    found = []
    try:
        samples = list(cases(label, "float64", True, 2))
    except Unsupported:
        samples = []
    for case in samples:
        count: list[Any] = []
        given(torch, (case.args, list(case.kwargs.values())), None, count)
        for alone in (None, draw.randrange(len(count))) if len(count) > 1 else (None,):
            for how in ("all", draw.choice(("grad", "parts"))):
                looks, tier = draw.random() < 0.5, draw.choice((tiers.PIECES, tiers.WHOLE, tiers.MIXED))
                tiers.MODE[0] = tier
                theirs = what_comes(torch, case, alone, how, looks)
                ours = what_comes(flambeau, case, alone, how, looks) if theirs else ""
                if theirs and ours != theirs:
                    found.append(f"{case.text[:200]}, gradients of {alone}, {how}, looks {looks}, tier {tier!r}: {ours}, PyTorch {theirs}")
    assert not found, "\n".join(found)


def program(m: Any, seed: int) -> list[Any]:
    """A chain of calls that is looked at here and there, then passes towards leaves behind what was given up, and towards others."""
    draw = random.Random(seed)
    leaves = [m.tensor([0.5 + i, 1.5], dtype=m.float64, requires_grad=True) for i in range(3)]
    values = list(leaves)
    steps = [
        lambda a, b: a * b, lambda a, b: a + b, lambda a, b: a.exp(), lambda a, b: a**1, lambda a, b: a.flip(0), lambda a, b: m.add(a, b, alpha=2),
        lambda a, b: a.mean() + b, lambda a, b: m.lerp(a, b, 0.25), lambda a, b: (a + 0).mul_(b), lambda a, b: a * 2, lambda a, b: with_an_element(a + 0),
        lambda a, b: a.cumsum(0), lambda a, b: (a + 1).view(2, 1).add_(1).view(2),
    ]  # fmt: skip
    for _ in range(draw.randint(2, 8)):
        values.append(draw.choice(steps)(draw.choice(values), draw.choice(values)))
        if draw.random() < 0.3:
            values[-1].sum().item()
    shown: list[Any] = []
    refused = False  # a pass that was: which leaves it has come to before is not compared
    for _ in range(5):
        root, retain, target = draw.choice(values[3:]).sum(), draw.random() < 0.2, draw.choice(leaves)
        how = draw.randrange(4)
        try:
            if how < 2:
                (g,) = m.autograd.grad(root, [target], allow_unused=how == 0, retain_graph=retain)
                shown.append(None if g is None else g.tolist())
            else:
                root.backward(retain_graph=retain, **({"inputs": [target]} if how == 2 else {}))
        except RuntimeError as error:
            text = str(error)
            refused = refused or how >= 2
            shown.append(next((word for word in ("second time", "not have been used", "does not require grad") if word in text), text))
        if draw.random() < 0.5:
            root.item()
        if draw.random() < 0.2 and len(values) > 4:
            values.pop(3)
    return shown if refused else [*shown, [None if t.grad is None else t.grad.tolist() for t in leaves]]


def with_an_element(t: Any) -> Any:
    t[0] = 0.0
    return t


@pytest.mark.parametrize("tier", [tiers.PIECES, tiers.WHOLE, tiers.MIXED])
def test_programs(tier: str) -> None:
    tiers.MODE[0] = tier
    wrong = []
    for seed in range(120):
        theirs = program(torch, seed)
        for turn in range(2):
            ours = program(flambeau, seed)
            if ours != theirs and not close(ours, theirs):
                wrong.append(f"{seed} turn {turn}: {ours}\n    PyTorch {theirs}")
    assert not wrong, "\n".join(wrong)


def close(a: Any, b: Any) -> bool:
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(close, a, b))
    return bool(a == pytest.approx(b, rel=1e-9)) if isinstance(a, float) and isinstance(b, float) else bool(a == b)


@pytest.mark.parametrize("tier", [tiers.PIECES, tiers.WHOLE, tiers.MIXED])
def test_what_is_behind_outlives_its_segments(tier: str) -> None:
    tiers.MODE[0] = tier
    for m in (flambeau, torch):
        x, other = m.tensor([1.0], requires_grad=True), m.tensor([1.0], requires_grad=True)
        h = x * 1.5
        for _ in range(120):
            h = h * 1.5
            h.sum().item()
        h.backward()
        h.item()
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            m.autograd.grad(h, [x], allow_unused=True)
        assert m.autograd.grad(h, [other], allow_unused=True) == (None,)
