"""Primitives that take an index, inside an operation's body: any integer dtype does, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest

import flambeau
from flambeau import Tensor, dtypes
from flambeau.compiler.check import GraphError, infer
from flambeau.compiler.graph import INDEXED, Node, Value, contiguous_strides
from flambeau.ops import primitives
from flambeau.ops.registry import operation

INTEGERS: Final = (dtypes.uint8, dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64)
_POOL: Final = {"kernel": (2, 2), "stride": (2, 2), "padding": (0, 0), "dilation": (1, 1), "shape": (1, 1, 4, 6)}


def _square(x: Any, index: Any) -> Any:
    return index.reshape(2, 3)


# What each primitive does with a matrix of 4 x 6 and six indices below 4.
USES: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "take": lambda x, index: primitives.take(x.reshape(24), index),
    "take_rows": lambda x, index: primitives.take_rows(x, index, dim=0),
    "put_rows": lambda x, index: primitives.put_rows(x, index, x.repeat(2, 1)[:6], dim=0, mode="add"),
    "put": lambda x, index: primitives.put(x.reshape(24), index, x.reshape(24)[:6], mode="add"),
    "gather": lambda x, index: primitives.gather(x, _square(x, index), dim=0),
    "scatter": lambda x, index: primitives.scatter(x, _square(x, index), x[:2, :3] * 2.0, dim=1, mode="add"),
    "max_pool_gradient": lambda x, index: primitives.max_pool_gradient(x[:2, :3].reshape(1, 1, 2, 3), index.reshape(1, 1, 2, 3), **_POOL),
}


def _operation(name: str) -> Any:
    def body(x: Tensor, index: Tensor) -> Tensor:
        return USES[name](x, index)

    return operation(body, name=f"indexed_{name}", public=False)


OPERATIONS: Final = {name: _operation(name) for name in USES}


def _matrix() -> Any:
    return flambeau.tensor(np.arange(24.0, dtype=np.float32).reshape(4, 6), requires_grad=True)


def test_every_indexed_primitive_is_used() -> None:
    assert USES.keys() == INDEXED


@pytest.mark.parametrize("name", USES)
@pytest.mark.parametrize("kind", INTEGERS, ids=lambda d: d.name)
def test_integers_of_every_size(name: str, kind: dtypes.dtype) -> None:
    """The results and gradients that int64 gives."""
    found = []
    for d in (dtypes.int64, kind):
        x = _matrix()
        y = OPERATIONS[name](x, flambeau.tensor([0, 3, 1, 1, 2, 0], dtype=d))
        (y * y).sum().backward()
        found.append((y.detach().numpy().tobytes(), x.grad.numpy().tobytes()))
    assert found[0] == found[1]


@pytest.mark.parametrize("name", USES)
@pytest.mark.parametrize("kind", [dtypes.float32, dtypes.bool_, dtypes.complex64], ids=lambda d: d.name)
def test_other_dtypes_are_refused_at_the_call(name: str, kind: dtypes.dtype) -> None:
    with pytest.raises(RuntimeError, match=rf"{name}: expected an index of integers, got .*{kind.name.rstrip('_')}.*cast it"):
        OPERATIONS[name](_matrix(), flambeau.zeros(6, dtype=kind))


@pytest.mark.parametrize("name", sorted(INDEXED))
def test_graphs_hold_int64(name: str) -> None:
    """Nothing else reaches the code generators."""
    index = Value((6,), dtypes.int32, contiguous_strides((6,)))
    x = Value((24,), dtypes.float32, (1,))
    with pytest.raises(GraphError, match=f"{name}: index of int32, must be int64"):
        infer(Node(name, (0, 1, 2), ()), [x, index, x][: 2 if name in ("take", "take_rows", "gather", "max_pool_gradient") else 3])
