"""Functions with several results: whichever of them are read, dropped, written to and differentiated, in whatever order, on paths that are learned.

A learned path (a known edge, a shortcut over several, a tape that segments share) must not answer for a call that differs in anything it left out of
its key: here, in who still holds which result. Each script runs until it is known, then others run on the same path. PyTorch is the reference.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import flambeau

torch = pytest.importorskip("torch")

Action = tuple[str, int]  # what is done, to which result
DATA = np.random.default_rng(3).standard_normal((4, 4)).astype(np.float32)

FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "max": lambda m, x: x.max(1),
    "min": lambda m, x: x.min(0),
    "median": lambda m, x: x.median(1),
    "nanmedian": lambda m, x: x.nanmedian(1),
    "kthvalue": lambda m, x: x.kthvalue(2, 1),
    "mode": lambda m, x: x.mode(1),
    "sort": lambda m, x: x.sort(1),
    "topk": lambda m, x: x.topk(2, 1),
    "cummax": lambda m, x: x.cummax(1),
    "cummin": lambda m, x: x.cummin(0),
    "aminmax": lambda m, x: m.aminmax(x, dim=1),
    "var_mean": lambda m, x: m.var_mean(x, 1),
    "std_mean": lambda m, x: m.std_mean(x, 1),
    "unbind": lambda m, x: (x * 2).unbind(0),
    "chunk": lambda m, x: x.chunk(2),
    "split": lambda m, x: (x * 2).split([1, 3], 1),
    "max_pool1d": lambda m, x: m.nn.functional.max_pool1d(x[None], 2, return_indices=True),
    "max_pool2d": lambda m, x: m.nn.functional.max_pool2d(x[None, None], 2, return_indices=True),
    "max_pool3d": lambda m, x: m.nn.functional.max_pool3d(x[None, None, None], (1, 2, 2), return_indices=True),
    "adaptive_max_pool1d": lambda m, x: m.nn.functional.adaptive_max_pool1d(x[None], 2, return_indices=True),
    "frexp": lambda m, x: m.frexp(x),
    "slogdet": lambda m, x: m.linalg.slogdet(x),
    "qr": lambda m, x: m.linalg.qr(x),
    "eigh": lambda m, x: m.linalg.eigh(x @ x.mT),
    "svd": lambda m, x: m.linalg.svd(x, full_matrices=False)[1:2] * 2,
    "lu": lambda m, x: m.linalg.lu(x)[1:],
    "inv_ex": lambda m, x: m.linalg.inv_ex(x),
    "cholesky_ex": lambda m, x: m.linalg.cholesky_ex(x @ x.mT + m.eye(4)),
}
ACTIONS = ("read", "drop", "write", "backward", "grad")


def run(module: Any, name: str, script: Sequence[Action], writes: bool = True) -> list[Any]:
    """What a script sees: values, gradients, and where errors are raised; with or without its writes."""
    x = module.tensor(DATA).requires_grad_()
    results = list(FUNCTIONS[name](module, x))
    seen: list[Any] = []
    for action, i in script:
        t = results[i]
        if t is None:
            continue
        try:
            if action == "read":
                seen.append(t.tolist())
            elif action == "drop":
                results[i] = None
            elif action == "write":
                if not t.requires_grad:
                    if writes:
                        t.zero_()
                    t.tolist()
            elif t.requires_grad:
                weights = module.arange(1.0, t.numel() + 1).reshape(t.shape)
                if action == "backward":
                    (t * weights).sum().backward(retain_graph=True)
                    seen.append([])
                else:
                    seen.append(module.autograd.grad((t * weights).sum(), x, retain_graph=True)[0].tolist())
        except RuntimeError:
            seen.append("error")
        del t
    seen.append(None if x.grad is None else x.grad.tolist())
    return seen


def check(name: str, scripts: Sequence[Sequence[Action]]) -> None:
    for script in scripts:
        expected, unwritten = run(torch, name, script), run(torch, name, script, writes=False)
        for _ in range(2):
            got = run(flambeau, name, script)
            assert len(got) == len(expected), script
            for a, b, c in zip(got, expected, unwritten, strict=True):
                assert alike(a, b) or (b in ("error", None) and alike(a, c)), (script, a, b)  # the gradient as it should be is as good as a refusal


def alike(a: Any, b: Any) -> bool:
    """Whether two entries of what was seen agree."""
    return a == b if a is None or b is None or "error" in (a, b) else np.allclose(a, b, rtol=2e-3, atol=2e-3)


def scripts_of(count: int) -> list[tuple[Action, ...]]:
    """All scripts of up to three actions on up to two results, with different actions in a row."""
    single = list(itertools.product(ACTIONS, range(min(count, 2))))
    return [script for n in (1, 2, 3) for script in itertools.permutations(single, n)]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_in_all_orders(name: str) -> None:
    rng = random.Random(name)
    count = len(FUNCTIONS[name](torch, torch.tensor(DATA)))
    scripts = scripts_of(count)
    if name == "max":
        scripts = rng.sample(scripts, 80)
    else:
        scripts = rng.sample(scripts, min(len(scripts), 20))
    rng.shuffle(scripts)
    check(name, scripts)


def test_index_dropped_then_kept() -> None:
    """The pass that was learned while nobody could write to the indices must ask for their version when somebody can."""
    check("max", [[("drop", 1), ("read", 0), ("backward", 0)]] * 3 + [[("read", 1), ("write", 1), ("backward", 0)]])


def test_index_kept_then_dropped() -> None:
    check("max", [[("read", 0), ("read", 1), ("backward", 0)]] * 3 + [[("drop", 1), ("read", 0), ("backward", 0)]])


def test_a_known_pass_asks_for_the_dtype_of_gradients() -> None:
    for k in range(6):
        x = flambeau.ones(3).requires_grad_()
        if k > 3:
            x.grad_dtype = flambeau.float64
        (x * x).sum().backward()
        assert x.grad is not None and x.grad.dtype is (flambeau.float64 if k > 3 else flambeau.float32)
        x.grad.tolist()


def test_a_known_pass_calls_hooks_of_saved_values() -> None:
    for k in range(6):
        x = flambeau.full((3,), 0.5).requires_grad_()
        packed: list[Any] = []
        if k < 4:
            x.exp().sum().backward()
        else:
            with flambeau.autograd.graph.saved_tensors_hooks(lambda t, p=packed: (p.append(t), t)[1], lambda t: t):
                x.exp().sum().backward()
            assert packed
        assert x.grad is not None and np.allclose(x.grad.tolist(), np.exp(0.5))
