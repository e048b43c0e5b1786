"""Random whole programs: what they consist of, and how one is run with flambeau or with PyTorch.

A program is a list of instructions, each a tuple of four numbers: any numbers make a program, as each is taken modulo the
choices that there are. `run` gives the list of events: values that were looked at, errors, gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from tests.engine.random_operations import BINARY, MOVES, NOT_EXACT, NUMBERS, REDUCTIONS, UNARY, VIEWS, WRITES, broadcasts, floating, overlaps

Instruction = tuple[int, int, int, int]
Event = tuple[Any, ...]
DTYPES = ("float32", "float64", "int64", "int32", "bool", "float32")
SHAPES = ((3, 4), (4,), (2, 3, 4), (4, 4), (1, 4), (3, 1), (), (5,), (8, 4), (2, 1, 4))
# Errors that end a program: how much of a backward pass was done is nobody's business; what PyTorch refuses of overlapping
# memory, flambeau computes; and a fault of PyTorch 2.13 itself.
ENDS = (
    "modified by an inplace operation",
    "second time",
    "some elements of the input tensor",
    "INTERNAL ASSERT",
    "Autograd not support",
    "function that returns multiple views",
    "returned an invalid gradient",
)
STEPS = 5  # of a loop: so many that a call that is looked at each time is learned (trace/immediate.py)


class Machine:
    """The state of one run: the tensors by number, and what has been seen."""

    def __init__(self, m: Any, gradients: bool) -> None:
        self.m = m
        self.gradients = gradients
        self.values: list[Any] = []
        self.leaves: list[Any] = []
        self.events: list[Event] = []
        self.shared: list[Any] = []  # arrays that see the memory of values
        self.custom = custom_function(m)
        self.exact = True  # pointwise so far: no reduction whose order may differ

    def pick(self, number: int) -> Any:
        return self.values[number % len(self.values)]

    def see(self, t: Any) -> None:
        """Record everything that can be seen of a tensor."""
        self.events.append((str(t.dtype), tuple(t.shape), bool(t.requires_grad), np.array(t.detach().tolist(), t_kind(t))))

    def see_gradient(self, g: Any) -> None:
        """Record a gradient, or that there is none."""
        if g is None:
            self.events.append(("none",))
        else:
            self.see(g)


def t_kind(t: Any) -> str:
    return str(t.dtype).removeprefix("torch.")


def partner(s: Machine, x: Any, number: int) -> Any:
    """A tensor that broadcasts with x, else a number."""
    fits = [v for v in s.values if broadcasts(tuple(x.shape), tuple(v.shape))]
    choices = [*fits, *NUMBERS[:3]]
    return choices[number % len(choices)]


def share_memory(s: Machine, x: Any, y: Any) -> bool:
    """Whether two tensors are over one storage; asks nothing that would end a trace."""
    if s.m.__name__ == "torch":
        return bool(x.untyped_storage()._cdata == y.untyped_storage()._cdata)  # not by address: that of all empty memories is 0
    return x is y or (x._storage is not None and x._storage is y._storage)


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
    move = MOVES[b % len(MOVES)]
    s.exact = s.exact and move not in NOT_EXACT
    return move(s, s.pick(a), c, c // 3)


def _write(s: Machine, a: int, b: int, c: int) -> Any:
    """In place: the target keeps its number."""
    x = s.pick(a)
    y = partner(s, x, c)
    if hasattr(y, "shape") and y is not x and share_memory(s, x, y):
        y = y.clone()  # PyTorch reads what it has just written where the two overlap
    if not overlaps(x):
        WRITES[b % len(WRITES)](s, x, y, c)


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
        s.events.append(("item", x.detach().reshape(-1)[c % x.numel()].item()))


def _branch(s: Machine, a: int, b: int, c: int) -> Any:
    x = s.pick(a)
    if x.numel() and float(x.detach().reshape(-1)[c % x.numel()]) > 0.3712:
        return floating(s, x) * 2
    return _unary(s, a + 1, b, c)


def _backward(s: Machine, a: int, b: int, c: int) -> Any:
    x = s.pick(a)
    if s.gradients and x.requires_grad and x.numel():
        s.exact = False
        if b % 3 == 0:
            x.sum().backward(retain_graph=bool(c % 2))
        else:
            found = s.m.autograd.grad((x * x).sum(), s.leaves, allow_unused=True, retain_graph=True, create_graph=b % 3 == 2)
            for g in found:
                s.see_gradient(g)
            made = [g for g in found if g is not None and g.requires_grad]
            return made[0] if made else None


def _modes(s: Machine, a: int, b: int, c: int) -> Any:
    with s.m.no_grad():
        return _write(s, a, b, c) if c % 2 else _unary(s, a, b, c)


def _share(s: Machine, a: int, b: int, c: int) -> Any:
    """NumPy sees a value from now on, or no longer."""
    if b % 2 and s.shared:
        s.shared.pop()
    else:
        s.shared.append(s.pick(a).detach().numpy())


def _gradient_tools(s: Machine, a: int, b: int, c: int) -> Any:
    """What programs do with gradients besides asking for them."""
    x = s.pick(a)
    if not s.gradients or not x.dtype.is_floating_point:
        return x * 1
    s.exact = False
    kind = b % 6
    if kind == 0 and x.requires_grad:
        x.register_hook(lambda g: g * 0.5)
    elif kind == 1 and x.requires_grad:
        x.retain_grad()
    elif kind == 2 and x.requires_grad:
        return s.m.utils.checkpoint.checkpoint(lambda t: (t.sin() * t).sum(), x, use_reentrant=False)
    elif kind == 3:
        s.leaves.append(x.detach().clone().requires_grad_())
        return s.leaves[-1]
    elif kind == 4:
        s.m.optim.SGD(s.leaves, lr=0.1).step()
    else:
        return s.custom.apply(x)
    return None


def _loop(s: Machine, a: int, b: int, c: int) -> Any:
    """The next instructions several times; see `run`."""


KINDS: tuple[Callable[[Machine, int, int, int], Any], ...] = (
    _unary, _binary, _binary, _number, _view, _view, _reduce, _move, _write, _write, _cast, _drop, _look, _branch, _backward, _modes, _reduce, _share,
    _gradient_tools, _move, _loop,
)  # fmt: skip


@cache
def custom_function(m: Any) -> Any:
    """An operation whose gradient is the user's."""

    class Scaled(m.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return g * x * 3

    return Scaled


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
    try:
        position = 0
        while position < len(program):
            length = 0
            if KINDS[program[position][0] % len(KINDS)] is _loop:
                length = 1 + program[position][1] % 2
                body = program[position + 1 : position + 1 + length]
                for step in range(STEPS):
                    for instruction in body:
                        _step(s, instruction)
                    if s.values and step % 2 == program[position][2] % 2:
                        s.see(s.values[-1])
            else:
                _step(s, program[position])
            position += 1 + length
        _finish(s)
    except _Ended:
        pass
    return s.events, s.exact


class _Ended(Exception):
    """An error after which the two may differ."""


def _step(s: Machine, instruction: Instruction) -> None:
    kind, a, b, c = instruction
    try:
        made = KINDS[kind % len(KINDS)](s, a, b, c)
    except (RuntimeError, IndexError, TypeError) as error:
        _failed(s, error)
        return
    if made is not None and made.numel() < 200:
        s.values.append(made)
        if len(s.values) > 9:
            del s.values[0]


def _failed(s: Machine, error: Exception) -> None:
    s.events.append(("error", type(error).__name__, str(error)))
    if any(words in str(error) for words in ENDS):
        raise _Ended


def _finish(s: Machine) -> None:
    """Gradients of everything, then all values."""
    ends = [v for v in s.values if v.requires_grad and v.numel()]
    try:
        if s.gradients and ends:
            total = sum((v.to(s.m.float64) * 0.5).sum() for v in ends)
            total.backward()
    except RuntimeError as error:
        _failed(s, error)
    for v in s.values:
        s.see(v)
    for t in [*s.leaves, *[v for v in s.values if v.requires_grad and not v.is_leaf and v.retains_grad]]:
        s.see_gradient(t.grad)
