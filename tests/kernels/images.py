"""Graphs of one node over images, with operands in any layout, and their runs: for convolution and pooling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from flambeau import dtypes
from flambeau.compiler.graph import Graph, Node, Value, contiguous_strides
from flambeau.compiler.kernel import Kernel
from tests import reference
from tests.kernels.harness import Runner, aligned

Array = np.ndarray[Any, Any]


def random_layout(rng: np.random.Generator, shape: tuple[int, ...], plain: bool) -> tuple[tuple[int, ...], int]:
    """Strides and offset of a view: contiguous if `plain`, else a random order of dims with gaps."""
    if plain:
        return contiguous_strides(shape), 0
    strides = [0] * len(shape)
    step = 1
    for dim in rng.permutation(len(shape)):
        strides[dim] = step * int(rng.choice((1, 1, 2)))
        step = max(1, strides[dim] * max(shape[dim], 1))
    return tuple(strides), int(rng.integers(0, 5))


def numbers(rng: np.random.Generator, count: int, d: dtypes.dtype) -> Array:
    """Flat random storage of a dtype: normal floats (bfloat16 as bits), small integers."""
    if d is dtypes.bfloat16:
        return reference.to_bfloat16(rng.standard_normal(count).astype(np.float32))
    if d.is_floating_point:
        return rng.standard_normal(count).astype(d.numpy_name)
    return rng.integers(0 if not d.is_signed else -6, 7, count).astype(d.numpy_name)


class Case:
    """One node. `operands`: (shape, strides, offset, storage) of each input; `outs`: (shape, dtype) of each output."""

    def __init__(
        self, op: str, operands: Sequence[tuple[tuple[int, ...], tuple[int, ...], int, Array, dtypes.dtype]],
        outs: Sequence[tuple[tuple[int, ...], dtypes.dtype]], attrs: dict[str, Any],
    ) -> None:  # fmt: skip
        self.graph = Graph()
        self.storages: list[Array] = []
        ids = []
        for shape, strides, offset, storage, d in operands:
            root = self.graph.add_value(Value((storage.size,), d, (1,)))
            self.graph.inputs.append(root)
            self.storages.append(storage)
            ids.append(self.graph.add_value(Value(shape, d, strides, offset, root)))
        self.outs = [self.graph.add_value(Value(s, d, contiguous_strides(s))) for s, d in outs]
        self.graph.nodes.append(Node(op, tuple(ids), tuple(self.outs), tuple(sorted(attrs.items()))))
        self.graph.outputs = list(self.outs)

    def expected(self) -> list[Array]:
        """By the NumPy reference; bfloat16 as float32."""
        flat, _ = reference.run(self.graph, self.storages)
        return [reference.logical(f, self.graph.values[o]) for f, o in zip(flat, self.outs, strict=True)]

    def run(self, make: Callable[[Graph], list[Kernel]], splits: int = 1) -> list[Array]:
        """By the kernels, their units handed out in `splits` ranges; bfloat16 as float32."""
        kernels = make(self.graph)
        buffers: dict[int, Array] = {}
        for root, storage in zip(self.graph.inputs, self.storages, strict=True):
            buffers[root] = aligned(storage.nbytes)
            buffers[root][:] = storage.view(np.uint8)
        for o in self.outs:
            value = self.graph.values[o]
            buffers[o] = aligned(value.numel * value.dtype.itemsize)
        Runner(kernels, self.graph, buffers).run(splits)
        found = []
        for o in self.outs:
            value = self.graph.values[o]
            flat = buffers[o].view(reference.storage_type(value.dtype))
            found.append(reference.logical(flat, value).copy())
        return found


def operand(
    rng: np.random.Generator, shape: tuple[int, ...], d: dtypes.dtype, plain: bool
) -> tuple[tuple[int, ...], tuple[int, ...], int, Array, dtypes.dtype]:  # fmt: skip
    """A random operand for `Case`."""
    strides, offset = random_layout(rng, shape, plain)
    count = offset + 1 + sum(s * max(0, n - 1) for s, n in zip(strides, shape, strict=True))
    return shape, strides, offset, numbers(rng, count, d), d
