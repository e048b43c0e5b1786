"""An operator's function for tensors without values, against what the operator gives."""

from __future__ import annotations

import math
from typing import Any

from flambeau import operator_shapes
from flambeau._subclasses.fake_tensor import FakeTensor, FakeTensorMode, MetadataMismatchError
from flambeau.grad_modes import no_grad
from flambeau.library import CustomOpDef
from flambeau.tensor import Tensor
from flambeau.testing._internal.optests.sharing import each_other, memory_of, tensors
from flambeau.utils._pytree import tree_leaves, tree_map


def fake_check(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """MetadataMismatchError where the two differ in shape, strides, dtype, device, offset, need of gradients, or in what shares memory with what.

    Operators of aten and composites have nothing to compare.
    """
    definition = op._function
    if not isinstance(definition, CustomOpDef) or definition._composite:
        op(*args, **kwargs)
        return
    mode = FakeTensorMode()
    fakes = tree_map(lambda x: fake_of(mode, x), (args, kwargs))
    said, free = results_without_values(definition, mode, *fakes)
    with no_grad():
        real = definition._fn(*args, **kwargs)
    where = f"When comparing the output of {op} on FakeTensor and concrete Tensors, found"
    listed, claimed = tree_leaves(real), tree_leaves(said)
    if len(listed) != len(claimed):
        raise AssertionError(f"{where} mismatch in number of returns {len(claimed)} != {len(listed)}")
    _same_sharing(where, real, (args, kwargs), said, fakes)
    for i, (one, other) in enumerate(zip(listed, claimed, strict=True)):
        if isinstance(one, Tensor) != isinstance(other, Tensor):
            raise AssertionError(f"{where} mismatched number of tensor outputs")
        if isinstance(one, Tensor):
            why = _difference(one, other, free[i])
            if why:
                raise MetadataMismatchError(f"{where} mismatched tensor metadata{'' if len(listed) == 1 else f' for output[{i}]'}: {why}")


def fake_of(mode: FakeTensorMode, value: Any) -> Any:
    """A tensor's layout without its values; anything else as it is."""
    return mode.from_tensor(value) if isinstance(value, Tensor) else value


def results_without_values(definition: CustomOpDef, mode: FakeTensorMode, args: Any, kwargs: Any) -> tuple[Any, list[set[int]]]:
    """(the results for fake arguments, for each of them the dims that depend on values).

    Two stand-ins are taken for a size that depends on values: the dims in which the results differ are those.
    """

    def run(stand_in: int) -> tuple[Any, int]:
        asked = operator_shapes.FakeImplCtx(definition._name, lambda low, high: max(low, stand_in if high is None else min(high, stand_in)))
        with mode, operator_shapes.context(asked):
            return FakeTensorMode.dispatch(mode, definition._opoverload, args, kwargs), asked.asked

    first, asked = run(7)
    if not asked:
        return first, [set() for _ in tree_leaves(first)]
    second, _ = run(11)
    pairs = zip(tree_leaves(first), tree_leaves(second), strict=True)
    return first, [{d for d in range(a.ndim) if a.shape[d] != b.shape[d]} if isinstance(a, Tensor) else set() for a, b in pairs]


def _same_sharing(where: str, real: Any, given: Any, said: Any, fakes: Any) -> None:
    memory = {id(_bottom(f)) for f in tensors(fakes)}

    def fake_memory(t: Tensor) -> bool:
        return id(_bottom(t)) in memory

    ids, fake_ids = {id(t) for t in tensors(given)}, {id(t) for t in tensors(fakes)}
    compared = {
        "outputs_alias_inputs": (bool(memory_of(real) & memory_of(given)), any(fake_memory(t) for t in tensors(said))),
        "outputs_are_inputs": (any(id(t) in ids for t in tensors(real)), any(id(t) in fake_ids for t in tensors(said))),
        "outputs_alias_each_other": (each_other([real]), len({id(_bottom(t)) for t in tensors(said)}) < len(tensors(said))),
    }
    for what, (is_so, is_said) in compared.items():
        if is_so != is_said:
            raise MetadataMismatchError(f"{where} mismatch in {what} check {is_said} != {is_so}")


def _bottom(t: Tensor) -> Any:
    """The tensor whose memory a fake one is a view of."""
    under: Any = t._elements if isinstance(t, FakeTensor) else t
    while under._base is not None:
        under = under._base
    return under


def _difference(real: Tensor, fake: Tensor, free: set[int]) -> str:
    if real.requires_grad != fake.requires_grad:
        return (
            "mismatched requires_grad-ness of outputs. This usually means that you have added autograd support for your operator at a dispatch key other "
            "than Autograd, which will lead to problems"
        )
    if real.ndim != fake.ndim or any(a != b for d, (a, b) in enumerate(zip(real.shape, fake.shape, strict=True)) if d not in free):
        return f"Shapes {real.shape} and {fake.shape} are not equal!"
    if real.dtype is not fake.dtype:
        return f"Dtypes {real.dtype} and {fake.dtype} are not equal!"
    if real.device != fake.device:
        return f"Devices {real.device} and {fake.device} are not equal!"
    if math.prod(real.shape) and not free and any(a != b for a, b, n in zip(real.stride(), fake.stride(), real.shape, strict=True) if n > 1):
        return f"Stride mismatch! Strides are {real.stride()} and {fake.stride()}!"
    if real.storage_offset() != fake.storage_offset():
        return f"mismatched storage offset {real.storage_offset()} and {fake.storage_offset()}"
    return ""
