"""The factor `alpha` of sums and differences, of every kind beside results of every kind: refused, also where it is 1, as in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flambeau

torch = pytest.importorskip("torch")

FACTORS: tuple[Any, ...] = (
    True, False, 1, 0, 2, 1.0, 0.0, 2.0, 1j, 1 + 0j, np.float32(1), np.float64(2), np.int64(1), "number", "truth", "fraction",
)  # fmt: skip
CALLS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "add": lambda m, x, a: m.add(x, x, alpha=a), "add_": lambda m, x, a: x.clone().add_(x, alpha=a), "add of a number": lambda m, x, a: m.add(x, 1, alpha=a),
    "sub": lambda m, x, a: m.sub(x, x, alpha=a), "rsub": lambda m, x, a: m.rsub(x, x, alpha=a),
    "out": lambda m, x, a: m.add(x, x, alpha=a, out=m.empty_like(x)), "index_add": lambda m, x, a: x.index_add(0, m.tensor([0]), x[:1], alpha=a),
    "foreach": lambda m, x, a: m._foreach_add([x], [x], alpha=a)[0], "addr": lambda m, x, a: m.addr(x[:, None], x, x[:1], alpha=a),
    "beta": lambda m, x, a: m.addr(x[:, None], x, x[:1], beta=a),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_factors(name: str) -> None:
    unlike = []
    for dtype in ("bool", "uint8", "int64", "float32", "float16", "complex64"):
        for given in FACTORS:
            found: list[Any] = []
            for m in (torch, flambeau):
                a = {"number": m.tensor(1), "truth": m.tensor(True), "fraction": m.tensor(1.0)}[given] if isinstance(given, str) else given
                for _ in range(2):  # the second time the call is known
                    try:
                        result = CALLS[name](m, m.ones(2, dtype=getattr(m, dtype)), a)
                        found.append((str(result.dtype).rpartition(".")[2], result.tolist()))
                    except (RuntimeError, TypeError, ValueError) as error:
                        found.append(error)
            same = [
                isinstance(b, type(a)) if isinstance(a, Exception) or isinstance(b, Exception) else a == b for a, b in zip(found[:2], found[2:], strict=True)
            ]
            if not all(same):
                unlike.append((dtype, given, found[0], found[2], found[3]))
    assert unlike == []
