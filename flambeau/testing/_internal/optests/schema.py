"""What an operator writes to and is a view of, against what its schema says."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import combinations
from typing import Any

from flambeau.grad_modes import no_grad
from flambeau.library import CustomOpDef
from flambeau.tensor import Tensor
from flambeau.testing._internal.optests.sharing import memory_of, tensors


def schema_check(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], **_: Any) -> None:
    """Run the operator's function and compare its arguments before and after, and its results with them. RuntimeError for what the schema does not say."""
    definition = op._function
    if isinstance(definition, CustomOpDef) and definition._composite:
        op(*args, **kwargs)  # what it calls has schemas of its own
        return
    schema = op._schema
    arguments = schema.bound(args, kwargs)
    before = {name: [(t.detach().clone(), t.stride(), memory_of(t)) for t in tensors(value)] for name, value in arguments.items()}
    opaque = isinstance(definition, CustomOpDef) and definition._opaque
    kernel = definition._fn if isinstance(definition, CustomOpDef) else op
    with no_grad() if opaque or not isinstance(definition, CustomOpDef) else nullcontext():
        result = kernel(*args, **kwargs)
    results = result if isinstance(result, tuple) else (result,)
    for argument in schema.arguments:
        value = arguments.get(argument.name)
        name = "input" if argument.name == "self" else argument.name
        if value is None:
            continue
        for i, (given, declared) in enumerate(zip(results, schema.returns, strict=False)):
            if memory_of(given) & memory_of(value) and not schema.may_contain_alias(declared, argument):
                raise RuntimeError(f"Argument {name} is not defined to alias output but was aliasing")
            if isinstance(value, Tensor) and given is value and not argument.is_write:
                raise RuntimeError(
                    f"Dispatcher operators below autograd are not allowed to directly return inputs. However, we found that `outputs[{i}] is {name}"
                )
        if not argument.is_write and any(_differs(*old, new) for old, new in zip(before[argument.name], tensors(value), strict=True)):
            raise RuntimeError(f"Argument {name} is not defined as mutable but was mutated")
    for i, j in combinations(range(min(len(results), len(schema.returns))), 2):
        if memory_of(results[i]) & memory_of(results[j]) and not schema.may_contain_alias(schema.returns[i], schema.returns[j]):
            raise RuntimeError(f"Outputs {i} and {j} alias unexpectedly")


def _differs(elements: Tensor, strides: tuple[int, ...], memory: set[int], now: Tensor) -> bool:
    """Whether a tensor is another than it was: its shape, strides, memory or elements (NaN is NaN)."""
    if elements.shape != now.shape or strides != now.stride() or memory != memory_of(now):
        return True
    now = now.detach()
    return not bool(((elements == now) | ((elements != elements) & (now != now))).all())
