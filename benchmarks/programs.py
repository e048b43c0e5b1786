"""Kernels bound to arrays as native programs, so that benchmarks measure what a plan runs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from flambeau import dtypes
from flambeau.compiler.graph import Graph
from flambeau.compiler.kernel import Address, Function, Kernel, Scratch
from flambeau.runtime import jit, threads
from flambeau.runtime.runner import Program, Task
from flambeau.runtime.target import Target

Array = np.ndarray[Any, Any]


def aligned(count: int, d: dtypes.dtype) -> Array:
    """`count` random numbers at a multiple of 64; integers are small, bfloat16 is held as its bits, in int16."""
    raw = np.ones(count * d.itemsize + 64, np.uint8)
    start = -raw.ctypes.data % 64
    array = raw[start : start + count * d.itemsize].view(d.numpy_name or np.int16)
    numbers = np.random.default_rng(0).standard_normal(count)
    if d.numpy_name is None:
        array[:] = (numbers.astype(np.float32).view(np.int32) >> 16).astype(np.int16)
    elif d.is_floating_point or d.is_complex:
        array[:] = numbers
    else:
        array[:] = (numbers * 8).astype(np.int8)
    return array


def bind(graph: Graph, kernels: Sequence[Kernel], arrays: dict[int, Array]) -> tuple[Program, list[Array]]:
    """The kernels in order as a program that runs without inputs, and the arrays that it needs alive.

    `arrays`: those of the graph's roots; the roots that only kernels know get theirs here.
    """
    arrays = dict(arrays)
    keep: list[Array] = []
    words: list[int] = []
    phases = []
    for kernel in kernels:
        first = len(words)
        for word in kernel.words:
            if isinstance(word, Address):
                if word.value not in arrays:
                    value = graph.values[word.value]
                    arrays[word.value] = aligned(value.numel, value.dtype)
                words.append(arrays[word.value].ctypes.data + word.offset)
            elif isinstance(word, Scratch):
                area = np.zeros(word.per_worker * threads.count() + word.shared + 64, np.uint8)
                keep.append(area)
                words.append((area.ctypes.data + 63) // 64 * 64)
            elif isinstance(word, Function):
                words.append(jit.function(word.key, partial(word.emit, Target.host())))
            elif isinstance(word, int):
                words.append(word)
            else:
                raise TypeError(f"unexpected word {word!r}")
        address = jit.function(kernel.key, partial(kernel.emit, Target.host()))
        phases.append([Task(address, first, kernel.units, kernel.grain, kernel.min_units_per_thread)])
    return Program(words, [], phases, 0), [*arrays.values(), *keep]
