"""The device `meta`: tensors with layouts and gradients and without elements, beside PyTorch's and beside the same calls on the CPU."""

from __future__ import annotations

import copy
import io
import pickle
import resource
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flambeau
from tests.ops import test_more_operations, test_operations
from tests.ops.oracle import arrays

torch = pytest.importorskip("torch")
EXPRESSIONS = {**{f"more, {k}": v for k, v in test_more_operations.EXPRESSIONS.items()}, **test_operations.EXPRESSIONS}


def layout(result: Any) -> Any:
    """Where a tensor is and how it lies; of other things themselves."""
    if isinstance(result, (flambeau.Tensor, torch.Tensor)):
        return str(result.device), tuple(result.shape), result.stride() if result.numel() else None, str(result.dtype), result.requires_grad
    if isinstance(result, (list, tuple)):
        return [layout(x) for x in result]
    return {k: layout(v) for k, v in result.items()} if isinstance(result, dict) else repr(result)


def outcome(function: Callable[..., Any], *args: Any) -> Any:
    """The layouts of a call's results, or the type of its error."""
    try:
        return layout(function(*args))
    except Exception as error:
        return type(error).__name__


def on_meta(t: Any) -> Any:
    """The same layout without elements."""
    return flambeau.empty_strided(tuple(t.shape), t.stride(), dtype=t.dtype, device="meta", requires_grad=t.requires_grad)


VALUES = ("no data!", "cannot be called on meta", "meta device type", "not on the expected device")


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_layouts_are_those_of_the_cpu(name: str) -> None:
    expression, shapes = EXPRESSIONS[name][:2]
    given = [flambeau.tensor(a, requires_grad=True) for a in arrays(*shapes, low=0.1, high=0.9)]
    try:
        results = expression(flambeau, *[on_meta(t) for t in given])
    except Exception as error:
        if any(text in str(error) for text in VALUES):
            pytest.skip("it looks at values, or has constants of its own on the CPU")
        raise
    there = layout(results)
    here = layout(expression(flambeau, *given))
    assert str(there).replace("'meta'", "'cpu'") == str(here)


def _views(m: Any) -> Any:
    x = m.empty(2, 3, device="meta")
    row, other = x[0], x.view(3, 2)
    row.add_(1), other.mul_(2), x.t().copy_(m.ones(3, 2))
    return row, other, x, row._base is x, row.untyped_storage().nbytes(), x.data_ptr(), x._version


def _gradients(m: Any) -> Any:
    x = m.empty(2, 3, device="meta", requires_grad=True)
    y = (x * 2).exp()
    (g,) = m.autograd.grad(y.sum(), x, create_graph=True)
    (h,) = m.autograd.grad((g * x).sum(), x)
    z = m.empty(3, device="meta", requires_grad=True)
    seen: list[str] = []
    z.register_hook(lambda gradient: seen.append(str(gradient.device)))
    (z[1:] * 2).sum().backward()
    return g, h, z.grad, seen


def _beside_the_cpu(m: Any) -> Any:
    a, b = m.ones(3), m.empty(3, device="meta")
    c, d = a * 2, b * 2
    e, f = c + 1, d + m.tensor(1.0)
    w = m.ones(3, requires_grad=True)
    v = m.empty(3, device="meta", requires_grad=True)
    first, second = (w * 2).sum(), (v * 2).sum()
    first.backward(), second.backward()
    return e.tolist(), f, w.grad.tolist(), v.grad, a.to(b), a.to("meta", m.float16), a.type_as(b), b.copy_(a)


def _training(m: Any) -> Any:
    with m.device("meta"):
        net = m.nn.Sequential(m.nn.Conv2d(3, 4, 3), m.nn.BatchNorm2d(4), m.nn.ReLU(), m.nn.Flatten(), m.nn.Dropout(), m.nn.Linear(16, 5))
        x, target = m.randn(2, 3, 4, 4), m.randint(0, 5, (2,))
    optimizer = m.optim.AdamW(net.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        m.nn.functional.cross_entropy(net(x), target).backward()
        m.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
    return dict(net.state_dict()), [p.grad for p in net.parameters()]


def _recurrent(m: Any) -> Any:
    with m.device("meta"):
        net, attention = m.nn.LSTM(3, 4, num_layers=2, bidirectional=True), m.nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
        out, state = net(m.zeros(5, 2, 3))
        other = attention(m.zeros(2, 5, 4))
    (out.sum() + other.sum()).backward()
    return out, state, other, [p.grad for p in (*net.parameters(), *attention.parameters())]


def _modules(m: Any) -> Any:
    with m.device("meta"):
        net = m.nn.Linear(3, 4)
    given = m.nn.Linear(3, 4)
    moved = m.nn.Linear(3, 4).to("meta")
    empty = copy.deepcopy(net).to_empty(device="cpu")
    assigned = copy.deepcopy(net)
    assigned.load_state_dict(given.state_dict(), assign=True)
    same = m.equal(assigned.weight, given.weight)
    return net.weight, moved.weight, empty.weight, assigned.weight, same, isinstance(moved.weight, m.nn.Parameter), copy.deepcopy(net).half().bias


def _files(m: Any) -> Any:
    net = m.nn.Linear(30, 40, device="meta")
    file = io.BytesIO()
    m.save({"net": net.state_dict(), "p": net.weight, "device": m.device("meta")}, file)
    size = len(file.getvalue())
    file.seek(0)
    there, other = m.load(file), io.BytesIO()
    m.save(m.ones(2, 3).t(), other)
    other.seek(0)
    return size < 4000, there, m.load(other, map_location="meta"), pickle.loads(pickle.dumps(net)).weight, pickle.loads(pickle.dumps(net.bias))


def _places(m: Any) -> Any:
    found = []
    with m.device("meta"):
        found += [m.zeros(2), m.tensor([1, 2]), m.arange(3), m.zeros(2, device="cpu"), m.zeros_like(m.ones(2, device="cpu")), m.eye(2), m.hann_window(4)]
        with m.device("cpu"):
            found.append(m.zeros(1))
        found.append(m.fft.fftfreq(4))
    m.set_default_device("meta")
    try:
        found += [m.rand(2), m.get_default_device(), m.nn.Linear(2, 3).weight]
    finally:
        m.set_default_device(None)
    return [*found, m.zeros(2), m.get_default_device(), m.empty(2, device="meta").new_zeros(3), m.empty(2, device="meta").new_empty(2, device="cpu")]


def _random(m: Any) -> Any:
    m.manual_seed(0)
    x = m.empty(3, device="meta")
    made = [x.uniform_(), x.normal_(), m.rand(2, device="meta"), m.randperm(3, device="meta"), m.bernoulli(x), m.nn.functional.dropout(x), m.rand_like(x)]
    return made, m.rand(2).tolist()  # of which the CPU's stream knows nothing


def _texts(m: Any) -> Any:
    x = m.empty(2, 3, device="meta")
    kinds = x.type(), str(x.untyped_storage())
    return kinds, str(x), str(x.requires_grad_() * 1), str(m.empty(0, device="meta", dtype=m.int8)), str(m.nn.Parameter(x.detach()))


PROGRAMS = [_views, _gradients, _beside_the_cpu, _training, _recurrent, _modules, _files, _places, _random, _texts]


@pytest.mark.parametrize("program", PROGRAMS, ids=[p.__name__.strip("_") for p in PROGRAMS])
def test_programs(program: Callable[[Any], Any]) -> None:
    for _ in range(4):  # new, in pieces, as a whole, known
        assert layout(program(flambeau)) == layout(program(torch))


REFUSED: dict[str, Callable[[Any, Any], Any]] = {
    "item": lambda m, x: x.sum().item(), "tolist": lambda m, x: x.tolist(), "numpy": lambda m, x: x.numpy(), "bool": lambda m, x: bool(x.sum()),
    "float": lambda m, x: float(x.sum()), "cpu": lambda m, x: x.cpu(), "to": lambda m, x: x.to("cpu"), "copy to the CPU": lambda m, x: m.ones(3).copy_(x),
    "set to the CPU": lambda m, x: m.ones(3).__setitem__(0, x[0]), "out": lambda m, x: m.add(x, x, out=m.ones(3)), "dlpack": lambda m, x: x.__dlpack__(),
    "two devices": lambda m, x: x + m.ones(3), "the other way": lambda m, x: m.cat([m.ones(3), x]), "share": lambda m, x: x.share_memory_(),
    "nonzero": lambda m, x: x.nonzero(), "mask": lambda m, x: x[x > 0], "unique": lambda m, x: x.unique(), "grad": lambda m, x: setattr(x, "grad", m.ones(3)),
    "data": lambda m, x: setattr(m.ones(3), "data", x), "allclose": lambda m, x: m.allclose(x, x), "bytes": lambda m, x: x.untyped_storage()[0],
    "gradient from meta": lambda m, x: m.ones(3, requires_grad=True).to("meta").sum().backward(), "equal": lambda m, x: m.equal(x, x),
    "module": lambda m, x: m.nn.Linear(3, 3, device="meta").to("cpu"), "layer": lambda m, x: m.nn.LayerNorm(3)(x),
    "repeats": lambda m, x: m.repeat_interleave(x.long()),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    for _ in range(3):
        with pytest.raises(Exception) as expected:
            REFUSED[name](torch, torch.empty(3, device="meta"))
        with pytest.raises(expected.type):
            REFUSED[name](flambeau, flambeau.empty(3, device="meta"))


def test_nothing_takes_memory() -> None:
    x = flambeau.empty(10**12, device="meta")
    y = (x.view(10**6, 10**6) @ flambeau.zeros(10**6, 5, device="meta")).sum(0)
    assert tuple(y.shape) == (5,) and x.untyped_storage().nbytes() == 4 * 10**12
    with flambeau.device("meta"):
        net = flambeau.nn.ModuleList([flambeau.nn.Linear(8192, 28672) for _ in range(40)])
        z = flambeau.zeros(4096, 8192)
        for layer in net:
            z = layer(z)[:, :8192]
    z.sum().backward()
    assert sum(p.numel() for p in net.parameters()) > 9 * 10**9 and net[0].weight.grad.is_meta
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(3000):
        x = flambeau.empty(100, 100, device="meta")
        x = (x @ x).relu().sum()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000  # KB: traces over them end


def test_values_do_not_depend_on_what_is_on_meta() -> None:
    def program(extra: bool) -> Any:
        x = flambeau.tensor(np.arange(6.0).reshape(2, 3), requires_grad=True)
        y = flambeau.empty(2, 3, device="meta", requires_grad=True)
        total = (x.exp() * 2).sum()
        if extra:
            (y.exp() * 2).sum().backward()
            y.grad.zero_()
        total.backward()
        return total.item(), x.grad.tolist()

    for _ in range(4):
        assert program(True) == program(False)
