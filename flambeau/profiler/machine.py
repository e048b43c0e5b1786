"""What this machine can do, measured once a process: bytes a second of memory, operations a second of each dtype.

The measure of a roofline (Williams, Waterman and Patterson, 2009): no kernel is faster than its bytes at the bandwidth, or its
operations at the peak. Bandwidth of memory: x + 1 over 64 MiB. Of the second-level caches, where smaller kernels find their data:
by how much x + 1 takes longer over 512 KiB than over 128 KiB. Peak: a product of 768 x 768 matrices, which stays in the caches.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from time import perf_counter
from typing import Any, Final

from flambeau import dtypes
from flambeau.compiler.graph import CONTRACT, Graph
from flambeau.compiler.schedule import Step

_ELEMENTS: Final = 1 << 24
_SIZE: Final = 768


def _best(work: Callable[[], Any], repeat: int) -> float:
    least = float("inf")
    for _ in range(repeat):
        start = perf_counter()
        work().data_ptr()
        least = min(least, perf_counter() - start)
    return least


@cache
def bandwidth() -> float:
    """Bytes a second, read and written together."""
    import flambeau as torch

    with torch.no_grad():
        x = torch.ones(_ELEMENTS)
        return 2 * 4 * _ELEMENTS / _best(lambda: x + 1, 24)


@cache
def cache_bandwidth() -> float:
    """Bytes a second, read and written together, of what fits into the second-level caches."""
    import flambeau as torch

    with torch.no_grad():
        small, large = torch.ones(1 << 15), torch.ones(1 << 17)
        longer = _best(lambda: large + 1, 200) - _best(lambda: small + 1, 200)
        return max(2 * 4 * (large.numel() - small.numel()) / max(longer, 1e-9), bandwidth())


@cache
def cached_bytes() -> int:
    """The second-level caches of the processors in use, together."""
    from flambeau.runtime import target, threads

    return target.cache_bytes(2) * threads.count()


@cache
def peak(dtype: dtypes.dtype = dtypes.float32) -> float:
    """Operations a second (a multiplication and an addition are two) in matrix products of a dtype."""
    import flambeau as torch

    if dtype not in (dtypes.float64, dtypes.bfloat16, dtypes.float16, dtypes.float32):
        return peak(dtypes.float32)
    with torch.no_grad(), torch.autocast("cpu", enabled=False):
        a = torch.ones(_SIZE, _SIZE, dtype=dtype)
        return 2 * _SIZE**3 / _best(lambda: a @ a, 25)


def dtype_of(graph: Graph, step: Step) -> dtypes.dtype:
    """The dtype that a step computes in: of its product's operands, else of what it writes."""
    for i in step.nodes:
        if graph.nodes[i].op in CONTRACT:
            return graph.values[graph.nodes[i].inputs[0]].dtype
    return graph.values[step.writes[0]].dtype if step.writes else dtypes.float32


def floor_seconds(nbytes: float, operations: float, dtype: dtypes.dtype = dtypes.float32) -> float:
    """The least time that so many bytes of traffic (from the caches, if they fit there) and operations can take here."""
    return max(nbytes / (cache_bandwidth() if nbytes <= cached_bytes() else bandwidth()), operations / peak(dtype) if operations else 0.0)
