"""torch.distributed.pipelining.microbatch: batches cut into microbatches, and results put together again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import flambeau
from flambeau.tensor import Tensor
from flambeau.utils import _pytree as pytree


class TensorChunkSpec:
    """A tensor is cut along `split_dim`."""

    def __init__(self, split_dim: int) -> None:
        self.split_dim = split_dim

    def __repr__(self) -> str:
        return f"{type(self).__module__}.{type(self).__name__}({self.split_dim})"

    def __str__(self) -> str:
        return f"TensorChunkSpec({self.split_dim})"

    @staticmethod
    def from_tuple(chunk_dims: tuple[int, ...]) -> Any:
        """A specification for each argument."""
        return pytree.tree_map(TensorChunkSpec, chunk_dims)

    @staticmethod
    def from_dict(chunk_dims: dict[str, int]) -> Any:
        """A specification for each keyword argument."""
        return pytree.tree_map(TensorChunkSpec, chunk_dims)


class _Replicate:
    """Every microbatch gets the whole value."""


class _CustomReducer:
    """Microbatches' results are combined by a function, from a first value on."""

    def __init__(self, init_value: Any, reduce_fn: Callable[[Any, Any], Any]) -> None:
        self.init_value, self.reduce_fn = init_value, reduce_fn


def split_tensor(tensor: Tensor, dim: int, chunks: int) -> list[Tensor]:
    """A tensor in parts whose sizes differ by one at most. ValueError where there are fewer elements than parts."""
    if tensor.ndim == 0 or tensor.shape[dim] < chunks:
        raise ValueError(f"pipelining: a tensor of shape {tuple(tensor.shape)} cannot be cut into {chunks} microbatches along dim {dim}: it is too small")
    return list(flambeau.tensor_split(tensor, chunks, dim))


def _chunks_of(value: Any, spec: Any, chunks: int) -> list[Any]:
    if spec is None:
        spec = TensorChunkSpec(0) if isinstance(value, Tensor) else _Replicate()
    if isinstance(spec, TensorChunkSpec):
        if not isinstance(value, Tensor):
            raise ValueError(f"pipelining: a TensorChunkSpec is for a tensor, got {type(value).__name__}")
        return split_tensor(value, spec.split_dim, chunks)
    return [value] * chunks


def split_args_kwargs_into_chunks(
    args: tuple[Any, ...], kwargs: dict[str, Any] | None, chunks: int, args_chunk_spec: Sequence[Any] | None = None,
    kwargs_chunk_spec: Mapping[str, Any] | None = None,
) -> tuple[list[tuple[Any, ...]], list[dict[str, Any]]]:  # fmt: skip
    """The arguments of each microbatch. Tensors are cut along dim 0 unless a specification says otherwise; other values go to each."""
    whole: Any = (tuple(args), dict(kwargs or {}))
    leaves, structure = pytree.tree_flatten(whole)
    if args_chunk_spec is None and kwargs_chunk_spec is None:
        specs: list[Any] = [None] * len(leaves)
    else:
        given = (
            pytree.tree_map(lambda _: None, whole[0]) if args_chunk_spec is None else tuple(args_chunk_spec),
            pytree.tree_map(lambda _: None, whole[1]) if kwargs_chunk_spec is None else {key: kwargs_chunk_spec[key] for key in whole[1]},
        )
        specs = pytree.tree_flatten(given)[0]
        if len(specs) != len(leaves):
            raise ValueError(f"pipelining: there must be as many specifications of how to cut as arguments (in nested ones, too): {len(specs)}, {len(leaves)}")
    rows = [_chunks_of(leaf, spec, chunks) for leaf, spec in zip(leaves, specs, strict=True)]
    each = [pytree.tree_unflatten([row[i] for row in rows], structure) for i in range(chunks)]
    return [a for a, _ in each], [k for _, k in each]


def merge_chunks(chunks: list[Any], chunk_spec: Any) -> Any:
    """Microbatches' results as one: tensors are joined along dim 0 unless a specification says otherwise."""
    leaves, structure = pytree.tree_flatten(chunks[0])
    specs: list[Any] = [TensorChunkSpec(0)] * len(leaves) if chunk_spec is None else pytree.tree_flatten(chunk_spec)[0]
    rows = [pytree.tree_flatten(chunk)[0] for chunk in chunks]
    for row in rows:
        if len(row) != len(specs):
            raise ValueError(f"pipelining: a microbatch's result has {len(row)} values, and the specification {len(specs)}")
    return pytree.tree_unflatten([_merged([row[i] for row in rows], spec) for i, spec in enumerate(specs)], structure)


def _merged(values: list[Any], spec: Any) -> Any:
    if isinstance(spec, _CustomReducer):
        result = spec.init_value
        for value in values:
            result = spec.reduce_fn(result, value)
        return result
    if isinstance(spec, TensorChunkSpec) and isinstance(values[0], Tensor):
        return flambeau.cat(values, spec.split_dim)
    if any(value is not values[0] and value != values[0] for value in values):
        raise ValueError(f"pipelining: microbatches have different values, {values[0]!r} and others, and nothing says how to join them")
    return values[0]
