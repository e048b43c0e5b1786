"""Reductions give the same bits whether what they reduce is computed by the same kernel or read from memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as torch
from flambeau.trace import tiers
from tests.engine.test_classes import bits

SIZES = (1, 2, 3, 4, 5, 7, 8, 16, 17, 33)
REDUCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda x, d: x.sum(d), "mean": lambda x, d: x.mean(d), "prod": lambda x, d: x.prod(d[0]), "softmax": lambda x, d: x.softmax(d[0]),
    "var": lambda x, d: x.var(d), "logsumexp": lambda x, d: x.logsumexp(d), "norm": lambda x, d: x.norm(dim=d), "cumsum": lambda x, d: x.cumsum(d[0]),
    "all": lambda x, d: x.sum(),
}  # fmt: skip
BEFORE: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b, "mul": lambda a, b: a * b, "exp": lambda a, b: (a + b).exp(), "gelu": lambda a, b: torch.nn.functional.gelu(a - b),
    "transposed": lambda a, b: (a * b).mT.sigmoid() if a.ndim > 1 else a * b,
}  # fmt: skip
SHAPES = st.lists(st.tuples(st.sampled_from(SIZES), st.booleans()), min_size=1, max_size=4)  # sizes, and whether the second operand is repeated along it


@pytest.mark.filterwarnings("ignore")
@settings(max_examples=60, deadline=None)
@given(SHAPES, st.permutations(range(4)), st.integers(1, 4), st.sampled_from(sorted(REDUCTIONS)), st.sampled_from(sorted(BEFORE)),
       st.sampled_from(["float64", "float32", "float16"]))  # fmt: skip
def test_fused_and_alone(shape: list[tuple[int, bool]], order: list[int], count: int, name: str, before: str, dtype: str) -> None:
    dims = tuple([d for d in order if d < len(shape)][:count])
    found = []
    for tier in (tiers.PIECES, tiers.WHOLE):
        kept, tiers.MODE[0] = tiers.MODE[0], tier
        try:
            torch.manual_seed(0)
            a = torch.randn(*[n for n, _ in shape], dtype=getattr(torch, dtype))
            b = torch.randn(*[1 if repeated else n for n, repeated in shape], dtype=getattr(torch, dtype))
            found.append(bits((a.tolist(), b.tolist(), REDUCTIONS[name](BEFORE[before](a, b), dims))))
        finally:
            tiers.MODE[0] = kept
    assert found[0] == found[1]
