"""Random chains of views whose indices change from pass to pass, beside PyTorch: values, strides, offsets, sharing, gradients."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

SHAPES = ((24,), (6, 8), (2, 6, 4), (3, 4, 2, 4))
DTYPES = ("float32", "float64", "complex64", "int16", "int64", "float16")
Step = tuple[str, int, int]
_OTHER = {"float32": ("int32", "int16", "float64", "uint8"), "float64": ("int64", "float32", "int16"), "int16": ("float16", "int32", "int64", "int8"),
          "int64": ("float64", "int32", "int16"), "complex64": ("float64", "float32", "complex128"), "float16": ("int16", "float32", "int64")}  # fmt: skip


def chain(r: random.Random) -> list[Step]:
    """Names of views, each with two numbers that are taken modulo what there is."""
    return [(r.choice(STEPS), r.randrange(1 << 20), r.randrange(1 << 20)) for _ in range(r.choice((1, 2, 2, 3, 4)))]


def view(m: Any, x: Any, step: Step) -> Any:
    """One view of x, with module m."""
    name, a, b = step
    n = x.ndim
    d = a % n if n else 0
    if name in _ALWAYS:
        return _ALWAYS[name](m, x, a, b)
    if not n or not x.shape[d]:
        return x.unsqueeze(0)
    size = x.shape[d]
    index: tuple[Any, ...] = (slice(None),) * d
    if name == "from":
        return x[(*index, slice(b % size, None))]
    if name == "part":
        return x[(*index, slice(b % size, b % size + 3, 1 + b % 3))]
    if name == "select":
        return x.select(d, b % size - size * (b % 2))
    if name == "item":
        return x[(*index, b % size - size * (b % 2))]
    if name == "place":  # an integer tensor of no dims
        return x[(*index, m.tensor(b % size - size * (b % 2)))]
    if name == "narrow":
        return x.narrow(d, b % size, min(2, size - b % size))
    if name == "unfold":
        return x.unfold(d, 1 + b % min(size, 3), 1 + b % 2)
    if name == "split":
        parts = x.split(1 + b % size, d)
        return parts[b % len(parts)]
    if name == "diagonal":
        return x.diagonal(b % 3 - 1, d, (d + 1) % n) if n > 1 else x[b % size :]
    return x


def _dtype(m: Any, x: Any, a: int, b: int) -> Any:
    others = _OTHER.get(str(x.dtype).removeprefix("torch."), ())
    return x.view(getattr(m, others[a % len(others)])) if others and not x.requires_grad else x.view_as(x)


def _complex(m: Any, x: Any, a: int, b: int) -> Any:
    if x.is_complex():
        return (m.view_as_real(x), x.real, x.imag)[b % 3]
    return m.view_as_complex(x) if x.ndim and x.shape[-1] == 2 and x.dtype in (m.float32, m.float64) else x.unsqueeze(a % (x.ndim + 1))


_ALWAYS: dict[str, Callable[[Any, Any, int, int], Any]] = {
    "transpose": lambda m, x, a, b: x.transpose(a % x.ndim, b % x.ndim) if x.ndim else x.view(1),
    "expand": lambda m, x, a, b: x.expand(2, *x.shape) if a % 3 == 0 else x[...],
    "as_strided": lambda m, x, a, b: x.as_strided((1 + a % 3, 1 + b % 2), (1 + b % 3, 1)),
    "as_strided at": lambda m, x, a, b: x.as_strided((1 + a % 3, 1 + b % 2), (1 + b % 3, 1), b % 5),
    "flat": lambda m, x, a, b: x.reshape(-1) if x.is_contiguous() else x.movedim(0, -1),
    "rows": lambda m, x, a, b: x.view(-1, 2) if x.is_contiguous() and x.numel() % 2 == 0 and x.numel() else x.unsqueeze(-1),
    "detach": lambda m, x, a, b: x.detach() if not x.requires_grad else x.view(x.shape),
    "dtype": _dtype, "complex": _complex, "squeeze": lambda m, x, a, b: x.squeeze(),
}  # fmt: skip
STEPS = (*_ALWAYS, "dtype", "complex", "from", "from", "from", "part", "part", "select", "item", "place", "narrow", "unfold", "split", "diagonal")


def seen(m: Any, shape: tuple[int, ...], dtype: str, steps: list[Step], gradients: bool) -> Any:
    """What one pass shows: of the view, of the memory after a write through it, of the gradient."""
    n = 1
    for size in shape:
        n *= size
    base = m.arange(n).to(getattr(m, dtype)).reshape(shape)
    if gradients:
        base = base.clone().requires_grad_()
    start = base * 1
    x = start
    try:
        for step in steps:
            x = view(m, x, step)
    except (RuntimeError, IndexError, ValueError) as error:
        return type(error).__name__
    shows: list[Any] = [tuple(x.shape), tuple(x.stride()), x.storage_offset(), str(x.dtype), _values(x)]
    if gradients and x.requires_grad and x.numel():
        flat = x.reshape(-1)
        weights = (m.arange(flat.numel()) % 7 + 1).to(x.dtype)
        total = (flat * weights).sum()
        shows.append(_values(m.autograd.grad(total.real + 2 * total.imag if total.is_complex() else total, base)[0]))
    elif not gradients and x.numel() and not _repeats(x):
        x.zero_()
        shows.append(_values(start))
    return shows


def _repeats(x: Any) -> bool:
    """Whether elements of it may share memory: a write to them may be refused."""
    dims = sorted((stride, size) for stride, size in zip(x.stride(), x.shape, strict=True) if size > 1)
    reach = 0
    for stride, size in dims:
        if stride <= reach:
            return True
        reach += (size - 1) * stride
    return False


def _values(x: Any) -> Any:
    x = x.detach()
    return repr(x.tolist())  # NaN equals NaN, and -0.0 is not 0.0


def compare(seed: int, ours: Any, theirs: Any) -> None:
    """One chain, four times with other indices. Raises AssertionError where the two differ."""
    r = random.Random(seed)
    shape, dtype, steps = r.choice(SHAPES), r.choice(DTYPES), chain(r)
    gradients = dtype in ("float32", "float64", "complex64") and r.random() < 0.4
    for _ in range(4):
        expected, found = (seen(m, shape, dtype, steps, gradients) for m in (theirs, ours))
        if expected != found:
            raise AssertionError(f"{shape} {dtype} {'with gradients ' * gradients}{steps}\nours   {found}\ntheirs {expected}")
        steps = [(name, a, b + r.choice((0, 0, 1, 2, 6))) for name, a, b in steps]


if __name__ == "__main__":
    import torch

    import flambeau

    count, first = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    failed = 0
    for seed in range(first, first + count):
        try:
            compare(seed, flambeau, torch)
        except Exception as error:
            failed += 1
            print(seed, type(error).__name__, error, flush=True)
    print(f"{failed} of {count} chains differ")
