"""torch.autograd.graph and anomaly detection."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import flambeau as ft
from flambeau import nn
from flambeau.autograd import graph

torch = pytest.importorskip("torch")


def program(x: Any, w: Any) -> Any:
    return ft.tanh(x @ w).exp().sum()


@pytest.mark.parametrize("kind", ["same", "clone", "numpy", "list"])
def test_saved_tensors_are_packed_and_unpacked(kind: str) -> None:
    pack, unpack = {
        "same": (lambda t: t, lambda t: t), "clone": (lambda t: t.clone(), lambda t: t), "numpy": (lambda t: t.numpy().copy(), ft.from_numpy),
        "list": (lambda t: (t.tolist(), t.shape), lambda p: ft.tensor(p[0]).reshape(p[1])),
    }[kind]  # fmt: skip
    packed, unpacked = [], []
    x, w = ft.randn(3, 4, requires_grad=True), ft.randn(4, 3, requires_grad=True)
    expected = [g.tolist() for g in ft.autograd.grad(program(x, w), (x, w))]
    for inside in (False, True):
        packed.clear(), unpacked.clear()
        x.grad = w.grad = None
        with graph.saved_tensors_hooks(lambda t: (packed.append(t), pack(t))[1], lambda p: (unpacked.append(p), unpack(p))[1]):
            y = program(x, w)
            if inside:
                y.backward()
        if not inside:
            y.backward()
        assert [x.grad.tolist(), w.grad.tolist()] == expected
        assert packed and len(unpacked) == len(packed) and all(isinstance(t, ft.Tensor) and not t.requires_grad for t in packed)


def test_hooks_change_what_backward_sees() -> None:
    x = ft.tensor([2.0, 3.0], requires_grad=True)
    with graph.saved_tensors_hooks(lambda t: t * 10, lambda t: t):
        y = x * x
    y.sum().backward()
    assert x.grad.tolist() == [40.0, 60.0]

    class Square(ft.autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: Any) -> Any:
            ctx.save_for_backward(a)
            return a * a

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (a,) = ctx.saved_tensors
            return 2 * a * g

    x.grad = None
    with graph.saved_tensors_hooks(lambda t: t * 10, lambda t: t):
        z = Square.apply(x)
    z.sum().backward()
    assert x.grad.tolist() == [40.0, 60.0]
    with graph.save_on_cpu(pin_memory=True):
        w = (x * x).exp()
    assert ft.autograd.grad(w.sum(), x)[0].tolist() == (2 * x * (x * x).exp()).tolist()
    with graph.saved_tensors_hooks(lambda t: t, lambda t: t[:1]):
        v = x * x
    with pytest.raises(RuntimeError, match="the unpack hook returned a tensor of shape"):
        v.sum().backward()


def test_hooks_can_be_forbidden() -> None:
    for m in (ft, torch):
        g = m.autograd.graph
        with g.disable_saved_tensors_hooks("not here"), pytest.raises(RuntimeError, match="not here"), g.saved_tensors_hooks(lambda t: t, lambda t: t):
            pass


@pytest.mark.parametrize("m", [ft, torch], ids=["flambeau", "torch"])
def test_hooks_on_several_gradients(m: Any) -> None:
    calls: list[Any] = []
    a, b, c = (m.ones(2, requires_grad=True) for _ in range(3))
    handle = m.autograd.graph.register_multi_grad_hook((a, b, c), lambda g: calls.append([None if t is None else t.tolist() for t in g]))
    (a * b * 2).sum().backward()
    (a * b * c).sum().backward()
    handle.remove()
    (a * b * c).sum().backward()
    assert calls == [[[2.0, 2.0], [2.0, 2.0], None], [[1.0, 1.0]] * 3]
    calls.clear()
    with m.autograd.graph.register_multi_grad_hook((a, b), lambda g: calls.append(g.tolist()), mode="any"):
        (a * b * 2).sum().backward()
    assert calls == [[2.0, 2.0]]
    edge = m.autograd.graph.get_gradient_edge(a)
    assert m.autograd.grad((a * 3).sum(), edge)[0].tolist() == [3.0, 3.0]
    with pytest.raises(RuntimeError, match="does not require gradient"):
        m.autograd.graph.get_gradient_edge(m.ones(1))


@pytest.mark.parametrize("m", [ft, torch], ids=["flambeau", "torch"])
@pytest.mark.parametrize("mode", ["all", "any"])
def test_hooks_on_several_gradients_after_a_pass_that_failed(m: Any, mode: str) -> None:
    """What a pass has gathered ends with it: the next one begins anew."""
    calls: list[Any] = []
    a, b = (m.ones(2, requires_grad=True) for _ in range(2))

    def told(g: Any) -> None:
        calls.append([t.tolist() for t in g] if mode == "all" else g.tolist())

    with m.autograd.graph.register_multi_grad_hook((a, b), told, mode=mode):
        middle = a * 3

        def fails(gradient: Any) -> None:
            raise ValueError("mine")

        middle.register_hook(fails)
        with pytest.raises(ValueError, match="mine"):
            (b * middle).sum().backward()
        calls.clear()
        for _ in range(2):
            (a * b * 2).sum().backward()
    assert calls == ([[[2.0, 2.0], [2.0, 2.0]]] * 2 if mode == "all" else [[2.0, 2.0]] * 2)


@pytest.mark.parametrize("m", [ft, torch], ids=["flambeau", "torch"])
def test_hooks_on_several_gradients_around_a_checkpoint(m: Any) -> None:
    """A pass within a pass, as a checkpoint's, does not end what the outer one gathers."""
    calls: list[Any] = []
    a, b = (m.ones(2, requires_grad=True) for _ in range(2))
    with m.autograd.graph.register_multi_grad_hook((a, b), lambda g: calls.append([None if t is None else t.tolist() for t in g])):
        for reentrant in (False, True):
            y = m.utils.checkpoint.checkpoint(lambda t: t.sin().exp(), a * 0.5, use_reentrant=reentrant)
            (y * 0 + a * b * 2).sum().backward()
    assert calls == [[[2.0, 2.0], [2.0, 2.0]]] * 2


def test_a_hook_after_passes_without_hooks() -> None:
    """The hook looks at a value, which ends the trace: the pass must not count on its slots."""
    a, b = ft.ones(2, requires_grad=True), ft.ones(2, requires_grad=True)
    for _ in range(2):
        (a * b * 2).sum().backward()
    seen: list[Any] = []
    a.register_hook(lambda g: seen.append(g.tolist()))
    (a * b * 2).sum().backward()
    assert seen == [[2.0, 2.0]] and b.grad.tolist() == [6.0, 6.0]


def test_version() -> None:
    x = ft.ones(2)
    before = x._version
    graph.increment_version(x)
    graph.increment_version([x, x])
    assert x._version == before + 3


class Faulty(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(2, 2), Root())

    def forward(self, x: Any) -> Any:
        return self.inner(x).sum()


class Root(nn.Module):
    def forward(self, x: Any) -> Any:
        return (x * 0).sqrt()  # the line


def anomaly(run: Any, m: Any = ft) -> str:
    with warnings.catch_warnings(), pytest.raises(RuntimeError) as error:
        warnings.simplefilter("ignore")
        with m.autograd.detect_anomaly():
            run()
    return str(error.value)


def test_anomaly_names_operation_module_and_line() -> None:
    net = Faulty()
    text = anomaly(lambda: net(ft.ones(1, 2)).backward())
    assert text.startswith("Function 'MulBackward0' returned nan values in its 0th output.")
    assert "module Faulty.inner.1 (Root)" in text and "(x * 0).sqrt()  # the line" in text and "test_autograd_graph.py, line " in text
    assert "The first infinity of this backward pass came from 'SqrtBackward0'" in text
    net(ft.ones(1, 2)).backward()  # off again: no error
    assert not ft.is_anomaly_enabled()


@pytest.mark.parametrize("name", ["div", "log", "custom"])
def test_anomaly_has_pytorchs_first_words(name: str) -> None:
    def run(m: Any) -> Any:
        class Bad(m.autograd.Function):
            @staticmethod
            def forward(ctx: Any, a: Any) -> Any:
                return a.clone()

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return g * float("nan")

        x = m.tensor([0.0, 1.0], requires_grad=True)
        y = {"div": lambda: x / x, "log": lambda: m.log(x) * 0.0, "custom": lambda: Bad.apply(x * 2)}[name]()
        return lambda: y.sum().backward()

    texts = [anomaly(lambda m=m: run(m)(), m) for m in (ft, torch)]
    assert texts[0].startswith(texts[1].split(".")[0] + "."), texts


def test_anomaly_leaves_sound_programs_alone() -> None:
    ft.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.GELU(), nn.Linear(4, 1))
    x, y = ft.randn(8, 3), ft.randn(8, 1)

    def losses() -> list[float]:
        import copy

        model = copy.deepcopy(net)
        optimizer = ft.optim.Adam(model.parameters(), 0.1)
        found = []
        for _ in range(3):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found

    plain = losses()
    with ft.autograd.set_detect_anomaly(True):
        assert losses() == pytest.approx(plain, rel=1e-5)
    x = ft.zeros(1, requires_grad=True)
    with ft.autograd.set_detect_anomaly(True, check_nan=False):
        (x / x).sum().backward()
    assert x.grad.isnan().all()


def test_older_names() -> None:
    with ft.autograd.set_multithreading_enabled(False), ft.autograd.enforce_grad_layout_policy(True):
        assert ft.autograd.variable.Variable(ft.ones(1), requires_grad=True).requires_grad


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("kind", ["leaf", "leaf with gradients", "result", "parameter"])
def test_variables_are_new_leaves_over_the_same_memory(kind: str, requires_grad: bool) -> None:
    found = []
    for m in (ft, torch):
        x = {"leaf": lambda m=m: m.ones(2), "leaf with gradients": lambda m=m: m.ones(2, requires_grad=True),
             "result": lambda m=m: m.ones(2, requires_grad=True) * 2, "parameter": lambda m=m: m.nn.Parameter(m.ones(2))}[kind]()  # fmt: skip
        v = m.autograd.Variable(x, requires_grad=requires_grad)
        facts = [v is x, v.is_leaf, v.requires_grad, v.grad_fn is None, v.data_ptr() == x.data_ptr(), type(v) is m.Tensor]
        if requires_grad:
            (v * 3).sum().backward()
            facts += [v.grad.tolist(), x.grad if x.is_leaf else None]
        with m.no_grad():
            v.mul_(5)
        found.append((facts, x.tolist()))
    assert found[0] == found[1]


def test_inner_names_of_disabled_hooks() -> None:
    """torch._C._autograd says and asks what disable_saved_tensors_hooks does."""
    inner = ft._C._autograd
    for call in (lambda: graph.disable_saved_tensors_hooks("not here"), None):
        assert inner._saved_tensors_hooks_is_enabled()
        if call is None:
            inner._saved_tensors_hooks_disable("not here")
            assert inner._saved_tensors_hooks_get_disabled_error_message() == "not here"
            with pytest.raises(RuntimeError, match="not here"), graph.saved_tensors_hooks(lambda t: t, lambda t: t):
                pass
            inner._saved_tensors_hooks_enable()
        else:
            with call():
                assert not inner._saved_tensors_hooks_is_enabled()
    assert inner._saved_tensors_hooks_get_disabled_error_message() is None
