"""Statements of generated programs (generated_programs.py), and the state of one run of such a program.

A statement is Python text. X, Y and Z stand for registers (`v[3]`: a tensor that is always there), I and J for whole numbers, N for a number, D for a
dtype's name. A statement that fails leaves its register as it was, and its error is compared.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from tests.engine.random_operations import overlaps
from tests.engine.random_programs import ENDS, Event, custom_function, share_memory

# How far values of a dtype may be apart, of the greatest: programs are long.
TOLERANCES = {"float16": 2e-2, "bfloat16": 1e-1, "float32": 1e-4, "complex64": 1e-4, "float64": 1e-9, "complex128": 1e-9}
LAST_PLACES = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-22, "complex64": 2.0**-22, "float64": 2.0**-50, "complex128": 2.0**-50}
COMMON = ("float32", "float32", "float64", "int64", "bool", "int32", "complex64", "int8", "complex128")
SIZES = (1, 2, 3, 4, 5, 7)
LARGEST = 200  # elements of a register

INDICES = (
    "X = Y[..., ::1 + I % 3]", "X = Y[I % 3 - 2]", "X = Y[-(1 + I % 2):]", "X = Y[torch.tensor([0, -1, I % 2])]", "X = Y[..., torch.tensor([[0, -1]])]",
    "X = Y[torch.tensor([0, -1]), ..., torch.tensor([-1, 0])]", "X = Y[torch.tensor(-1)]", "X = Y[s.mask(Y)]", "X = Y[None, ..., 0]", "X = Y[1:, ..., :-1]",
    "X = Y[:, torch.tensor([0, -1])]", "X = Y[I % 4:, [0, -1]]", "X = Y[torch.tensor(I % 4), 1:]", "X = Y[..., -3:-1]",
    "X = Y.take_along_dim(Y.argsort(-1), -1)", "X = Y.select(-1, -1)", "X = Y.index_select(-1, torch.tensor([0, 0]))", "X = Y.flip(-1)",
)  # fmt: skip
INDEXED_WRITES = (
    "X[torch.tensor([0, -1])] = N", "X[..., ::2] = N", "X[..., 0] += 1", "X[:, torch.tensor([0, -1])] = N", "X[1:] = X[:-1].clone()", "X[-1] = Y.sum()",
    "X[..., I % 3:].mul_(N)", "X.view(-1)[I % 5::2].add_(1)", "X.mT.mul_(2)", "X[s.mask(X)] = N", "X[...] = s.source(X, Y)", "X[torch.tensor(-1)] = Y[0]",
    "X.diagonal().fill_(N)", "X[None, ..., -1].zero_()", "X[..., -2:] = s.source(X, Y)[..., -2:]", "X.transpose(0, -1).copy_(X.transpose(0, -1).flip(0))",
    "s.whole(X).index_fill_(-1, torch.tensor([-1]), N)", "X.index_put_((torch.tensor([0, 0]),), Y.reshape(-1)[:1].to(X.dtype) * 1, accumulate=True)",
)  # fmt: skip
DTYPE_CHANGES = (
    "X = s.cast(Y, torch.D)", "X = s.cast(Y, torch.complex64)", "X = s.cast(Y, s.half)", "X = torch.view_as_real(Y)", "X = Y.real", "X = Y.imag",
    "X = Y.conj()", "X = Y.conj()", "X = Y.conj().imag", "X = torch._neg_view(floating(s, Y))", "X = torch._neg_view(Y * 1.5)", "X = (Y * 1j).conj()",
    "X.copy_(s.source(X, Y).conj())",
    "X = floating(s, Y).abs()", "X = torch.complex(floating(s, Y).float(), floating(s, Y).float() * N)", "X = Y + Z", "X = Y * Z", "X = Y - N",
    "X = (Y.conj() * Z).sum()", "X = Y * 1j", "X = torch.cat([Y.reshape(-1)[:5], Z.reshape(-1)[:5]])", "X = torch.where(s.mask(Y), Y, Z)", "X = Y.angle()",
    "X = torch.result_type(Y, Z) and Y.mul(Z)",
)  # fmt: skip
OUTPUTS = (
    "torch.add(Y.detach(), N, out=s.out(X, Y))", "torch.mul(Y.detach(), Y.detach(), out=s.out(X, Y)[...])", "torch.mul(X.detach(), N, out=X.detach())",
    "X = torch.sub(Y.detach(), N, out=torch.empty_like(Y))", "X = torch.sum(Y.detach(), -1, out=torch.zeros(0, dtype=torch.D))",
    "torch.cat([Y.detach()[:1], Y.detach()[1:]], out=s.out(X, Y))", "X = torch.exp(bounded(s, Y).detach(), out=torch.zeros(0))",
    "X = torch.matmul(s.rows(Y, 3).detach().T, s.rows(Y, 3).detach(), out=torch.empty(3, 6)[:, ::2])", "torch.add(Y.detach(), N, out=s.out(X.mT, Y.mT).mT)",
    "torch.maximum(floating(s, Y).detach(), floating(s, Y).detach().flip(0), out=s.out(X, Y))",
    "torch.where(Y.detach() == 0, Y.detach(), Y.detach() * 2, out=s.out(X, Y))",
)  # fmt: skip
OBSERVATIONS = (
    "s.see(X)", "s.see(X)", "s.item(X, I)", "X = Y * 2 if s.positive(Y) else Y - 1", "if s.positive(Y):\n    X = bounded(s, Y)",
    "s.note(X.stride(), X.is_contiguous())", "s.note(bool((X == X).all()))", "s.note(repr(X.shape), X.is_leaf, X.storage_offset())",
    "X = Y[: int(s.positive(Z)) + 1]", "s.share(X)", "for _ in range(3):\n    X = bounded(s, X) + N\n    s.item(X, I)",
)  # fmt: skip
GRADIENTS = (
    "s.backward(X)", "s.backward(X)", "X = s.gradient(Y, False)", "X = s.gradient(Y, True)", "s.hook(X)", "X.retain_grad()",
    "with torch.no_grad():\n    X.mul_(N)", "with torch.no_grad():\n    X = Y * N", "X = Y.detach()", "X = Y.detach().clone().requires_grad_()",
    "X = s.custom.apply(Y)", "X = torch.utils.checkpoint.checkpoint(lambda t: bounded(s, t) * N, Y, use_reentrant=False)",
    "with torch.enable_grad():\n    X = Y * Y", "s.require(X)", "s.optimizer(I).step()", "s.optimizer(I).zero_grad()",
    "s.optimizer(I).zero_grad()\ns.loss(Y).backward()\ns.optimizer(I).step()", "with torch.inference_mode():\n    s.see(Y * 2)",
)  # fmt: skip
NETWORKS = (
    "X = s.module('Linear', 3, 5)(s.rows(Y, 3))", "X = s.module('Linear', 7, 1, bias=False)(s.rows(Y, 7))",
    "X = s.module('LSTM', 3, 5)(s.rows(Y, 3))[I % 2 * 0]", "X = s.module('GRU', 2, 3, bidirectional=True)(s.rows(Y, 2)[None])[0]",
    "X = s.module('RNN', 5, 3, num_layers=2, dropout=0.4)(s.rows(Y, 5))[0]",
    "r = s.rows(Y, 6)\nX = s.module('MultiheadAttention', 6, 2, dropout=0.2)(r, r, r)[0]",
    "X = s.module('Conv1d', 1, 3, 3, padding=1)(s.rows(Y, 7)[:, None])", "X = s.module('BatchNorm1d', 3)(s.apart(s.rows(Y, 3), 0))",
    "X = s.module('LayerNorm', 5)(s.apart(s.rows(Y, 5), 1))", "X = s.module('Embedding', 7, 3)(s.rows(Y, 2).argmax(-1))",
    "X = s.module('TransformerEncoderLayer', 6, 2, 11, dropout=0.1)(s.rows(Y, 6))", "X = s.module('GRUCell', 3, 5)(s.rows(Y, 3))",
    "r = s.rows(Y, 4)[None]\nX = torch.nn.functional.scaled_dot_product_attention(r, r * 0.5, r, is_causal=I % 2 == 0)",
    "r = s.rows(Y, 3)[None]\nX = torch.nn.functional.scaled_dot_product_attention(r, r, r, dropout_p=0.25)",
    "X = torch.nn.functional.dropout(floating(s, Y), 0.3)", "X = s.module('Dropout', 0.5)(s.rows(Y, 3))",
    "X = torch.nn.functional.cross_entropy(s.rows(Y, 5), s.rows(Y, 5).argmax(-1))",
    "X = torch.nn.functional.mse_loss(s.rows(Y, 3), s.rows(Y, 3).detach() + 0.5)", "X = torch.rand(3, 1 + I % 5)", "X = torch.randn_like(floating(s, Y))",
    "X = torch.randperm(2 + I)", "X = s.module('Conv2d', 1, 2, (1, 3))(s.rows(Y, 5)[None, None])", "X = torch.bernoulli(floating(s, Y).detach().sigmoid())",
    "X = s.fresh(I)", "X = s.fresh(I)", "X = s.module('Bilinear', 3, 2, 5)(s.rows(Y, 3), s.rows(Y, 3)[:, :2])",
)  # fmt: skip
OTHER = (INDICES, INDEXED_WRITES, DTYPE_CHANGES, OUTPUTS, OBSERVATIONS, OBSERVATIONS, GRADIENTS, GRADIENTS, NETWORKS)


def _another_view(x: Any, y: Any) -> bool:
    """Whether they read the same memory in another order."""
    same = x.stride() == y.stride() and x.storage_offset() == y.storage_offset()
    return not same and bool(x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr())


class Run:
    """The state of one run with one library: registers, modules, and what has been seen. As a context it keeps a statement's error.

    `nudge`: other than 0, inputs and what statements make of them are changed in their last places, to see what rounding does to a program's results.
    """

    REGISTERS = 6

    def __init__(self, m: Any, seed: int, nudge: int = 0) -> None:
        self.m = m
        self.seed = seed
        self.nudge = np.random.default_rng(nudge) if nudge else None
        self.values: list[Any] = []
        self.leaves: list[Any] = []
        self.modules: dict[Any, Any] = {}
        self.optimizers: dict[Any, Any] = {}
        self.events: list[Event] = []
        self.shared: list[Any] = []
        self.seen: list[Any] = []  # the registers of a nudged run after its last statement
        self.custom = custom_function(m)
        self.exact = True  # what statements of random_operations.py write
        self.tolerance = 1e-9
        self.gradients = True
        self.ended = False
        self.differentiates = False  # whether the statement asks for gradients
        self.normalises = False  # whether there is a module that does
        self.graphs = 0  # gradients that have a graph of their own
        self.halves = not seed % 2  # 16 bits make all later numbers coarse
        self.dtypes = (*COMMON, "float16", "bfloat16", "bfloat16") if self.halves else COMMON
        self.half = m.float64 if seed % 2 else (m.float16, m.bfloat16)[seed // 2 % 2]

    def start(self, repeat: int) -> None:
        """Other registers for another repeat; modules stay."""
        self.source = np.random.default_rng([self.seed, repeat])
        self.m.manual_seed(self.seed + repeat)
        self.graphs = 0
        self.leaves.clear()
        self.optimizers.clear()
        self.shared.clear()
        self.values[:] = [self.fresh(k) for k in range(self.REGISTERS)]
        self.seen = list(self.values)

    def fresh(self, number: int) -> Any:
        """A tensor of any dtype, shape and layout, the same for the same place in the program."""
        g = self.source
        shape = [int(g.choice(SIZES)) if g.random() < 0.95 else 0 for _ in range(int(g.choice([0, 1, 2, 2, 2, 3])))]
        kind = str(g.choice(self.dtypes)) if number else "float32"
        data: Any = np.round(g.uniform(-2, 2, shape), 3) if number % 3 else g.integers(-3, 4, shape).astype("float64")
        if "complex" in kind:
            data = data + 1j * np.round(g.uniform(-2, 2, shape), 3)
        if self.nudge is not None and kind in LAST_PLACES:
            data = data * (1 + self.nudge.choice([-1, 1], shape) * LAST_PLACES[kind])
        layout, wanted = g.integers(4), g.random() < 0.5
        made = self.m.tensor(np.asarray(data).tolist(), dtype=getattr(self.m, kind))
        made = made if made.shape == tuple(shape) else made.reshape(shape)  # an empty list has lost its shape
        if layout == 1 and len(shape) > 1:
            made = made.transpose(0, -1).contiguous().transpose(0, -1)
        elif layout == 2 and shape:
            made = self.m.stack([made, made], -1).select(-1, 1)
        if wanted and kind in LAST_PLACES:
            # No view: one that is a leaf loses gradients of its views in PyTorch (docs/differences.md).
            made = self.m.empty_strided(tuple(made.shape), made.stride(), dtype=made.dtype).copy_(made)
            made.requires_grad_()
            self.leaves.append(made)
            return made if g.random() < 0.4 else made * 1  # most may be written
        return made

    def __enter__(self) -> Run:
        self.differentiates = False
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> bool:
        if error is not None:
            if not isinstance(error, (RuntimeError, IndexError, TypeError, ValueError, NotImplementedError)):
                return False
            self.events.append(("error", type(error).__name__, f"{'in a backward pass: ' * self.differentiates}{error}"))
            self.ended = self.ended or any(words in str(error) for words in ENDS)
        if self.nudge is not None:
            self._nudged()
        for i, x in enumerate(self.values):
            if not hasattr(x, "numel"):
                x = self.values[i] = self.m.tensor(1.0)
            if str(x.dtype) == "torch.complex32":  # not there yet (docs/differences.md)
                x = self.values[i] = x.to(self.m.complex64)
            if x.requires_grad and not (x.dtype.is_floating_point or x.dtype.is_complex):  # PyTorch marks integers that floats were written to
                x = self.values[i] = x.detach()
            if self.halves and x.is_neg() and x.dtype in (self.m.float32, self.m.float16):  # PyTorch copies one to the other without the sign
                x = self.values[i] = x.resolve_neg()
            if overlaps(x):  # what a write to it gives is decided by its order
                x = self.values[i] = x.clone()
            if x.numel() > LARGEST:
                self.values[i] = x.reshape(-1)[:30]
            if self.m.__name__ == "torch":
                with suppress(RuntimeError):  # an internal assert of PyTorch's
                    _ = x.grad_fn  # a view knows of a history that its base got through another view only once it is asked (docs/differences.md)
            self.tolerance = max(self.tolerance, TOLERANCES.get(str(x.dtype).removeprefix("torch."), 0))
        return True

    def _nudged(self) -> None:
        """What a statement has made is changed in its last places, too: another library rounds there."""
        assert self.nudge is not None
        for x in self.values:
            kind = str(getattr(x, "dtype", "")).removeprefix("torch.")
            if kind in LAST_PLACES and not any(x is y for y in (*self.seen, *self.leaves)) and not overlaps(x) and 0 not in x.stride():
                signs = self.m.tensor(self.nudge.choice([-1.0, 1.0], tuple(x.shape)))
                single = LAST_PLACES["float32"] * (self.tolerance >= TOLERANCES["float32"])  # doubles become floats in the middle of statements
                x.data.mul_((1 + signs * max(LAST_PLACES[kind], single) / 2).to(self.m.float64))
        self.seen = list(self.values)

    def write(self, action: Callable[[], Any], x: Any, y: Any) -> None:
        """A write of random_operations.py, where PyTorch says what it gives. (Views of whole numbers that took what requires a gradient are broken there:
        "Autograd not support dtype: Int" at their next use.)"""
        differentiable = x.dtype.is_floating_point or x.dtype.is_complex or not getattr(y, "requires_grad", False)
        if differentiable and not overlaps(x) and (x is y or not x.numel() or not share_memory(self, x, y)):  # type: ignore[arg-type]
            action()

    def see(self, x: Any) -> None:
        """Record everything that can be seen of a tensor."""
        kind = str(x.dtype).removeprefix("torch.")
        x = x.clone() if hasattr(self.m, "_is_zerotensor") and self.m._is_zerotensor(x) else x  # `tolist` wants memory
        values = np.array(x.tolist(), "complex128" if "complex" in kind else "float64" if "float" in kind else kind).reshape(tuple(x.shape))
        # A statement that looks at what it has made itself may be the first with this dtype.
        self.events.append(("seen", kind, tuple(x.shape), bool(x.requires_grad), values, max(self.tolerance, TOLERANCES.get(kind, 0))))

    def note(self, *what: Any) -> None:
        self.events.append(("none", what))

    def item(self, x: Any, number: int) -> None:
        self.see(x.detach().reshape(-1)[number % x.numel()] if x.numel() else x)
        self.note(type(x.sum().item()).__name__)

    def mask(self, x: Any) -> Any:
        return (x.real if x.dtype.is_complex else x) > 0.5

    def positive(self, x: Any) -> bool:
        return bool(self.m.view_as_real(x.detach()).sum() > 0.3712) if x.dtype.is_complex else bool(x.detach().sum() > 0.3712)

    def share(self, x: Any) -> None:
        """NumPy sees it from now on."""
        if x.dtype != self.m.bfloat16:
            self.shared.append(x.detach().numpy())

    def require(self, x: Any) -> None:
        """Make it a leaf, unless a view of it is there: PyTorch's then says that it requires gradients, and gets none (docs/differences.md)."""
        if not any(v is not x and hasattr(v, "numel") and v._is_view() and share_memory(self, v, x) for v in self.values):  # type: ignore[arg-type]
            x.requires_grad_()

    def cast(self, x: Any, kind: Any) -> Any:
        """Whole numbers far from a half of numbers, as long as both agree; bools of what is not left by rounding."""
        inexact = x.dtype.is_floating_point or x.dtype.is_complex
        if inexact and ("int" in str(kind) or "bool" in str(kind)):
            x = (x.detach().abs() * (0.01 if "int" in str(kind) else 100)).round().clamp(0, 100)
        return x.to(kind)

    def rows(self, x: Any, n: int) -> Any:
        """float32 rows of n numbers, small, of any tensor."""
        x = (x.abs() if x.dtype.is_complex else x).float().sin().reshape(-1)
        x = x if x.numel() >= n else self.m.cat([x, self.m.linspace(-1, 1, n - x.numel())])
        x = x[: x.numel() // n * n].reshape(-1, n)
        if self.nudge is not None:  # rows of one number are normalised to what rounding leaves
            x = x * (1 + self.m.tensor(self.nudge.choice([-0.5, 0.5], tuple(x.shape))) * LAST_PLACES["float32"]).to(x.dtype)
        return x

    def apart(self, x: Any, dim: int) -> Any:
        """Numbers that differ along a dim: of equal ones a normalisation makes what rounding has left."""
        ramp = self.m.linspace(-1, 1, x.shape[dim])
        return x + (ramp if dim else ramp[:, None])

    def out(self, x: Any, y: Any) -> Any:
        """x without its history, as the `out` of what has the shape of y; something new where x has another shape."""
        fits = tuple(x.shape) == tuple(y.shape) and not overlaps(x) and 0 not in x.stride() and not _another_view(x, y)
        return x.detach() if fits else x.new_empty(0)

    def whole(self, x: Any) -> Any:
        """x, or a copy where elements share memory: what a write to some of them does to the others is decided by its order."""
        return x.clone() if overlaps(x) or 0 in x.stride() else x

    def hook(self, x: Any) -> None:
        """Halve the gradient, but not of a view of what was written to: in PyTorch what has used it before goes past the hook."""
        if not (x._is_view() and x._version):
            x.register_hook(lambda g: g * 0.5)

    def source(self, x: Any, y: Any) -> Any:
        """y to be written to x: a copy where y is another view of x's memory, as PyTorch reads some numbers there after it has written them."""
        return y.clone() if _another_view(x, y) else y

    def loss(self, x: Any) -> Any:
        """One real number of any tensor."""
        self.differentiates = True
        return ((self.m.view_as_real(x) if x.dtype.is_complex else x).to(self.m.float64) * 0.5).sin().sum()

    def backward(self, x: Any) -> None:
        if x.requires_grad:
            self.loss(x).backward(retain_graph=True)

    def gradient(self, x: Any, create: bool) -> Any:
        """The first gradient of all leaves', row-major: its strides follow from the formula that PyTorch has for the gradient."""
        if self.normalises and create:  # PyTorch's third gradients of a normalisation are wrong
            create = self.graphs == 0
        self.graphs += create
        found = self.m.autograd.grad(self.loss(x), self.leaves, allow_unused=True, retain_graph=True, create_graph=create)
        for g in found:
            self.note("none") if g is None else self.see(g)
        return next((g.clone(memory_format=self.m.contiguous_format) for g in found if g is not None), x)

    def module(self, name: str, *sizes: Any, **options: Any) -> Any:
        self.normalises = self.normalises or "Norm" in name or "Transformer" in name
        key = (name, sizes, *options)
        if key not in self.modules:
            self.modules[key] = getattr(self.m.nn, name)(*sizes, **options)
        return self.modules[key]

    def optimizer(self, number: int) -> Any:
        """An optimizer of all leaves and modules that there are when it is first used."""
        if number not in self.optimizers:
            name, options = (("SGD", {"lr": 0.1}), ("SGD", {"lr": 0.05, "momentum": 0.9}), ("AdamW", {"lr": 0.01}), ("RMSprop", {"lr": 0.01}))[number % 4]
            parameters = [p for module in self.modules.values() for p in module.parameters()]
            self.optimizers[number] = getattr(self.m.optim, name)([*self.leaves, *parameters], **options)
        return self.optimizers[number]

    def finish(self) -> None:
        """Gradients, all values, and then who shares memory with whom, seen by writing."""
        if self.ended:
            return
        with self:
            ends = [self.loss(x) for x in self.values if x.requires_grad]
            if ends:
                sum(ends).backward()  # type: ignore[attr-defined]
        if self.ended:
            return
        for x in self.values:
            self.see(x)
        parameters = [p for module in self.modules.values() for p in module.parameters()]
        for x in [*self.leaves, *parameters]:
            self.note("none") if x.grad is None else self.see(x.grad)
        for i, x in enumerate(self.values):
            with self:
                if not overlaps(x) and 0 not in x.stride():
                    x.detach().fill_(i + 1 if x.dtype != self.m.bool else i % 2)
        for x in self.values:
            self.see(x)
        for array in self.shared:
            self.events.append(("seen", str(array.dtype), array.shape, False, array.copy(), self.tolerance))
