"""Runs one data-movement node on NumPy arrays with operands of any layout, without the planner."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from flambeau import dtypes
from flambeau.compiler.graph import Graph, Node, Value, contiguous_strides
from flambeau.compiler.kernel import Address, ErrorRecord, Kernel, Scratch, Word
from flambeau.compiler.kernels.move import make_move
from flambeau.runtime import jit
from flambeau.runtime.target import Target
from tests import reference
from tests.kernels.harness import SIGNATURE, aligned

Array = np.ndarray[Any, Any]
Outputs = Sequence[tuple[tuple[int, ...], dtypes.dtype]]
LAYOUTS = ("contiguous", "reversed", "stepped", "expanded")
GUARD, FILL = 64, 0xA5  # bytes after a result that no kernel may touch, and what they hold


def storage(d: dtypes.dtype) -> np.dtype[Any]:
    return np.dtype(d.numpy_name or "uint16")


def numbers(rng: np.random.Generator, shape: tuple[int, ...], d: dtypes.dtype, special: float = 0.0) -> Array:
    """Random elements as they are in memory; about this share of floating ones are NaN, infinite or a zero."""
    if d.category < 2:
        low, high = (0, 2) if d is dtypes.bool_ else (0 if not d.is_signed else -9, 10)
        return rng.integers(low, high, shape).astype(storage(d))
    x = rng.standard_normal(shape) * 3
    if d.is_complex:
        return (x + 1j * rng.standard_normal(shape)).astype(storage(d))
    x = np.where(rng.random(shape) < special, rng.choice([np.nan, -0.0, 0.0, np.inf, -np.inf, 1.0], shape), x)
    x = reference.to_bfloat16(x.astype(np.float32)) if d is dtypes.bfloat16 else np.asarray(x, storage(d))
    return x.reshape(shape)


class Move:
    """A node, its kernels and its buffers. `operands`: (array as in memory, dtype, layout); `outputs`: (shape,
    dtype)."""

    def __init__(
        self,
        op: str,
        operands: Sequence[tuple[Array, dtypes.dtype, str]],
        outputs: Outputs,
        workers: int = 2,
        **attrs: Any,
    ) -> None:
        self.graph = Graph()
        self.buffers: dict[int, Array] = {}
        inputs = [self._operand(*operand) for operand in operands]
        self.outs = [self.graph.add_value(Value(s, d, contiguous_strides(s))) for s, d in outputs]
        self.graph.nodes.append(Node(op, tuple(inputs), tuple(self.outs), tuple(sorted(attrs.items()))))
        self.kernels: list[Kernel] = make_move(self.graph, 0)
        self.error = np.zeros(3, np.int64)
        self.keep: list[Array] = []
        for i, value in enumerate(self.graph.values):
            if value.base is None and i not in self.buffers:
                self.buffers[i] = aligned(value.numel * value.dtype.itemsize + GUARD, FILL)
        self.workers = workers
        self.words = [np.array([self._word(w) for w in k.words], np.int64) for k in self.kernels]
        self.functions = [SIGNATURE(jit.function(k.key, partial(k.emit, Target.host()))) for k in self.kernels]

    def _operand(self, x: Array, d: dtypes.dtype, layout: str) -> int:
        """A value with the numbers of x in the wanted layout."""
        shape = x.shape
        strides, offset, size = list(contiguous_strides(shape)), 0, x.size
        if layout == "reversed":
            strides = list(contiguous_strides(shape[::-1]))[::-1]
        elif layout == "stepped" and shape:
            strides, offset, size = [2 * s for s in strides], 3, 2 * x.size + 3
        elif layout == "expanded" and x.size and shape:
            x = np.broadcast_to(x[..., :1], shape)
            strides = [*contiguous_strides(shape[:-1]), 0]
            size = x[..., 0].size
        flat = np.zeros(size, storage(d))
        item = flat.itemsize
        root = self.graph.add_value(Value((size,), d, (1,)))
        view = Value(shape, d, tuple(strides), offset, base=root)
        if x.size:
            np.ndarray(shape, flat.dtype, flat.view(np.uint8), offset * item, [s * item for s in strides])[...] = x
        self.graph.inputs.append(root)
        self.buffers[root] = flat.view(np.uint8)
        return self.graph.add_value(view)

    def _word(self, word: Word) -> int:
        if isinstance(word, Address):
            return int(self.buffers[word.value].ctypes.data) + word.offset
        if isinstance(word, Scratch):
            assert word.per_worker % 64 == 0
            self.keep.append(aligned(word.per_worker * self.workers + word.shared))
            return int(self.keep[-1].ctypes.data)
        return int(self.error.ctypes.data) if isinstance(word, ErrorRecord) else word

    def run(self, splits: int = 1) -> list[Array]:
        """The outputs as they are in memory; IndexError if a kernel reports an index. Units are dealt in `splits`
        ranges."""
        for kernel, words, function in zip(self.kernels, self.words, self.functions, strict=True):
            for write, read in kernel.starts_as:
                self.buffers[write][: self.buffers[read].size] = self.buffers[read]
            edges = sorted({kernel.units * s // splits // kernel.grain * kernel.grain for s in range(splits)})
            for number, (low, high) in enumerate(zip(edges, [*edges[1:], kernel.units], strict=True)):
                if high > low and function(words.ctypes.data, low, high, number % self.workers):
                    assert self.error[0] == 1 and kernel.fails is not None
                    raise IndexError(kernel.fails.format(value=self.error[1], bound=self.error[2]))
        results = []
        for out in self.outs:
            value = self.graph.values[out]
            nbytes = value.numel * value.dtype.itemsize
            assert (self.buffers[out][nbytes:] == FILL).all(), "written past the end"
            results.append(self.buffers[out][:nbytes].view(storage(value.dtype)).reshape(value.shape).copy())
        return results

    def expected(self) -> list[Array]:
        """What the reference interpreter gives."""
        self.graph.outputs = list(self.outs)
        flats = [self.buffers[i].view(storage(self.graph.values[i].dtype)) for i in self.graph.inputs]
        found = reference.run(self.graph, flats)[0]
        return [f.reshape(self.graph.values[o].shape) for f, o in zip(found, self.outs, strict=True)]


def close(got: Array, want: Array, d: dtypes.dtype, ulps: float) -> bool:
    """Equal where the dtype is exact, else within `ulps` units of the largest number's last place; NaN equals NaN."""
    if d.category < 2 or ulps == 0:
        return bool(np.array_equal(got, want) or (d.category >= 2 and _same_bits(got, want, d)))
    if d is dtypes.bfloat16:
        got, want = reference.to_float32(got), reference.to_float32(want)
    epsilon = {2: 2.0**-8 if d is dtypes.bfloat16 else 2.0**-11}.get(d.itemsize, float(np.finfo(got.dtype).eps))
    with np.errstate(all="ignore"):
        finite = np.isfinite(want)
        scale = float(np.abs(want[finite]).max()) if finite.any() else 1.0
        good = (np.abs(got.astype(complex) - want) <= ulps * epsilon * max(scale, 1.0)) | (got == want)
    return bool((good | (np.isnan(got) & np.isnan(want))).all())


def _same_bits(got: Array, want: Array, d: dtypes.dtype) -> bool:
    """Equal as bytes, but that any NaN equals any other."""
    if d is dtypes.bfloat16:
        nan = np.isnan(reference.to_float32(got)) & np.isnan(reference.to_float32(want))
    else:
        nan = np.isnan(got) & np.isnan(want)
    size = got.dtype.itemsize
    a, b = (x.reshape(-1).view(np.uint8).reshape(-1, size) for x in (got, want))
    return bool(((a == b).all(1) | nan.reshape(-1)).all())
