"""Whatever fails, all that does not need it survives: plans that cannot be made, memory that cannot be had, host calls that raise, indices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import flambeau as ft
from flambeau.compiler import pipeline
from flambeau.compiler.kernels import host
from flambeau.runtime import buffers, jit
from flambeau.trace import classes
from flambeau.trace.recorder import local
from tests.engine.failing_programs import needed

pytestmark = pytest.mark.usefixtures("whole")


@pytest.fixture(autouse=True)
def exact_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan by class is tried before a plan for one size, and may be there from another test: what is injected here must be met."""
    monkeypatch.setattr(classes, "ENABLED", [False])


def _plan(monkeypatch: Any, once: bool = False) -> Callable[[Any], Any]:
    """No plan can be made that has the primitive lgamma; with `once`, only the first one cannot."""
    plain = pipeline.compile_graph
    failed: list[int] = []

    def compile_graph(graph: Any, **options: Any) -> Any:
        if "lgamma" in needed(graph) and not (once and failed):
            failed.append(1)
            raise RuntimeError("injected")
        return plain(graph, **options)

    monkeypatch.setattr(pipeline, "compile_graph", compile_graph)
    return lambda x: ft.lgamma(x)


def _code(monkeypatch: Any) -> Callable[[Any], Any]:
    """Native code for a sort cannot be made."""
    plain = jit.functions

    def functions(items: Any, *rest: Any, **named: Any) -> Any:
        if any("sort" in key for key, _ in items):
            raise RuntimeError("injected")
        return plain(items, *rest, **named)

    monkeypatch.setattr(jit, "functions", functions)
    monkeypatch.setattr(pipeline, "USE_STORED", [False])
    return lambda x: ft.sort(x)[0]


def _host(monkeypatch: Any) -> Callable[[Any], Any]:
    """A host call raises, of a class of its own."""

    class Odd(Exception):
        pass

    def solve(*_: Any, **__: Any) -> Any:
        raise Odd("injected")

    for name in host.FUNCTIONS:
        monkeypatch.setitem(host.FUNCTIONS, name, solve)
    return lambda x: ft.linalg.qr(x.reshape(2, 2))[1].sum().expand(x.shape)


def _index(_: Any) -> Callable[[Any], Any]:
    """A kernel finds an index out of range."""
    nine = ft.tensor([8])
    return lambda x: x.gather(0, (nine + 1).expand(4))


def _memory(monkeypatch: Any) -> Callable[[Any], Any]:
    """There is no memory for a large value."""
    plain = buffers.check_available

    def check_available(nbytes: int) -> None:
        if nbytes > 1 << 26:
            raise RuntimeError("injected: no memory")
        plain(nbytes)

    monkeypatch.setattr(buffers, "check_available", check_available)
    return lambda x: x.sum().expand(3 * 10**7).cumsum(0)[:4].clone()


KINDS = {
    "plan": _plan, "plan once": lambda m: _plan(m, True), "code": _code, "host call": _host, "index": _index, "memory": _memory,
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("first", ["failing", "another"])
def test_what_does_not_need_it_survives(kind: str, first: str, monkeypatch: pytest.MonkeyPatch) -> None:
    w, part, u, lone = ft.ones(4), ft.arange(6.0), ft.ones(4), ft.ones(4)
    for t in (w, part, u, lone):
        t.tolist()
    with monkeypatch.context() as patch:
        fail = KINDS[kind](patch)
        w.mul_(2)
        part[1:3] = 7.0
        a = w.exp() * 0 + ft.arange(4.0)
        view = a[1:]
        bad = fail(a)
        lost = bad + a
        c = a + 1
        a.add_(10)
        u.mul_(3)
        lone.add_(bad)
        with pytest.raises(Exception, match=r"injected|out of bounds|memory"):
            (lost if first == "failing" else c).tolist()
        assert local.main.state is local.main.root and not local.main.held
        assert w.tolist() == [2.0] * 4
        assert part.tolist() == [0.0, 7.0, 7.0, 3.0, 4.0, 5.0]
        assert c.tolist() == [1.0, 2.0, 3.0, 4.0]
        assert view.tolist() == a.tolist()[1:]
        assert a.tolist() == [10.0, 11.0, 12.0, 13.0]
        if kind == "plan once":  # nothing is in the way any more
            assert u.tolist() == [3.0] * 4 and lost.tolist() == (ft.lgamma(ft.arange(4.0)) + ft.arange(4.0)).tolist()
        else:
            assert u.tolist() == [1.0] * 4 and lone.tolist() == [1.0] * 4  # an eager program would not have come so far
            for t in (bad, lost):
                with pytest.raises(RuntimeError, match="failed earlier"):
                    t.tolist()
    w.mul_(2)
    assert w.tolist() == [4.0] * 4 and (a + 1).tolist() == [11.0, 12.0, 13.0, 14.0]
    x = ft.ones(3, requires_grad=True)
    (x * 2).sum().backward()
    assert x.grad.tolist() == [2.0] * 3


def test_the_error_of_a_plan_names_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    fail = _plan(monkeypatch)
    bad = fail(ft.ones(2))
    with pytest.raises(RuntimeError, match=r"(?s)lgamma\(\): injected.*test_failures.py:\d+"):
        bad.tolist()


def test_an_interrupt_while_a_plan_is_made_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    x = ft.ones(3)
    y = x.exp() + 0.125
    with monkeypatch.context() as patch:

        def interrupted(*_: Any, **__: Any) -> Any:
            raise KeyboardInterrupt

        patch.setattr(pipeline, "compile_graph", interrupted)
        with pytest.raises(KeyboardInterrupt):
            y.tolist()
    assert y.tolist() == [pytest.approx(2.8432818)] * 3


def test_written_before_it_is_looked_up() -> None:
    """The failing call reads what the same trace has written to memory that exists."""
    w, i = ft.arange(4.0), ft.tensor([8])
    w.tolist()
    before = w + 1
    w.mul_(2)
    bad = w.gather(0, i + 1)
    after = w + 1
    w.add_(100)
    with pytest.raises(IndexError, match="index 9"):
        bad.tolist()
    assert w.tolist() == [0.0, 2.0, 4.0, 6.0]
    for t, right in ((before, [1.0, 2.0, 3.0, 4.0]), (after, [1.0, 3.0, 5.0, 7.0])):
        try:
            assert t.tolist() == right
        except RuntimeError as error:  # its kernel was in the run that failed
            assert "failed earlier" in str(error)


def _program(m: Any) -> list[list[float]]:
    """Products, reductions, writes, a backward pass, random numbers: last bits that depend on what is fused with what."""
    m.manual_seed(3)
    x = m.randn(17, 33, requires_grad=True)
    w = m.randn(33, 9)
    h = (x @ w).relu()
    mean = h.mean(0)
    h2 = (h - mean).div((h.var(0) + 1e-5).sqrt())
    h2[1:4] = h2[2:5] * 0.3
    picked = h2[m.tensor([0, 3, 5])].softmax(-1)
    loss = (picked.log().sum() + h2.exp().mean()) / 3
    loss.backward()
    total = x.grad.cumsum(0).sum(1)
    total.mul_(1.7).add_(m.rand(17))
    return [t.detach().reshape(-1).tolist() for t in (loss, picked, x.grad, total)]


def test_sync_gives_the_same_bits() -> None:
    without = _program(ft)
    ft.set_sync(True)
    try:
        assert ft.is_sync()
        for _ in range(3):
            assert _program(ft) == without
    finally:
        ft.set_sync(False)
    assert _program(ft) == without


def test_sync_raises_at_the_call() -> None:
    """What can only be found by running is an error of the call under `set_sync`, and the trace is as before it."""
    i, w, big = ft.tensor([8]), ft.ones(4), ft.ones(1)
    w.tolist()
    ft.set_sync(True)
    try:
        for _ in range(3):
            w.mul_(2)
            nine = i + 1
            with pytest.raises(IndexError, match=r"(?s)gather\(\): index 9 .*test_failures.py"):
                w.gather(0, nine)
            with pytest.raises(RuntimeError, match=r"(?s)add\(\): .*memory.*test_failures.py"):
                big.expand(10**7, 10**6) + 1
            assert (nine + 1).tolist() == [10]
        assert w.tolist() == [8.0] * 4
    finally:
        ft.set_sync(False)
    with pytest.raises(TypeError, match="bool"):
        ft.set_sync(1)
