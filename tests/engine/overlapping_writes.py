"""Random programs of writes whose sources share memory with what is written, beside NumPy on copies.

A program keeps a few arrays, makes views of them (slices with steps, transposes, selections, windows, reshapes), takes copies of
views (at once or kept for later) and writes them elsewhere in the same memory. `run` is one program by its seed;
`python -m tests.engine.overlapping_writes 2000` runs many.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import flambeau as torch

SHAPES = ((64,), (20,), (131,), (9, 40), (40, 9), (3, 5, 24), (33, 33), (2, 3, 4, 17), (6000,), (70, 300))
DTYPES = ("float32", "float32", "float64", "int64", "int32", "uint8", "int16", "bool", "complex64", "float16")
Pair = tuple[Any, Any]  # a tensor, and the array that it must equal


class Program:
    """One program: `arrays` are the memories, `kept` are copies that later writes use."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.arrays: list[Pair] = []
        self.kept: list[Pair] = []
        self.log: list[str] = []
        for _ in range(self.random.choice((1, 1, 2))):
            self.new_array()

    def new_array(self) -> None:
        r = self.random
        shape, dtype = r.choice(SHAPES), r.choice(DTYPES)
        n = int(np.prod(shape))
        array = (np.arange(n) * 7 % 101).astype(dtype).reshape(shape)
        tensor = torch.from_numpy(array.copy()).clone()
        if r.random() < 0.3:
            array, tensor = (array + array).astype(dtype), (tensor + tensor).to(getattr(torch, dtype))
        if r.random() < 0.4:
            tensor.sum().item()  # it has a buffer of its own
        self.arrays.append((tensor, array))
        self.log.append(f"array {dtype} {shape}")

    def view(self, pair: Pair) -> Pair:
        """A view of both, by some steps."""
        r = self.random
        x, a = pair
        for _ in range(r.choice((0, 1, 1, 1, 2, 2, 3))):
            kind = r.choice(("slice", "slice", "slice", "slice", "slice", "transpose", "select", "window", "split", "flat", "diagonal", "tensor"))
            if not a.ndim:
                break
            d = r.randrange(a.ndim)
            n = a.shape[d]
            if kind == "slice":
                start, step = r.randrange(n) if r.random() < 0.2 else min(r.randrange(4), n - 1), r.choice((1, 1, 1, 2, 3))
                stop = n - r.randrange(min(2, n - start)) if r.random() < 0.7 else r.randrange(start, n) + 1
                index: Any = (slice(None),) * d + (slice(start, stop, step),)
                x, a = x[index], a[index]
            elif kind == "transpose":
                e = r.randrange(a.ndim)
                x, a = x.transpose(d, e), a.swapaxes(d, e)
            elif kind == "select" and a.ndim > 1:
                index = (slice(None),) * d + (r.randrange(n),)
                x, a = x[index], a[index]
            elif kind == "tensor" and a.ndim > 1:
                at = r.randrange(-a.shape[0], a.shape[0])
                x, a = x[torch.tensor(at)], a[at]
            elif kind == "window" and r.random() < 0.3 and n > 4:
                size = r.randrange(1, n // 2)  # windows side by side: none overlaps another
                x = x.unfold(d, size, size)
                a = np.lib.stride_tricks.sliding_window_view(a, size, d, writeable=True)[(slice(None),) * d + (slice(None, None, size),)]
            elif kind == "split" and n % 2 == 0:
                shape = (*a.shape[:d], 2, n // 2, *a.shape[d + 1 :])
                x = x.unflatten(d, (2, n // 2))
                strides = (*a.strides[:d], a.strides[d] * (n // 2), *a.strides[d:])
                a = np.lib.stride_tricks.as_strided(a, shape, strides)
            elif kind == "flat" and x.is_contiguous():
                x, a = x.view(-1), np.lib.stride_tricks.as_strided(a, (a.size,), (a.itemsize,))
            elif kind == "diagonal" and a.ndim == 2:
                a = np.lib.stride_tricks.as_strided(a, (min(a.shape),), (sum(a.strides),))
                x = x.diagonal()
        assert np.shares_memory(a, pair[1]) or not a.size
        assert all(have * a.itemsize == want or n < 2 for have, want, n in zip(x.stride(), a.strides, a.shape, strict=True)) or 0 in a.shape
        return x, a

    def like(self, shape: tuple[int, ...], pair: Pair) -> Pair | None:
        """A view of the shape somewhere in the memory of `pair` (dims may be transposed), or one that broadcasts to it."""
        r = self.random
        for _ in range(6):
            x, a = self.view(pair)
            if a.ndim < len(shape):
                continue
            while a.ndim > len(shape):
                x, a = x[0], a[0]
            if r.random() < 0.5 and a.ndim > 1:
                order = r.sample(range(a.ndim), a.ndim)
                x, a = x.permute(order), a.transpose(order)
            index = []
            for have, want in zip(a.shape, shape, strict=True):
                if have >= want and want:
                    step = r.choice((1, 1, 1, max((have - 1) // max(want - 1, 1), 1)))
                    last = (want - 1) * step
                    start = r.choice((0, min(1, have - 1 - last), r.randrange(have - last)))
                    index.append(slice(start, start + last + 1, step))
                elif want == 0:
                    index.append(slice(0, 0))
                else:
                    at = r.randrange(have)
                    index.append(slice(at, at + 1))
            return x[tuple(index)], a[tuple(index)]
        return None

    def shifted(self, target: Pair) -> Pair | None:
        """What lies a few elements, rows or steps before or after a view of the same memory, perhaps with another order of dims."""
        x, a = target
        strides = [s // a.itemsize for s in a.strides]
        order = list(range(a.ndim))
        r = self.random
        if r.random() < 0.2:
            r.shuffle(order)
            if [a.shape[d] for d in order] != list(a.shape):
                order = list(range(a.ndim))
        strides = [strides[d] for d in order]
        by = r.choice((1, 1, 2, 3, 8, 16, 17, *strides)) * r.choice((1, -1, -1))  # what is read lies before what is written: a move forward meets it
        whole, array = self.owner
        offset = x.storage_offset() + by
        last = offset + sum((n - 1) * s for n, s in zip(a.shape, strides, strict=True))
        if not a.size or offset < 0 or last >= array.size or not x.ndim:
            return None
        bytes_ = [s * a.itemsize for s in strides]
        return whole.as_strided(a.shape, strides, offset), np.lib.stride_tricks.as_strided(array.reshape(-1)[offset:], a.shape, bytes_)

    def source(self, target: Pair) -> Pair:
        """What is written: a copy (of views of the same memory, mostly), or a value computed from it."""
        r = self.random
        fits = [k for k in self.kept if _broadcasts(k[1].shape, target[1].shape)]
        if fits and r.random() < 0.4:
            return r.choice(fits)
        found = self.shifted(target) if r.random() < 0.7 else None
        found = found or self.like(target[1].shape, r.choice(self.arrays[-2:] if r.random() < 0.3 else [self.owner]))
        if found is None:
            return torch.tensor(3), np.array(3)
        x, a = found
        how = r.random()
        if how < 0.7:
            return x.clone(), a.copy()
        if how < 0.75:
            return x.contiguous().clone(), a.copy()
        if how < 0.8:
            return x.to(torch.float64, copy=True) if not x.is_complex() else x.clone(), a.astype("float64") if a.dtype.kind != "c" else a.copy()
        if how < 0.9 and a.dtype.kind != "b":
            return x * 2, (a * np.array(2, a.dtype)).astype(a.dtype)
        if a.dtype.kind == "f":
            return -x, -a
        return torch.cat([x.reshape(-1), x.reshape(-1)])[: a.size].reshape(a.shape), a.copy()

    def write(self) -> None:
        r = self.random
        self.owner = r.choice(self.arrays)
        target = self.view(self.owner)
        if target[1].size == 0:
            return
        if r.random() < 0.3:
            self.kept.append(tuple(v.clone() if i == 0 else v.copy() for i, v in enumerate(self.view(self.owner))))  # type: ignore[arg-type]
        source = self.source(target)
        x, a = target
        s, b = source
        with np.errstate(all="ignore"):
            if a.dtype.kind in "biu" and b.dtype.kind in "fc":
                b = np.clip(np.nan_to_num(np.real(b)), 0, 100)
                s = s.real.nan_to_num().clamp(0, 100) if s.is_complex() else s.nan_to_num().clamp(0, 100)
            if a.dtype.kind != "c" and b.dtype.kind == "c":
                s, b = s.real, b.real
            kind = r.choice(WRITES)
            self.log.append(f"{kind.__name__} {tuple(a.shape)} {x.stride()}+{x.storage_offset()} <- {tuple(b.shape)} {b.dtype}")
            kind(self, x, a, s, b)

    def exchange(self) -> None:
        """Two regions change places, by copies that are made before either is written."""
        pair = self.random.choice(self.arrays)
        x, a = self.view(pair)
        self.owner = pair
        found = self.shifted((x, a)) if self.random.random() < 0.5 else self.like(a.shape, pair)
        if found is None or not a.size or found[1].shape != a.shape:
            return
        y, b = found
        self.log.append(f"exchange {tuple(a.shape)} {x.stride()}+{x.storage_offset()} {y.stride()}+{y.storage_offset()}")
        first, second = x.clone(), y.clone()
        one, two = a.copy(), b.copy()
        x.copy_(second)
        y.copy_(first)
        a[...] = two
        b[...] = one

    def look(self) -> None:
        x, a = self.random.choice([*self.arrays, *self.kept])
        self.compare(x, a)

    def compare(self, x: Any, a: Any) -> None:
        got = x.numpy()
        if not np.array_equal(got, a, equal_nan=a.dtype.kind in "fc"):
            at = np.argwhere((got != a) & ~((got != got) & (a != a)))
            raise AssertionError(f"{len(at)} of {a.size} elements differ, first at {at[0]}\n" + "\n".join(self.log))


def _broadcasts(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    return len(shape) <= len(to) and all(x in (y, 1) for x, y in zip(reversed(shape), reversed(to), strict=False))


def set_item(p: Program, x: Any, a: Any, s: Any, b: Any) -> None:
    if a.ndim:
        x[...] = s
    else:
        x.copy_(s)
    a[...] = b


def copy(p: Program, x: Any, a: Any, s: Any, b: Any) -> None:
    x.copy_(s)
    a[...] = b


def set_slice(p: Program, x: Any, a: Any, s: Any, b: Any) -> None:
    """Through an index, the tensor itself being written to."""
    if not a.ndim or b.ndim == a.ndim:
        copy(p, x, a, s, b)
        return
    x[: a.shape[0]] = s
    a[: a.shape[0]] = b


def add(p: Program, x: Any, a: Any, s: Any, b: Any) -> None:
    s, b = s.to(x.dtype), b.astype(a.dtype)
    x.add_(s)
    a += b


def out_of_two(p: Program, x: Any, a: Any, s: Any, b: Any) -> None:
    """`out=` of a view, with an input that was made of its memory."""
    s, b = s.to(x.dtype).expand(x.shape), np.broadcast_to(b.astype(a.dtype), a.shape)
    torch.maximum(s, s, out=x) if a.dtype.kind != "c" else torch.mul(s, 1, out=x)
    a[...] = b


def rows(p: Program, x: Any, a: Any, s: Any, b: Any) -> None:
    """By an index tensor, without repetition."""
    if not a.ndim:
        return
    n = a.shape[0]
    index = p.random.sample(range(n), p.random.randrange(1, n + 1))[:20]
    b = np.broadcast_to(b.astype(a.dtype), a.shape)[: len(index)]
    s = s.to(x.dtype).expand(x.shape)[: len(index)]
    if p.random.random() < 0.5:
        x.index_copy_(0, torch.tensor(index), s)
    else:
        x[torch.tensor(index)] = s
    a[index] = b.copy()


def mask(p: Program, x: Any, a: Any, s: Any, b: Any) -> None:
    x.copy_(torch.where(x == s.to(x.dtype), x, s.to(x.dtype)))
    a[...] = b.astype(a.dtype)


WRITES: tuple[Callable[[Program, Any, Any, Any, Any], None], ...] = (set_item, set_item, set_item, copy, copy, copy, set_slice, add, out_of_two, rows, mask)


def run(seed: int) -> None:
    """One program. Raises AssertionError, with what it did, where flambeau and NumPy differ."""
    program = Program(seed)
    steps = program.random.choice((1, 2, 4, 8, 12))
    for _ in range(steps):
        program.random.choice((program.write, program.write, program.write, program.exchange, program.look))()
    for x, a in (*program.arrays, *program.kept):
        program.compare(x, a)


if __name__ == "__main__":
    count, first = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    failed = 0
    for seed in range(first, first + count):
        try:
            run(seed)
        except Exception as error:
            failed += 1
            print(seed, type(error).__name__, error, flush=True)
    print(f"{failed} of {count} programs differ")
