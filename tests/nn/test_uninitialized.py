"""Parameters and buffers without a shape: what they answer, and what asks for their values, is what it is in PyTorch."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

import flambeau as ft

torch = pytest.importorskip("torch")

CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "added": lambda m, p: p + 1, "linear": lambda m, p: m.nn.functional.linear(m.ones(2), p), "summed": lambda m, p: m.sum(p),
    "numel": lambda m, p: p.numel(), "size": lambda m, p: tuple(p.size()), "device": lambda m, p: str(p.device), "dtype": lambda m, p: str(p.dtype),
    "grad": lambda m, p: p.grad, "requires": lambda m, p: p.requires_grad, "half": lambda m, p: str(p.half().dtype), "cpu": lambda m, p: p.cpu() is p,
    "ndim": lambda m, p: p.ndim, "dim": lambda m, p: p.dim(), "detached": lambda m, p: p.detach(), "leaf": lambda m, p: p.is_leaf,
    "in place": lambda m, p: p.mul_(2), "len": len, "item": lambda m, p: p[0], "bool": lambda m, p: bool(p), "equal": lambda m, p: p == p,
    "zeros": lambda m, p: m.nn.init.zeros_(p), "stride": lambda m, p: p.stride(), "clone": lambda m, p: p.clone(), "shape": lambda m, p: p.shape,
    "floating": lambda m, p: p.is_floating_point(), "layout": lambda m, p: str(p.layout), "text": lambda m, p: repr(p),
    "require": lambda m, p: p.requires_grad_(False), "shared": lambda m, p: p.share_memory_(),
    "copied": lambda m, p: type(copy.deepcopy(p)).__name__, "pickled": lambda m, p: type(pickle.loads(pickle.dumps(p))).__name__,
}  # fmt: skip


def outcome(m: Any, kind: str, call: Callable[[Any, Any], Any]) -> Any:
    try:
        found = call(m, getattr(m.nn.parameter, kind)()) if call is not len else len(getattr(m.nn.parameter, kind)())
    except Exception as error:
        return type(error).__name__
    return found if isinstance(found, (bool, int, str, tuple, type(None))) else type(found).__name__


@pytest.mark.parametrize("kind", ["UninitializedParameter", "UninitializedBuffer"])
@pytest.mark.parametrize("name", CALLS)
def test_what_they_answer(name: str, kind: str) -> None:
    copied = (name, kind) == ("copied", "UninitializedBuffer")  # PyTorch copies parameters alone
    assert outcome(ft, kind, CALLS[name]) == (kind if copied else outcome(torch, kind, CALLS[name]))


def test_lazy_norms_are_pickled_before_their_first_call() -> None:
    for m in (ft, torch):
        module = pickle.loads(pickle.dumps(m.nn.LazyBatchNorm1d(dtype=m.float64)))
        assert module.has_uninitialized_params()
        if m is ft:
            assert module.running_mean.dtype is ft.float64  # PyTorch forgets it
            module.double()(m.ones(2, 3, dtype=m.float64))
            assert tuple(module.running_mean.shape) == (3,) and type(module.weight) is ft.nn.Parameter


def test_materialize_takes_a_number() -> None:
    p = ft.nn.parameter.UninitializedParameter(dtype=ft.float16)
    p.materialize(10)
    assert tuple(p.shape) == (10,) and p.dtype is ft.float16 and type(p) is ft.nn.Parameter


@pytest.mark.parametrize("normalize", ["weight_norm", "spectral_norm"])
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_normalizations_ask_for_a_first_call(normalize: str) -> None:
    for m in (ft, torch):
        with pytest.raises(ValueError, match="can't have uninitialized parameters"):
            getattr(m.nn.utils, normalize)(m.nn.LazyLinear(3))


def test_scripts_ask_for_a_first_call() -> None:
    with pytest.raises(RuntimeError, match="uninitialized parameters weight"):
        ft.jit.script(ft.nn.LazyLinear(3))
