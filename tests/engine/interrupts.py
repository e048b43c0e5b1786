"""Training steps that are interrupted at every point in turn, and what must be true afterwards.

`python -m tests.engine.interrupts [EVERY]` tries every EVERY-th point of all programs, with each exception (some minutes for 1).
"""

from __future__ import annotations

import gc
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import flambeau as torch
from flambeau import nn
from flambeau.trace.recorder import Trace, local

EXCEPTIONS = (KeyboardInterrupt, MemoryError, RecursionError)


class Program:
    """A small training program: the same numbers each time it starts from its first state."""

    def __init__(self, name: str, size: int = 6) -> None:
        torch.manual_seed(1)
        self.name, self.size = name, size
        layers: list[Any] = [nn.Linear(4, size), nn.BatchNorm1d(size), nn.Tanh(), nn.Linear(size, 3)]
        self.model = nn.Sequential(*layers)
        self.x, self.y = torch.randn(8, 4), torch.randint(0, 3, (8,))
        kind: Any = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}.get(name, torch.optim.AdamW)
        self.optimizer = kind(self.model.parameters(), lr=0.1)
        self.first = {k: v.clone() for k, v in self.model.state_dict().items()}
        self.first_optimizer = self.optimizer.state_dict()
        torch.ones(1).item()

    def step(self) -> float:
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.model(self.x), self.y)
        if self.name == "grad":
            with torch.no_grad():
                loss = loss + 0 * self.model(self.x * 0).sum()
            grads = torch.autograd.grad(nn.functional.cross_entropy(self.model(self.x), self.y), list(self.model.parameters()))
            for p, g in zip(self.model.parameters(), grads, strict=True):
                p.grad = g
        elif self.name == "vmap":
            weights = torch.func.vmap(lambda a: (a * 2).sum())(self.x)
            loss = loss + 0 * weights.sum() * torch.func.grad(lambda a: (a * a).sum())(self.x).sum()
            loss.backward()
        else:
            loss.backward()
        self.optimizer.step()
        return loss.item()

    def reset(self) -> None:
        self.model.load_state_dict(self.first)
        self.optimizer.load_state_dict(self.first_optimizer)
        for p in self.model.parameters():
            p.grad = None

    def run(self, steps: int = 3) -> list[Any]:
        self.reset()
        return [*[self.step() for _ in range(steps)], *[v.tolist() for v in self.model.state_dict().values()]]


PROGRAMS = ("adam", "sgd", "grad", "vmap")


class Interrupter:
    """Raises `exception` at the `at`-th event of a trace function in flambeau's code."""

    def __init__(self, exception: type[BaseException], at: int) -> None:
        self.exception, self.at, self.seen = exception, at, 0
        self.place = ""

    def __call__(self, frame: Any, event: str, argument: Any) -> Any:
        name = frame.f_code.co_filename
        if "flambeau" not in name or "/tests/" in name or name.endswith("finalizers.py"):  # the collector's: see test_interrupts.py
            return self
        self.seen += 1
        if self.seen == self.at:
            self.place = f"{name.rsplit('flambeau/', 1)[-1]}:{frame.f_lineno} {frame.f_code.co_name} ({event})"
            raise self.exception("here")
        return self

    @contextmanager
    def installed(self) -> Iterator[None]:
        with tracing(self):
            yield


@contextmanager
def no_collections() -> Iterator[None]:
    """While errors are brought about: what a collection's callbacks raise, the thread meets a millisecond later, anywhere."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@contextmanager
def tracing(function: Any) -> Iterator[None]:
    """A trace function that raises."""
    with no_collections():
        sys.settrace(function)
        try:
            yield
        finally:
            sys.settrace(None)


def broken(program: Program, expected: list[Any], exception: type[BaseException], interrupt: Callable[[Callable[[], Any]], Any]) -> str:
    """What is wrong after a step in which `interrupt(step)` has raised; empty: nothing."""
    program.reset()
    pending = program.x * 3
    counter = torch.zeros(3).add_(1)
    try:
        interrupt(program.step)
    except exception:
        pass
    except Exception as error:
        if "here" not in str(error) and "here" not in str(error.__cause__) + str(error.__context__):
            return f"another error: {type(error).__name__}: {error}"
    try:
        if not torch.is_grad_enabled():
            torch.set_grad_enabled(True)
            return "gradients are off"
        if type(local.trace) is not Trace:
            local.trace = local.main
            return "the recorder is another"
        for name, got, wanted in (("a pending product", pending, program.x * 3), ("a pending write", counter, torch.ones(3))):
            try:
                if got.tolist() != wanted.tolist():
                    return f"{name} has the value {got.tolist()}"
            except RuntimeError as error:
                if "no value" not in str(error):
                    return f"{name}: {error}"
        got = program.run()
        if got != expected:
            return f"other numbers: {got[:3]} for {expected[:3]}"
    except Exception as error:
        return f"afterwards {type(error).__name__}: {error}"
    return ""


def by_tracer(program: Program, expected: list[Any], exception: type[BaseException], at: int) -> tuple[str, str]:
    """(what is wrong, where the interrupt came) for an exception at the `at`-th event; the place is empty if there are not so many."""
    interrupter = Interrupter(exception, at)

    def interrupt(step: Callable[[], Any]) -> None:
        with interrupter.installed():
            step()

    return broken(program, expected, exception, interrupt), interrupter.place


def by_signal(program: Program, expected: list[Any], seconds: float) -> str:
    """What is wrong after a signal whose handler raises came so many seconds after the step began."""

    fired = []

    def raises(number: int, frame: Any) -> None:
        fired.append(number)
        raise KeyboardInterrupt("here")

    def interrupt(step: Callable[[], Any]) -> None:
        before = signal.signal(signal.SIGALRM, raises)
        try:
            signal.setitimer(signal.ITIMER_REAL, seconds)
            step()
            if fired:
                time.sleep(1)  # one that came in a callback of the collector is passed on
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    return broken(program, expected, KeyboardInterrupt, interrupt)


def by_depth(program: Program, expected: list[Any], room: int) -> str:
    """What is wrong after a step that had room for so many more nested calls."""

    def interrupt(step: Callable[[], Any]) -> None:
        depth, frame = 0, sys._getframe()
        while frame is not None:
            depth, frame = depth + 1, frame.f_back  # type: ignore[assignment]
        limit = sys.getrecursionlimit()
        with no_collections():
            sys.setrecursionlimit(depth + room)
            try:
                step()
            finally:
                sys.setrecursionlimit(limit)

    return broken(program, expected, RecursionError, interrupt)


def main(every: int) -> int:
    failures: dict[str, list[Any]] = {}
    tried = 0
    for name in PROGRAMS:
        program = Program(name)
        for _ in range(8):
            expected = program.run()
        for exception in EXCEPTIONS:
            at = 1 + EXCEPTIONS.index(exception)
            while True:
                wrong, place = by_tracer(program, expected, exception, at)
                if not place:
                    break
                tried += 1
                if wrong:
                    failures.setdefault(f"{name} {exception.__name__} {wrong[:150]}", []).append((at, place))
                at += every
        for i in range(60):
            wrong = by_signal(program, expected, 1e-5 * (i + 1))
            tried += 1
            if wrong:
                failures.setdefault(f"{name} signal {wrong[:150]}", []).append(i)
        for room in range(3, 90):
            wrong = by_depth(program, expected, room)
            tried += 1
            if wrong:
                failures.setdefault(f"{name} depth {wrong[:150]}", []).append(room)
    for wrong, places in failures.items():
        print(len(places), wrong, *places[:4], sep="\n    ")
    print(f"{tried} interrupts, {sum(map(len, failures.values()))} failures")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 7))
