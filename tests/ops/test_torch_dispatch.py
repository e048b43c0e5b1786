"""`__torch_dispatch__`: what subclasses and modes see of public calls, under which names and with which arguments, beside PyTorch."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import flambeau

torch = pytest.importorskip("torch")

CALLS = """
x + 1; 1 + x; x + d; x - 1; 1 - x; x - d; x * 2; 2 * x; x / 2; 2 / x; x // 2; x % 2; x ** 2; 2 ** x; -x; abs(x); ~(x > 0); x == 1; x == d; x < 1; x >= d
x != 0; x.add_(1); x.sub_(d); x.mul_(2); x.__iadd__(1); m.add(x, 1, alpha=2); x.add(d, alpha=3)
x[0]; x[-1]; x[1:]; x[:, 1:2]; x[0, 1]; x[None]; x[..., 0]; x[i]; x[:, i]; x[[0, 1]]; x[x.inner > 1]; x[::2]; x[:]; x.__setitem__(0, 1.0)
x.t(); x.T; x.mT; x.transpose(0, 1); x.permute(1, 0); x.view(3, 2); x.view(-1); x.reshape(6); x.reshape(-1, 2); x.flatten(); x.unsqueeze(0); x.squeeze()
x.squeeze(0); x.expand(2, 2, 3); x.clone(); x.detach(); x.contiguous(); x.narrow(1, 0, 2); x.select(0, 1); x.unbind(0); x.split(1); x.split([1, 1])
x.chunk(2); x.flip(0); x.roll(1, 0); x.repeat(2, 1); m.cat([x, x], 1); m.cat([x, x]); m.stack([x, x]); x.index_select(0, i); m.gather(x, 0, i.view(1, 2))
x.masked_fill(d > 1, 0.0); x.diagonal(); x.tril(); x.movedim(0, 1); x.view_as(d); x.expand_as(d)
x.to(m.float64); x.to(m.float32); x.to("cpu"); x.double(); x.float(); x.long(); x.cpu(); x.type(m.int32); x.half(); x.to(m.int32, copy=True)
x.sum(); x.sum(0); x.sum(dim=1, keepdim=True); x.mean(); x.mean(1); x.max(); x.max(0); x.min(); x.argmax(); x.argmax(1); x.prod(); x.std(); x.var(0)
x.any(); x.all(); x.cumsum(0); x.sort(); x.sort(0); x.sort(stable=True); x.argsort(); x.topk(1); x.unique(); x.nonzero(); x.amax(0); x.logsumexp(0)
x.softmax(0); x.log_softmax(1); x @ d.t(); m.mm(x, d.t()); x @ d[0]; m.matmul(x, d.t()); F.linear(x, d); F.relu(x); x.relu(); x.exp(); m.tanh(x)
F.gelu(x); x.clamp(0, 1); x.clamp(min=0); m.zeros_like(x); m.full_like(x, 2.0); x.new_zeros(2); x.new_full((2,), 1); x.fill_(0); x.zero_(); x.copy_(d)
m.equal(x, d); x.numel(); x.size(); x.stride(); x.is_contiguous(); x.dim(); x.data; x.requires_grad; x.device; x.shape; x.sum().item(); len(x); m.isnan(x)
F.embedding(i, x); F.dropout(x, 0.5); F.softmax(x, 0); m.addmm(d[0], x, d.t() @ d)
x.lerp(d, 0.5); m.lerp(x, d, d); x.greater(1); x.not_equal(d); x.index_fill(0, i, 1.0); m.xlogy(x, 2.0); m.xlogy(x, d); m.isin(x, d); m.ldexp(x, d)
m.scatter(x, 0, i.view(1, 2), 1.0)
"""
CASES = [call.strip() for line in CALLS.strip().split("\n") for call in line.split(";")]


def recorder(m: Any) -> tuple[type, list[str]]:
    """A wrapper subclass of a framework, and what it has seen."""
    tree_map_only = importlib.import_module(f"{m.__name__}.utils._pytree").tree_map_only
    log: list[str] = []

    def text(x: Any) -> str:
        if isinstance(x, Logged):
            return "x"
        if isinstance(x, m.Tensor):
            return f"tensor{list(x.shape)}"
        return f"[{', '.join(map(text, x))}]" if isinstance(x, (list, tuple)) else str(x)

    class Logged(m.Tensor):  # type: ignore[misc, name-defined]
        @staticmethod
        def __new__(cls, inner: Any) -> Any:
            made = m.Tensor._make_wrapper_subclass(cls, size=inner.size(), strides=inner.stride(), dtype=inner.dtype, device=inner.device)
            made.inner = inner
            return made

        __torch_function__ = m._C._disabled_torch_function_impl

        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            assert types == (Logged,)
            log.append(f"{func}({', '.join([*map(text, args), *[f'{k}={text(v)}' for k, v in (kwargs or {}).items()]])})")
            plain = tree_map_only(Logged, lambda t: t.inner, (tuple(args), kwargs or {}))
            return func(*plain[0], **plain[1])

    return Logged, log


def seen(m: Any, call: str) -> Any:
    """What a call is below autograd, and its result where that is no matter of chance."""
    Logged, log = recorder(m)
    d = m.arange(6.0).reshape(2, 3)
    x = Logged(d.clone())
    result = eval(call, {"x": x, "d": d, "i": m.tensor([0, 1]), "m": m, "F": m.nn.functional})
    if "dropout" in call:
        return log, None
    results = list(result) if isinstance(result, (tuple, list)) and result and isinstance(result[0], m.Tensor) else [result]
    if not isinstance(results[0], m.Tensor):
        return log, result
    return log, "x" if result is x else [r.to(m.float64) for r in results]


@pytest.mark.parametrize("call", CASES)
def test_calls(call: str) -> None:
    (ours, found), (theirs, expected) = seen(flambeau, call), seen(torch, call)
    assert ours == theirs
    if isinstance(expected, list) and isinstance(expected[0], torch.Tensor):
        assert len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            assert a.tolist() == pytest.approx(b.tolist(), nan_ok=True) if b.ndim == 0 else np.allclose(a.numpy(), b.numpy(), equal_nan=True)
    else:
        assert str(found) == str(expected)


def program(m: Any) -> Any:
    """A subclass that holds two tensors, and modes."""
    python_dispatch = importlib.import_module(f"{m.__name__}.utils._python_dispatch")
    tree_map = importlib.import_module(f"{m.__name__}.utils._pytree").tree_map

    class Two(m.Tensor):  # type: ignore[misc, name-defined]
        @staticmethod
        def __new__(cls, a: Any, b: Any) -> Any:
            made = m.Tensor._make_wrapper_subclass(cls, a.size(), dtype=a.dtype, device=a.device)
            made.a, made.b = a, b
            return made

        def __repr__(self) -> str:
            return f"{self.a.tolist()} {self.b.tolist()}"

        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            def of(name: str) -> Any:
                inner = tree_map(lambda v: getattr(v, name) if isinstance(v, Two) else v, (tuple(args), kwargs or {}))
                return func(*inner[0], **inner[1])

            first, second = of("a"), of("b")
            return Two(first, second) if isinstance(first, m.Tensor) else first

    class Log(python_dispatch.TorchDispatchMode):  # type: ignore[misc, name-defined]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            log.append(str(func))
            return func(*args, **(kwargs or {}))

    class Ones(python_dispatch.TorchDispatchMode):  # type: ignore[misc, name-defined]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            return m.ones_like(out) if isinstance(out, m.Tensor) else out

    log: list[str] = []
    t = Two(m.ones(2, 2), m.zeros(2, 2))
    found = [repr(t + 1), repr((t @ t).sum(0)), m.stack([t, t]).shape, t.shape, str(t.device), t.dtype.itemsize, repr(t[0, 1]), repr(m.nn.functional.relu(t))]
    found += [type(t.view(4)).__name__, isinstance(t, m.Tensor), t.is_meta]
    x = m.ones(2, 3)
    with Log():
        y = m.nn.functional.relu(x + 1).t() @ x
        z = m.cat([m.zeros(2), m.tensor([1.0])]).view(-1).long()
        layer = m.nn.Linear(3, 2)
        log.append("init")
        layer(x)
    with Ones():
        found += [(x * 5).tolist(), m.zeros(2).tolist()]
    x * 2
    with pytest.raises(TypeError):
        m.Tensor._make_wrapper_subclass(m.Tensor, (2,))
    return found, [entry for entry in log[: log.index("init")] if "detach" not in entry], log[log.index("init") :], y.tolist(), z.tolist()


def test_subclasses_and_modes() -> None:
    ours, theirs = program(flambeau), program(torch)
    assert (ours[0], ours[2:]) == (theirs[0], theirs[2:])
    assert ours[1][:8] == theirs[1][:8]


def fake(m: Any) -> Any:
    """Tensors without elements that say that they are on the CPU."""
    fake_tensor = importlib.import_module(f"{m.__name__}._subclasses.fake_tensor")
    mode, real = fake_tensor.FakeTensorMode(), m.ones(3, 4)
    with mode:
        x, w = m.empty(2, 3), m.randn(3, 4)
        y = (x @ w).relu()
        layer = m.nn.Linear(4, 5)
        made = [x, w, y, layer(y), layer(y).sum(0)[1:], m.cat([y, y]), m.arange(3), y.long(), m.zeros_like(y), layer.weight, m.empty(10**6, 10**6)]
    f = mode.from_tensor(real)
    made += [f, f + 1, f @ f.t()]
    with fake_tensor.FakeTensorMode(allow_non_fake_inputs=True) as other:
        made.append(other.from_tensor(real) + real)
        with fake_tensor.unset_fake_temporarily():
            plain = m.zeros(2).tolist()
    errors = []
    for call in (lambda: f.sum().item(), lambda: f + real):
        with pytest.raises(Exception) as caught:
            call()
        errors.append(caught.type.__name__)
    kinds = [(type(t).__name__, tuple(t.shape), t.stride(), str(t.dtype), str(t.device), t.is_meta, isinstance(t, m.nn.Parameter)) for t in made]
    return kinds, f.fake_mode is mode, str(f.fake_device), plain, errors, repr(x)


def test_fake_tensors() -> None:
    assert fake(flambeau) == fake(torch)


def again(m: Any) -> list[Any]:
    """What is seen below of a class whose own `__torch_function__` calls the function again, as torchao's."""
    log: list[str] = []

    class Again(m.Tensor):  # type: ignore[misc, name-defined]
        @staticmethod
        def __new__(cls, inner: Any) -> Any:
            return m.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)

        def __init__(self, inner: Any) -> None:
            self.inner = inner

        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            with m._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))

        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any, kwargs: Any = None) -> Any:
            log.append(str(func))
            return func(*[a.inner if isinstance(a, Again) else a for a in args], **(kwargs or {}))

    x = Again(m.ones(3))
    same = [x.to(m.device("cpu")), x.to("cpu"), x.to(m.float32), x.float(), x.cpu(), x.to(x), x.contiguous()]
    made = [x.to("cpu", copy=True), x.to(m.float64), x.lerp(m.zeros(3), 0.25), x + 1, x.sum()]
    assert all(y is x for y in (x.copy_(m.arange(3.0)), x.fill_(2), x.add_(1), x.lerp_(m.zeros(3), 0.5))) and type(x) is Again
    return [x.inner.tolist(), [y is x for y in same], [(type(y) is m.Tensor, str(y.dtype).split(".")[-1], y.tolist()) for y in made], log]


def test_a_class_that_calls_the_function_again() -> None:
    assert again(flambeau) == again(torch)
