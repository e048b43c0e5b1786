"""The primitive of host calls: decompositions, whose functions are in compiler/kernels/host.py.

attrs: function (a name there), kwargs (sorted pairs), results ((shape, dtype) of each). The gradient rules are a table by
function: ops/linalg/gradients.py fills it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau.compiler.graph import Value
from flambeau.ops.primitive import dense, primitive
from flambeau.trace.meta import Meta
from flambeau.trace.strides import column_major_strides

GRADIENTS: dict[str, Callable[..., Any]] = {}


def gradient(function: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: the rule below it, (context, *gradients of the results), belongs to this function."""

    def add(rule: Callable[..., Any]) -> Callable[..., Any]:
        GRADIENTS[function] = rule
        return rule

    return add


def refuse(c: Any, error: Exception) -> tuple[None, ...]:
    """Raise the error of a result that has no gradient; not in the dry run that finds what a trace must save."""
    if c.region.dry:
        return (None,) * c.count
    raise error


# Functions whose matrices come as LAPACK leaves them, with their columns one after the other.
COLUMN_MAJOR = frozenset("cholesky qr geqrf lu ldl ldl_solve eigh eig svd inv solve solve_triangular lstsq".split())


def _host_rule(metas: list[Meta], attrs: dict[str, Any]) -> list[Value]:
    found = [value for shape, d in attrs["results"] for value in dense(shape, d)]
    if attrs["function"] in COLUMN_MAJOR:
        for v in found:
            if len(v.shape) == metas[0].ndim:  # a matrix, not its eigenvalues, pivots, ...
                v.strides = column_major_strides(v.shape)
    return found


@primitive("host_call", _host_rule)
def host_call(c, *gs):
    if all(g is None for g in gs):
        return (None,) * c.count
    function = c.attrs["function"]
    if function not in GRADIENTS:
        return refuse(c, NotImplementedError(f"the derivative for '{function}' is not implemented: detach its argument"))
    return GRADIENTS[function](c, *gs)


def call_host(function: str, inputs: tuple[Any, ...], *results: tuple[tuple[int, ...], Any], **kwargs: Any) -> Any:
    """Record a call; `results`: (shape, dtype) of each. One tensor, or a tuple of them."""
    return host_call(*inputs, function=function, kwargs=tuple(sorted(kwargs.items())), results=results)
