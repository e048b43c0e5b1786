"""Data movement by index, order and scan: which module computes a node.

| nodes                                                  | module      |
|--------------------------------------------------------|-------------|
| `take_rows`, `put_rows`, `put`                         | rows.py     |
| `gather`, `scatter`                                    | elements.py |
| `sort`                                                 | sort.py     |
| `topk`                                                 | sort.py     |
| `cumsum`, `cumprod`, `cummax`, `cummin`, `logcumsumexp`| scan.py     |

Inputs may be views of any strides; results are dense, row-major.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from flambeau.compiler.graph import SCAN, Graph
from flambeau.compiler.kernel import Kernel
from flambeau.compiler.kernels.elements import gather_kernels, make_gather, make_scatter
from flambeau.compiler.kernels.rows import make_put_rows, make_take_rows
from flambeau.compiler.kernels.scan import make_scan
from flambeau.compiler.kernels.sort import make_sort, make_topk


def _take_rows(graph: Graph, node_index: int) -> list[Kernel]:
    """Rows of one element, and nothing around the indexed dim, are gathered."""
    node = graph.nodes[node_index]
    x, index = (graph.values[v] for v in node.inputs)
    dim = node.attr("dim")
    if x.shape and x.numel == x.shape[dim]:
        return gather_kernels(graph, node_index, x.shape[dim], x.strides[dim], [0] * len(index.shape))
    return make_take_rows(graph, node_index)


_MAKERS: Final[dict[str, Callable[[Graph, int], list[Kernel]]]] = {
    "take_rows": _take_rows, "put_rows": make_put_rows, "put": make_put_rows, "gather": make_gather,
    "scatter": make_scatter, "sort": make_sort, "topk": make_topk, **dict.fromkeys(SCAN, make_scan),
}  # fmt: skip
MOVES: Final = frozenset(_MAKERS)


def make_move(graph: Graph, node_index: int) -> list[Kernel]:
    """Kernels of a node of MOVES, in the order in which they must run (none where the result has no elements).

    What one writes and the next reads may be a new value of the graph (a temporary).
    """
    return _MAKERS[graph.nodes[node_index].op](graph, node_index)
