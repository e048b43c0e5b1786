"""Random whole programs: what they consist of, and how one is run with flambeau or with PyTorch.

A program is a list of instructions, each a tuple of four numbers: any numbers make a program, as each is taken modulo the
choices that there are. `run` gives the list of events: values that were looked at, errors, gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Instruction = tuple[int, int, int, int]
Event = tuple[Any, ...]
DTYPES = ("float32", "float64", "int64", "int32", "bool", "float32")
SHAPES = ((3, 4), (4,), (2, 3, 4), (4, 4), (1, 4), (3, 1), (), (5,), (8, 4), (2, 1, 4))
# Errors that end a program: how much of a backward pass was done is nobody's business; what PyTorch refuses of overlapping
# memory, flambeau computes; and a fault of PyTorch 2.13 itself.
ENDS = ("modified by an inplace operation", "second time", "some elements of the input tensor", "INTERNAL ASSERT", "Autograd not support")
NUMBERS = (0.5, -1.25, 3, -2, 0.1, 1.0, 0, 7)


class Machine:
    """The state of one run: the tensors by number, and what has been seen."""

    def __init__(self, m: Any, gradients: bool) -> None:
        self.m = m
        self.gradients = gradients
        self.values: list[Any] = []
        self.leaves: list[Any] = []
        self.events: list[Event] = []
        self.shared: list[Any] = []  # arrays that see the memory of values
        self.exact = True  # pointwise so far: no reduction whose order may differ

    def pick(self, number: int) -> Any:
        return self.values[number % len(self.values)]

    def see(self, t: Any) -> None:
        """Record everything that can be seen of a tensor."""
        self.events.append((str(t.dtype), tuple(t.shape), bool(t.requires_grad), np.array(t.detach().tolist(), t_kind(t))))


def t_kind(t: Any) -> str:
    return str(t.dtype).removeprefix("torch.")


def partner(s: Machine, x: Any, number: int) -> Any:
    """A tensor that broadcasts with x, else a number."""
    fits = [v for v in s.values if broadcasts(tuple(x.shape), tuple(v.shape))]
    choices = [*fits, *NUMBERS[:3]]
    return choices[number % len(choices)]


def broadcasts(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    return all(x == y or 1 in (x, y) for x, y in zip(reversed(a), reversed(b), strict=False))


def floating(s: Machine, x: Any) -> Any:
    return x if x.dtype.is_floating_point else x.to(s.m.float32)


def bounded(s: Machine, x: Any) -> Any:
    """Keep numbers small where they are fed to what grows."""
    return floating(s, x).sin()


def dim(x: Any, number: int) -> int:
    return number % x.ndim if x.ndim else 0


UNARY: tuple[Callable[[Machine, Any], Any], ...] = (
    lambda s, x: -x if x.dtype != s.m.bool else ~x,
    lambda s, x: bounded(s, x),
    lambda s, x: floating(s, x).tanh(),
    lambda s, x: x.abs() if x.dtype != s.m.bool else x.clone(),
    lambda s, x: floating(s, x).relu(),
    lambda s, x: bounded(s, x).exp(),
    lambda s, x: floating(s, x).sigmoid(),
    lambda s, x: (floating(s, x).abs() + 0.5).sqrt(),
    lambda s, x: x.clamp(-1, 2) if x.dtype != s.m.bool else x * 1, lambda s, x: x.clone(), lambda s, x: s.m.nn.functional.gelu(floating(s, x)),
)  # fmt: skip
BINARY: tuple[Callable[[Machine, Any, Any], Any], ...] = (
    lambda s, x, y: x + y, lambda s, x, y: x * y, lambda s, x, y: floating(s, x) - y, lambda s, x, y: x > y,
    lambda s, x, y: s.m.where(floating(s, x) > 0.3712, x, y),
    lambda s, x, y: floating(s, x) / ((y if isinstance(y, (int, float)) else floating(s, y).abs()) + 1.5),
    lambda s, x, y: s.m.maximum(floating(s, x), s.m.as_tensor(y, dtype=floating(s, x).dtype)), lambda s, x, y: x == y,
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
    lambda x, a, b: x.select(dim(x, a), -1) if x.ndim and x.shape[dim(x, a)] else x.view_as(x), lambda x, a, b: x.detach(),
)  # fmt: skip
REDUCTIONS: tuple[Callable[[Machine, Any, int, int], Any], ...] = (
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
)  # fmt: skip


def _matmul(s: Machine, x: Any, a: int, b: int) -> Any:
    x = bounded(s, x)
    if x.ndim < 2:
        return x.reshape(-1) @ x.reshape(-1)
    fits = [v for v in s.values if v.ndim == 2 and v.shape[0] == x.shape[-1]] or [x.transpose(-1, -2)]
    return x @ bounded(s, fits[a % len(fits)]).to(x.dtype)


def _linear(s: Machine, x: Any, a: int, b: int) -> Any:
    x = bounded(s, x)
    fits = [v for v in s.values if v.ndim == 2 and v.shape[-1] == x.shape[-1]] if x.ndim else []
    if not fits:
        return x * 2
    w = bounded(s, fits[a % len(fits)]).to(x.dtype)
    return s.m.nn.functional.gelu(s.m.nn.functional.linear(x, w, w[:, 0] if b % 2 else None))


def _cat(s: Machine, x: Any, a: int, b: int) -> Any:
    fits = [v for v in s.values if tuple(v.shape) == tuple(x.shape) and x.ndim]
    return s.m.cat([x, fits[a % len(fits)]], dim(x, b)) if fits else s.m.stack([x, x])


def _select(s: Machine, x: Any, a: int, b: int) -> Any:
    if not x.ndim or not x.shape[dim(x, a)]:
        return x.clone()
    n = x.shape[dim(x, a)]
    index = s.m.tensor([b % n, 0, (a + b) % n])
    return x.index_select(dim(x, a), index) if b % 3 else x[index % x.shape[0]] if x.shape[0] else x.flip(0)


def _masked(s: Machine, x: Any, a: int, b: int) -> Any:
    return floating(s, x).masked_fill(x > 0, NUMBERS[a % len(NUMBERS)])


def _roll(s: Machine, x: Any, a: int, b: int) -> Any:
    return x.roll(a % 3, dim(x, b)) if x.ndim else x + 0


MOVES = (_matmul, _linear, _cat, _select, _masked, _roll)


def _unary(s: Machine, a: int, b: int, c: int) -> Any:
    return UNARY[b % len(UNARY)](s, s.pick(a))


def _binary(s: Machine, a: int, b: int, c: int) -> Any:
    x = s.pick(a)
    return BINARY[b % len(BINARY)](s, x, partner(s, x, c))


def _number(s: Machine, a: int, b: int, c: int) -> Any:
    x, n = s.pick(a), NUMBERS[b % len(NUMBERS)]
    return x * n if c % 2 else n - x.to(s.m.float64 if c % 3 == 0 else s.m.float32)


def _view(s: Machine, a: int, b: int, c: int) -> Any:
    return VIEWS[b % len(VIEWS)](s.pick(a), c, c // 3)


def _reduce(s: Machine, a: int, b: int, c: int) -> Any:
    s.exact = False
    x = s.pick(a)
    return REDUCTIONS[b % len(REDUCTIONS)](s, x, c, c // 3) if x.numel() else x.clone()


def _move(s: Machine, a: int, b: int, c: int) -> Any:
    s.exact = s.exact and b % len(MOVES) > 1
    return MOVES[b % len(MOVES)](s, s.pick(a), c, c // 3)


def _write(s: Machine, a: int, b: int, c: int) -> Any:
    """In place: the target keeps its number."""
    x = s.pick(a)
    y = partner(s, x, c)
    if s.m.__name__ == "torch" and y is not x and hasattr(y, "shape") and y.untyped_storage().data_ptr() == x.untyped_storage().data_ptr():
        y = y.clone()  # PyTorch reads what it has just written where the two overlap
    kind = b % 9
    if kind == 0:
        x.add_(y)
    elif kind == 1:
        x.mul_(y)
    elif kind == 2:
        x.copy_(y if hasattr(y, "shape") else s.m.tensor(y))
    elif kind == 3 and x.ndim:
        x[c % (x.shape[0] + 1) :] = NUMBERS[c % len(NUMBERS)]
    elif kind == 4 and x.ndim and x.shape[0]:
        x[c % x.shape[0]] = y if not hasattr(y, "shape") or not y.ndim else y.sum()
        s.exact = s.exact and (not hasattr(y, "shape") or not y.ndim)
    elif kind == 5:
        x.zero_()
    elif kind == 6 and x.dtype.is_floating_point:
        x.sin_()
    elif kind == 7 and x.ndim:
        x[x > 0] = 1
    else:
        x.sub_(NUMBERS[c % len(NUMBERS)])


def _cast(s: Machine, a: int, b: int, c: int) -> Any:
    x, d = s.pick(a), DTYPES[b % len(DTYPES)]
    if x.dtype.is_floating_point and d.startswith("int"):
        x = (x.detach() * 0.01).round().clamp(-100, 100)  # far from a half, as long as both agree
    return x.to(getattr(s.m, d))


def _drop(s: Machine, a: int, b: int, c: int) -> Any:
    if len(s.values) > 3:
        del s.values[a % len(s.values)]


def _look(s: Machine, a: int, b: int, c: int) -> Any:
    x = s.pick(a)
    if b % 3 or not x.numel():
        s.see(x)
    else:
        s.events.append(("item", x.reshape(-1)[c % x.numel()].item()))


def _branch(s: Machine, a: int, b: int, c: int) -> Any:
    x = s.pick(a)
    if x.numel() and float(x.reshape(-1)[c % x.numel()]) > 0.3712:
        return floating(s, x) * 2
    return _unary(s, a + 1, b, c)


def _backward(s: Machine, a: int, b: int, c: int) -> Any:
    x = s.pick(a)
    if s.gradients and x.requires_grad and x.numel():
        if b % 3 == 0:
            x.sum().backward(retain_graph=bool(c % 2))
        else:
            found = s.m.autograd.grad((x * x).sum(), s.leaves, allow_unused=True, retain_graph=True)
            for x, g in zip(s.leaves, found, strict=True):
                s.see(s.m.zeros_like(x) if g is None else g)
        s.exact = False


def _modes(s: Machine, a: int, b: int, c: int) -> Any:
    with s.m.no_grad():
        return _write(s, a, b, c) if c % 2 else _unary(s, a, b, c)


def _share(s: Machine, a: int, b: int, c: int) -> Any:
    """NumPy sees a value from now on, or no longer."""
    if b % 2 and s.shared:
        s.shared.pop()
    else:
        s.shared.append(s.pick(a).detach().numpy())


KINDS: tuple[Callable[[Machine, int, int, int], Any], ...] = (
    _unary, _binary, _binary, _number, _view, _view, _reduce, _move, _write, _write, _cast, _drop, _look, _branch, _backward, _modes, _unary, _share,
)  # fmt: skip


def run(m: Any, program: Sequence[Instruction], gradients: bool) -> tuple[list[Event], bool]:
    """The events of a program, and whether only pointwise functions led to its values. `m`: flambeau or PyTorch."""
    s = Machine(m, gradients)
    generator = np.random.default_rng(len(program))
    for k in range(3):
        _, a, b, _ = program[k % len(program)]
        shape, d = SHAPES[(a + k) % len(SHAPES)], DTYPES[b % len(DTYPES)] if k else "float32"
        data = generator.uniform(-2, 2, shape) if d.startswith("float") else generator.integers(-3, 4, shape)
        t = m.tensor(np.asarray(data).tolist(), dtype=getattr(m, d))
        if gradients and t.dtype.is_floating_point:
            t.requires_grad_()
            s.leaves.append(t)
        s.values.append(t)
    for kind, a, b, c in program:
        try:
            made = KINDS[kind % len(KINDS)](s, a, b, c)
        except (RuntimeError, IndexError, TypeError) as error:
            s.events.append(("error", type(error).__name__, str(error)))
            if any(words in str(error) for words in ENDS):
                break
            continue
        if made is not None and made.numel() < 200:
            s.values.append(made)
            if len(s.values) > 9:
                del s.values[0]
    else:
        try:
            _finish(s)
        except RuntimeError as error:
            s.events.append(("error", type(error).__name__, str(error)))
            if not any(words in str(error) for words in ENDS):
                raise
    return s.events, s.exact


def _finish(s: Machine) -> None:
    """Gradients of everything, then all values."""
    ends = [v for v in s.values if v.requires_grad and v.numel()]
    if s.gradients and ends:
        total = sum((v.to(s.m.float64) * 0.5).sum() for v in ends)
        total.backward()
    for v in s.values:
        s.see(v)
    for leaf in s.leaves:
        s.see(s.m.zeros_like(leaf) if leaf.grad is None else leaf.grad)  # a gradient of zeros and none at all are the same
