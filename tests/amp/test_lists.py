"""Every listed function has the result dtype under autocast that PyTorch's has."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch as pytorch

import flambeau
from flambeau.amp import lists
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
