"""Results whose size depends on the data: computed at once, on dense row-major memory, into buffers of the exact size.

The native code is compiler/kernels/select.py. Every function takes addresses of materialised data (kept alive by the
caller) and gives new Buffers; integers in results are int64.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from functools import cache, lru_cache, partial
from itertools import product
from math import prod
from typing import Any, Final, NamedTuple

from flambeau.dtypes import bool_, dtype, int64
from flambeau.runtime.buffers import Buffer, allocate
from flambeau.runtime.memory import view_as_numpy
from flambeau.upward import upward

_FEW: Final = 1 << 14  # elements: their call takes some microseconds, no more than to give the GIL away and to get it back
_functions: dict[str, tuple[Callable[..., int], Callable[..., int]]] = {}
_packers: Final = [struct.Struct(f"={n}q").pack for n in range(16)]


def _call(key: str, emit: Callable[..., str], count: int, *words: int) -> int:
    """Run the function of `key` on `count` elements with these argument words; `emit(key)` gives its text."""
    found = _functions.get(key)
    if found is None:
        from flambeau.runtime import jit

        address = jit.function(key, partial(emit, key))
        signature = ctypes.c_int64, ctypes.c_char_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64
        found = _functions[key] = ctypes.CFUNCTYPE(*signature)(address), ctypes.PYFUNCTYPE(*signature)(address)
    return found[count <= _FEW](_packers[len(words)](*words), 0, count, 0)


@upward
def emitter(name: str) -> Callable[..., str]:
    """What writes the text of a function (compiler/kernels/select.py)."""
    raise NotImplementedError


def _emitted(name: str, key: str, **given: Any) -> str:
    """The text of a function that many calls ask for: its emitter is looked for when it is made."""
    return emitter(name)(key, **given)


def _zeros(nbytes: int) -> Buffer:
    buffer = allocate(nbytes)
    ctypes.memset(buffer.address, 0, nbytes)
    return buffer


def _first(buffer: Buffer, nbytes: int) -> Buffer:
    """The first `nbytes` bytes in a buffer of that size."""
    exact = allocate(nbytes)
    ctypes.memmove(exact.address, buffer.address, nbytes)
    return exact


def count_nonzero(address: int, d: dtype, numel: int) -> int:
    """How many of `numel` elements are not zero."""
    key = f"select:count:{d.name}"
    return _call(key, lambda _: _emitted("emit_count", key, d=d), numel, address) if numel else 0


def nonzero(address: int, d: dtype, shape: Sequence[int]) -> tuple[Buffer, int]:
    """(coordinates (ndim, n), n) of the elements that are not zero, in row-major order. A 0-d tensor gives (0, n)."""
    numel, ndim = prod(shape), len(shape)
    found = count_nonzero(address, d, numel)
    to = allocate(8 * found * ndim)
    if found and ndim:
        key = f"select:nonzero:{d.name}:{ndim}"
        _call(key, partial(emitter("emit_nonzero"), d=d, ndim=ndim), numel, address, to.address, found, *shape)
    return to, found


def masked_rows(address: int, mask_address: int, row_bytes: int, rows: int) -> tuple[Buffer, int]:
    """(rows, n): those of x (rows of `row_bytes` bytes) where the bool mask, one element a row, is set, in order."""
    found = count_nonzero(mask_address, bool_, rows)
    to = allocate(row_bytes * found)
    if found and row_bytes:
        if row_bytes in (1, 2, 4, 8, 16):
            key = f"select:masked:{row_bytes}"
            _call(key, lambda _: _emitted("emit_masked", key, nbytes=row_bytes), rows, address, mask_address, to.address)
        else:
            _call("select:masked rows", partial(_emitted, "emit_masked_rows"), rows, address, row_bytes, mask_address, to.address)
    return to, found


def recurrence(name: str, first: tuple[int, int], step: Callable[..., Any], address: int, orders: int, d: dtype, numel: int) -> Buffer:
    """Polynomials of x and an order each, by their recurrence (see emit_recurrence), which is known by its name."""
    to = allocate(d.itemsize * numel)
    if numel:
        _call(f"select:recurrence:{name}:{d.name}", partial(emitter("emit_recurrence"), d=d, first=first, step=step), numel, address, orders, to.address)
    return to


class Unique(NamedTuple):
    """`values` (n, columns) of x's dtype; `inverse` (rows); `counts` (n)."""

    values: Buffer
    inverse: Buffer
    counts: Buffer
    n: int


def _runs(address: int, d: dtype, rows: int, columns: int, order: Buffer | None) -> Unique:
    first, inverse, counts = (allocate(8 * rows) for _ in range(3))
    n = 0
    if rows:
        key = f"select:runs:{d.name}:{order is not None}"
        emit = partial(emitter("emit_runs"), d=d, ordered=order is not None)
        at = address if order is None else order.address
        n = _call(key, emit, rows, address, columns, at, first.address, inverse.address, counts.address)
    row_bytes = columns * d.itemsize
    values = allocate(n * row_bytes)
    if n and row_bytes:
        _call("select:take", emitter("emit_take"), n, address, row_bytes, first.address, values.address)
    return Unique(values, inverse, _first(counts, 8 * n), n)


def unique(address: int, d: dtype, rows: int, columns: int = 1) -> Unique:
    """The distinct rows of x (rows, columns), in lexicographic order; with one column, the distinct elements. Every NaN
    is distinct, as in PyTorch. The first of equal rows (0.0 and -0.0) is the one that is given."""
    order, following = allocate(8 * max(rows, 1)), allocate(8 * max(rows, 1))
    record = 16 if d.itemsize == 8 else 8
    a, b = allocate(record * rows), allocate(record * rows)
    ctypes.c_int64.from_address(order.address).value = -1
    if rows:
        key = f"select:order:{d.name}"
        for column in reversed(range(columns)):  # the last column first: the sort is stable
            start = address + column * d.itemsize
            words = (start, columns, order.address, following.address, a.address, b.address)
            _call(key, partial(emitter("emit_order"), d=d), rows, *words)
            order, following = following, order
    return _runs(address, d, rows, columns, order if columns else None)


def unique_consecutive(address: int, d: dtype, rows: int, columns: int = 1) -> Unique:
    """The rows of x (rows, columns) without those that equal the row before them."""
    return _runs(address, d, rows, columns, None)


def bincount(address: int, numel: int, minlength: int = 0, weights_address: int = 0, weights: dtype | None = None) -> tuple[Buffer, int]:
    """(counts, length): how often each value of an int64 x occurs, as int64; with weights (float32 or float64 elements)
    the sums of the weights, in their dtype. length = max(largest + 1, minlength). RuntimeError for negative values."""
    largest = -1
    if numel:
        least, largest = extent(address, int64, (numel,), (1,))
        if least < 0:
            raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    length = max(largest + 1, minlength)
    to = _zeros((weights or int64).itemsize * length)
    if numel:
        key = f"select:bincount:{weights.name if weights else 'one'}"
        _call(key, partial(emitter("emit_bincount"), weight=weights), numel, address, weights_address, to.address)
    return to, length


def histogram(address: int, d: dtype, numel: int, bins: int, low: float, high: float) -> Buffer:
    """`histc`: counts, in the dtype of x (float32 or float64), of `bins` equal bins of [low, high], low < high.
    Elements outside are left out."""
    to = _zeros(d.itemsize * bins)
    if numel:
        ends = [int(struct.unpack("<q", struct.pack("<d", end))[0]) for end in (low, high)]
        _call(f"select:histogram:{d.name}", partial(emitter("emit_histogram"), d=d), numel, address, *ends, bins, to.address)
    return to


def repeat_interleave(address: int, numel: int) -> tuple[Buffer, int]:
    """(indices, n) of an int64 vector of counts: i as often as element i says. RuntimeError for negative ones."""
    total = _call("select:repeat", emitter("emit_repeat"), numel, address, 0) if numel else 0
    if total < 0:
        raise RuntimeError("repeats can not be negative")
    to = allocate(8 * total)
    if total:
        _call("select:repeat", emitter("emit_repeat"), numel, address, to.address)
    return to, total


@lru_cache(maxsize=1024)
def _rows(itemsize: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, int, int, tuple[int, ...]]:
    """(elements of a row, bytes from row to row, rows, bytes to each block of rows) of a layout with elements."""
    joined: list[tuple[int, int]] = []  # (stride, size) from the innermost dim on, those that follow one another as one
    for stride, size in sorted((stride, size) for stride, size in zip(strides, shape, strict=True) if size != 1 and stride != 0):
        if joined and stride == joined[-1][0] * joined[-1][1]:
            joined[-1] = joined[-1][0], joined[-1][1] * size
        else:
            joined.append((stride, size))
    if not joined or joined[0][0] != 1:
        joined.insert(0, (1, 1))
    (_, count), *rows = joined
    step, height = rows.pop(0) if rows else (0, 1)
    blocks = product(*[range(0, stride * size, stride) for stride, size in rows])
    return count, step * itemsize, height, tuple([sum(at) * itemsize for at in blocks])


@cache
def _extent_of(d: dtype, skips: bool) -> Callable[..., int]:
    """The native function of kernels/select.py. It keeps the GIL: what is looked at is mostly short."""
    from flambeau.runtime import jit

    key = f"select:extent:{d.name}:{skips}"
    signature = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
    return signature(jit.function(key, partial(emitter("emit_extent"), key, d, skips)))


_Words = ctypes.c_int64 * 7


def extent(address: int, d: dtype, shape: tuple[int, ...], strides: tuple[int, ...], skip: int | None = None) -> tuple[int, int]:
    """(least, greatest) of integers at an address, in any layout; the greatest and the least i64 where there are none. Those that are `skip` do
    not count."""
    if 0 in shape:
        return 2**63 - 1, -(2**63)
    count, step, height, blocks = _rows(d.itemsize, shape, strides)
    words = _Words(address, 0, step, count, skip or 0)
    at = ctypes.addressof(words)
    words[1] = at + 40
    function = _extent_of(d, skip is not None)
    if len(blocks) == 1:
        function(at, 0, height, 0)
        return words[5], words[6]
    least, greatest = 2**63 - 1, -(2**63)
    for block in blocks:
        words[0] = address + block
        function(at, 0, height, 0)
        least, greatest = min(least, words[5]), max(greatest, words[6])
    return least, greatest


def true_in(address: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """How many elements of a bool tensor are True, in any layout."""
    if 0 in shape:
        return 0
    count, step, height, blocks = _rows(1, shape, strides)
    times = prod([size for size, stride in zip(shape, strides, strict=True) if not stride])  # the rows know each element of an expanded tensor once
    if step == count or height == 1:
        return times * sum([count_nonzero(address + block, bool_, count * height) for block in blocks])
    import numpy

    found = 0
    for block in blocks:
        memory = view_as_numpy(address + block, (height - 1) * step + count, None)
        found += int(numpy.count_nonzero(numpy.ndarray((height, count), numpy.bool_, memory, 0, (step, 1))))
    return times * found
