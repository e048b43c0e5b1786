"""The numbers that optimizers keep in their states are tensors, as in PyTorch: whatever a program does with them, training goes on from it."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest
import torch

import flambeau as ft

NAMES = ("Adam", "AdamW", "Adamax", "NAdam", "RAdam", "Adagrad", "ASGD", "Rprop", "RMSprop", "Adadelta", "Adafactor", "SparseAdam")


def _start(m: Any, name: str, dtype: str = "float32", **settings: Any) -> tuple[list[Any], Any]:
    d = getattr(m, dtype)
    params = [m.nn.Parameter(m.arange(6, dtype=d).reshape(2, 3) / 7 - 0.4), m.nn.Parameter(m.arange(4, dtype=d) / 5)]
    return params, getattr(m.optim, name)(params, **settings)


def _step(m: Any, params: list[Any], optimizer: Any, count: int = 1) -> None:
    for _ in range(count):
        optimizer.zero_grad()
        sum([((p - 0.3) ** 2).sum() for p in params]).backward()  # type: ignore[union-attr]
        if type(optimizer).__name__ == "SparseAdam":
            for p in params:
                p.grad = p.grad.to_sparse()
        optimizer.step()


def _seen(x: Any) -> Any:
    if not hasattr(x, "dtype"):
        return type(x).__name__, x
    return type(x).__name__, str(x.dtype).rpartition(".")[2], tuple(x.shape), x.is_leaf, x.requires_grad, [round(v, 3) for v in x.double().reshape(-1).tolist()]


def _states(optimizer: Any) -> Any:
    return [{k: _seen(v) for k, v in state.items()} for state in optimizer.state.values()]


def _pending(m: Any, optimizer: Any, params: list[Any]) -> list[Any]:
    """Values made of the counts before a step are those before it."""
    state = optimizer.state[params[0]]["step"]
    kept = [state * 2.0, state.clone(), state + 1]
    _step(m, params, optimizer)
    return [_seen(k) for k in kept]


def _replace(m: Any, optimizer: Any, params: list[Any], value: Any) -> None:
    optimizer.state[params[0]]["step"] = value


USES: dict[str, Any] = {
    "read": lambda m, o, ps: [o.state[p]["step"].item() + float(o.state[p]["step"]) for p in ps],
    "pending": lambda m, o, ps: _pending(m, o, ps),
    "add_": lambda m, o, ps: o.state[ps[0]]["step"].add_(5) is None,
    "fill_": lambda m, o, ps: [o.state[p]["step"].fill_(2) for p in ps] and None,
    "data": lambda m, o, ps: o.state[ps[1]]["step"].data.mul_(3) is None,
    "numpy": lambda m, o, ps: o.state[ps[1]]["step"].numpy().fill(7.0),
    "another": lambda m, o, ps: _replace(m, o, ps, m.tensor(9.0)),
    "of another dtype": lambda m, o, ps: _replace(m, o, ps, m.tensor(4.0, dtype=m.float64)),
    "a view": lambda m, o, ps: _replace(m, o, ps, m.tensor([1.0, 2.0, 3.0])[1]),
    "one row of two": lambda m, o, ps: o.state[ps[0]]["step"].view(1).mul_(2) is None,
    "set_": lambda m, o, ps: o.state[ps[0]]["step"].set_(m.tensor(6.0)) is None,
    "itself": lambda m, o, ps: o.load_state_dict(o.state_dict()),
    "a copy": lambda m, o, ps: o.load_state_dict(copy.deepcopy(o.state_dict())),
    "a pickle": lambda m, o, ps: o.load_state_dict(pickle.loads(pickle.dumps(o.state_dict()))),
    "versions": lambda m, o, ps: (o.state[ps[0]]["step"]._version > 0, _step(m, ps, o), o.state[ps[0]]["step"]._version > 1),
    "one of them rests": lambda m, o, ps: [o.zero_grad(), (ps[0] * 2).sum().backward(), o.step()],
    "double default": lambda m, o, ps: _with_doubles(m, o, ps),
}


def _with_doubles(m: Any, optimizer: Any, params: list[Any]) -> Any:
    m.set_default_dtype(m.float64)
    try:
        others, another = _start(m, type(optimizer).__name__)
        _step(m, others, another, 2)
        return _states(another)
    finally:
        m.set_default_dtype(m.float32)


def _program(m: Any, name: str, use: str) -> Any:
    params, optimizer = _start(m, name)
    _step(m, params, optimizer, 3)
    found = [USES[use](m, optimizer, params)]
    _step(m, params, optimizer, 2)
    return [*found, _states(optimizer), [_seen(p.detach()) for p in params]]


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("name", [n for n in NAMES if n != "SparseAdam"])
def test_uses_of_the_count(name: str, use: str) -> None:
    assert _program(ft, name, use) == _program(torch, name, use)


@pytest.mark.parametrize("name", NAMES)
def test_states_through_files(name: str) -> None:
    def program(m: Any) -> Any:
        params, optimizer = _start(m, name)
        _step(m, params, optimizer, 3)
        file = io.BytesIO()
        m.save(optimizer.state_dict(), file)
        file.seek(0)
        others, resumed = _start(m, name)
        resumed.load_state_dict(m.load(file))
        _step(m, others, resumed, 2)
        return [_states(optimizer), _states(resumed)]

    assert program(ft) == program(torch)


@pytest.mark.parametrize("name", NAMES)
def test_a_loaded_state_is_the_dicts_own(name: str) -> None:
    def program(m: Any) -> Any:
        params, optimizer = _start(m, name)
        _step(m, params, optimizer, 2)
        state = optimizer.state_dict()
        others, resumed = _start(m, name)
        resumed.load_state_dict(state)
        same = [{k: v is resumed.state[q][k] for k, v in optimizer.state[p].items() if hasattr(v, "dtype")} for p, q in zip(params, others, strict=True)]
        _step(m, others, resumed)
        return same, _states(optimizer), state["state"][0] is optimizer.state[params[0]]

    assert program(ft) == program(torch)


@pytest.mark.parametrize("fused", [None, True])
def test_counts_of_fused_steps(fused: bool | None) -> None:
    def program(m: Any) -> Any:
        params, optimizer = _start(m, "Adam", "float64", fused=fused)
        _step(m, params, optimizer, 2)
        state = optimizer.state_dict()
        for of_one in state["state"].values():
            of_one["step"] = of_one["step"].double()
        optimizer.load_state_dict(state)
        _step(m, params, optimizer, 1)
        return _states(optimizer)

    assert program(ft) == program(torch)


def test_numbers_of_older_files_become_tensors() -> None:
    def program(m: Any) -> Any:
        params, optimizer = _start(m, "Adam")
        _step(m, params, optimizer, 2)
        state = optimizer.state_dict()
        for of_one in state["state"].values():
            of_one["step"] = 2
        optimizer.load_state_dict(state)
        found = _states(optimizer)
        _step(m, params, optimizer, 1)
        return found, _states(optimizer)

    assert program(ft) == program(torch)


def test_hooks_stay_out_of_pickles() -> None:
    def program(m: Any) -> Any:
        params, optimizer = _start(m, "Adam")
        optimizer.register_step_post_hook(lambda *args: None)
        _step(m, params, optimizer, 1)
        again = pickle.loads(pickle.dumps(optimizer))
        _step(m, again.param_groups[0]["params"], again, 1)
        return _states(again), len(optimizer._optimizer_step_post_hooks), len(again._optimizer_step_post_hooks)

    assert program(ft) == program(torch)
