"""NumPy's scalars and tensors without dims where PyTorch takes numbers: operands, settings, sizes, dims, indices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flambeau as ft

torch = pytest.importorskip("torch")

Call = Callable[[Any, Any], Any]
WHOLE: dict[str, Callable[[Any], Any]] = {
    "int64": lambda m: np.int64(2), "int8": lambda m: np.int8(2), "tensor": lambda m: m.tensor(2), "array": lambda m: np.array(2),
}  # fmt: skip
REAL = WHOLE | {"float32": lambda m: np.float32(0.5), "float64": lambda m: np.float64(0.5), "bool": lambda m: np.bool_(True), "real": lambda m: m.tensor(0.5)}
del REAL["array"]  # NumPy's own operators answer for it, in float64


def x(m: Any) -> Any:
    return m.arange(1.0, 7.0).reshape(2, 3)


def written(m: Any, v: Any) -> Any:
    t = x(m)
    t[0, 1] = v
    t[1] = v
    return t


def stepped(name: str, **settings: Any) -> Call:
    def call(m: Any, v: Any) -> Any:
        p = m.nn.Parameter(m.ones(2))
        optimizer = getattr(m.optim, name)([p], **{k: v if s is None else s for k, s in settings.items()})
        p.sum().backward()
        optimizer.step()
        optimizer.step()
        return p.detach()

    return call


NUMBERS: dict[str, Call] = {
    "add": lambda m, v: x(m) + v, "radd": lambda m, v: v + x(m), "alpha": lambda m, v: m.add(x(m), x(m), alpha=v), "sub": lambda m, v: x(m) - v,
    "rsub": lambda m, v: v - x(m), "mul": lambda m, v: x(m).int() * v, "mul_": lambda m, v: x(m).mul_(v), "div": lambda m, v: x(m) / v,
    "pow": lambda m, v: x(m) ** v, "rpow": lambda m, v: v ** x(m), "eq": lambda m, v: x(m) == v, "clamp": lambda m, v: x(m).clamp(min=v),
    "fill_": lambda m, v: x(m).fill_(v), "full": lambda m, v: m.full((2,), v), "full_like": lambda m, v: m.full_like(x(m), v),
    "masked_fill": lambda m, v: x(m).masked_fill(x(m) > 3, v), "where": lambda m, v: m.where(x(m) > 3, x(m), v), "lerp": lambda m, v: m.lerp(x(m), x(m) + 1, v),
    "setitem": written, "addcmul": lambda m, v: m.addcmul(x(m), x(m), x(m), value=v), "pad": lambda m, v: m.nn.functional.pad(x(m), (1, 1), value=v),
    "threshold": lambda m, v: m.nn.functional.threshold(x(m), v, v), "norm": lambda m, v: m.linalg.vector_norm(x(m), v),
    "tensor": lambda m, v: m.tensor([v, v]),
    "index_fill": lambda m, v: x(m).index_fill(0, m.tensor([0]), v), "softplus": lambda m, v: m.nn.functional.softplus(x(m), beta=v),
    "huber": lambda m, v: m.nn.functional.huber_loss(x(m), x(m) + 3, delta=v), "nan_to_num": lambda m, v: m.nan_to_num(x(m), nan=v),
    "addmm": lambda m, v: m.addmm(m.ones(2, 2), x(m), x(m).T, beta=v, alpha=v), "linspace": lambda m, v: m.linspace(0, v, 3),
    "result_type": lambda m, v: m.ones(2, dtype=m.float16).to(m.result_type(x(m), v)), "SGD": stepped("SGD", lr=None),
    "Adam": stepped("Adam", lr=None), "RMSprop": stepped("RMSprop", lr=0.1, weight_decay=None),
    "batch norm": lambda m, v: m.nn.BatchNorm1d(3, momentum=v)(x(m)), "layer norm": lambda m, v: m.nn.LayerNorm(3, eps=v)(x(m)),
}  # fmt: skip
SIZES: dict[str, Call] = {
    "sum": lambda m, v: m.ones(2, 3, 4).sum(v), "sums": lambda m, v: m.ones(2, 3, 4).sum((0, v)), "reshape": lambda m, v: x(m).reshape(v, 3),
    "zeros": lambda m, v: m.zeros(v), "zeros of several": lambda m, v: m.zeros(v, 3), "ones": lambda m, v: m.ones((v, v)), "eye": lambda m, v: m.eye(v),
    "randperm": lambda m, v: m.randperm(v).sort()[0], "expand": lambda m, v: m.ones(1, 3).expand(v, 3), "repeat": lambda m, v: m.ones(3).repeat(v, v),
    "transpose": lambda m, v: m.ones(2, 3, 4).transpose(0, v), "permute": lambda m, v: m.ones(2, 3, 4).permute(v, 0, 1),
    "cat": lambda m, v: m.cat([m.ones(1, 1, 2)] * 2, v),
    "chunk": lambda m, v: m.cat(m.arange(4).chunk(v)), "split": lambda m, v: m.cat(m.arange(5).split(v)),
    "tensor_split": lambda m, v: m.arange(4).tensor_split(v)[0],
    "narrow": lambda m, v: m.arange(5).narrow(0, v, v), "topk": lambda m, v: m.topk(m.arange(5.0), v)[0], "roll": lambda m, v: m.arange(5).roll(v),
    "index": lambda m, v: m.arange(5)[v], "indices": lambda m, v: x(m)[:, v], "slice": lambda m, v: m.arange(9)[v::v],
    "softmax": lambda m, v: m.ones(1, 2, 3).softmax(v),
    "arange": lambda m, v: m.arange(v), "histc": lambda m, v: m.histc(x(m), bins=v), "one_hot": lambda m, v: m.nn.functional.one_hot(m.tensor([1]), v),
    "conv1d": lambda m, v: m.nn.functional.conv1d(m.ones(1, 1, 7), m.ones(1, 1, 2), stride=v, padding=v),
    "avg_pool2d": lambda m, v: m.nn.functional.avg_pool2d(m.ones(1, 7, 7), v),
    "Linear": lambda m, v: m.nn.Linear(v, 3).weight.detach() * 0, "LayerNorm": lambda m, v: m.nn.LayerNorm(v).weight.detach(),
    "tril": lambda m, v: m.ones(4, 4).tril(v),
    "matrix_power": lambda m, v: m.matrix_power(m.eye(2) * 2, v), "movedim": lambda m, v: m.ones(2, 3, 4).movedim(0, v),
    "unfold": lambda m, v: m.arange(5).unfold(0, v, v),
}  # fmt: skip


def answer(call: Call, m: Any, v: Any) -> tuple[str, Any] | None:
    try:
        t = call(m, v)
    except (TypeError, RuntimeError, ValueError, IndexError):
        if m is torch:
            return None  # it does not take it: nothing to compare with
        raise
    return str(t.dtype), t.detach().float().numpy()


@pytest.mark.parametrize("name", [*NUMBERS, *SIZES])
def test_numbers_of_other_kinds(name: str) -> None:
    compared = 0
    for kind in (REAL if name in NUMBERS else WHOLE).values():
        call = NUMBERS.get(name) or SIZES[name]
        theirs = answer(call, torch, kind(torch))
        if theirs is None:
            continue
        ours = answer(call, ft, kind(ft))
        assert ours is not None and ours[0] == theirs[0]
        np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-5, equal_nan=True)
        compared += 1
    assert compared


def test_nothing_is_a_symbolic_number() -> None:
    for m in (ft, torch):
        assert not isinstance(3, m.SymInt) and not isinstance(3.0, m.SymFloat) and not isinstance(True, m.SymBool)


def test_randint_like_takes_high_by_name() -> None:
    for m in (ft, torch):
        assert int(m.randint_like(m.ones(50), high=2).max()) == 1
        assert m.randint_like(m.ones(3), low=1, high=2).tolist() == [1.0] * 3
        with pytest.raises(TypeError):
            m.randint_like(m.ones(3))


@pytest.mark.parametrize("m", [ft, torch], ids=lambda m: m.__name__)
def test_movement_without_dims(m: Any) -> None:
    t = m.tensor(3.0)
    for moved in (t.flip(0), t.flip(-1), m.flip(t, (0,)), t.movedim(0, 0), m.movedim(t, -1, 0), t.movedim((0,), (0,)), t.transpose(0, 0), t.roll(1)):
        assert moved.shape == () and moved.item() == 3.0
    with pytest.raises(RuntimeError):
        t.diff()
