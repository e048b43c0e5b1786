"""torch.nn.parallel.parallel_apply: several modules, each of its own inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau.nn.modules.module import Module
from flambeau.tensor import Tensor


def get_a_var(obj: Any) -> Tensor | None:
    """The first tensor of a structure of lists, tuples and dicts, or None."""
    if isinstance(obj, Tensor):
        return obj
    parts: Any = obj if isinstance(obj, (list, tuple)) else obj.items() if isinstance(obj, dict) else ()
    return next((found for found in map(get_a_var, parts) if found is not None), None)


def parallel_apply(modules: Sequence[Module], inputs: Sequence[Any], kwargs_tup: Any = None, devices: Any = None) -> list[Any]:
    """Each module of its inputs (a tuple or list of arguments, or one argument), one after the other."""
    if len(modules) != len(inputs):
        raise AssertionError(f"The number of modules {len(modules)} is not equal to the number of inputs {len(inputs)}")
    kwargs_tup = [{}] * len(modules) if kwargs_tup is None else kwargs_tup
    if len(modules) != len(kwargs_tup):
        raise AssertionError(f"The number of modules {len(modules)} is not equal to the number of kwargs_tup {len(kwargs_tup)}")
    calls = zip(modules, inputs, kwargs_tup, strict=True)
    return [module(*(x if isinstance(x, (list, tuple)) else (x,)), **kwargs) for module, x, kwargs in calls]


__all__ = ["get_a_var", "parallel_apply"]
