"""Runs kernels by themselves, without the planner: NumPy arrays stand for the buffers of a graph's values."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from flambeau.compiler.graph import Graph
from flambeau.compiler.kernel import Address, ErrorRecord, Function, Kernel, Scratch, Word
from flambeau.runtime.target import Target

# i64 kernel(ptr args, i64 begin, i64 end, i64 worker)
SIGNATURE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


def aligned(nbytes: int, fill: int = 0xA5) -> np.ndarray:
    """Bytes at an address that is a multiple of 64, filled with rubbish: kernels must not count on zeros."""
    raw = np.full(nbytes + 64, fill, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + nbytes]


class Runner:
    """Binds each kernel's words to the buffers once, then runs them as often as wanted."""

    def __init__(self, kernels: Sequence[Kernel], graph: Graph, buffers: dict[int, np.ndarray], workers: int = 2) -> None:
        from flambeau.runtime import jit

        self.buffers = buffers
        self.kernels = list(kernels)
        self.keep: list[np.ndarray] = []
        self.error = np.zeros(3, np.int64)
        for kernel in kernels:  # roots that the kernels added to the graph
            for root in (*kernel.reads, *kernel.writes):
                if root not in buffers:
                    value = graph.values[root]
                    buffers[root] = aligned(value.numel * value.dtype.itemsize)
                    self.keep.append(buffers[root])
        self.words = [np.array([self._word(word, workers) for word in kernel.words], np.int64) for kernel in kernels]
        self.addresses = [words.ctypes.data for words in self.words]
        self.functions: list[Callable[..., int]] = [SIGNATURE(jit.function(k.key, partial(k.emit, Target.host()))) for k in kernels]

    def _word(self, word: Word, workers: int) -> int:
        if isinstance(word, Address):
            assert not word.dynamic, "the harness has no parameters"
            return int(self.buffers[word.value].ctypes.data) + word.offset
        if isinstance(word, Scratch):
            self.keep.append(aligned(word.per_worker * workers + word.shared))
            return int(self.keep[-1].ctypes.data)
        if isinstance(word, Function):
            from flambeau.runtime import jit

            return jit.function(word.key, partial(word.emit, Target.host()))
        if isinstance(word, ErrorRecord):
            return int(self.error.ctypes.data)
        return word

    def part(self, at: int, begin: int, end: int, worker: int = 0) -> None:
        """Units [begin, end) of kernel number `at`."""
        assert self.functions[at](self.addresses[at], begin, end, worker) == 0

    def run(self, splits: int = 1) -> None:
        """All kernels in order, the units of each handed out in `splits` ranges to two alternating workers."""
        for at, kernel in enumerate(self.kernels):
            edges = [kernel.units * s // splits // kernel.grain * kernel.grain for s in range(splits)] + [kernel.units]
            for number, (begin, end) in enumerate(itertools.pairwise(edges)):
                if end > begin:
                    self.part(at, begin, end, number % 2)
