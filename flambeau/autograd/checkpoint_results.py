"""Results of checkpointed functions: tensors in whatever is returned (tuples, dicts, dataclasses), and whether a second run gives what the first one gave."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any


class CheckpointError(RuntimeError):
    """What was computed again differs from what was computed first."""

    __module__ = "flambeau.utils.checkpoint"  # where programs find it


class Shape:
    """How results were put together: `make` gets them back as they were, of other tensors."""

    __slots__ = ("make",)

    def __init__(self, make: Callable[[Iterator[Any]], Any]) -> None:
        self.make = make


def results_of(x: Any, tensors: list[Any]) -> Shape:
    """The shape of results, whose tensors are added to a list."""
    return Shape(_taken(x, tensors, set()))


def with_results(shape: Shape, tensors: Iterator[Any]) -> Any:
    """Results of this shape with other tensors. Objects with names (dicts, dataclasses) are the same objects, written to."""
    return shape.make(tensors)


def detached(x: Any) -> Any:
    """Results without a history."""
    tensors: list[Any] = []
    shape = results_of(x, tensors)
    return with_results(shape, iter([t.detach() for t in tensors]))


def _taken(x: Any, tensors: list[Any], inside: set[int]) -> Callable[[Iterator[Any]], Any]:
    if hasattr(type(x), "_meta"):
        tensors.append(x)
        return next
    kind = type(x)
    if id(x) in inside:
        return lambda _: x
    inside = inside | {id(x)}
    if kind in (tuple, list) or (isinstance(x, tuple) and hasattr(x, "_make")):
        parts = [_taken(part, tensors, inside) for part in x]
        make = x._make if hasattr(x, "_make") else kind
        return lambda new: make([part(new) for part in parts])
    if isinstance(x, dict):
        return _written(x, list(x.items()), x.__setitem__, tensors, inside)
    if dataclasses.is_dataclass(x) and not isinstance(x, type):
        fields = [(f.name, getattr(x, f.name, None)) for f in dataclasses.fields(x)]
        return _written(x, fields, lambda name, value: object.__setattr__(x, name, value), tensors, inside)
    return lambda _: x


def _written(x: Any, parts: list[tuple[Any, Any]], write: Callable[[Any, Any], None], tensors: list[Any], inside: set[int]) -> Callable[[Iterator[Any]], Any]:
    before = len(tensors)
    made = []
    for name, part in parts:
        count = len(tensors)
        make = _taken(part, tensors, inside)
        if len(tensors) > count:
            made.append((name, make))
    if len(tensors) == before:
        return lambda _: x

    def again(new: Iterator[Any]) -> Any:
        for name, make in made:
            write(name, make(new))
        return x

    return again


def again_as_before(metas: Sequence[Any], results: Any, check: Any) -> list[Any]:
    """The tensors of a second run's results; CheckpointError if they are others than those of the first run."""
    tensors: list[Any] = []
    results_of(results, tensors)
    kind, debug = check
    if kind == "none":
        return tensors
    if len(tensors) != len(metas):
        raise CheckpointError(
            "torch.utils.checkpoint: A different number of tensors was saved during the original forward and recomputation.\n"
            f"Number of tensors in the results during forward: {len(metas)}\nNumber of tensors in them during recomputation: {len(tensors)}.{_hint(debug)}"
        )
    found = [(tuple(t.shape), t.dtype, t.device) for t in tensors]
    different = [(i, a, b) for i, (a, b) in enumerate(zip(metas, found, strict=True)) if a != b]
    if different:
        lines = [f"tensor at position {i}:\nsaved metadata: {_told(a)}\nrecomputed metadata: {_told(b)}" for i, a, b in different]
        raise CheckpointError(
            "torch.utils.checkpoint: Recomputed values for the following tensors have different metadata than during the forward pass.\n"
            + "\n".join(lines) + _hint(debug)
        )  # fmt: skip
    return tensors


def _told(meta: Any) -> str:
    shape, dtype, device = meta
    return f"{{'shape': {list(shape)}, 'dtype': {dtype}, 'device': {device}}}"


def _hint(debug: bool) -> str:
    return "\nThe function did not do the same when it was run again: what it depends on beside its arguments has changed, or it counts its calls." + (
        " You are seeing this error because you passed `debug=True` to checkpoint." if debug else ""
    )
