"""Random programs of which one call fails late, or at once, and what must be true of everything else afterwards.

`python -m tests.engine.failing_programs [FROM TO]` runs the seeds of a range with every kind of failure.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any
from unittest import mock

import torch

import flambeau as ft
from flambeau.compiler import pipeline
from flambeau.compiler.kernels import host
from flambeau.runtime import buffers, jit
from flambeau.trace.recorder import local

SIZE = 6
Failing = Callable[[Any], Any]


class Injected(Exception):
    pass


def needed(graph: Any) -> set[str]:
    """The primitives that a graph's outputs and updates need."""
    wanted = {*graph.outputs, *[root for _, root in graph.updates]}
    found = set()
    for node in reversed(graph.nodes):
        if not wanted.isdisjoint(node.outputs):
            found.add(node.op)
            wanted.update(node.inputs)
            wanted.update(graph.root(i) for i in node.inputs)
    return found


# -- failures that are found late: a context in which `function(tensor)` is recorded, and fails when it runs ---------------------
@contextmanager
def _plan(kind: type[Exception] = RuntimeError) -> Iterator[Failing]:
    plain = pipeline.compile_graph

    def compile_graph(graph: Any, **options: Any) -> Any:
        if "lgamma" in needed(graph):
            raise kind("injected")
        return plain(graph, **options)

    with mock.patch.object(pipeline, "compile_graph", compile_graph):
        yield lambda x: ft.lgamma(x)


@contextmanager
def _code() -> Iterator[Failing]:
    plain = jit.functions

    def functions(items: Any, *rest: Any, **named: Any) -> Any:
        items = list(items)
        if any("lgamma" in str(key) for key, _ in items):
            raise RuntimeError("injected")
        return plain(items, *rest, **named)

    with mock.patch.object(jit, "functions", functions), mock.patch.object(pipeline, "USE_STORED", [False]):
        yield lambda x: ft.lgamma(x)


@contextmanager
def _host() -> Iterator[Failing]:
    def fails(*_: Any, **__: Any) -> Any:
        raise Injected("injected")

    with mock.patch.dict(host.FUNCTIONS, dict.fromkeys(host.FUNCTIONS, fails)):
        yield lambda x: ft.linalg.qr(x.reshape(1, -1))[1].sum() + x


@contextmanager
def _memory() -> Iterator[Failing]:
    plain = buffers.check_available

    def check_available(nbytes: int) -> None:
        if nbytes > 1 << 26:
            raise RuntimeError("injected: no memory")
        plain(nbytes)

    with mock.patch.object(buffers, "check_available", check_available):
        yield lambda x: x.sum().expand(3 * 10**7).cumsum(0)[:SIZE].clone()


@contextmanager
def _index() -> Iterator[Failing]:
    yield lambda x: x.gather(0, x.detach().long() * 0 + 99)


@contextmanager
def _embedding() -> Iterator[Failing]:
    yield lambda x: ft.nn.functional.embedding(x.detach().long() * 0 + 77, ft.ones(4, SIZE, dtype=ft.float64, requires_grad=True)).sum(1)


@contextmanager
def _written() -> Iterator[Failing]:
    yield lambda x: x.scatter(0, x.detach().long() * 0 + 99, 1.0)


LATE: dict[str, Callable[[], Any]] = {
    "plan": _plan, "memory error": lambda: _plan(MemoryError), "code": _code, "host call": _host, "memory": _memory, "index": _index,
    "embedding": _embedding, "written index": _written,
}  # fmt: skip


# -- failures of the call itself ------------------------------------------------------------------------------------------------
class _Forward(ft.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        x.mul(2).sum()
        raise Injected

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g


class _Backward(ft.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        g + 1
        raise Injected


class _Function(ft.overrides.TorchFunctionMode):
    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise Injected


class _Dispatch(ft.utils._python_dispatch.TorchDispatchMode):
    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise Injected


def _raises(*_: Any) -> Any:
    raise Injected


def _leaf() -> Any:
    return ft.ones(SIZE, dtype=ft.float64, requires_grad=True)


def _by_hook(x: Any) -> None:
    y = _leaf() * x.detach()
    y.register_hook(_raises)
    (y * 2).sum().backward()


def _by_module_hook(x: Any) -> None:
    layer = ft.nn.Linear(SIZE, SIZE).double()
    layer.register_forward_hook(_raises)
    layer(x.detach())


def _by_backward_hook(x: Any) -> None:
    layer = ft.nn.Linear(SIZE, SIZE).double()
    layer.register_full_backward_hook(_raises)
    layer(_leaf() * x.detach()).sum().backward()


def _by_checkpoint(x: Any) -> None:
    calls: list[int] = []

    def function(t: Any) -> Any:
        calls.append(1)
        t = (t * 2).exp()
        return t if len(calls) == 1 else _raises()

    ft.utils.checkpoint.checkpoint(function, _leaf(), use_reentrant=False).sum().backward()


def _by_unpacking(x: Any) -> None:
    t = _leaf()
    with ft.autograd.graph.saved_tensors_hooks(lambda t: t, _raises):
        y = (t.exp() * t).sum()
    y.backward()


def _by_packing(x: Any) -> None:
    t = _leaf()
    with ft.autograd.graph.saved_tensors_hooks(_raises, lambda t: t):
        (t.exp() * x.detach()).sum().backward()


def _by_closure(x: Any) -> None:
    t = _leaf()

    def closure() -> Any:
        (t * 2).sum().backward()
        raise Injected

    ft.optim.LBFGS([t]).step(closure)


def _in(mode: Any, x: Any) -> None:
    with mode:
        x.detach() + 1


AT_ONCE: dict[str, Failing] = {
    "number": lambda x: ft.zeros(3, dtype=ft.int64).fill_(2**63),
    "shapes": lambda x: x + ft.ones(SIZE + 1),
    "dtype": lambda x: ft.ones(3, dtype=ft.int64).add_(1.5),
    "kind": lambda x: ft.clamp(x, "a"),
    "leaf": lambda x: _leaf().mul_(2),
    "write of a larger one": lambda x: x.detach().add_(ft.ones(2, SIZE)),
    "element": lambda x: x[SIZE + 2],
    "indices": lambda x: x[ft.tensor([50])],
    "written indices": lambda x: x.detach().__setitem__(ft.tensor([50]), 1.0),
    "part": lambda x: x.detach().__setitem__(slice(0, 2), ft.ones(3)),
    "out": lambda x: ft.add(x.detach(), 1, out=ft.ones(SIZE, dtype=ft.int64)),
    "forward": lambda x: _Forward.apply(_leaf()),
    "backward": lambda x: _Backward.apply(_leaf() * x.detach()).sum().backward(),
    "hook": _by_hook,
    "module's hook": _by_module_hook,
    "backward hook": _by_backward_hook,
    "checkpoint": _by_checkpoint,
    "packing": _by_packing,
    "unpacking": _by_unpacking,
    "closure": _by_closure,
    "vmap": lambda x: ft.vmap(lambda a: _raises(a * 2))(x.detach()),
    "item under vmap": lambda x: ft.vmap(lambda a: a.item())(x.detach()),
    "jvp": lambda x: ft.func.jvp(lambda a: _raises(a.sin()), (x.detach(),), (x.detach(),)),
    "grad": lambda x: ft.func.grad(lambda a: _raises(a.sin()))(x.detach()),
    "function mode": lambda x: _in(_Function(), x),
    "dispatch mode": lambda x: _in(_Dispatch(), x),
    "item": lambda x: x.item(),
    "no history": lambda x: x.detach().sum().backward(),
    "device": lambda x: x.to("cuda"),
    "name": lambda x: x.nothing,
    "list": lambda x: ft.cat([x, None]),
    "overlap": lambda x: x.detach().expand(3, SIZE).add_(1),
    "layer": lambda x: ft.nn.functional.layer_norm(x, (SIZE + 1,)),
}


# -- programs -------------------------------------------------------------------------------------------------------------------
_CALLS: tuple[Callable[[Any, Any, Any], Any], ...] = (
    lambda m, x, y: x + y, lambda m, x, y: x * y, lambda m, x, y: x.sin(), lambda m, x, y: x.flip(0), lambda m, x, y: x.cumsum(0) - y,
    lambda m, x, y: m.where(x > y, x, y * 2), lambda m, x, y: x.sum() * y, lambda m, x, y: x.sort()[0], lambda m, x, y: x.clone(),
    lambda m, x, y: (x[:, None] * y[None, :]).sum(1), lambda m, x, y: m.stack([x, y]).mean(0), lambda m, x, y: x.detach() + 1, lambda m, x, y: x.tanh().exp(),
)  # fmt: skip


def _write_part(m: Any, x: Any, y: Any) -> None:
    n = min(len(x), len(y))
    x[:n] = y[:n].clone()


_WRITES: tuple[Callable[[Any, Any, Any], Any], ...] = (
    lambda m, x, y: x.mul_(0.5), lambda m, x, y: x.add_(1), _write_part, lambda m, x, y: x[1:].fill_(0.75), lambda m, x, y: x.fill_(0.25),
    lambda m, x, y: x.copy_(y) if len(x) == len(y) else x.neg_(),
)  # fmt: skip
_VIEWS = (slice(1, None), slice(None, 4), slice(0, None, 2))


class Variable:
    """A tensor of the program: ours, PyTorch's, and PyTorch's of a program that ends at the failing call. `bad`: the memory needs what fails."""

    def __init__(self, tensors: list[Any], memory: list[bool]) -> None:
        self.tensors = tensors
        self.memory = memory  # [whether it is lost], shared by views

    def bad(self) -> bool:
        return self.memory[0]


class Program:
    def __init__(self, seed: int, kind: str) -> None:
        self.random = random.Random(seed)
        self.kind, self.late = kind, kind in LATE
        self.variables: list[Variable] = []
        self.leaves: list[list[Any]] = []
        self.failed = False
        self.modules = [ft, torch, torch]

    def fresh(self, requires_grad: bool) -> None:
        numbers = [self.random.randint(-8, 8) / 4 for _ in range(SIZE)]
        made = [m.tensor(numbers, dtype=m.float64, requires_grad=requires_grad) for m in self.modules]
        if requires_grad:
            self.leaves.append(made)
        given = self.random.random() < 0.5 and not requires_grad
        self.variables.append(Variable(made if given else [t * 1.5 for t in made], [False]))

    def both(self, function: Callable[[Any, int], Any]) -> list[Any]:
        """What a step does in ours and in PyTorch's, up to the failing call in the third, too."""
        return [function(m, i) if i < 2 or not self.failed else None for i, m in enumerate(self.modules)]

    def step(self) -> None:
        chance, r = self.random.random(), self.random
        x, y = r.choice(self.variables), r.choice(self.variables)
        if chance < 0.45:
            whole = [v for v in self.variables if len(v.tensors[0]) == SIZE]
            x, y = r.choice(whole), r.choice(whole)
            call = r.choice(_CALLS)
            self.variables.append(Variable(self.both(lambda m, i: call(m, x.tensors[i], y.tensors[i]) if self._has(i, x, y) else None), [x.bad() or y.bad()]))
        elif chance < 0.72:
            write = r.choice(_WRITES)
            plain = r.random() < 0.3

            def act(m: Any, i: int) -> None:
                if self._has(i, x, y):
                    with m.no_grad() if plain else ExitStack():
                        write(m, x.tensors[i], y.tensors[i])

            self.both(act)
            x.memory[0] |= y.bad()
        elif chance < 0.88:
            if len(x.tensors[0]) == SIZE:
                part = r.choice(_VIEWS)
                self.variables.append(Variable(self.both(lambda m, i: x.tensors[i][part] if self._has(i, x) else None), x.memory))
                if self.failed and x.tensors[2] is not None:
                    self.variables[-1].tensors[2] = x.tensors[2][part]
        elif chance < 0.94:
            self.fresh(r.random() < 0.5)
        elif not self.failed or not self.late:
            x.tensors[0].tolist()

    @staticmethod
    def _has(i: int, *variables: Variable) -> bool:
        return all(v.tensors[i] is not None for v in variables)

    def fail(self, failing: Failing) -> None:
        x = self.random.choice([v for v in self.variables if len(v.tensors[0]) == SIZE])
        if not self.late:
            with suppress(Exception):
                failing(x.tensors[0])
                raise AssertionError(f"{self.kind}: no error")
            return
        try:
            found = failing(x.tensors[0])
        except Exception as error:
            if not _expected(error):
                raise
            self.late = False  # found at the call: then nothing is lost
            return
        self.failed = True
        self.variables.append(Variable([found, x.tensors[1].detach() * 0, None], [True]))

    def run(self, failing: Failing) -> str:
        """What is wrong afterwards; empty: nothing."""
        for requires_grad in (True, True, False):
            self.fresh(requires_grad)
        steps = self.random.randint(4, 14)
        at = self.random.randrange(steps)
        try:
            for i in range(steps):
                if i == at:
                    self.fail(failing)
                else:
                    self.step()
        except Exception as error:
            if not (self.late and self.failed and _expected(error)):
                raise
        return self.check()

    def check(self) -> str:
        if local.trace is not local.main or local.main.held or not ft.is_grad_enabled():
            return "a mode is left"
        order = list(range(len(self.variables)))
        self.random.shuffle(order)
        first = self.late and self.failed
        for number in order:
            v = self.variables[number]
            while True:
                try:
                    got = v.tensors[0].tolist()
                except Exception as error:
                    if not _expected(error):
                        raise
                    if v.bad():
                        got = None
                        break
                    if not first:
                        return f"{number} has no value: {error}"
                    first = False
                    continue
                break
            if got is None or v.bad():
                continue
            rights = [t for t in v.tensors[1:] if t is not None]
            right = next((t for t in rights if _close(got, t.tolist())), None)
            if right is None:
                return f"{number} is {got}, not {[t.tolist() for t in rights]}"
            wrong = self.check_gradients(v, [t for t in rights if _close(got, t.tolist())])
            if wrong:
                return f"gradients of {number}: {wrong}"
        return ""

    def check_gradients(self, v: Variable, rights: list[Any]) -> str:
        """Those of a value are PyTorch's, or there is an error that says that they are lost."""
        t = v.tensors[0]
        needs = [r.requires_grad for r in rights]
        if not any(needs):
            return ""
        if not t.requires_grad:
            return "" if not all(needs) else "requires_grad is lost"
        for attempt in range(2):
            try:
                grads = ft.autograd.grad(t.sum(), [leaf[0] for leaf in self.leaves], retain_graph=True, allow_unused=True)
                got = [None if g is None else g.tolist() for g in grads]
                break
            except Exception as error:
                if self.failed and _expected(error) and not attempt:
                    continue  # the first that asks for anything meets the error
                if self.failed and ("no history any more" in str(error) or _expected(error)):
                    LOST[0] += 1
                    return ""
                if "modified by an inplace operation" in str(error):
                    return ""
                raise
        KEPT[0] += 1
        found = []
        for right, wanted in ((r, i) for r in rights if r.requires_grad for i in (1, 2)):
            try:
                grads = torch.autograd.grad(right.sum(), [leaf[wanted] for leaf in self.leaves], retain_graph=True, allow_unused=True)
            except RuntimeError as error:
                return "" if "inplace" in str(error) else str(error)
            found.append([None if h is None else h.tolist() for h in grads])
            if all(_close(g or [0.0] * SIZE, h or [0.0] * SIZE) for g, h in zip(got, found[-1], strict=True)):
                return ""
        return f"{got}, not {found}"


LOST, KEPT = [0], [0]  # how many gradients were lost, and were there


def _expected(error: BaseException) -> bool:
    return any(words in str(error) for words in ("injected", "out of bounds", "failed earlier", "no memory"))


def _close(a: list[float], b: list[float]) -> bool:
    return len(a) == len(b) and all(abs(x - y) <= 1e-9 * max(1.0, abs(y)) or x == y or (x != x and y != y) for x, y in zip(a, b, strict=True))


def wrong_after(seed: int, kind: str) -> str:
    """What is wrong after the program of a seed with a kind of failure; empty: nothing."""
    program = Program(seed, kind)
    if kind in AT_ONCE and kind not in LATE:
        return program.run(AT_ONCE[kind])
    with LATE[kind]() as failing:
        return program.run(failing)


def main(begin: int, end: int) -> int:
    wrong = 0
    for kind in (*LATE, *AT_ONCE):
        for seed in range(begin, end):
            for _ in range(3):
                try:
                    said = wrong_after(seed, kind)
                except Exception as error:
                    said = f"{type(error).__name__}: {error}"
                if said:
                    wrong += 1
                    print(kind, seed, said)
                    break
    print(f"{wrong} wrong; gradients: {KEPT[0]} there, {LOST[0]} lost with an error")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:3])) if len(sys.argv) > 2 else main(0, 20))
