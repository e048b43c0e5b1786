"""Host calls: the decompositions of linalg, which NumPy does between two native segments of a plan.

A `host_call` node has the attributes `function` (a name of FUNCTIONS) and `kwargs`, a sorted tuple of (name, value). A
function takes NumPy arrays (views of the plan's buffers: read only) and returns one array for each of the node's outputs.
The functions are in host_linalg.py and host_ldl.py. What fails for the values of a matrix is in an `info` result; any other
numpy.linalg.LinAlgError, which is a ValueError, reaches the caller of a plan as RuntimeError.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from flambeau.compiler.graph import Value
from flambeau.compiler.kernels import host_ldl, host_linalg
from flambeau.compiler.kernels.host_step import HostCall
from flambeau.statistics import counters

Array = np.ndarray[Any, Any]


def numpy_view(memory: Array, value: Value, offset: int) -> Array:
    """The value as a NumPy array over `memory` (the bytes of its root's buffer); `offset` in elements of its dtype."""
    d = value.dtype
    name = d.numpy_name or f"uint{8 * d.itemsize}"
    typed: Array = np.frombuffer(memory, np.uint8)
    if value.numel == 0:
        return np.empty(value.shape, name)
    start = offset * d.itemsize
    strides = tuple(s * d.itemsize for s in value.strides)
    return np.ndarray(value.shape, name, typed, start, strides)


def number(x: Any, value: Value) -> Array:
    """A run-time parameter as a 0-d array."""
    return np.asarray(x, value.dtype.numpy_name)


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {**host_linalg.FUNCTIONS, **host_ldl.FUNCTIONS}


def call(step: HostCall, inputs: list[Array], outputs: list[Array]) -> None:
    """Run the function and write its results into the output arrays."""
    counters.host_calls += 1
    try:
        with np.errstate(all="ignore"):  # infinities and NaN are results, here as in kernels
            results = FUNCTIONS[step.function](*inputs, **step.kwargs)
    except np.linalg.LinAlgError as error:
        raise RuntimeError(f"{step.function}: {error}") from None
    if not isinstance(results, tuple):
        results = (results,)
    for out, result in zip(outputs, results, strict=True):
        if out.shape != np.shape(result):
            raise RuntimeError(f"{step.function}: result of shape {np.shape(result)}, the graph says {out.shape}")
        out[...] = result
