"""The wrong calls of PyTorch's databases of modules and optimizers: each is refused with PyTorch's type of exception (or its warning)."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest

import flambeau
from flambeau.testing.compare import _built
from tests.differential.samples import case_of, torch

common_modules = pytest.importorskip("torch.testing._internal.common_modules")
common_optimizers = pytest.importorskip("torch.testing._internal.common_optimizers")


class Ours:
    """PyTorch's arguments as flambeau's; what is one object there is one here."""

    def __init__(self) -> None:
        self.made: dict[int, Any] = {}
        self.kept: list[Any] = []

    def of(self, x: Any) -> Any:
        if isinstance(x, torch.Tensor):
            if id(x) not in self.made:
                made = _built(flambeau, case_of(x)) if x.layout == torch.strided else self.of(x.to_dense()).to_sparse()
                if isinstance(x, torch.nn.Parameter):
                    made = flambeau.nn.Parameter(made.detach(), x.requires_grad)
                if x.grad is not None:
                    made.grad = self.of(x.grad)
                self.made[id(x)] = made
                self.kept.append(x)
            return self.made[id(x)]
        if isinstance(x, dict):
            return {k: self.of(v) for k, v in x.items()}
        if isinstance(x, (list, tuple)) and not hasattr(x, "_fields"):
            return type(x)([self.of(v) for v in x])
        return x if x is None or isinstance(x, (bool, int, float, complex, str)) else _built(flambeau, case_of(x))


def _modules() -> Iterator[Any]:
    for info in common_modules.module_db:
        if info.module_error_inputs_func is None:
            continue
        records = info.module_error_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=False, training=True)
        for i, record in enumerate(records):
            yield pytest.param(info.module_cls.__name__, record, id=f"{info.module_cls.__name__}-{i}")


@pytest.mark.parametrize("name, record", list(_modules()))
def test_module(name: str, record: Any) -> None:
    given, ours = record.module_error_input, Ours()

    def call() -> None:
        module = getattr(flambeau.nn, name)(*ours.of(tuple(given.constructor_input.args)), **ours.of(dict(given.constructor_input.kwargs)))
        if record.error_on == common_modules.ModuleErrorEnum.FORWARD_ERROR:
            result = module(*ours.of(tuple(given.forward_input.args)), **ours.of(dict(given.forward_input.kwargs)))
            for t in result if isinstance(result, tuple) else (result,):
                if isinstance(t, flambeau.Tensor):
                    t.tolist()

    with warnings.catch_warnings(), pytest.raises(record.error_type):
        warnings.simplefilter("ignore")
        call()


def _optimizers() -> Iterator[Any]:
    for info in common_optimizers.optim_db:
        if info.optim_error_inputs_func is None:
            continue
        for record in info.optim_error_inputs_func("cpu", torch.float32):
            given = record.optimizer_error_input
            yield pytest.param(info.optim_cls.__name__, record, id=f"{info.optim_cls.__name__}-{given.desc}")


@pytest.mark.parametrize("name, record", list(_optimizers()))
def test_optimizer(name: str, record: Any) -> None:
    given, ours = record.optimizer_error_input, Ours()
    params = ours.of(given.params)

    def call() -> None:
        optimizer = getattr(flambeau.optim, name)(params, **ours.of(given.kwargs))
        if record.error_on == common_optimizers.OptimizerErrorEnum.STEP_ERROR:
            optimizer.step()

    if issubclass(record.error_type, Warning):
        with pytest.warns(record.error_type):
            call()
    else:
        with pytest.raises(record.error_type):
            call()


def test_a_parameter_given_twice_has_two_updates() -> None:
    answers = []
    for module in (torch, flambeau):
        p = module.nn.Parameter(module.tensor([1.0, 2.0]))
        with pytest.warns(UserWarning, match="duplicate"):
            optimizer = module.optim.Adam([p, p], lr=0.1, foreach=False)
        for _ in range(3):
            optimizer.zero_grad()
            (p * p).sum().backward()
            optimizer.step()
        answers.append(p.tolist())
    assert answers[0] == pytest.approx(answers[1], abs=1e-6)
