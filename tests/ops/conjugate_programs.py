"""Random programs of views, conjugates, negatives, writes through any of them, results into them, observations and gradients, over either library."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Sequence
from typing import Any

VIEWS: dict[str, Callable[[Any, Any, random.Random], Any]] = {
    "conj": lambda m, x, r: x.conj(),
    "conj ": lambda m, x, r: m.conj(x),
    "conj  ": lambda m, x, r: x.conj(),
    "neg_view": lambda m, x, r: m._neg_view(x),
    "real": lambda m, x, r: x.real,
    "imag": lambda m, x, r: x.imag,
    "imag ": lambda m, x, r: m.imag(x),
    "view_as_real": lambda m, x, r: m.view_as_real(x),
    "view_as_complex": lambda m, x, r: m.view_as_complex(x),
    "mT": lambda m, x, r: x.mT,
    "H": lambda m, x, r: x.H,
    "mH": lambda m, x, r: x.mH,
    "adjoint": lambda m, x, r: x.adjoint(),
    "select": lambda m, x, r: x[r.randrange(x.shape[0])],
    "slice": lambda m, x, r: x[r.randrange(2) :: r.choice((1, 1, 2))],
    "columns": lambda m, x, r: x[..., r.randrange(2) :],
    "reshape": lambda m, x, r: x.reshape(-1),
    "view": lambda m, x, r: x.view(-1),
    "flatten": lambda m, x, r: x.flatten(),
    "ravel": lambda m, x, r: x.ravel(),
    "unsqueeze": lambda m, x, r: x.unsqueeze(r.randrange(x.ndim + 1)),
    "squeeze": lambda m, x, r: x.squeeze(),
    "expand": lambda m, x, r: x.expand(2, *x.shape),
    "diagonal": lambda m, x, r: x.diagonal(),
    "as_strided": lambda m, x, r: x.as_strided((2,), (1,)),
    "movedim": lambda m, x, r: x.movedim(0, -1),
    "chunk": lambda m, x, r: x.chunk(2)[-1],
    "unbind": lambda m, x, r: x.unbind(0)[0],
    "detach": lambda m, x, r: x.detach(),
    "contiguous": lambda m, x, r: x.contiguous(),
    "positive": lambda m, x, r: m.positive(x),
    "resolve_conj": lambda m, x, r: x.resolve_conj(),
    "resolve_neg": lambda m, x, r: x.resolve_neg(),
    "clone": lambda m, x, r: x.clone(),
    "conj_physical": lambda m, x, r: m.conj_physical(x),
    "to": lambda m, x, r: x.to(m.complex128),
    "float": lambda m, x, r: x.double(),
    "view of a dtype": lambda m, x, r: x.view(m.float64),
    "empty_like": lambda m, x, r: m.zeros_like(x),
}
# Under autograd PyTorch lets nobody write to some of several views, and has no rule for which other dtypes' views have gradients.
# What `.data` writes changes PyTorch's gradients of conjugates, here those of the memory alone. Views in place of what has a history, and those beyond a
# view's own elements, are other questions.
SEVERAL = ("chunk", "unbind", "view of a dtype", "data", "t_", "unsqueeze_", "as_strided")
RESULTS: dict[str, Callable[[Any, Any, Any, random.Random], Any]] = {
    "add": lambda m, x, y, r: x + y,
    "mul": lambda m, x, y, r: x * y,
    "numbers": lambda m, x, y, r: x * (1 - 2j) + 3,
    "abs": lambda m, x, y, r: x.abs(),
    "neg": lambda m, x, y, r: -x,
    "sum": lambda m, x, y, r: x.sum(-1),
    "mean": lambda m, x, y, r: x.mean(),
    "matmul": lambda m, x, y, r: x @ y,
    "gram": lambda m, x, y, r: x @ x.mH,
    "vdot": lambda m, x, y, r: m.vdot(x.reshape(-1), y.reshape(-1)).resolve_conj(),  # PyTorch's may be a conjugate
    "where": lambda m, x, y, r: m.where(x.real > 0, x, y),
    "cat": lambda m, x, y, r: m.cat([x, y]),
    "stack": lambda m, x, y, r: m.stack([x, x.conj(), y], -1),
    "rows": lambda m, x, y, r: x[m.tensor([0, -1])],
    "mask": lambda m, x, y, r: x[x.real > 0],
    "flip": lambda m, x, y, r: x.flip(0),
    "complex": lambda m, x, y, r: m.complex(x.real, y.imag),
    "tril": lambda m, x, y, r: m.tril(x),
    "angle": lambda m, x, y, r: m.sgn(x),
    "einsum": lambda m, x, y, r: m.einsum("ij,ij->j", x, y),
    "cumsum": lambda m, x, y, r: x.cumsum(0),
    "repeat": lambda m, x, y, r: x.repeat(2, *[1] * (x.ndim - 1)),
    "pad": lambda m, x, y, r: m.nn.functional.pad(x, (1, 0)),
    "index_select": lambda m, x, y, r: x.index_select(0, m.tensor([0])),
    "kept": lambda m, x, y, r: x.masked_fill(x.real > 1, 2),
    "nonzero": lambda m, x, y, r: x.nonzero(),
}
WRITES: dict[str, Callable[[Any, Any, Any, random.Random], Any]] = {
    "fill_": lambda m, x, y, r: x.fill_(r.choice((2, 1.5, 1 - 3j))),
    "zero_": lambda m, x, y, r: x.zero_(),
    "copy_": lambda m, x, y, r: x.copy_(y),
    "copy_ ": lambda m, x, y, r: x.copy_(x.conj()),
    "add_": lambda m, x, y, r: x.add_(y, alpha=r.choice((1, 2))),
    "add number": lambda m, x, y, r: x.add_(1 + 1j),
    "mul_": lambda m, x, y, r: x.mul_(y),
    "neg_": lambda m, x, y, r: x.neg_(),
    "conj_physical_": lambda m, x, y, r: x.conj_physical_(),
    "set a row": lambda m, x, y, r: x.__setitem__(0, r.choice((1j, 2.0))),
    "set a slice": lambda m, x, y, r: x.__setitem__(slice(1, None), y[:1]),
    "set by a mask": lambda m, x, y, r: x.__setitem__(x.abs() > 2, 1 + 1j),
    "set by an index": lambda m, x, y, r: x.__setitem__(m.tensor([0, -1]), y[0]),
    "set the real part": lambda m, x, y, r: setattr(x, "real", y.imag),
    "set the imaginary part": lambda m, x, y, r: setattr(x, "imag", y.real),
    "add to the imaginary part": lambda m, x, y, r: x.imag.add_(1.25),
    "index_add_": lambda m, x, y, r: x.index_add_(0, m.tensor([0]), y[:1]),
    "masked_fill_": lambda m, x, y, r: x.masked_fill_(x.abs() < 0.9, 3),
    "index_fill_": lambda m, x, y, r: x.index_fill_(0, m.tensor([0]), 4),
    "tril_": lambda m, x, y, r: x.tril_(),
    "t_": lambda m, x, y, r: x.t_(),
    "unsqueeze_": lambda m, x, y, r: x.unsqueeze_(0),
    "add out": lambda m, x, y, r: m.add(y, y, out=x) if x.shape == y.shape and x.dtype is y.dtype else 0,
    "mul out": lambda m, x, y, r: m.mul(x, y, out=x) if x.shape == y.shape and x.dtype is y.dtype else 0,
    "conj out": lambda m, x, y, r: m.conj_physical(y, out=x) if x.shape == y.shape and not (x.requires_grad or y.requires_grad) else 0,
    "matmul out": lambda m, x, y, r: m.matmul(y.clone(), y.clone().conj(), out=x) if x.shape == y.shape and x.dtype is y.dtype else 0,
    "detach": lambda m, x, y, r: x.detach().mul_(2),
    "data": lambda m, x, y, r: x.data.add_(1),
}
LOOKS: dict[str, Callable[[Any, Any], Any]] = {
    "item": lambda m, x: x.reshape(-1)[:1].sum().item(),
    "one": lambda m, x: x.reshape(-1)[0].item(),
    "tolist": lambda m, x: x.resolve_conj().resolve_neg().tolist(),
    "numpy": lambda m, x: x.detach().numpy().tolist(),
    "forced": lambda m, x: x.numpy(force=True).tolist(),
    "bool": lambda m, x: bool((x == x).all()),
    "flags": lambda m, x: (x.is_conj(), x.is_neg(), x.is_contiguous(), x.is_leaf),
    "memory": lambda m, x: x.data_ptr() - x.untyped_storage().data_ptr(),
    "allclose": lambda m, x: m.allclose(x, x.clone()),
}


class Failed(str):
    """The type of an error. `text`: its message, for who looks at a failure."""

    text = ""


class Program:
    """One program: the same seed makes the same choices in either library, as long as both do the same."""

    def __init__(self, m: Any, seed: int, check: Callable[[str, Any], None], gradients: bool) -> None:
        self.m, self.seed, self.r, self.check, self.gradients = m, seed, random.Random(seed), check, gradients
        self.tensors: list[Any] = []
        self.leaves: list[Any] = []
        self.place = 0  # which tensor a new one replaces
        self.of = ""  # which tensors a step takes

    def run(self, steps: Sequence[int]) -> None:
        """Make some tensors, then the steps, which do not depend on each other's numbers; `check(what, outcome)` sees each."""
        m, r = self.m, self.r
        for shape in r.choice((((3, 3), (3, 3)), ((2, 4), (4, 2)), ((2, 3, 3), (3, 3)), ((4,), (4,)), ((3, 3), ()))):
            n = 1
            for size in shape:
                n *= size
            values = [complex(r.randrange(-8, 9) / 4, r.randrange(-8, 9) / 4) for _ in range(n)]
            made = m.tensor(values, dtype=m.complex128).reshape(shape)
            if self.gradients:
                leaf = made.clone().requires_grad_() if r.random() < 0.7 else made.clone().conj().detach().requires_grad_()
                self.leaves.append(leaf)
                made = leaf.clone() if r.random() < 0.7 else leaf * 1
            self.tensors.append(made)
        for step in steps:
            r = self.r = random.Random(f"{self.seed} {step}")
            kind, self.place, look = r.random(), r.randrange(8), r.random() < 0.1
            i, j = r.randrange(8) % len(self.tensors), r.randrange(8) % len(self.tensors)
            x, y = self.tensors[i], self.tensors[j]
            self.of = f"{i}, {j}"
            if kind < 0.45:
                name = r.choice(list(VIEWS))
                if not (self.gradients and name in SEVERAL):
                    self.made(step, name, lambda name: VIEWS[name](m, x, r))  # noqa: B023 - called at once
            elif kind < 0.6:
                self.made(step, r.choice(list(RESULTS)), lambda name: RESULTS[name](m, x, y, r))  # noqa: B023
            elif kind < 0.88 and (0 in x.stride() or not x.numel()):
                continue  # which functions write to repeated elements is another question
            elif kind < 0.88:
                if not self.apart(x, y):
                    y = y.clone()
                name = r.choice(list(WRITES))
                if not (self.gradients and name in SEVERAL):
                    self.attempt(step, name, lambda name: WRITES[name](m, x, y, r) is not None)  # noqa: B023
                self.meet(step, x)
            elif kind < 0.97 or not self.gradients:
                self.attempt(step, r.choice(list(LOOKS)), lambda name: LOOKS[name](m, x))  # noqa: B023
            else:
                self.attempt(step, "gradient", lambda name: self.gradient(x))  # noqa: B023
            if look:
                self.see(step)
        self.see(-1)
        if self.gradients:
            self.attempt(-1, "backward", lambda name: self.backward())

    def apart(self, x: Any, y: Any) -> bool:
        """Whether two tensors share no memory, or all of it in the same order: else PyTorch may read what is half written."""
        if x.untyped_storage().data_ptr() != y.untyped_storage().data_ptr():
            return True
        return bool(x.stride() == y.stride() and x.shape == y.shape and x.storage_offset() == y.storage_offset() and x.dtype is y.dtype)

    def gradient(self, x: Any) -> Any:
        """The gradients of a loss of one of the tensors in some others, views among them."""
        others = [t for t in (*self.leaves, *self.tensors[-4:]) if t.requires_grad]
        grads = self.m.autograd.grad(self.loss([x]), others, retain_graph=True, allow_unused=True)
        return [None if g is None else self.values(g) for g in grads]

    def backward(self) -> Any:
        """The gradients of all in the leaves, with a hook and a kept gradient on the way."""
        seen: list[Any] = []
        wanted = [t for t in self.tensors if t.requires_grad]
        watched = [t for t in wanted[-2:] if not t.is_leaf]
        for t in watched[-1:]:
            t.register_hook(lambda g: seen.append(self.values(g)))
        for t in watched[:1]:
            t.retain_grad()
        self.loss(wanted).backward()
        return [None if t.grad is None else self.values(t.grad) for t in (*self.leaves, *watched[:1])], seen

    def loss(self, tensors: list[Any]) -> Any:
        """A real number of all of them, other for a tensor than for its conjugate."""
        total = 0
        for i, t in enumerate(tensors):
            t = t.to(self.m.complex128) * (1 + (i % 3) * 0.5j)
            total = total + t.real.sum() + 0.5 * (t.imag * t.imag).sum()
        return total

    def values(self, t: Any) -> Any:
        return tuple(t.shape), t.detach().resolve_conj().resolve_neg().reshape(-1).tolist()

    def made(self, step: int, name: str, function: Callable[[str], Any]) -> None:
        """A new tensor: looked at from outside, and kept among those that later steps choose from."""
        found: list[Any] = []

        def make(name: str) -> Any:
            t = function(name)
            if t.numel() > 200 or t.ndim > 4:
                return "large"
            found.append(t)
            return None

        self.attempt(step, name, make)
        for t in found:
            self.meet(step, t)
            place = self.place if len(self.tensors) == 8 else len(self.tensors)
            self.tensors[place : place + 1] = [t]
            self.check(f"{step}: is now {place}", None)

    def meet(self, step: int, t: Any) -> None:
        """What can be seen of a tensor without its values."""
        self.check(f"{step}: flags", (t.is_conj(), t.is_neg(), t.requires_grad))
        self.check(f"{step}: layout", (str(t.dtype).rpartition(".")[2], tuple(t.shape), t.stride() if t.numel() else (), t.storage_offset()))

    def attempt(self, step: int, name: str, function: Callable[[str], Any]) -> None:
        """Note what a step gives, or how it fails."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                outcome = function(name)
        except Exception as error:
            outcome = Failed(type(error).__name__)
            outcome.text = str(error)
        self.check(f"{step}: {name} of {self.of}", outcome)

    def see(self, step: int) -> None:
        """All values."""
        for i, t in enumerate(self.tensors):
            self.check(f"{step}: values of {i}", self.values(t))
