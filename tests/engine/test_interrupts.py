"""An interrupt, an error for want of memory or of stack, at any point of a training step: nothing is quietly broken afterwards."""

from __future__ import annotations

import gc
import sys
import threading
import time
from typing import Any

import pytest

import flambeau as torch
from flambeau.autograd import hooks
from flambeau.trace import evaluate, finalizers
from flambeau.trace.recorder import LOCALS, Trace, local
from tests.engine import interrupts

pytestmark = pytest.mark.usefixtures("short_collections")


@pytest.fixture(scope="module", params=interrupts.PROGRAMS)
def program(request: pytest.FixtureRequest) -> tuple[interrupts.Program, list[Any]]:
    made = interrupts.Program(request.param)
    expected = made.run()
    for _ in range(6):
        assert made.run() == expected
    return made, expected


@pytest.mark.parametrize("exception", interrupts.EXCEPTIONS)
def test_at_points_of_a_step(program: tuple[interrupts.Program, list[Any]], exception: type[BaseException]) -> None:
    """A sample; all points: `python -m tests.engine.interrupts 1`."""
    made, expected = program
    at, step = 1 + interrupts.EXCEPTIONS.index(exception), 701
    tried = 0
    while True:
        wrong, place = interrupts.by_tracer(made, expected, exception, at)
        if not place:
            break
        assert not wrong, (at, place, wrong)
        tried += 1
        at += step
    assert tried


def test_by_signals(program: tuple[interrupts.Program, list[Any]]) -> None:
    made, expected = program
    for i in range(12):
        assert not interrupts.by_signal(made, expected, 4e-5 * (i + 1))


def test_with_little_room_on_the_stack(program: tuple[interrupts.Program, list[Any]]) -> None:
    made, expected = program
    for room in range(3, 60, 5):
        assert not interrupts.by_depth(made, expected, room), room


@pytest.mark.parametrize("line", range(1, 3))
@pytest.mark.parametrize("block", [
    torch.no_grad, lambda: torch.autocast("cpu"), torch.inference_mode, lambda: torch.set_grad_enabled(False),
    lambda: torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t), lambda: torch.autograd.graph.disable_saved_tensors_hooks("no hooks"),
])  # fmt: skip
def test_a_block_ends_although_its_end_is_interrupted(block: Any, line: int) -> None:
    """Before the first line of `__exit__` has run, too."""

    def tracer(frame: Any, event: str, argument: Any) -> Any:
        if frame.f_code.co_name == "__exit__" and "blocks" in frame.f_code.co_filename:
            tracer.seen += 1  # type: ignore[attr-defined]
            if tracer.seen == line:  # type: ignore[attr-defined]
                raise KeyboardInterrupt
        return tracer

    tracer.seen = 0  # type: ignore[attr-defined]
    with pytest.raises(KeyboardInterrupt), interrupts.tracing(tracer), block():
        torch.ones(2) + 1
    assert torch.is_grad_enabled() and not torch.is_autocast_cpu_enabled() and not hooks.saved
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        assert len(hooks.saved) == 1


def test_a_checkpoint_that_is_interrupted_anywhere() -> None:
    """The random state and autocast are those of before the backward pass, wherever the interrupt comes while the function runs again."""
    x = torch.ones(4, requires_grad=True)
    seen = 0
    while True:
        with torch.autocast("cpu"):
            y = torch.utils.checkpoint.checkpoint(lambda t: torch.nn.functional.dropout(t * 2), x, use_reentrant=True)
        y = y.float().sum()
        state, lines = torch.get_rng_state().tolist(), 0

        def tracer(frame: Any, event: str, argument: Any, at: int = seen + 1) -> Any:
            nonlocal lines
            if frame.f_code.co_filename.endswith(("autograd/checkpoint.py", "trace/while_set.py")):
                lines += event == "line"
                if lines == at and event == "line":
                    raise KeyboardInterrupt
            return tracer

        try:
            with interrupts.tracing(tracer):
                y.backward()
        except KeyboardInterrupt:
            seen += 1
        else:
            break
        assert torch.get_rng_state().tolist() == state and not torch.is_autocast_cpu_enabled() and torch.is_grad_enabled(), seen
        assert hooks.current.under_way is None and type(local.trace) is Trace
    assert seen > 30


def test_a_block_that_is_entered_by_hand_stays() -> None:
    torch.no_grad().__enter__()
    gc.collect()
    assert not torch.is_grad_enabled()
    torch.set_grad_enabled(True)


def test_an_interrupt_in_the_collectors_callback_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The collector swallows what its callbacks raise."""

    def interrupted(places: Any, *_: Any) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    for name in ("_begin", "_finish"):
        monkeypatch.setattr(finalizers, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            gc.collect()
            time.sleep(1)
        assert type(local.trace) is Trace and finalizers.INTERRUPTED not in LOCALS[threading.get_ident()]
        assert torch.ones(2).add(1).tolist() == [2, 2]


@pytest.mark.parametrize("missed", ["start", "stop"])
def test_a_callback_that_never_began_is_made_up_for(missed: str) -> None:
    """A signal's handler that raises before the callback's first line: the callback has not run at all."""
    gc.collect()
    gc.disable()
    try:
        with pytest.raises(KeyboardInterrupt):
            for phase in ("start", "stop"):
                if phase != missed:
                    finalizers.collecting(phase, {})
                finalizers.collecting_after_all(phase, {})
            time.sleep(1)
    finally:
        gc.enable()
    assert type(local.trace) is Trace and local.trace is local.main and finalizers.INTERRUPTED not in LOCALS[threading.get_ident()]
    assert torch.ones(2).add(1).tolist() == [2, 2]


@pytest.mark.parametrize("moment", ["before", "after", "delivered"])
@pytest.mark.parametrize("updates", [False, True])
def test_an_interrupt_while_a_plan_runs_loses_nothing(monkeypatch: pytest.MonkeyPatch, moment: str, updates: bool) -> None:
    """Ctrl-C during a long kernel is raised right after it: the step it belongs to is whole all the same, once."""
    size = (1 << 18) + 8 * ["before", "after", "delivered"].index(moment) + 64 * updates  # a plan of its own
    weight, total = torch.ones(size), torch.zeros(3)
    for attempt in range(4):
        if updates:
            weight.mul_(2)
        result, other = weight + 1, weight * 3
        if attempt < 3:
            total += result[:3]
            total.tolist()
    with pytest.raises(KeyboardInterrupt):
        _interrupt_native(monkeypatch, moment, lambda: result.sum().item())
    expected = 16.0 if updates else 1.0
    assert weight[0].item() == expected and result[0].item() == expected + 1 and other[5].item() == expected * 3


def _interrupt_native(monkeypatch: pytest.MonkeyPatch, moment: str, function: Any) -> None:
    """Run the function; a KeyboardInterrupt is raised at a moment of the run of its plan."""
    if moment == "delivered":
        deliver = evaluate.deliver

        def interrupted(*args: Any) -> None:
            monkeypatch.undo()
            deliver(*args)
            raise KeyboardInterrupt

        monkeypatch.setattr(evaluate, "deliver", interrupted)
        function()
        return

    code = {"run_small", "run_alone", "run"}

    def tracer(frame: Any, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename.endswith("runner.py") and frame.f_code.co_name in code:
            if event == ("call" if moment == "before" else "return"):
                sys.settrace(None)
                raise KeyboardInterrupt
            return tracer
        return None

    add_plan = evaluate.add_plan

    def then_traced(*args: Any) -> Any:
        plan = add_plan(*args)
        sys.settrace(tracer)  # flush itself has taken the tracer away
        return plan

    monkeypatch.setattr(evaluate, "add_plan", then_traced)
    try:
        function()
    finally:
        sys.settrace(None)
        monkeypatch.undo()


def test_a_block_ends_with_little_room_on_the_stack() -> None:
    """To go back may make an edge that is new, which takes more nested calls than to begin did."""

    def nested(depth: int, size: int) -> None:
        if depth:
            return nested(depth - 1, size)
        with torch.no_grad():
            torch.ones(size)
        return None

    for room in range(3, 60):
        frame, depth = sys._getframe(), 0
        while frame is not None:
            frame, depth = frame.f_back, depth + 1  # type: ignore[assignment]
        limit = sys.getrecursionlimit()
        x = torch.ones(room) * 2  # pending: the mode is an edge
        with interrupts.no_collections():
            try:
                sys.setrecursionlimit(depth + 70)
                nested(70 - room, 100 + room)
            except RecursionError:
                pass
            finally:
                sys.setrecursionlimit(limit)
        assert torch.is_grad_enabled(), room
        assert x.sum().item() == 2.0 * room


@pytest.mark.parametrize("exception", interrupts.EXCEPTIONS)
def test_a_kept_exception_keeps_no_mode(exception: type[BaseException]) -> None:
    """An interrupt at each line of what the end of a block calls, while the exception (and with it the block's manager) is kept."""
    left: list[int] = [0]
    kept: list[BaseException] = []
    for point in range(1, 40):
        left[0] = point
        kept.clear()

        def tracer(frame: Any, event: str, _: Any) -> Any:
            if frame.f_code.co_name == "__exit__" and event == "call":
                return tracer
            inside, caller = False, frame.f_back
            while caller is not None and not inside:
                inside, caller = caller.f_code.co_name == "__exit__", caller.f_back
            if inside and event == "line":
                left[0] -= 1
                if left[0] == 0:
                    raise exception
            return tracer

        try:
            with torch.no_grad():
                sys.settrace(tracer)
        except BaseException as error:
            kept.append(error)
        finally:
            sys.settrace(None)
        assert torch.is_grad_enabled(), point
        if left[0] > 0:  # the block ended before it came to the point
            break
    assert point > 3 and not kept
