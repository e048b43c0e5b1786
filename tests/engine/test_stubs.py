"""Functions have their stubs while a mode, a device or an export wants them, and lose them afterwards: in any order, with interrupts, in threads."""

from __future__ import annotations

import queue
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as ft
from flambeau.ops import instrument
from tests.engine.interrupts import tracing
from tests.threads import Thread, beside


class _Counts(ft.overrides.TorchFunctionMode):
    """Counts the calls that it is asked about."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(func.__name__)
        return func(*args, **(kwargs or {}))


def _plain_codes() -> list[Any]:
    return [ft.arange.__code__, ft.zeros.__code__, ft.add.__code__, ft.Tensor.sum.__code__]


def _seen() -> list[str]:
    with _Counts() as mode:
        ft.arange(3)
        ft.zeros(2)
        ft.add(ft.ones(1), 1)
    return mode.seen


class _Dim(ft.nn.Module):
    def forward(self, x: Any) -> Any:
        return x + ft.arange(x.shape[0])


def _exported() -> list[str]:
    program = ft.export.export(_Dim(), (ft.ones(5),), dynamic_shapes={"x": {0: ft.export.Dim("n", min=2, max=9)}})
    return [str(n.target) for n in program.graph.nodes if n.op == "call_function"]


_PLAIN_APPLY = ft.autograd.Function.__dict__["apply"]
SEEN = ["arange", "zeros", "ones", "add"]
EXPORTED = ["aten.sym_size.int", "aten.arange.default", "aten.add.Tensor"]


@pytest.fixture(autouse=True)
def warm() -> None:
    assert _seen() == SEEN and _exported() == EXPORTED  # functions compile their sources at their first calls


@pytest.mark.parametrize("block", [_Counts, lambda: ft.autograd.set_detect_anomaly(True), lambda: ft.device("meta")])
def test_an_interrupt_anywhere_leaves_no_block_half_open(block: Any) -> None:
    """Whatever line of giving and taking stubs is interrupted, the next mode sees every call and the next export every operator."""
    plain, line = _plain_codes(), 0
    files = ("ops/instrument.py", "ops/placing.py", "flambeau/overrides.py", "autograd/anomaly_mode.py", "_weakrefset.py", "weakref.py")
    while True:
        line += 1 if line < 40 else 2503  # the first lines, and some of the loop over all functions
        seen = 0

        def tracer(frame: Any, event: str, argument: Any, at: int = line) -> Any:
            nonlocal seen
            if event == "line" and frame.f_code.co_filename.endswith(files):
                seen += 1
                if seen == at:
                    raise KeyboardInterrupt
            return tracer

        try:
            with tracing(tracer), block():
                pass
        except KeyboardInterrupt:
            ft.autograd.set_detect_anomaly(False)
            ft.set_default_device(None)
        else:
            break
        assert _seen() == SEEN, line
        assert _exported() == EXPORTED, line
        with block():
            pass  # a stub that an interrupt has left goes with the next block of its kind
        assert _plain_codes() == plain, line
    assert line > 40


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from(("mode", "default", "anomaly", "end")), max_size=12))
def test_blocks_end_in_any_order(steps: list[str]) -> None:
    """Modes, devices and anomaly detection that are begun and ended in any order: each is there while it is on, and nothing is left."""
    plain = _plain_codes()
    modes: list[_Counts] = []
    default = anomaly = False
    for step in steps:
        if step == "mode":
            modes.append(_Counts())
            modes[-1].__enter__()
        elif step == "default":
            default = not default
            ft.set_default_device("meta" if default else None)
        elif step == "anomaly":
            anomaly = not anomaly
            ft.autograd.set_detect_anomaly(anomaly)
        elif step == "end" and modes:
            modes.pop().__exit__(None, None, None)
        for mode in modes:
            mode.seen.clear()
        made = ft.arange(3)
        assert made.device.type == ("meta" if default else "cpu"), steps
        assert all("arange" in m.seen for m in modes), steps
    for mode in reversed(modes):
        mode.__exit__(None, None, None)
    ft.set_default_device(None)
    ft.autograd.set_detect_anomaly(False)
    assert _plain_codes() == plain and not instrument._all[0], steps


def test_a_mode_is_entered_within_itself() -> None:
    plain, mode = _plain_codes(), _Counts()
    with mode:
        with mode:
            ft.arange(2)
        mode.seen.clear()
        ft.arange(2)
        assert mode.seen == ["arange"]
    assert _plain_codes() == plain


def test_threads_that_begin_and_end_modes() -> None:
    """A thread that ends its block takes no stub from another's."""
    plain, wrong = _plain_codes(), []

    def enter_and_leave(ended: threading.Event) -> None:
        while not ended.is_set():
            if _seen() != SEEN:
                wrong.append("a mode")

    with beside(enter_and_leave, enter_and_leave):
        for _ in range(10):
            if _exported() != EXPORTED:
                wrong.append("an export")
    assert not wrong and _plain_codes() == plain


class _Rooted(ft.autograd.Function):
    """The square root, whose slope at 0 times 0 is NaN."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x.sqrt()

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        return g * 0.5 / x.sqrt()


def _found() -> bool:
    """Whether a custom function's NaN is found and named in this thread."""
    x = ft.zeros(1, requires_grad=True)
    y = (_Rooted.apply(x) * 0.0).sum()
    try:
        y.backward()
    except RuntimeError as error:
        return "_Rooted" in str(error)
    return False


@pytest.mark.filterwarnings("ignore:Error detected")
@settings(max_examples=12, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), min_size=1, max_size=8))
def test_anomaly_detection_of_several_threads(steps: list[tuple[int, bool]]) -> None:
    """Each of three threads turns it on and off in any order: custom functions are looked at where it is on, and only there."""
    asked: list[queue.Queue[bool | None]] = [queue.Queue() for _ in range(3)]
    answers: queue.Queue[Any] = queue.Queue()

    def work(inbox: queue.Queue[bool | None]) -> None:
        while (mode := inbox.get(timeout=60)) is not None:
            try:
                ft.autograd.set_detect_anomaly(mode)
                answers.put(None)
                inbox.get(timeout=60)
                answers.put(_found())
            except BaseException as error:
                answers.put(error)
        ft.autograd.set_detect_anomaly(False)

    threads = [Thread(work, (inbox,)) for inbox in asked]
    for thread in threads:
        thread.start()
    modes = [False] * 3
    try:
        for who, mode in steps:
            modes[who] = mode
            asked[who].put(mode)
            assert answers.get(timeout=60) is None
            asked[who].put(True)
            assert answers.get(timeout=60) is mode
            for other in {0, 1, 2} - {who}:  # what this one did changes nothing for the others
                asked[other].put(modes[other])
                assert answers.get(timeout=60) is None
                asked[other].put(True)
                assert answers.get(timeout=60) is modes[other], (who, mode, other)
    finally:
        for inbox in asked:
            inbox.put(None)
        for thread in threads:
            thread.join(60)
    assert ft.autograd.Function.__dict__["apply"] is _PLAIN_APPLY
