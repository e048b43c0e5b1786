"""Conjugate and negative views where they leave the recorder: transforms, hooks, custom functions, optimizers, files, NumPy, random numbers, text."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flambeau

torch = pytest.importorskip("torch")


def x_(m: Any) -> Any:
    return m.tensor([[1 + 2j, 2 - 1j], [0.5 + 1j, -1 + 1j]], dtype=m.complex128)


def leaf(m: Any) -> Any:
    return x_(m).requires_grad_()


def plain(r: Any) -> Any:
    """What is compared: layout, flags and values of tensors."""
    if isinstance(r, (list, tuple)):
        return [plain(x) for x in r]
    if hasattr(r, "detach"):
        values = np.asarray(r.detach().resolve_conj().resolve_neg().tolist())
        return tuple(r.shape), r.stride(), r.is_conj(), r.is_neg(), np.round(values, 8).tolist()
    return r


def value(t: Any) -> Any:
    """Values alone: PyTorch's gradients may be conjugates."""
    return t.resolve_conj().resolve_neg()


def of_dual(f: Callable[[Any], Any], primal: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def run(m: Any) -> Any:
        with m.autograd.forward_ad.dual_level():
            return tuple(m.autograd.forward_ad.unpack_dual(f(m.autograd.forward_ad.make_dual(primal(m), x_(m) * 1j))))

    return run


def written(m: Any, z: Any, write: Callable[[Any], Any]) -> Any:
    """`z` after a write through a view of it."""
    write(z)
    return z


def twice(m: Any) -> Any:
    x = leaf(m)
    y = x.conj()
    (g,) = m.autograd.grad((y * y * (1 + 1j)).real.sum(), y, create_graph=True)
    (h,) = m.autograd.grad((g * g.conj() * x).real.sum(), x)
    return value(g), value(h)


def batched(m: Any) -> Any:
    x = leaf(m)
    y = x.conj()
    seeds = m.stack([x_(m), x_(m).conj()])
    return [value(g) for g in m.autograd.grad(y * 2j, (x, y), seeds, is_grads_batched=True)]


def custom(m: Any) -> Any:
    class Square(m.autograd.Function):  # type: ignore[misc,name-defined]
        @staticmethod
        def forward(ctx: Any, a: Any) -> Any:
            ctx.save_for_backward(a)
            return (a * a * 1j).conj()

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (a,) = ctx.saved_tensors
            return g.conj() * (2j * a).conj()

    x = leaf(m)
    (Square.apply(x.conj()) * (1 + 2j) * x).real.sum().backward()
    return value(x.grad)


def conjugate_leaf(m: Any) -> Any:
    seen: list[Any] = []
    y = x_(m).conj().requires_grad_()
    y.register_hook(lambda g: (seen.append(value(g)), g * 2)[1])
    for _ in range(3):
        (y * y * (1 + 2j)).real.sum().backward()
    return value(y.grad), seen, y.is_leaf


def hooks(m: Any) -> Any:
    x = leaf(m)
    y, z = x.conj(), x[0].conj().imag
    y.register_hook(lambda g: g * (1 + 1j))
    z.register_hook(lambda g: g + 1)
    y.retain_grad()
    z.retain_grad()
    ((y * y).real.sum() + (z * z).sum()).backward()
    return value(x.grad), value(y.grad), value(z.grad)


def over_segments(m: Any) -> Any:
    x = leaf(m)
    w = x * 2
    y = w.conj()
    y.retain_grad()
    total = float(y.abs().sum())
    z = y * total
    assert float(z.abs().sum()) > 0
    w.mul_(1j)
    (z.real.sum() + y.imag.sum()).backward()
    return value(x.grad), value(y.grad)


def descent(m: Any) -> Any:
    y = m.nn.Parameter(x_(m).conj())
    a = m.nn.Parameter(x_(m).conj().imag)
    optimizers = [m.optim.SGD([y], lr=0.1, momentum=0.9), m.optim.Adam([a], lr=0.1)]
    for _ in range(4):
        for o in optimizers:
            o.zero_grad()
        ((y * y * (1 + 2j)).real.sum() + (a * y.real).sum()).backward()
        for o in optimizers:
            o.step()
    return y.detach(), a.detach()


def saved(m: Any, reader: Any) -> Any:
    x, file = x_(m), io.BytesIO()
    m.save({"x": x, "conjugate": x.conj(), "parameter": m.nn.Parameter(x.conj()), "negative": m._neg_view(x)}, file)
    file.seek(0)
    read = reader.load(file)
    read["conjugate"][0] = 1j
    return list(read.values())


def drawn(m: Any, fill: Callable[[Any], Any]) -> Any:
    m.manual_seed(3)
    x = x_(m)
    return fill(x), x


SAME: dict[str, Callable[[Any], Any]] = {
    "vmap": lambda m: m.vmap(lambda x: x.conj())(x_(m)),
    "vmap of a conjugate": lambda m: m.vmap(lambda x: x * x[0])(x_(m).conj()),
    "vmap of a negative": lambda m: m.vmap(lambda x: x + 1)(x_(m).conj().imag),
    "vmap, a write": lambda m: (lambda x: (m.vmap(lambda r: r.conj().add_(1j))(x), x))(x_(m)),
    "vmap of grad": lambda m: m.vmap(m.func.grad(lambda x: (x.conj() * x * x).abs().sum()))(x_(m)),
    "vmap of jvp": lambda m: m.vmap(lambda x: m.func.jvp(lambda z: z.conj() * z * z, (x,), (x.conj(),)))(x_(m)),
    "grad": lambda m: value(m.func.grad(lambda x: (x.conj() * (1 + 2j) * x * x).real.sum())(x_(m).conj())),
    "grad of a part": lambda m: m.func.grad(lambda x: (x.conj().imag ** 2).sum())(x_(m)),
    "vjp": lambda m: [value(g) for g in m.func.vjp(lambda x: x.conj() * x * 1j, x_(m))[1](x_(m).conj())],
    "jvp": lambda m: m.func.jvp(lambda x: x.conj() * x * 1j, (x_(m),), (x_(m) * 1j,)),
    "jvp of a part": lambda m: m.func.jvp(lambda x: x.conj().imag, (x_(m),), (x_(m) * (1 + 1j),)),
    "jvp of conjugates": lambda m: m.func.jvp(lambda x: x * x, (x_(m).conj(),), ((x_(m) * (1 + 1j)).conj(),)),
    "jvp, a write": lambda m: m.func.jvp(lambda x: written(m, x.clone(), lambda z: z.conj().mul_(x)), (x_(m),), (x_(m) * (1 + 1j),)),
    "jvp, a write to zeros": lambda m: m.func.jvp(lambda x: written(m, 0 * x_(m), lambda z: z.conj().copy_(x)), (x_(m),), (x_(m) * 2j,)),
    "jvp, a write to a part": lambda m: m.func.jvp(lambda x: written(m, 0 * x_(m), lambda z: z.conj().imag.copy_(x.real)), (x_(m),), (x_(m) * 2j,)),
    "jacrev": lambda m: m.func.jacrev(lambda x: m.view_as_complex(x).conj().imag * x[..., 0])(m.view_as_real(x_(m))),
    "hessian": lambda m: m.func.hessian(lambda x: (m.view_as_complex(x).conj() * m.view_as_complex(x) ** 2).abs().sum())(m.view_as_real(x_(m))),
    "dual": of_dual(lambda d: d.conj() * 2, x_),
    "dual of a conjugate": of_dual(lambda d: d * d, lambda m: x_(m).conj()),
    "twice": twice,
    "batched": batched,
    "custom": custom,
    "leaf": conjugate_leaf,
    "hooks": hooks,
    "segments": over_segments,
    "optimizers": descent,
    "gradcheck": lambda m: m.autograd.gradcheck(lambda x: x.conj() * x, (leaf(m),)),
    "gradgradcheck": lambda m: m.autograd.gradgradcheck(lambda x: x.conj().imag * x, (leaf(m),)),
    "file": lambda m: saved(m, m),
    "file of the other": lambda m: saved(m, flambeau if m is torch else torch),
    "pickle": lambda m: pickle.loads(pickle.dumps((x_(m).conj(), x_(m).conj().imag))),
    "deepcopy": lambda m: copy.deepcopy(x_(m).conj()),
    "copy": lambda m: copy.copy(x_(m).conj()),
    "repr": lambda m: repr(x_(m).conj()) + str(x_(m).conj().imag) + repr(leaf(m).conj()),
    "grad_fn": lambda m: [type(f(leaf(m)).grad_fn).__name__ for f in (lambda x: x.conj(), lambda x: m._neg_view(x), lambda x: x.conj()[0], lambda x: x.mH)],
    "force": lambda m: leaf(m).conj().numpy(force=True).tolist(),
    "meta": lambda m: (x_(m).to("meta").conj().is_conj(), tuple(x_(m).to("meta").mH.shape)),
    "normal_": lambda m: drawn(m, lambda x: x.conj().normal_()),
    "uniform_ of a part": lambda m: drawn(m, lambda x: x.conj().imag.uniform_()),
    "bernoulli": lambda m: (m.manual_seed(3), m.bernoulli(m._neg_view(-m.rand(4))))[1],
    "index": lambda m: x_(m)[m._neg_view(m.tensor([-1, 0]))],
    "index_select": lambda m: x_(m).index_select(0, m._neg_view(m.tensor([-1, 0]))),
    "embedding": lambda m: m.nn.functional.embedding(m._neg_view(m.tensor([-1, 0])), x_(m).real),
    "bincount": lambda m: m.bincount(m._neg_view(m.tensor([-1, -2]))),
    "masked_select": lambda m: m.masked_select(x_(m).conj(), x_(m).real > 0),
    "unique": lambda m: m.unique(x_(m).conj().imag),
    "numbers": lambda m: (m._neg_view(m.arange(3))[2].item(), list(range(m._neg_view(m.tensor(-3)))), [complex(z) for z in x_(m).conj()[0]]),
    "data": lambda m: (lambda x: (setattr(x, "data", x_(m).conj()), x)[1])(x_(m)),
    "set_": lambda m: m.empty(0, dtype=m.complex128).set_(x_(m).conj()),
    "set_ of a conjugate": lambda m: x_(m).conj().set_(x_(m)),
    "base": lambda m: (lambda x: (x.conj()._base is x, x.conj().imag._base is x))(x_(m)),
    "base that is gone": lambda m: x_(m).conj()._base,
    "in place": lambda m: x_(m).conj().t_(),
    "new": lambda m: (m.tensor(x_(m).conj()), m.as_tensor(x_(m).conj()), m.zeros_like(x_(m).conj())),
    "views": lambda m: (lambda x: [f(x.conj())._is_view() for f in (lambda y: y, lambda y: y.imag, lambda y: y.conj(), lambda y: y.resolve_conj())])(x_(m)),
    "set a part": lambda m: (lambda x: (setattr(x.conj(), "imag", m.tensor(3.0)), x)[1])(x_(m)),
    "out": lambda m: (lambda o: (m.stack([x_(m)[0], x_(m)[1].conj()], out=o.conj()), o)[1])(m.zeros(2, 2, dtype=m.complex128)),
    "sparse": lambda m: value(x_(m).to_sparse().conj().to_dense()),
    "copies": lambda m: (m._conj_copy(x_(m)), m._neg_view_copy(x_(m)), x_(m)._conj_physical(), x_(m)._conj(), x_(m)._neg_view()),
}
REFUSED: dict[str, Callable[[Any], Any]] = {
    "numpy": lambda m: x_(m).conj().numpy(),
    "numpy of a negative": lambda m: x_(m).conj().imag.numpy(),
    "array": lambda m: np.asarray(x_(m).conj()),
    "dlpack": lambda m: x_(m).conj().__dlpack__(),
    "view_as_real": lambda m: m.view_as_real(x_(m).conj()),
    "view": lambda m: x_(m).conj().view(m.float64),
    "view of a negative": lambda m: x_(m).conj().imag.view(m.int64),
}


@pytest.mark.parametrize("name", SAME)
def test_as_pytorch(name: str) -> None:
    """Layout, flags and values, also once the path is known."""
    expected = plain(SAME[name](torch))
    for _ in range(4):
        assert plain(SAME[name](flambeau)) == expected


@pytest.mark.parametrize("name", REFUSED)
def test_refused_as_in_pytorch(name: str) -> None:
    """The same type of error, and PyTorch's text in ours."""
    with pytest.raises((RuntimeError, BufferError)) as theirs:
        REFUSED[name](torch)
    with pytest.raises(theirs.type) as ours:
        REFUSED[name](flambeau)
    assert str(theirs.value)[:80] in str(ours.value)


@pytest.mark.parametrize("source", ["float16", "bfloat16", "float32", "float64", "int32"])
@pytest.mark.parametrize("target", ["float16", "bfloat16", "float32", "float64"])
def test_writes_of_other_dtypes_keep_their_sign(source: str, target: str) -> None:
    """PyTorch loses it between float16 and float32 (docs/differences.md)."""
    x = flambeau.ones(5, dtype=getattr(flambeau, target))
    negative = flambeau._neg_view(x)
    negative[1:3] = flambeau.tensor(3, dtype=getattr(flambeau, source))
    negative[4:].copy_(flambeau.full((1,), -2, dtype=getattr(flambeau, source)))
    assert negative.tolist() == [-1, 3, 3, -1, -2]
    assert x.tolist() == [1, -3, -3, 1, 2]
