"""Every listed function has the result dtype under autocast that PyTorch's has."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch as pytorch

import flambeau
from flambeau.ops import autocast_lists as lists
from flambeau.ops.registry import Operation
from tests.amp.calls import CALLS


def dtypes_of(x: Any) -> Any:
    return tuple(dtypes_of(v) for v in x if v is not None) if isinstance(x, (tuple, list)) else str(x.dtype)


def outcome(module: Any, name: str, given: str, lower: str) -> Any:
    def make(*shape: int) -> Any:
        return module.randn(*shape).to(getattr(module, given))

    module.manual_seed(0)
    try:
        with warnings.catch_warnings(), module.autocast("cpu", dtype=getattr(module, lower)):
            warnings.simplefilter("ignore")
            return dtypes_of(CALLS[name](module, make))
    except (RuntimeError, ValueError, NotImplementedError, IndexError) as error:
        return error


@pytest.mark.parametrize("lower", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", CALLS)
def test_result_dtypes(name: str, lower: str) -> None:
    for given in ("float32", lower, "float64"):
        expected = outcome(pytorch, name, given, lower)
        if name == "linalg.pinv" and given == "float32":
            expected = "torch.float32"  # PyTorch multiplies the float32 factors in lower precision: docs/differences.md
        if isinstance(expected, Exception):
            continue  # PyTorch has no kernel for this dtype
        assert outcome(flambeau, name, given, lower) == expected, given


def test_names_in_the_lists_are_operations() -> None:
    import gc

    import flambeau.nn.functional

    for call in CALLS:  # loads what is loaded lazily
        outcome(flambeau, call, "float32", "bfloat16")
    known = {o.name.removeprefix("nn.functional.").replace(".", "_") for o in gc.get_objects() if type(o) is Operation}
    missing = (lists.LOWER | lists.FLOAT32 | lists.WIDEST | lists.INSIDE) - known
    assert not missing, f"no operation has the names {sorted(missing)}"


def tensors(x: Any) -> Iterator[Any]:
    if isinstance(x, (tuple, list)):
        for item in x:
            yield from tensors(item)
    elif x is not None:
        yield x


# Their signs, or the order of their vectors, are a matter of taste.
AMBIGUOUS = {"linalg.eigh", "linalg.qr", "linalg.svd", "svd", "qr"}


@pytest.mark.parametrize("name", sorted(set(CALLS) - AMBIGUOUS))
def test_values_are_pytorchs(name: str) -> None:
    """The same numbers, but for a rounding to bfloat16 in another place."""
    results = []
    for module in (pytorch, flambeau):
        module.manual_seed(0)  # the same arguments and initial weights
        with module.autocast("cpu", dtype=module.bfloat16):
            found = list(tensors(CALLS[name](module, lambda *shape, module=module: module.randn(*shape))))
        if module is pytorch:
            found = [t.resolve_conj() for t in found]
        results.append([(t.detach().to(module.complex128) if t.is_complex() else t.detach().double()).numpy() for t in found])
    for ours, theirs in zip(results[1], results[0], strict=True):
        scale = np.nanmax(np.abs(theirs), initial=0.0) + 1e-6
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=2.0**-7 * scale)
