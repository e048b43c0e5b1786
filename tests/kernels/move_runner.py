"""Runs one data-movement node on NumPy arrays (views of any strides), without the planner."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from kernel_runner import SIGNATURE, aligned, jit

from flambeau import dtypes
from flambeau.compiler.graph import Graph, Node, Value, contiguous_strides
from flambeau.compiler.kernel import Address, ErrorRecord, Kernel, Scratch


class IndexFailure(Exception):
    """A kernel reported an index: `value`, `bound`."""

    def __init__(self, text: str, value: int, bound: int) -> None:
        super().__init__(text.format(value=value, bound=bound))


def add_input(graph: Graph, buffers: dict[int, np.ndarray], array: np.ndarray, dtype: dtypes.dtype | None = None) -> int:
    """A view value over the array's ultimate base, so that its strides and offset are really used."""
    base = array
    while isinstance(base.base, np.ndarray):
        base = base.base
    d = dtype or dtypes.BY_NAME[array.dtype.name]
    item = array.itemsize
    if not base.flags.owndata or array.size == 0:
        base = array = np.array(array, copy=True, order="K")
    low = base.__array_interface__["data"][0]
    flat = np.ndarray((base.nbytes,), np.uint8, ctypes_view(base)) if base.nbytes else np.empty(0, np.uint8)
    root = graph.add_value(Value((base.size,), d, (1,)))
    buffers[root] = flat
    graph.inputs.append(root)
    offset = (array.__array_interface__["data"][0] - low) // item if array.size else 0
    strides = tuple(s // item for s in array.strides)
    return graph.add_value(Value(array.shape, d, strides, offset, base=root))


def ctypes_view(array: np.ndarray) -> Any:
    memory = (ctypes.c_uint8 * array.nbytes).from_address(array.__array_interface__["data"][0])
    memory.owner = array  # type: ignore[attr-defined]
    return memory


class Move:
    """A node, its kernels and its buffers. `arrays` are inputs; `outputs` are (shape, dtype)."""

    def __init__(self, op: str, arrays: list[np.ndarray], outputs: list[tuple[tuple[int, ...], dtypes.dtype]],
                 attrs: dict[str, Any], workers: int = 2, bfloat16: bool = False) -> None:  # fmt: skip
        from flambeau.compiler.kernels.move import make_move

        self.graph = Graph()
        self.arrays = arrays
        self.buffers: dict[int, np.ndarray] = {}
        inputs = [
            add_input(self.graph, self.buffers, a, dtypes.bfloat16 if bfloat16 and a.dtype == np.uint16 else None)
            for a in arrays
        ]
        outs = [self.graph.add_value(Value(s, d, contiguous_strides(s))) for s, d in outputs]
        self.graph.nodes.append(Node(op, tuple(inputs), tuple(outs), tuple(sorted(attrs.items()))))
        self.kernels: list[Kernel] = make_move(self.graph, 0)
        self.outs = outs
        self.error = np.zeros(3, np.int64)
        self.keep: list[np.ndarray] = []
        for value_id, value in enumerate(self.graph.values):
            if value.base is None and value_id not in self.buffers:
                self.buffers[value_id] = aligned(value.numel * value.dtype.itemsize)
        self.workers = workers
        self.words = [np.array([self._word(w) for w in k.words], np.int64) for k in self.kernels]
        self.functions = [SIGNATURE(jit.function(k.key, k.emit)) for k in self.kernels]

    def _word(self, word: Any) -> int:
        if isinstance(word, Address):
            return int(self.buffers[word.value].ctypes.data) + word.offset
        if isinstance(word, Scratch):
            assert word.per_worker % 64 == 0
            self.keep.append(aligned(word.per_worker * self.workers + word.shared))
            return int(self.keep[-1].ctypes.data)
        if isinstance(word, ErrorRecord):
            return int(self.error.ctypes.data)
        return word

    def run(self, splits: int = 1) -> list[np.ndarray]:
        """The outputs as arrays (bfloat16 as uint16)."""
        for kernel, words, function in zip(self.kernels, self.words, self.functions, strict=True):
            for write, read in kernel.starts_as:
                self.buffers[write][:] = self.buffers[read]
            edges = sorted({kernel.units * s // splits // kernel.grain * kernel.grain for s in range(splits)})
            for number, (low, high) in enumerate(zip(edges, [*edges[1:], kernel.units], strict=True)):
                if high > low and function(words.ctypes.data, low, high, number % self.workers):
                    assert self.error[0] == 1 and kernel.fails
                    raise IndexFailure(kernel.fails, int(self.error[1]), int(self.error[2]))
        results = []
        for out in self.outs:
            value = self.graph.values[out]
            results.append(self.buffers[out].view(value.dtype.numpy_name or np.uint16).reshape(value.shape))
        return results
