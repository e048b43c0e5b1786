"""Gradients of every operator of PyTorch's database at values where formulas break: `python -m tests.differential.slopes [MOST] [OPERATOR ...]`.

Zeros of both signs, ties, equal arguments, infinities, NaN, whole numbers, no elements, no dims: of each call first gradients, gradients of gradients and
tangents (forward mode), and for each argument alone whether results require gradients and have a `grad_fn`.
"""

from __future__ import annotations

import argparse
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

import flambeau
from flambeau.testing.agreement import array_of
from flambeau.testing.compare import Input, _built, _flat
from tests.differential.forms import form_cases
from tests.differential.known import INTERNAL, KNOWN, Known, skipped
from tests.differential.samples import OPERATORS, Case, Unsupported, cases, supported, torch
from tests.differential.sweep import TookTooLong, on_alarm

Array = np.ndarray[Any, Any]
Function = Callable[..., Any]


def _pattern(a: Array, *values: float) -> Array:
    """The array's elements, with these values in turn in the places of every second one."""
    flat = a.reshape(-1).copy()
    for i in range(0, flat.size, 2):
        flat[i] = values[(i // 2) % len(values)]
    return flat.reshape(a.shape)


VALUES: dict[str, Callable[[Array], Array]] = {
    "as they are": lambda a: a,
    "zeros": np.zeros_like,
    "negative zeros": lambda a: np.full_like(a, -0.0),
    "ones": np.ones_like,
    "a half": lambda a: np.full_like(a, 0.5),
    "some zeros": lambda a: _pattern(a, 0.0, -0.0),
    "whole": lambda a: _pattern(np.round(a), 1.0, -1.0, 0.0, 2.0),
    "infinities": lambda a: _pattern(a, np.inf, -np.inf),
    "infinite": lambda a: np.full_like(a, np.inf),
    "NaN": lambda a: _pattern(a, np.nan, 1.0, 0.0),
    "large": lambda a: a * 1e200,
    "small": lambda a: a * 1e-200,
    "very negative": lambda a: np.full_like(a, -1e3),
}


def with_values(x: Any, change: Callable[[Array], Array]) -> Any:
    """Arguments with other values in their floating tensors."""
    if isinstance(x, Input):
        if x.values.dtype.kind not in "fc":
            return x
        return Input(change(x.values).astype(x.values.dtype), x.dtype, strides=x.strides, offset=x.offset, requires_grad=x.requires_grad)
    if isinstance(x, (list, tuple)) and not hasattr(x, "_fields"):
        return type(x)([with_values(y, change) for y in x])
    if isinstance(x, dict):
        return {k: with_values(v, change) for k, v in x.items()}
    return x


def leaves_of(x: Any) -> list[Input]:
    """The inputs of a call that can require gradients, in order."""
    return [i for i in _inputs(x) if i.values.dtype.kind in "fc"]


def _inputs(x: Any) -> list[Input]:
    if isinstance(x, Input):
        return [x]
    if isinstance(x, (list, tuple)):
        return [i for y in x for i in _inputs(y)]
    return [i for y in x.values() for i in _inputs(y)] if isinstance(x, dict) else []


def _weights(module: Any, t: Any) -> Any:
    return module.linspace(0.5, 1.5, max(t.numel(), 1), dtype=module.float64)[: t.numel()].reshape(t.shape).to(t.dtype)


def _tensors(module: Any, result: Any) -> list[Any]:
    return [t for t in _flat(result) if isinstance(t, module.Tensor)]


class Tracked(NamedTuple):
    """What autograd says of a result. `given`: it is one of the arguments."""

    requires_grad: bool
    grad_fn: bool
    leaf: bool
    given: bool


def tracked(module: Any, function: Function, args: Any, kwargs: Any) -> list[Tracked]:
    """What autograd says of each result."""
    module.manual_seed(0)
    given, named = _built(module, args), _built(module, kwargs)
    inputs = [id(t) for t in _flat([given, named])]
    results = _tensors(module, function(*given, **named))
    return [Tracked(t.requires_grad, t.grad_fn is not None, t.is_leaf, id(t) in inputs) for t in results]


def _alike(ours: list[Tracked], theirs: list[Tracked]) -> bool:
    """Whether results agree; of those that are arguments in one framework and new tensors in the other, in requires_grad only."""
    return len(ours) == len(theirs) and all(x[:1] == y[:1] if x.given != y.given else x == y for x, y in zip(ours, theirs, strict=True))


def reverse(module: Any, function: Function, args: Any, kwargs: Any, order: int) -> list[list[Array | None]]:
    """Gradients of each order, by leaf."""
    given, named = _built(module, args), _built(module, kwargs)
    leaves = [t for t in _flat([given, named]) if isinstance(t, module.Tensor) and t.requires_grad]
    module.manual_seed(0)
    outs = [t for t in _tensors(module, function(*given, **named)) if t.requires_grad]
    found = []
    for k in range(order):
        if not outs:
            break
        grads = module.autograd.grad(outs, leaves, [_weights(module, t) for t in outs], create_graph=k + 1 < order, allow_unused=True)
        found.append([None if g is None else array_of(g) for g in grads])
        outs = [g for g in grads if g is not None and g.requires_grad]
    return found


def forward(module: Any, function: Function, args: Any, kwargs: Any) -> list[Array | None]:
    """Tangents of the results."""
    ad = module.autograd.forward_ad
    with ad.dual_level():

        def dual(t: Any) -> Any:
            if isinstance(t, module.Tensor):
                if not t.requires_grad:
                    return t
                plain = t.detach()
                return ad.make_dual(plain, _weights(module, plain))
            if isinstance(t, (list, tuple)) and not hasattr(t, "_fields"):
                return type(t)([dual(x) for x in t])
            return {k: dual(v) for k, v in t.items()} if isinstance(t, dict) else t

        given, named = dual(_built(module, args)), dual(_built(module, kwargs))
        module.manual_seed(0)
        results = _tensors(module, function(*given, **named))
        parts = [ad.unpack_dual(t).tangent for t in results if t.is_floating_point() or t.is_complex()]
        return [None if t is None else array_of(t) for t in parts]


def unlike(ours: list[Array | None], theirs: list[Array | None], tolerance: float) -> str | None:
    """How two lists of slopes differ; none and zeros are alike. A number where PyTorch has NaN is no fault: its limit, or 0."""
    if len(ours) != len(theirs):
        return f"{len(ours)} of them, expected {len(theirs)}"
    for i, (x, y) in enumerate(zip(ours, theirs, strict=True)):
        if x is None or y is None:
            other = x if y is None else y
            if other is not None and np.any(other != 0):
                return f"{i}: {'none' if x is None else 'some'}, expected {'none' if y is None else _few(y)}"
            continue
        if x.shape != y.shape or x.dtype != y.dtype:
            return f"{i}: {x.dtype}{list(x.shape)}, expected {y.dtype}{list(y.shape)}"
        with np.errstate(all="ignore"):
            x = np.where(np.isnan(y), y, x)
            finite = y[np.isfinite(y)]
            size = float(np.max(np.abs(finite))) if finite.size else 1.0
            if not np.allclose(x, y, rtol=tolerance, atol=max(tolerance * min(size, 1e300), 1e-13 if size > 1e-100 else 0.0), equal_nan=True):
                return f"{i}: {_few(x)}, expected {_few(y)}"
    return None


def _few(a: Array) -> str:
    return np.array2string(a.reshape(-1)[:8], precision=5, threshold=8).replace("\n", "")


def differences(case: Case, values: str, known: Known, order: int, both: bool) -> Iterator[str]:
    """What differs between the gradients of a call with such values. `both`: tangents too."""
    args, kwargs = with_values(case.args, VALUES[values]), with_values(case.kwargs, VALUES[values])
    ours, theirs = case.function
    tolerance = max(known.tolerance or 0.0, 1e-7)
    ways: dict[str, Callable[..., Any]] = {"gradient": lambda m, f: reverse(m, f, args, kwargs, order)}
    if both:
        ways["tangent"] = lambda m, f: [forward(m, f, args, kwargs)]
    for name, of in ways.items():
        try:
            expected = of(torch, theirs)
        except Exception:
            continue  # PyTorch refuses the call, or cannot differentiate it
        try:
            got = of(flambeau, ours)
        except Exception as error:
            yield f"{name}: {type(error).__name__}: {error}"
            continue
        for k, (x, y) in enumerate(zip(got, expected, strict=False), start=1):
            text = unlike(x, y, tolerance)
            if text is not None:
                yield f"{name} {k}: {text}"
                break
        else:
            more = [a for part in (*got[len(expected) :], *expected[len(got) :]) for a in part if a is not None]
            if any(np.any(a != 0) for a in more):
                yield f"{name}: {len(got)} orders, expected {len(expected)}"


def untracked(case: Case) -> Iterator[str]:
    """Where results require gradients, or have a grad_fn, otherwise than PyTorch's, by which argument requires them."""
    ours, theirs = case.function
    inputs = leaves_of([case.args, case.kwargs])
    for choice in [[], *[[i] for i in inputs], *([inputs] if len(inputs) > 1 else [])]:
        for i in inputs:
            i.requires_grad = any(i is c for c in choice)
        try:
            expected = tracked(torch, theirs, case.args, case.kwargs)
        except Exception as error:
            if "not differentiable" in str(error):
                try:
                    tracked(flambeau, ours, case.args, case.kwargs)
                    yield f"arguments {[k for k, i in enumerate(inputs) if i.requires_grad]}: no error, expected {error}"
                except Exception:
                    pass
            continue
        try:
            got = tracked(flambeau, ours, case.args, case.kwargs)
        except Exception as error:
            yield f"{type(error).__name__}: {error}"
            continue
        if not _alike(got, expected):
            yield f"arguments {[k for k, i in enumerate(inputs) if i.requires_grad]}: {got}, expected {expected}"


def operator(label: str, most: int, values: list[str], order: int, both: bool, dtype: str = "float64") -> Iterator[tuple[str, str]]:
    """All differences of an operator: (call, text)."""
    op = OPERATORS[label]
    known = KNOWN.get(label, Known(""))
    if not values:  # whether results require gradients, alone: with other sizes too
        for form in ("function", "size"):
            for case in form_cases(label, dtype, form, bool(op.supports_autograd), most):
                if not skipped(label, dtype, case.args, case.kwargs):
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        yield from ((f"{case.text[:200]} {form}", text) for text in untracked(case))
        return
    for case in cases(label, dtype, bool(op.supports_autograd), most):
        if skipped(label, dtype, case.args, case.kwargs):
            continue
        signal.alarm(300)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                requires = [i.requires_grad for i in leaves_of([case.args, case.kwargs])]
                for text in untracked(case):
                    yield case.text[:200], text
                for i, needs in zip(leaves_of([case.args, case.kwargs]), requires, strict=True):
                    i.requires_grad = needs
                if not known.values or not any(requires):
                    continue
                for name in values:
                    for text in differences(case, name, known, min(order, 2 if op.supports_gradgrad else 1), both):
                        yield f"{case.text[:200]} of {name}", text
        except TookTooLong:
            yield case.text[:200], "took more than five minutes"
        finally:
            signal.alarm(0)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.differential.slopes", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("most", nargs="?", type=int, default=3, help="cases for each operator")
    parser.add_argument("operators", nargs="*")
    parser.add_argument("--order", type=int, default=2)
    parser.add_argument("--values", nargs="*", default=list(VALUES))
    parser.add_argument("--dtype", default="float64")
    parser.add_argument("--part", type=int, nargs=2, default=(0, 1), help="every N-th operator from the K-th on")
    options = parser.parse_intermixed_args(arguments)
    signal.signal(signal.SIGALRM, on_alarm)
    wrong = 0
    k, n = options.part
    for label in (options.operators or list(OPERATORS))[k::n]:
        if label in INTERNAL or not supported(label, options.dtype):
            continue
        try:
            for call, text in operator(label, options.most, options.values, options.order, True, options.dtype):
                wrong += 1
                print("-", call, "\n       ", text, flush=True)
        except (AttributeError, Unsupported) as error:
            print(f"- {label}: missing: {error}", flush=True)
    print(f"{wrong} differences")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
