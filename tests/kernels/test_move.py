"""Rows and elements by index: every mode, dtype and layout against the reference; errors; the same bits for any
split."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flambeau import dtypes
from tests.kernels.move_runner import LAYOUTS, Move, close, numbers

MODES = ("set", "add", "prod", "amax", "amin")
ORDERED = [d for d in dtypes.ALL if not d.is_complex]
SHAPES = [(7,), (1,), (3, 5), (4, 1, 6), (2, 3, 4, 5), (5, 300), (2, 3, 700)]
QUICK = settings(max_examples=60, deadline=None)


def dtype_for(mode: str, number: int) -> dtypes.dtype:
    kinds = ORDERED if mode in ("amax", "amin") else dtypes.ALL
    return kinds[number % len(kinds)]


@QUICK
@given(st.sampled_from(SHAPES), st.data())
def test_take_rows(shape: tuple[int, ...], data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 1 << 30)))
    dim = data.draw(st.integers(0, len(shape) - 1))
    d = data.draw(st.sampled_from(dtypes.ALL))
    index_shape = data.draw(st.sampled_from([(), (1,), (9,), (2, 3), (0,)]))
    layouts = data.draw(st.tuples(st.sampled_from(LAYOUTS), st.sampled_from(LAYOUTS)))
    index = rng.integers(-shape[dim], shape[dim], index_shape)
    out = (*shape[:dim], *index_shape, *shape[dim + 1 :])
    operands = [(numbers(rng, shape, d), d, layouts[0]), (index, dtypes.int64, layouts[1])]
    m = Move("take_rows", operands, [(out, d)], dim=dim)
    assert np.array_equal(m.run(data.draw(st.sampled_from([1, 3])))[0], m.expected()[0])


@QUICK
@given(st.sampled_from(SHAPES), st.sampled_from(MODES), st.data())
def test_put_rows(shape: tuple[int, ...], mode: str, data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 1 << 30)))
    dim = data.draw(st.integers(0, len(shape) - 1))
    d = dtype_for(mode, data.draw(st.integers(0, 11)))
    index_shape = data.draw(st.sampled_from([(1,), (9,), (2, 3), (0,), ()]))
    layouts = [data.draw(st.sampled_from(LAYOUTS)) for _ in range(3)]
    index = rng.integers(-shape[dim], shape[dim], index_shape)
    source = numbers(rng, (*shape[:dim], *index_shape, *shape[dim + 1 :]), d)
    operands = [(numbers(rng, shape, d), d, layouts[0]), (index, dtypes.int64, layouts[1]), (source, d, layouts[2])]
    m = Move("put_rows", operands, [(shape, d)], dim=dim, mode=mode)
    got = m.run()[0]
    assert close(got, m.expected()[0], d, 40.0 if mode in ("add", "prod") else 0.0)
    assert got.tobytes() == m.run(5)[0].tobytes()


@QUICK
@given(st.sampled_from(SHAPES), st.sampled_from(("gather", *MODES)), st.data())
def test_gather_and_scatter(shape: tuple[int, ...], mode: str, data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 1 << 30)))
    dim = data.draw(st.integers(0, len(shape) - 1))
    d = dtype_for(mode, data.draw(st.integers(0, 11)))
    index_shape = tuple(
        data.draw(st.sampled_from([0, 1, size, 2 * size])) if i == dim else data.draw(st.sampled_from([1, size])) for i, size in enumerate(shape)
    )
    layouts = [data.draw(st.sampled_from(LAYOUTS)) for _ in range(3)]
    index = rng.integers(-shape[dim], shape[dim], index_shape)
    operands = [(numbers(rng, shape, d), d, layouts[0]), (index, dtypes.int64, layouts[1])]
    if mode == "gather":
        m = Move("gather", operands, [(index_shape, d)], dim=dim)
        assert np.array_equal(m.run(3)[0], m.expected()[0])
        return
    operands.append((numbers(rng, index_shape, d), d, layouts[2]))
    m = Move("scatter", operands, [(shape, d)], dim=dim, mode=mode)
    got = m.run()[0]
    assert close(got, m.expected()[0], d, 40.0 if mode in ("add", "prod") else 0.0)
    assert got.tobytes() == m.run(4)[0].tobytes()


@QUICK
@given(st.integers(1, 40), st.sampled_from(MODES), st.data())
def test_put(size: int, mode: str, data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 1 << 30)))
    d = dtype_for(mode, data.draw(st.integers(0, 11)))
    shape = data.draw(st.sampled_from([(), (1,), (50,), (5, 4), (0, 3)]))
    index = rng.integers(-size, size, shape)
    layouts = [data.draw(st.sampled_from(LAYOUTS)) for _ in range(2)]
    operands = [
        (numbers(rng, (size,), d), d, "contiguous"), (index, dtypes.int64, layouts[0]),
        (numbers(rng, shape, d), d, layouts[1]),
    ]  # fmt: skip
    m = Move("put", operands, [((size,), d)], mode=mode)
    got = m.run()[0]
    assert close(got, m.expected()[0], d, 40.0 if mode in ("add", "prod") else 0.0)
    assert got.tobytes() == m.run(3)[0].tobytes()


def test_zero_dimensional() -> None:
    x, index = np.asarray(2.5, np.float32), np.asarray(-1)
    operands = [(x, dtypes.float32, "contiguous"), (index, dtypes.int64, "contiguous")]
    assert Move("gather", operands, [((), dtypes.float32)], dim=0).run()[0] == 2.5
    m = Move("scatter", [*operands, operands[0]], [((), dtypes.float32)], dim=0, mode="add")
    assert m.run()[0] == 5.0


@pytest.mark.parametrize("bad", [5, -6, 1 << 62, -(1 << 63)])
@pytest.mark.parametrize("op", ["take_rows", "put_rows", "wide put_rows", "gather", "scatter", "put"])
def test_index_out_of_range(op: str, bad: int) -> None:
    """The error names the index and the size; nothing outside the result is touched (Move.run checks the guard)."""
    d = dtypes.float32
    width = 2000 if op == "wide put_rows" else 3
    op = op.split()[-1]
    shape = (5,) if op == "put" else (5, width)
    many = {"take_rows": (4,), "put_rows": (4,), "put": (4,)}.get(op, (4, width))
    index = np.zeros(many, np.int64)
    index[(-1,) * len(many)] = bad
    rows = (4, width) if op in ("take_rows", "put_rows") else many
    operands: list[Any] = [(np.ones(shape, np.float32), d, "contiguous"), (index, dtypes.int64, "contiguous")]
    attrs: dict[str, Any] = {} if op == "put" else {"dim": 0}
    if op in ("put_rows", "scatter", "put"):
        operands.append((np.ones(rows, np.float32), d, "contiguous"))
        attrs["mode"] = "add"
    m = Move(op, operands, [(rows if op in ("take_rows", "gather") else shape, d)], **attrs)
    with pytest.raises(IndexError, match=f"index {bad} is out of bounds for dimension with size 5"):
        m.run()


def test_embedding_gradient_is_the_same_for_every_split() -> None:
    rng = np.random.default_rng(0)
    d = dtypes.float32
    index = rng.zipf(1.3, 3000).clip(0, 499)
    operands = [
        (np.zeros((500, 300), np.float32), d, "contiguous"), (index, dtypes.int64, "contiguous"),
        (numbers(rng, (3000, 300), d), d, "contiguous"),
    ]  # fmt: skip
    m = Move("put_rows", operands, [((500, 300), d)], dim=0, mode="add")
    m.kernels[-1].grain = 1
    first = m.run()[0]
    for splits in (2, 3, 17):
        assert np.array_equal(first, m.run(splits)[0])
    # One by one, in the order of the indices: what PyTorch's index_add_ does.
    want = np.zeros((500, 300), np.float32)
    np.add.at(want, index, operands[2][0])
    assert np.array_equal(first, want)


@pytest.mark.parametrize("op", ["gather", "scatter", "take_rows"])
@pytest.mark.parametrize("place", [0, 11, 19])
def test_index_out_of_range_inside_a_vector(op: str, place: int) -> None:
    d = dtypes.float32
    shape = (20,) if op == "take_rows" else (2, 20)
    index = np.zeros(shape, np.int64)
    index[(..., place)] = -21
    operands: list[Any] = [(np.ones(shape, np.float32), d, "contiguous"), (index, dtypes.int64, "contiguous")]
    attrs: dict[str, Any] = {"dim": len(shape) - 1}
    if op == "scatter":
        operands.append(operands[0])
        attrs["mode"] = "add"
    with pytest.raises(IndexError, match="index -21 is out of bounds for dimension with size 20"):
        Move(op, operands, [(shape, d)], **attrs).run()
