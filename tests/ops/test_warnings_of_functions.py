"""Warnings are ones of the program's line, however many of our frames are above it; and no function loses the look at its arguments for one."""

import ast
import gc
import inspect
import types
import warnings
from pathlib import Path

import pytest

import flambeau as torch
from flambeau import nn
from flambeau.ops import guard

PACKAGE = Path(torch.__file__).parent
THEIR_OWN = {"trace/once.py", "runtime/object_cache.py"}  # the one that does it for all, and one that is asked before there is any program


def test_nothing_but_one_function_warns_by_itself() -> None:
    found = []
    for path in PACKAGE.rglob("*.py"):
        name = path.relative_to(PACKAGE).as_posix()
        if name in THEIR_OWN or "warn" not in (text := path.read_text()):
            continue
        calls = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Call) and ast.unparse(n.func) in ("warnings.warn", "warnings.warn_explicit")]
        found += [f"{name}:{n.lineno}" for n in calls]
    assert not found, f"use flambeau.trace.once.warn_here: it finds the program's line: {found}"


def test_no_public_function_is_without_a_guard_because_it_looks_at_its_caller() -> None:
    looking = [f for f in gc.get_objects() if type(f) is types.FunctionType and str(f.__module__).startswith("flambeau")
               and not guard._REFUSED.isdisjoint(f.__code__.co_names)]  # fmt: skip
    assert looking, "there are some inside, which this looks for"
    spaces = [torch, torch.Tensor, nn, nn.functional, nn.init, nn.utils, torch.optim, torch.linalg, torch.fft, torch.distributions, torch.autograd]
    public = {id(v) for s in spaces for n, v in vars(s).items() if not n.startswith("_") and type(v) is types.FunctionType}
    public |= {id(f) for s in spaces for c in vars(s).values() if isinstance(c, type) for n, f in vars(c).items() if not n.startswith("_") or n == "__init__"}
    assert not [f.__qualname__ for f in looking if id(f) in public]


class Scheduler(torch.optim.lr_scheduler.StepLR):
    """A class of a user's own: one frame more above the program's line."""

    def get_lr(self) -> list[float]:
        return [1.0]


def _optimizer() -> torch.optim.Optimizer:
    return torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)


def _hooked() -> None:
    layer = nn.Linear(2, 2)
    layer.register_full_backward_hook(lambda module, inputs, outputs: None)
    layer(torch.ones(1, 2)).sum().backward()


def _uncalled_step() -> None:
    torch.optim.lr_scheduler.StepLR(_optimizer(), 1).step()


def _always() -> None:
    layer = nn.Linear(2, 2)

    def fails(*args: object) -> None:
        raise ValueError

    layer.register_forward_hook(fails, always_call=True)
    with pytest.raises(TypeError):
        layer("a")


CALLS = [
    lambda: nn.functional.upsample(torch.ones(1, 1, 2, 2), 4),
    lambda: nn.functional.upsample_nearest(torch.ones(1, 1, 2, 2), 4),
    lambda: nn.functional.upsample_bilinear(torch.ones(1, 1, 2, 2), 4),
    lambda: nn.functional.mse_loss(torch.ones(2), torch.ones(3, 2)),
    lambda: nn.functional.l1_loss(torch.ones(2), torch.ones(2), reduce=True),
    lambda: nn.L1Loss(size_average=False),
    lambda: nn.functional.dropout2d(torch.ones(2, 2)),
    lambda: nn.init.normal(torch.ones(2)),
    lambda: nn.init.kaiming_uniform_(torch.ones(0, 2)),
    lambda: nn.LSTM(2, 2, dropout=0.5),
    lambda: nn.utils.weight_norm(nn.Linear(2, 2)),
    lambda: nn.utils.clip_grad_norm_((p for p in ()), 1.0),
    lambda: torch.range(0, 3),
    lambda: torch.add(torch.ones(2), torch.ones(2), out=torch.ones(3)),
    lambda: torch.arange(3, out=torch.ones(2, dtype=torch.int64)),
    lambda: torch.ones(2).resize(1, 2),
    lambda: torch.ones(3)[torch.tensor([1, 0, 1], dtype=torch.uint8)],
    lambda: torch.ones(3).requires_grad_().mul(2).grad,
    lambda: torch.add(torch.ones(2), 2, torch.ones(2)),
    lambda: torch.autograd.detect_anomaly(),
    lambda: torch.optim.SGD([p := nn.Parameter(torch.ones(1)), p], lr=0.1),
    lambda: Scheduler(_optimizer(), 1).get_last_lr() and Scheduler(_optimizer(), 1).step(2),
    lambda: torch.distributions.Uniform(0.0, 1.0).sample_n(2),
    lambda: torch.amp.GradScaler("cuda"),
    lambda: torch.autocast("cpu", dtype=torch.float64),
    _hooked,
    _uncalled_step,
    _always,
]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"line {call.__code__.co_firstlineno}")
def test_warnings_are_of_the_programs_line(call: types.FunctionType) -> None:
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        call()
    assert given
    lines, first = inspect.getsourcelines(call)
    for w in given:
        assert w.filename == __file__, w
        assert first <= w.lineno < first + max(len(lines), 2), w
