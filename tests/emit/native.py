"""Runs what the emitters write: a loop over contiguous arrays around one pointwise function."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from flambeau.compiler.emit import scalar
from flambeau.compiler.emit.builder import KERNEL_HEADER, Builder, module
from flambeau.compiler.emit.scalar import Value
from flambeau.compiler.graph import COMPARE, UNARY_TO_BOOL
from flambeau.dtypes import bool_, dtype
from flambeau.runtime import jit
from flambeau.runtime.target import Target
from tests.emit.samples import kind

Array = np.ndarray[Any, Any]
Body = Callable[[Builder, list[Value], int], Value]
WIDTHS = (1, 4, 16)


def kernel(write: Callable[[Builder], None]) -> Callable[[Sequence[Array], int], None]:
    """Compile one kernel whose body `write` emits. The result runs it on [0, count) with arrays as its argument words.

    In the body `%end` is `count` and word i of `%args` the address of array i (see `address`).
    """
    b = Builder(Target.host())
    write(b)
    text = module([b.function(KERNEL_HEADER, "ret i64 0")], b.declarations, b.target)
    key = "test_emit_" + hashlib.sha256(text.encode()).hexdigest()
    call = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
    native = call(jit.function(key, lambda: text.replace("{name}", jit.symbol(key))))

    def run(arguments: Sequence[Array], count: int) -> None:
        words = np.array([a.ctypes.data for a in arguments], np.int64)
        assert native(words.ctypes.data, 0, count, 0) == 0

    return run


def launch(write: Callable[[Builder], None], arguments: Sequence[Array], count: int) -> None:
    """Compile such a kernel and run it once."""
    kernel(write)(arguments, count)


def address(b: Builder, number: int) -> str:
    """The pointer in argument word `number`."""
    return b.load("ptr", b.gep("i64", "%args", number), 8)


def compiled(
    body: Body, inputs: Sequence[dtype], output: dtype, width: int
) -> Callable[[Sequence[Array]], Array]:  # fmt: skip
    """A function of arrays: `body` on every element, `width` lanes at a time with a masked last step."""

    def write(b: Builder) -> None:
        pointers = [address(b, i) for i in range(len(inputs) + 1)]

        def step(index: str, mask: str | None) -> None:
            values = [scalar.load(b, d, b.gep(f"[{d.itemsize} x i8]", p, index), width, mask) for d, p in zip(inputs, pointers, strict=False)]
            target = b.gep(f"[{output.itemsize} x i8]", pointers[-1], index)
            scalar.store(b, output, body(b, values, width), target, width, mask)

        if width == 1:
            with b.for_(0, "%end") as j:
                step(j, None)
            return
        whole = b.op(f"and i64 %end, {-width}")
        with b.for_(0, whole, width) as i:
            step(i, None)
        with b.for_(whole, "%end", width) as i:
            step(i, b.tail_mask(b.sub("%end", i), width))

    native = kernel(write)

    def run(arrays: Sequence[Array]) -> Array:
        arrays = [np.ascontiguousarray(a) for a in arrays]
        result = np.zeros(arrays[0].shape, kind(output))
        native([*arrays, result], result.size)
        return result

    return run


def pointwise(body: Body, inputs: Sequence[dtype], output: dtype, width: int, arrays: Sequence[Array]) -> Array:
    """`compiled`, run once."""
    return compiled(body, inputs, output, width)(arrays)


def apply(op: str, d: dtype, *arrays: Array, output: dtype | None = None, width: int = 16, attrs: dict[str, Any] | None = None) -> Array:
    """One primitive on arrays of dtype `d`."""
    if output is None:
        output = bool_ if op in COMPARE or op in UNARY_TO_BOOL else d
    return pointwise(lambda b, values, w: scalar.apply(b, op, d, values, w, attrs), [d] * len(arrays), output, width, arrays)
