"""Optimizers against PyTorch: the same steps, the same state_dict, and each can go on from the other's file."""

from __future__ import annotations

import copy

import pytest

import flambeau
from tests.nn.oracle import close, ours, torch

CASES = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    ("SGD", {"lr": 0.01, "momentum": 0.9, "dampening": 0.1, "maximize": True}),
    ("Adam", {}),
    ("Adam", {"amsgrad": True, "weight_decay": 0.1}),
    ("AdamW", {"weight_decay": 0.3}),
    ("RMSprop", {}),
    ("RMSprop", {"momentum": 0.9, "centered": True, "weight_decay": 0.1}),
    ("Adagrad", {"lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.2}),
    ("Adadelta", {"weight_decay": 0.1}),
    ("Adamax", {"weight_decay": 0.1}),
    ("NAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("RAdam", {"lr": 0.1}),
    ("Rprop", {}),
    ("ASGD", {"lambd": 0.1, "t0": 3, "weight_decay": 0.1}),
]
STEPS = 7


def start():
    torch.manual_seed(0)
    return [torch.randn(3, 4), torch.randn(4)]


def run(module, name, kwargs, values, state=None):
    """(parameters, optimizer) after some steps on a fixed quadratic."""
    params = [v.clone().requires_grad_() for v in values]
    optimizer = getattr(module, name)(params, **kwargs)
    if state is not None:
        optimizer.load_state_dict(state)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = sum(((p - 0.3 * step) ** 2).sum() for p in params) * 0.1
        loss.backward()
        optimizer.step()
    return params, optimizer


@pytest.mark.parametrize(("name", "kwargs"), CASES)
def test_steps_state_and_resuming(name, kwargs):
    mine, our_optimizer = run(flambeau.optim, name, kwargs, ours(start()))
    theirs, their_optimizer = run(torch.optim, name, kwargs, start())
    for p, q in zip(mine, theirs, strict=True):
        close(p, q, 3e-6)
    a, b = our_optimizer.state_dict(), their_optimizer.state_dict()
    assert a["param_groups"] == b["param_groups"]
    assert repr(our_optimizer) == repr(their_optimizer)
    for key, state in b["state"].items():
        assert list(a["state"][key]) == list(state)
        for field, value in state.items():
            if isinstance(value, torch.Tensor):
                close(a["state"][key][field], value, 1e-5)
    mine, _ = run(flambeau.optim, name, kwargs, ours([q.detach() for q in theirs]), ours(copy.deepcopy(b)))
    theirs, _ = run(torch.optim, name, kwargs, [q.detach() for q in theirs], b)
    for p, q in zip(mine, theirs, strict=True):
        close(p, q, 3e-5)


@pytest.mark.parametrize("kwargs", [{"max_iter": 4}, {"line_search_fn": "strong_wolfe", "max_iter": 4}])
def test_lbfgs(kwargs):
    results = []
    for module, values in ((flambeau, ours([v.double() for v in start()])), (torch, [v.double() for v in start()])):
        params = [v.requires_grad_() for v in values]
        optimizer = module.optim.LBFGS(params, **kwargs)

        def closure(params=params, optimizer=optimizer):
            optimizer.zero_grad()
            loss = sum(((p - 1) ** 2 + 0.1 * p**4).sum() for p in params)
            loss.backward()
            return loss

        results.append([optimizer.step(closure).item() for _ in range(3)])
    assert results[0] == pytest.approx(results[1], rel=1e-9)


def parameters():
    return [flambeau.nn.Parameter(flambeau.ones(2)), flambeau.nn.Parameter(flambeau.ones(3))]


def test_groups():
    a, b = parameters()
    optimizer = flambeau.optim.SGD([{"params": [a]}, {"params": b, "lr": 0.5}], lr=0.1)
    a.grad, b.grad = flambeau.ones(2), flambeau.ones(3)
    optimizer.step()
    assert a.tolist() == pytest.approx([0.9, 0.9]) and b.tolist() == [0.5, 0.5, 0.5]
    named = flambeau.optim.SGD([("first", a), ("second", b)])
    assert named.state_dict()["param_groups"][0]["param_names"] == ["first", "second"]


def test_a_parameter_without_gradient_stays_and_may_join_later():
    a, b = parameters()
    optimizer = flambeau.optim.Adam([a, b], lr=0.1)
    for step in range(3):
        a.grad = flambeau.ones(2)
        b.grad = flambeau.ones(3) if step == 2 else None
        optimizer.step()
    assert [optimizer.state[p]["step"] for p in (a, b)] == [3, 1]
    assert b.tolist() == pytest.approx([0.9] * 3, rel=1e-4)


def test_errors():
    a, b = parameters()
    sgd = flambeau.optim.SGD
    with pytest.raises(ValueError, match="empty parameter list"):
        sgd([])
    with pytest.raises(TypeError, match="should be an iterable of Tensors"):
        sgd(a)
    with pytest.raises(ValueError, match="non-leaf"):
        sgd([a * 1])
    with pytest.raises(ValueError, match="more than one parameter group"):
        sgd([{"params": [a]}, {"params": [a]}])
    with pytest.raises(TypeError, match="in sets"):
        sgd([{"params": {a, b}}])
    with pytest.raises(ValueError, match="Invalid learning rate: -1"):
        sgd([a], lr=-1)
    with pytest.raises(ValueError, match="Invalid beta parameter at index 0"):
        flambeau.optim.Adam([a], betas=(1.0, 0.9))
    with pytest.raises(ValueError, match="doesn't match the size"):
        sgd([a, b]).load_state_dict(sgd([a]).state_dict())


def test_hooks_and_closure():
    (a, _) = parameters()
    optimizer = flambeau.optim.SGD([a], lr=0.1)
    seen = []
    optimizer.register_step_pre_hook(lambda o, args, kwargs: seen.append("pre"))
    optimizer.register_step_post_hook(lambda o, args, kwargs: seen.append("post"))

    def closure():
        optimizer.zero_grad()
        loss = (a * a).sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 2.0
    assert seen == ["pre", "post"] and a.tolist() == pytest.approx([0.8, 0.8])


def test_parameters_keep_their_memory():
    (a, _) = parameters()
    view = a.detach()
    optimizer = flambeau.optim.Adam([a], lr=0.1)
    a.grad = flambeau.ones(2)
    optimizer.step()
    assert view.tolist() == a.tolist()


def test_steady_state_makes_no_plan():
    a, b = parameters()
    optimizer = flambeau.optim.Adam([a, b], lr=0.1)
    schedule = flambeau.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)

    def step():
        optimizer.zero_grad()
        ((a * a).sum() + (b * b).sum()).backward()
        optimizer.step()
        schedule.step()

    for _ in range(16):  # more than 4 where other programs of this process have begun alike and stayed in pieces (trace/kept.py)
        step()
    for _ in range(3):  # a plan may just be forgotten: other tests of this process have made thousands
        before = flambeau.stats()
        for _ in range(5):
            step()
        after = flambeau.stats()
        more = [name for name in ("plans_made", "kernels_compiled", "slow_path_entries") if after[name] != before[name]]
        if not more or after["plans_forgotten"] == before["plans_forgotten"]:
            break
    assert more == []
