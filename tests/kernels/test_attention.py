"""The attention kernels, forward and backward, against the NumPy reference in float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flambeau import dtypes
from flambeau.compiler.graph import Graph, contiguous_strides
from flambeau.compiler.kernel import Kernel
from flambeau.compiler.kernels.attention import make_attention
from tests import reference
from tests.kernels.images import Array, Case, operand

Operand = tuple[tuple[int, ...], tuple[int, ...], int, Array, dtypes.dtype]
TOLERANCE = {"float64": 1e-13, "float32": 4e-6, "float16": 4e-3, "bfloat16": 3e-2}


def make(graph: Graph) -> list[Kernel]:
    return make_attention(graph, 0)


def plain(x: Array, d: dtypes.dtype) -> Operand:
    """An array as a contiguous operand."""
    stored = reference.to_bfloat16(x) if d is dtypes.bfloat16 else x.astype(d.numpy_name)
    return x.shape, contiguous_strides(x.shape), 0, stored.ravel(), d


def mask_of(rng: np.random.Generator, kind: str, batch: tuple[int, ...], length: int, source: int, wide: dtypes.dtype) -> Operand:
    """A mask that all heads share; "padding" is one for all queries."""
    rows = 1 if kind == "padding" else length
    hidden = rng.random((rows, source)) < 0.3
    if rows > 2:
        hidden[1] = True  # a query that may attend nothing
    if kind == "add":
        storage = np.where(hidden, -np.inf, rng.standard_normal((rows, source))).astype(wide.numpy_name).ravel()
    else:
        storage = ~hidden.ravel()
    strides = (*[0] * len(batch), source if rows > 1 else 0, 1)
    return (*batch, length, source), strides, 0, storage, wide if kind == "add" else dtypes.bool_


def cases(
    batch: tuple[int, ...], length: int, source: int, head: int, value: int, causal: bool = False, mask: str = "",
    dropout: float = 0.0, d: dtypes.dtype = dtypes.float32, is_plain: bool = True, seed: int = 0,
) -> tuple[Case, Case]:  # fmt: skip
    """The forward node, and the backward node with what the forward one saved."""
    rng = np.random.default_rng(seed)
    wide = dtypes.float64 if d is dtypes.float64 else dtypes.float32
    inputs = [operand(rng, (*batch, *s), d, is_plain) for s in ((length, head), (source, head), (source, value))]
    rest = [mask_of(rng, mask, batch, length, source, wide)] if mask else []
    if dropout:
        rest.append(plain(rng.random((*batch, length, source)) >= dropout, dtypes.bool_))
    attrs: dict[str, Any] = {"causal": causal, "dropout": dropout, "masked": bool(mask), "scale": 1.0 / math.sqrt(head)}
    outs = [((*batch, length, value), d), ((*batch, length), wide)]
    forward = Case("attention", [*inputs, *rest], outs, attrs)
    out, lse = forward.expected()
    g = operand(rng, (*batch, length, value), d, is_plain)
    rows = np.lib.stride_tricks.as_strided  # the gradient's numbers, as the graph sees them
    stored = reference.to_float32(g[3]) if d is dtypes.bfloat16 else g[3]
    numbers = rows(stored[g[2] :], g[0], [s * stored.itemsize for s in g[1]])
    delta = (numbers.astype(np.float64) * out).sum(-1)
    saved = [g, *inputs, plain(lse, wide), plain(delta, wide), *rest]
    backward = Case("attention_gradient", saved, [(i[0], d) for i in inputs], attrs)
    return forward, backward


def check(case: Case, d: dtypes.dtype, splits: int = 3) -> None:
    """The same bits however the work is handed out, and close to the reference."""
    found, again, expected = case.run(make), case.run(make, splits), case.expected()
    for f, a, e in zip(found, again, expected, strict=True):
        assert f.tobytes() == a.tobytes()
        finite = np.abs(e[np.isfinite(e)]).astype(np.float64)
        scale = max(1.0, float(finite.max(initial=0.0)))
        np.testing.assert_allclose(f.astype(np.float64), e.astype(np.float64), rtol=TOLERANCE[d.name], atol=TOLERANCE[d.name] * scale)


def check_both(d: dtypes.dtype = dtypes.float32, **problem: Any) -> None:
    for case in cases(d=d, **problem):
        check(case, d)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("length", "source"), [(1, 1), (16, 16), (64, 64), (300, 300), (50, 233), (233, 50), (1, 400)])
def test_lengths(length: int, source: int, causal: bool) -> None:
    check_both(batch=(2, 2), length=length, source=source, head=32, value=32, causal=causal)


@pytest.mark.parametrize("head", [1, 5, 8, 16, 64, 80, 96, 128, 300])
def test_head_sizes(head: int) -> None:
    check_both(batch=(2,), length=70, source=70, head=head, value=max(1, head - 3), causal=True)


@pytest.mark.parametrize("mask", ["bool", "add", "padding"])
@pytest.mark.parametrize("causal", [False, True])
def test_masks(mask: str, causal: bool) -> None:
    check_both(batch=(1, 3), length=100, source=130, head=16, value=24, mask=mask, causal=causal)


@pytest.mark.parametrize("d", [dtypes.float64, dtypes.float16, dtypes.bfloat16])
@pytest.mark.parametrize("is_plain", [False, True])
def test_dtypes(d: dtypes.dtype, is_plain: bool) -> None:
    check_both(d, batch=(2, 3), length=60, source=75, head=20, value=12, causal=True, mask="add", is_plain=is_plain)


@pytest.mark.parametrize("d", [dtypes.float32, dtypes.float64])
def test_dropout(d: dtypes.dtype) -> None:
    check_both(d, batch=(2, 3), length=60, source=75, head=16, value=16, dropout=0.3)
    check_both(d, batch=(9,), length=60, source=75, head=16, value=16, dropout=0.3, causal=True)


def test_many_heads_take_whole_heads() -> None:
    check_both(batch=(17,), length=90, source=90, head=16, value=16, causal=True)


def test_long_sequence_is_not_resident() -> None:
    """More keys than the scratch holds at once: they are copied block by block."""
    check(cases((1,), 60, 2500, 64, 64)[0], dtypes.float32)


ANY = (
    st.lists(st.integers(1, 3), max_size=3), st.integers(1, 120), st.integers(1, 120), st.integers(1, 40),
    st.integers(1, 40), st.booleans(), st.sampled_from(["", "", "bool", "add", "padding"]), st.sampled_from([0.0, 0.0, 0.4]),
    st.sampled_from([dtypes.float32, dtypes.float64, dtypes.bfloat16]), st.booleans(), st.integers(0, 1000),
)  # fmt: skip


def any_problem(
    batch: list[int], length: int, source: int, head: int, value: int, causal: bool, mask: str, dropout: float,
    d: dtypes.dtype, is_plain: bool, seed: int,
) -> None:  # fmt: skip
    check_both(
        d, batch=tuple(batch), length=length, source=source, head=head, value=value, causal=causal, mask=mask,
        dropout=dropout, is_plain=is_plain, seed=seed,
    )  # fmt: skip


@pytest.mark.parametrize("examples", [15, pytest.param(200, marks=pytest.mark.slow)])
def test_any_problem(examples: int) -> None:
    settings(max_examples=examples, deadline=None)(given(*ANY)(any_problem))()


def test_empty() -> None:
    forward, _ = cases((0, 2), 5, 5, 8, 8)
    assert make(forward.graph) == []
