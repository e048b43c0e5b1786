"""What names a device and what does not: `torch.device` and arguments called `device`, beside PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

import flambeau as ft

torch = pytest.importorskip("torch")
NAMES = (
    b"cpu", b"x", b"meta:3", "x", "", "cpu", "cpu:0", "cpu:x", "cpu:01", "cpu:-1", "cpu ", "CPU", "cuda:", "cuda", "cuda:1", "meta", "hip", "lazy", "mkldnn",
    0, 1, -1, 2**70, True, None, 1.5, ["cpu"],
)  # fmt: skip
INDICES = (None, 0, 1, -1, 2**70, True, 1.5, "1")
USES: dict[str, Callable[[Any, Any], Any]] = {
    "empty": lambda m, d: m.empty(2, device=d), "tensor": lambda m, d: m.tensor([1.0], device=d), "zeros_like": lambda m, d: m.zeros_like(m.ones(2), device=d),
    "linear": lambda m, d: m.nn.Linear(2, 2, device=d).weight, "rand": lambda m, d: m.rand(2, device=d), "to": lambda m, d: m.ones(2).to(d),
}  # fmt: skip
ELSEWHERE = ("cuda", "cuda:1", "hip", "lazy", "mkldnn")  # what PyTorch says of a device that is not there depends on its build


def _outcome(call: Callable[[], Any]) -> Any:
    try:
        return str(call())
    except Exception as error:
        return next(k.__name__ for k in type(error).__mro__ if k.__module__ == "builtins")


@pytest.mark.filterwarnings("ignore")
def test_names() -> None:
    for name, index in product(NAMES, INDICES):
        calls: list[Callable[[Any], Any]] = [lambda m, n=name, i=index: m.device(n, i), lambda m, n=name, i=index: m.device(type=n, index=i)]
        if index is None:
            calls = [lambda m, n=name: m.device(n), lambda m, n=name: m.device(device=n), lambda m, n=name: m.device(type=n)]
        for i, call in enumerate(calls):
            ours, theirs = (_outcome(lambda m=m, call=call: call(m)) for m in (ft, torch))
            assert ours == theirs, (name, index, i)


@pytest.mark.parametrize("use", USES)
@pytest.mark.filterwarnings("ignore")
def test_arguments(use: str) -> None:
    for name in NAMES:
        if name not in ELSEWHERE:
            ours, theirs = (_outcome(lambda m=m, name=name: (lambda t: (t.device, tuple(t.shape)))(USES[use](m, name))) for m in (ft, torch))
            assert ours == theirs, name
