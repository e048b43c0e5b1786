"""Whatever raises, in a wrong call or in the middle of a right one, leaves no mode behind: what comes next works as before."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

import flambeau as ft
from flambeau import nn
from flambeau.autograd.forward_ad import _active
from flambeau.nn import functional as F
from flambeau.ops.registry import OPERATIONS
from flambeau.trace import evaluate as PROFILERS
from flambeau.trace.place import is_ours
from flambeau.trace.recorder import Trace, local
from flambeau.trace.saved_hooks import saved
from tests.engine.interrupts import no_collections, tracing


def _check(w: Any, times: float) -> None:
    """Nothing is left: the recorder is the thread's trace, the modes are those of a fresh process, and writes and gradients work."""
    assert local.trace is local.main and type(local.trace) is Trace
    assert not local.main.held and local.main.autocast is None
    assert ft.is_grad_enabled() and not ft.is_inference_mode_enabled() and not ft.is_autocast_enabled("cpu")
    w.mul_(2)
    assert w.tolist() == [times] * 2
    x = ft.ones(2, requires_grad=True)
    (x * 3).sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]


JUNK: tuple[Any, ...] = (None, "a", -1, 2.5, [], {}, object())


def test_wrong_calls() -> None:
    """Every operation with arguments that are none."""
    for name, op in sorted(OPERATIONS.items()):
        for junk in (*JUNK, ft.ones(0), ft.ones(3, 5, 7), ft.tensor(True)):
            for args in ((junk,), (ft.ones(2, 3), junk), (junk, junk, junk)):
                try:
                    op.function(*args)
                except Exception:
                    assert local.trace is local.main and not local.main.held, (name, args)
                assert local.trace is local.main and not local.main.held, (name, args)
    _check(ft.ones(2), 2.0)


class Double(ft.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * 2 + ctx.saved_tensors[0] * 0


def _training(n: int) -> None:
    net = nn.Sequential(nn.Linear(3, n), nn.BatchNorm1d(n), nn.ReLU(), nn.Dropout(0.5), nn.Linear(n, 2))
    optimizer = ft.optim.Adam(net.parameters(), lr=0.1)
    loss = F.cross_entropy(net(ft.ones(4, 3)), ft.tensor([0, 1, 1, 0]))
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()


def _autocast(n: int) -> None:
    with ft.autocast("cpu", dtype=ft.bfloat16):
        F.linear(ft.ones(2, n), ft.ones(3, n)).softmax(-1).tolist()


def _transforms(n: int) -> None:
    ft.vmap(lambda x: ft.func.grad(lambda y: (y.exp() * y).sum())(x))(ft.ones(3, n)).tolist()
    ft.func.jvp(lambda x: ft.sort(x.sin())[0], (ft.ones(n),), (ft.ones(n),))[1].tolist()


def _custom(n: int) -> None:
    x = ft.ones(n, requires_grad=True)
    y = ft.utils.checkpoint.checkpoint(lambda t: Double.apply(t).tanh(), x, use_reentrant=False)
    with ft.no_grad():
        view = ft.zeros(2, n)
        view[0] = y
    y.sum().backward()


PROGRAMS: dict[str, Callable[[int], None]] = {"training": _training, "autocast": _autocast, "transforms": _transforms, "custom": _custom}


class Injected(Exception):
    pass


def _raise_at(at: int) -> Callable[[Any, str, Any], None]:
    """What raises at this call of our own functions, counted from 1."""
    count = 0

    def profile(frame: Any, event: str, arg: Any) -> None:
        nonlocal count
        code = frame.f_code
        if event == "call" and is_ours(code.co_filename) and code.co_name not in SPARED:
            count += 1
            if count == at:
                sys.setprofile(None)
                raise Injected

    return profile


@pytest.mark.parametrize("name", PROGRAMS)
def test_errors_in_the_middle(name: str) -> None:
    """An error at many calls of our own functions, one after another, in a program whose edges are new each time."""
    program = PROGRAMS[name]
    program(2)
    w, times, at, size = ft.ones(2), 1.0, 1, 3
    while True:
        try:
            with no_collections():
                sys.setprofile(_raise_at(at))
                try:
                    program(size)
                finally:
                    sys.setprofile(None)
        except Injected:
            pass
        except (RuntimeError, AttributeError) as error:  # told otherwise by who was called
            assert isinstance(error.__context__, Injected) or isinstance(error.__cause__, Injected), error
        else:
            break
        times = 2.0 if times > 1e6 else times * 2
        if times == 2.0:
            w = ft.ones(2)
        _check(w, times)
        at = at + 1 + at // 6
        size += 1
    assert at > 20


# What puts a mode back, and what runs when an object dies: an error there is not one of a call.
SPARED = frozenset((
    "__exit__", "__del__", "collecting", "_end", "set_grad_enabled", "set_autocast", "_change_mode", "switch", "shorten", "is_ours", "_without_ours", "_check",
    "_root_for_mode", "pop", "give_back",
))  # fmt: skip


class _Function(ft.overrides.TorchFunctionMode):
    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return function(*args, **(kwargs or {}))


class _Dispatch(ft.utils._python_dispatch.TorchDispatchMode):
    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return function(*args, **(kwargs or {}))


BLOCKS: dict[str, Callable[[], Any]] = {
    "no_grad": ft.no_grad, "inference_mode": ft.inference_mode, "autocast": lambda: ft.autocast("cpu"), "device": lambda: ft.device("meta"),
    "function mode": _Function, "dispatch mode": _Dispatch, "anomalies": lambda: ft.autograd.detect_anomaly(check_nan=True),
    "saved tensors": lambda: ft.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t), "dual level": ft.autograd.forward_ad.dual_level,
    "sparse invariants": ft.sparse.check_sparse_tensor_invariants, "random": ft.random.fork_rng, "profile": ft.profiler.profile,
    "no subclasses": ft._C.DisableTorchFunctionSubclass,
}  # fmt: skip


def _modes() -> list[Any]:
    """What blocks change."""
    return [
        ft.is_grad_enabled(), ft.is_inference_mode_enabled(), ft.is_autocast_enabled("cpu"), str(ft.get_default_device()), ft.get_default_dtype(),
        ft.is_anomaly_enabled(), ft.is_anomaly_check_nan_enabled(), len(ft.overrides._get_current_function_mode_stack()),
        ft.utils._python_dispatch._get_current_dispatch_mode(), ft.is_sync(), ft._C._is_torch_function_enabled(), len(saved), _active.level,
        ft.sparse.check_sparse_tensor_invariants.is_enabled(), ft.get_rng_state().tolist(), PROFILERS.PROFILER, local.trace is local.main, local.main.held,
    ]  # fmt: skip


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_a_block_that_cannot_begin(name: str) -> None:
    """An error at any line while a block begins: its `__exit__` does not run, so nothing of it may stay."""
    with BLOCKS[name]():
        pass
    before, at = _modes(), 1
    while True:
        seen = 0

        def tracer(frame: Any, event: str, argument: Any, at: int = at) -> Any:
            nonlocal seen
            if not is_ours(frame.f_code.co_filename) or frame.f_code.co_name in SPARED | {"surely", "begun", "restore"}:
                return tracer
            seen += event == "line"
            if seen == at and event == "line":
                sys.settrace(None)
                raise Injected
            return tracer

        entered = False
        block = BLOCKS[name]()
        with tracing(tracer):
            try:
                with block:
                    sys.settrace(None)
                    entered = True
            except Injected:
                pass
        assert _modes() == before, (name, at)
        if entered:
            break
        at += 1 + at // 12
    assert at > 1
