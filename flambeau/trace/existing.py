"""Tensors over memory that exists."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from flambeau.devices import CPU, META, Device
from flambeau.dtypes import dtype
from flambeau.runtime.buffers import allocator
from flambeau.trace.blank import blank
from flambeau.trace.input_keys import input_key
from flambeau.trace.meta import contiguous, meta
from flambeau.trace.objects import _TENSOR, bare, from_storage
from flambeau.trace.storage import Storage


def maker(shape: Sequence[int], d: dtype, strides: tuple[int, ...] | None = None) -> Callable[[], tuple[Any, int]]:
    """A function that gives a tensor over uninitialised memory, and its address. What depends on the kind of tensor only is done once; a trace
    that has met such an input takes it at once."""
    m = meta(tuple(shape), strides, d)
    take = allocator(m.numel * d.itemsize)
    key = input_key(m, m.numel * d.itemsize)

    def make() -> tuple[Any, int]:
        buffer = take()
        t = bare(_TENSOR[0])
        t._meta = m
        t._storage = Storage(buffer)
        t._input_key = key
        return t, buffer.address

    return make


def from_buffer(buffer: Any, shape: Sequence[int], d: dtype, strides: tuple[int, ...] | None = None, offset: int = 0, device: Device = CPU) -> Any:
    """A tensor over a buffer of its own."""
    shape = tuple(shape)
    plain = not strides and not offset and device is CPU
    return from_storage(Storage(buffer), contiguous(shape, d) if plain else meta(shape, strides or None, d, offset, device=device))


def blank_tensor(shape: Sequence[int], d: dtype, strides: tuple[int, ...] | None = None, requires_grad: bool = False) -> Any:
    """A new tensor of `meta`."""
    last = prod(shape) if strides is None else 0 if 0 in shape else 1 + sum([(n - 1) * s for n, s in zip(shape, strides, strict=True)])
    t = from_buffer(blank(last * d.itemsize), shape, d, strides, device=META)
    return t.requires_grad_() if requires_grad else t
