"""Random whole programs: the operations that they consist of.

Each takes the machine (random_programs.py) or the module, tensors and numbers; any number is taken modulo the choices that there
are. What is fed to functions that grow is bounded before, and what is sorted has no ties, so that rounding decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

NUMBERS = (0.5, -1.25, 3, -2, 0.1, 1.0, 0, 7)


def broadcasts(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    return all(x == y or 1 in (x, y) for x, y in zip(reversed(a), reversed(b), strict=False))


def floating(s: Any, x: Any) -> Any:
    return x if x.dtype.is_floating_point else x.to(s.m.float32)


def bounded(s: Any, x: Any) -> Any:
    """Keep numbers small where they are fed to what grows."""
    return floating(s, x).sin()


def spread(s: Any, x: Any) -> Any:
    """The numbers far from each other, in an order that is not that of their places."""
    x = bounded(s, x)
    n = max(x.numel(), 1)
    x = x.float() if n > 64 and x.dtype is s.m.bfloat16 else x  # whose 8 bits do not tell more numbers apart
    step = next(p for p in (7, 11, 13) if n % p)  # without a factor in common with the number of elements, or places would repeat
    return x + (((s.m.arange(n) * step + 3) % n) * 2.5).to(x.dtype).reshape(x.shape)


def dim(x: Any, number: int) -> int:
    return number % x.ndim if x.ndim else 0


def overlaps(x: Any) -> bool:
    """Whether elements share memory without being expanded: what a write to them does is decided by its order."""
    if not x.numel() or 0 in x.stride():
        return False
    reach = 0
    for stride, n in sorted(zip(x.stride(), x.shape, strict=True)):
        if n > 1 and stride <= reach:
            break
        reach += (n - 1) * stride
    else:
        return False  # each dim goes past all that is before it
    places = np.zeros(1, int)
    for stride, n in zip(x.stride(), x.shape, strict=True):
        places = np.add.outer(places, np.arange(n) * stride)
    return len(np.unique(places)) < x.numel()


def filled(x: Any, number: int) -> bool:
    """Whether a dim can be indexed."""
    return bool(x.ndim and x.shape[dim(x, number)])


UNARY: tuple[Callable[[Any, Any], Any], ...] = (
    lambda s, x: -x if x.dtype != s.m.bool else ~x,
    lambda s, x: bounded(s, x),
    lambda s, x: floating(s, x).tanh(),
    lambda s, x: x.abs() if x.dtype != s.m.bool else x.clone(),
    lambda s, x: floating(s, x).relu(),
    lambda s, x: bounded(s, x).exp(),
    lambda s, x: floating(s, x).sigmoid(),
    lambda s, x: (floating(s, x).abs() + 0.5).sqrt(),
    lambda s, x: x.clamp(-1, 2) if x.dtype != s.m.bool else x * 1, lambda s, x: x.clone(), lambda s, x: s.m.nn.functional.gelu(floating(s, x)),
    lambda s, x: floating(s, x).sign(), lambda s, x: x.square() if x.dtype != s.m.bool else x ^ x, lambda s, x: s.m.nn.functional.silu(floating(s, x)),
    lambda s, x: (bounded(s, x) * 0.9).atanh(), lambda s, x: s.m.nn.functional.softplus(floating(s, x)), lambda s, x: s.m.zeros_like(x),
)  # fmt: skip
BINARY: tuple[Callable[[Any, Any, Any], Any], ...] = (
    lambda s, x, y: x + y, lambda s, x, y: x * y, lambda s, x, y: floating(s, x) - y, lambda s, x, y: x > y,
    lambda s, x, y: s.m.where(floating(s, x) > 0.3712, x, y),
    lambda s, x, y: floating(s, x) / ((y if isinstance(y, (int, float)) else floating(s, y).abs()) + 1.5),
    lambda s, x, y: s.m.maximum(floating(s, x), s.m.as_tensor(y, dtype=floating(s, x).dtype)), lambda s, x, y: x == y,
    lambda s, x, y: s.m.lerp(bounded(s, x), bounded(s, x) * 2, 0.3) + y,
    lambda s, x, y: s.m.addcmul(floating(s, x), bounded(s, x), s.m.ones(()).to(floating(s, x).dtype)) * y,
    lambda s, x, y: (x > 0) & (s.m.as_tensor(y) < 1), lambda s, x, y: s.m.atan2(floating(s, x), s.m.as_tensor(y, dtype=floating(s, x).dtype).abs() + 1),
)  # fmt: skip
VIEWS: tuple[Callable[[Any, int, int], Any], ...] = (
    lambda x, a, b: x.transpose(dim(x, a), dim(x, b)) if x.ndim else x.view(()),
    lambda x, a, b: x[a % x.shape[0]] if x.ndim and x.shape[0] else x.unsqueeze(0),
    lambda x, a, b: x[a % (x.shape[0] + 1) :] if x.ndim else x[None],
    lambda x, a, b: x[..., :: 1 + b % 2] if x.ndim else x[...],
    lambda x, a, b: x.unsqueeze(a % (x.ndim + 1)),
    lambda x, a, b: x.reshape(-1),
    lambda x, a, b: x.squeeze(),
    lambda x, a, b: x.expand(2, *x.shape),
    lambda x, a, b: x.permute(tuple(reversed(range(x.ndim)))),
    lambda x, a, b: x.narrow(dim(x, a), b % max(x.shape[dim(x, a)], 1), min(1, x.shape[dim(x, a)])) if x.ndim else x.view(1),
    lambda x, a, b: x.diagonal() if x.ndim == 2 else x.flatten(),
    lambda x, a, b: x.select(dim(x, a), -1) if filled(x, a) else x.view_as(x), lambda x, a, b: x.detach(),
    lambda x, a, b: x.movedim(dim(x, a), -1) if x.ndim else x.reshape(1),
    lambda x, a, b: x.unfold(dim(x, a), 2, 1) if x.ndim and x.shape[dim(x, a)] > 1 else x.unsqueeze(-1),
    lambda x, a, b: x.as_strided((2,), (2,)) if x.ndim == 1 and len(x) > 2 and x.is_contiguous() else x[..., None],
)  # fmt: skip
REDUCTIONS: tuple[Callable[[Any, Any, int, int], Any], ...] = (
    lambda s, x, a, b: x.sum(dim(x, a), keepdim=bool(b % 2)),
    lambda s, x, a, b: floating(s, x).mean(),
    lambda s, x, a, b: floating(s, x).amax(dim(x, a), keepdim=bool(b % 2)),
    lambda s, x, a, b: floating(s, x).softmax(dim(x, a)),
    lambda s, x, a, b: floating(s, x).var(dim(x, a), unbiased=False),
    lambda s, x, a, b: floating(s, x).logsumexp(dim(x, a)),
    lambda s, x, a, b: bounded(s, x).cumsum(dim(x, a)), lambda s, x, a, b: x.to(s.m.bool).any(dim(x, a)),
    lambda s, x, a, b: s.m.nn.functional.layer_norm(floating(s, x), x.shape[-1:]) if x.ndim and x.shape[-1] > 1 else x.sum(),
    lambda s, x, a, b: x.sum(),
    lambda s, x, a, b: x.argmax(dim(x, a)) if x.dtype != s.m.bool else x.sum(),
    lambda s, x, a, b: floating(s, x).prod(dim(x, a)) / 50,
    lambda s, x, a, b: floating(s, x).mean((0, -1)) if x.ndim > 1 else x.sum(),
    lambda s, x, a, b: spread(s, x).max(dim(x, a))[b % 2], lambda s, x, a, b: spread(s, x).sort(dim(x, a), descending=bool(b % 2))[a % 2],
    lambda s, x, a, b: spread(s, x).topk(1 + b % x.shape[dim(x, a)], dim(x, a))[0] if x.ndim else x * 1,
    lambda s, x, a, b: (floating(s, x).abs() + 0.1).norm(), lambda s, x, a, b: bounded(s, x).log_softmax(dim(x, a)),
    # Not `!= 0`: a sum whose terms cancel is 0 here and a rounding there.
    lambda s, x, a, b: (x > 0.0123).sum(dim(x, a)), lambda s, x, a, b: bounded(s, x).cumprod(dim(x, a)), lambda s, x, a, b: (x.abs() > 0.01).all(),
)  # fmt: skip


def _matmul(s: Any, x: Any, a: int, b: int) -> Any:
    x = bounded(s, x)
    if x.ndim < 2:
        return x.reshape(-1) @ x.reshape(-1)
    fits = [v for v in s.values if v.ndim == 2 and v.shape[0] == x.shape[-1]] or [x.transpose(-1, -2)]
    return x @ bounded(s, fits[a % len(fits)]).to(x.dtype)


def _linear(s: Any, x: Any, a: int, b: int) -> Any:
    x = bounded(s, x)
    fits = [v for v in s.values if v.ndim == 2 and v.shape[-1] == x.shape[-1]] if x.ndim else []
    if not fits:
        return x * 2
    w = bounded(s, fits[a % len(fits)]).to(x.dtype)
    return s.m.nn.functional.gelu(s.m.nn.functional.linear(x, w, w[:, 0] if b % 2 else None))


def _convolution(s: Any, x: Any, a: int, b: int) -> Any:
    """A convolution of the tensor's last dim with what its first elements are."""
    x = bounded(s, x)
    if not x.ndim or x.shape[-1] < 2 or not x.numel():
        return x.clone()
    rows = x.reshape(-1, 1, x.shape[-1])
    return s.m.nn.functional.conv1d(rows, rows[:1, :, :2], padding=a % 2)


def _cat(s: Any, x: Any, a: int, b: int) -> Any:
    fits = [v for v in s.values if tuple(v.shape) == tuple(x.shape) and x.ndim]
    return s.m.cat([x, fits[a % len(fits)]], dim(x, b)) if fits else s.m.stack([x, x])


def _split(s: Any, x: Any, a: int, b: int) -> Any:
    if not filled(x, a):
        return s.m.stack([x, x * 2])
    parts = x.split(1 + b % 2, dim(x, a)) if b % 3 else x.unbind(dim(x, a))
    return parts[b % len(parts)] * 1


def _select(s: Any, x: Any, a: int, b: int) -> Any:
    if not filled(x, a):
        return x.clone()
    n = x.shape[dim(x, a)]
    index = s.m.tensor([b % n, 0, (a + b) % n])
    return x.index_select(dim(x, a), index) if b % 3 else x[index % x.shape[0]] if x.shape[0] else x.flip(0)


def _gather(s: Any, x: Any, a: int, b: int) -> Any:
    if not filled(x, a):
        return x.clone()
    index = (s.m.arange(x.numel()).reshape(x.shape) * (1 + b)) % x.shape[dim(x, a)]
    return x.gather(dim(x, a), index)


def _chosen(s: Any, x: Any, a: int, b: int) -> Any:
    """A result whose size depends on values: none near to which rounding errors lie."""
    return x[x > 0.0123] if b % 2 else s.m.masked_select(x, x < 0.987)


def _masked(s: Any, x: Any, a: int, b: int) -> Any:
    return floating(s, x).masked_fill(x > 0.0123, NUMBERS[a % len(NUMBERS)])


def _roll(s: Any, x: Any, a: int, b: int) -> Any:
    return x.roll(a % 3, dim(x, b)) if x.ndim else x + 0


def _scattered(s: Any, x: Any, a: int, b: int) -> Any:
    if not filled(x, a):
        return x * 1
    index = (s.m.arange(x.numel()).reshape(x.shape) + b) % x.shape[dim(x, a)]
    return s.m.zeros_like(x).scatter_add(dim(x, a), index, x) if x.dtype != s.m.bool else x.tril() if x.ndim == 2 else x.flip(0)


MOVES = (_matmul, _linear, _cat, _select, _masked, _roll, _convolution, _split, _gather, _chosen, _scattered)
NOT_EXACT = (_matmul, _linear, _convolution, _scattered)


def _set_rows(s: Any, x: Any, y: Any, c: int) -> None:
    if x.ndim:
        x[c % (x.shape[0] + 1) :] = NUMBERS[c % len(NUMBERS)]


def _set_row(s: Any, x: Any, y: Any, c: int) -> None:
    if x.ndim and x.shape[0]:
        x[c % x.shape[0]] = y if not hasattr(y, "shape") or not y.ndim else y.sum()
        s.exact = s.exact and (not hasattr(y, "shape") or not y.ndim)


def _set_where(s: Any, x: Any, y: Any, c: int) -> None:
    if x.ndim:
        x[x > 0.0123] = 1


def _through_a_view(s: Any, x: Any, y: Any, c: int) -> None:
    view = VIEWS[c % len(VIEWS)](x, c, c // 3)
    if overlaps(view):
        return
    view.mul_(NUMBERS[c % 2]) if x.dtype.is_floating_point else view.zero_()


def _at_indices(s: Any, x: Any, y: Any, c: int) -> None:
    if x.ndim and x.shape[0]:
        index = s.m.tensor([c % x.shape[0], 0])
        x[index] = NUMBERS[c % len(NUMBERS)] if c % 2 else x[0].detach().clone()


def _index_add(s: Any, x: Any, y: Any, c: int) -> None:
    if x.ndim and x.shape[0] and x.dtype.is_floating_point:
        x.index_add_(0, s.m.tensor([c % x.shape[0]]), x[:1] * 2)


def _numbers_only(s: Any, x: Any, y: Any, c: int) -> None:
    x.sub_(NUMBERS[c % len(NUMBERS)])


def _sine(s: Any, x: Any, y: Any, c: int) -> None:
    x.sin_() if x.dtype.is_floating_point else _numbers_only(s, x, y, c)


def _masked_fill(s: Any, x: Any, y: Any, c: int) -> None:
    x.masked_fill_(x.detach() > 0.2, NUMBERS[c % len(NUMBERS)])


def _into_data(s: Any, x: Any, y: Any, c: int) -> None:
    """`.data` only where nobody asks for gradients: which values these use afterwards depends on what was kept."""
    x.detach().add_(1) if c % 3 or s.gradients else x.data.mul_(0)


WRITES: tuple[Callable[[Any, Any, Any, int], Any], ...] = (
    lambda s, x, y, c: x.add_(y), lambda s, x, y, c: x.mul_(y), lambda s, x, y, c: x.copy_(y if hasattr(y, "shape") else s.m.tensor(y)),
    _set_rows, _set_row, lambda s, x, y, c: x.zero_(), _sine, _set_where, _numbers_only, _through_a_view, _at_indices, _index_add, _masked_fill,
    lambda s, x, y, c: x.fill_(NUMBERS[c % len(NUMBERS)]), lambda s, x, y, c: x.clamp_(-1, 1), _into_data,
    lambda s, x, y, c: x.transpose_(0, -1) if x.ndim > 1 else x.zero_(),
)  # fmt: skip
