"""Everything that programs do with optimizers besides stepping, run in both frameworks: the same results, the same error types."""

from __future__ import annotations

import copy
import io
import pickle
import warnings

import pytest

import flambeau
from tests.nn.oracle import torch
from tests.nn.test_module_checklist import plain, tried

BOTH = (flambeau, torch)
NAMES = ["SGD", "Adam", "AdamW", "NAdam", "RAdam", "Adamax", "Adagrad", "Adadelta", "RMSprop", "Rprop", "ASGD", "Adafactor", "Muon", "LBFGS"]
FLAGS = ["foreach", "fused", "capturable", "differentiable", "maximize"]


def parameters(m):
    m.manual_seed(0)
    return [m.nn.Parameter(m.randn(2, 3)), m.nn.Parameter(m.randn(3, 2))]


def steps(m, name, count=3, **options):
    """Parameters after some steps on a fixed loss."""
    params = parameters(m)
    optimizer = getattr(m.optim, name)(params, **{"lr": 0.05, **options})
    for step in range(count):

        def closure(step=step):
            optimizer.zero_grad()
            loss = sum(((p - 0.1 * step) ** 2).sum() for p in params)
            loss.backward()
            return loss

        optimizer.step(closure)
    return params, optimizer


@pytest.mark.parametrize("name", NAMES)
def test_flags(name):
    """Flags that choose how PyTorch computes are accepted and change nothing; what cannot go together raises in both."""
    for flag in FLAGS:
        for value in (True, False):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                mine = tried(lambda f=flag, v=value: steps(flambeau, name, **{f: v}))
                theirs = tried(lambda f=flag, v=value: steps(torch, name, **{f: v}))
            if isinstance(theirs, Exception):
                if flag == "capturable" and isinstance(theirs, (AssertionError, RuntimeError)):
                    continue  # it asks for a CUDA device
                assert type(mine) is type(theirs), (flag, value, mine, theirs)
                continue
            assert not isinstance(mine, Exception), (flag, value, mine)
            for p, q in zip(mine[0], theirs[0], strict=True):
                assert p.tolist() == pytest.approx(q.detach().tolist(), rel=2e-4, abs=2e-5) if p.ndim < 2 else True
                flat = [x for row in p.tolist() for x in row]
                assert flat == pytest.approx([x for row in q.tolist() for x in row], rel=5e-4, abs=5e-5), (flag, value)
            assert {k: v for k, v in mine[1].defaults.items()} == {k: v for k, v in theirs[1].defaults.items()}  # noqa: C416


@pytest.mark.parametrize("name", ["Adam", "AdamW", "SGD", "Adagrad"])
def test_flags_that_exclude_each_other(name):
    results = [plain(tried(lambda m=m: getattr(m.optim, name)(parameters(m), fused=True, foreach=True))) for m in BOTH]
    assert results[0][0] == results[1][0] == "RuntimeError"
    results = [plain(tried(lambda m=m: getattr(m.optim, name)(parameters(m), fused=True, differentiable=True))) for m in BOTH]
    assert results[0][0] == results[1][0] == "RuntimeError"


def test_learning_rates_as_tensors():
    for m in BOTH:
        for name in ("SGD", "Adam", "AdamW", "RMSprop"):
            params, _ = steps(m, name, lr=m.tensor(0.05))
            plain_params, _ = steps(m, name, lr=0.05)
            assert params[0].flatten().tolist() == pytest.approx(plain_params[0].flatten().tolist(), rel=1e-5)
            lr = m.tensor(0.05)
            optimizer = getattr(m.optim, name)(parameters(m), lr=lr)
            assert optimizer.param_groups[0]["lr"] is lr


def groups(m):
    a, b = parameters(m)
    c = m.nn.Parameter(m.ones(1))
    o = m.optim.SGD([{"params": [a]}, {"params": b, "lr": 0.5, "momentum": 0.9}], lr=0.1)
    o.add_param_group({"params": c, "weight_decay": 0.1})
    calls = [
        lambda: o.add_param_group({"params": [a]}), lambda: o.add_param_group([c]), lambda: o.add_param_group({"params": [c * 2]}),
        lambda: o.add_param_group({"params": {a}}), lambda: o.add_param_group({"params": ["x"]}), lambda: m.optim.SGD([]), lambda: m.optim.SGD(a),
        lambda: m.optim.SGD([{"params": [a]}, {"params": [a]}]), lambda: m.optim.SGD([3]), lambda: m.optim.SGD({a, b}),
        lambda: m.optim.SGD([a], lr=-1.0), lambda: m.optim.Adam([a], betas=(2, 0)),
        lambda: m.optim.SGD([a], momentum=-1), lambda: m.optim.SGD([a], nesterov=True), lambda: m.optim.Adam([a], eps=-1),
        lambda: o.load_state_dict({"state": {}, "param_groups": []}), lambda: o.load_state_dict(m.optim.SGD([a], lr=1).state_dict()),
        lambda: m.optim.SGD([("n", a), b]),
        lambda: m.optim.SGD([("n", a), ("n", b)]), lambda: m.optim.Optimizer([a], {}).step(),
    ]  # fmt: skip
    named = m.optim.SGD([("w", a), ("v", b)], lr=0.1)
    return [[{k: v for k, v in g.items() if k != "params"} for g in o.param_groups], repr(o), o.state_dict(), named.state_dict(), repr(named)] + [
        plain(tried(c))[0] if isinstance(tried(c), Exception) else "no error" for c in calls
    ]


def hooks(m):
    from importlib import import_module

    seen = []
    base = import_module(f"{m.__name__}.optim.optimizer")
    a, _ = parameters(m)
    o = m.optim.Adam([a], lr=0.1)
    everywhere = [
        base.register_optimizer_step_pre_hook(lambda opt, args, kwargs: seen.append("global pre")),
        base.register_optimizer_step_post_hook(lambda opt, args, kwargs: seen.append("global post")),
    ]
    own = [
        o.register_step_pre_hook(lambda opt, args, kwargs: seen.append(("pre", len(args), sorted(kwargs)))),
        o.register_step_post_hook(lambda opt, args, kwargs: seen.append("post")),
        o.register_state_dict_pre_hook(lambda opt: seen.append("save pre")),
        o.register_state_dict_post_hook(lambda opt, state: {**state, "extra": 1}),
        o.register_state_dict_post_hook(lambda opt, state: seen.append("first"), prepend=True),
        o.register_load_state_dict_pre_hook(lambda opt, state: (seen.append(sorted(state)), {k: v for k, v in state.items() if k != "extra"})[1]),
        o.register_load_state_dict_post_hook(lambda opt: seen.append("loaded")),
    ]
    a.grad = m.ones(2, 3)
    o.step()
    state = o.state_dict()
    o.load_state_dict(state)
    out = [sorted(state), list(seen)]
    for h in everywhere + own:
        h.remove()
    del seen[:]
    o.step()
    return [*out, list(seen), sorted(o.state_dict()), plain(tried(lambda: o.register_step_pre_hook(lambda opt, args, kwargs: 3) and o.step()))[0]]


def own_optimizer(m):
    class Signs(m.optim.Optimizer):
        """As people write them: a step of their own, with state of any kind."""

        def __init__(self, params, lr=0.1):
            super().__init__(params, {"lr": lr})

        @m.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    state = self.state[p]
                    if not state:
                        state["step"] = 0
                        state["mean"] = m.zeros_like(p)
                    state["step"] += 1
                    state["mean"].mul_(0.5).add_(p.grad, alpha=0.5)
                    p.add_(state["mean"].sign(), alpha=-group["lr"])
            return "stepped"

    class More(Signs):
        def step(self, closure=None):
            return super().step(closure)

    seen = []
    out = []
    for kind in (Signs, More):
        a, _ = parameters(m)
        o = kind([a], lr=0.25)
        o.register_step_pre_hook(lambda opt, args, kwargs: seen.append(("pre", len(args), sorted(kwargs))))
        o.register_step_post_hook(lambda opt, args, kwargs: seen.append(("post", len(args))))
        schedule = m.optim.lr_scheduler.StepLR(o, 1)
        a.grad = m.ones(2, 3)
        out += [o.step(), o.step(None), o.step(closure=None), schedule.step(), a, list(seen), o.state_dict()]
        copied = copy.deepcopy(o)
        out += [copied.state[copied.param_groups[0]["params"][0]]["step"], o.load_state_dict(o.state_dict()), o.state[a]["step"]]
    return out


def zeroing(m):
    a, b = parameters(m)
    o = m.optim.SGD([a, b], lr=0.1)
    a.grad = m.ones(2, 3)
    o.zero_grad(set_to_none=False)
    out = [a.grad.tolist(), b.grad]
    o.zero_grad()
    return [*out, a.grad, o.step(), o.step(lambda: 5)]


def copies(m):
    a, b = parameters(m)
    o = m.optim.AdamW([a, b], lr=0.1, amsgrad=True)
    a.grad, b.grad = m.ones(2, 3), m.ones(3, 2)
    o.step()
    out = []
    for copier in (copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))):
        p = copier(o)
        q = p.param_groups[0]["params"][0]
        q.grad = m.ones(2, 3)
        p.step()
        out += [q is a, len(p.state), sorted(p.state[q]), float(p.state[q]["step"]), plain(q)]
    file = io.BytesIO()
    m.save(o.state_dict(), file)
    file.seek(0)
    fresh = m.optim.AdamW([a, b], lr=9.0)
    fresh.load_state_dict(m.load(file))
    return [*out, fresh.param_groups[0]["lr"], fresh.param_groups[0]["amsgrad"], plain(fresh.state[a]["exp_avg"])]


@pytest.mark.parametrize("call", [groups, hooks, own_optimizer, zeroing, copies], ids=lambda f: f.__name__)
def test_as_pytorch(call):
    mine, theirs = (plain(call(m)) for m in BOTH)
    for i, (a, b) in enumerate(zip(mine, theirs, strict=True)):
        assert a == b, f"{call.__name__}, item {i}"


@pytest.mark.parametrize("name", ["SGD", "Adam", "RMSprop", "Adagrad"])
def test_differentiable(name):
    """With differentiable=True a step is part of the history: the loss after it has gradients of what the step was made from."""
    results = []
    for m in BOTH:
        start = m.tensor([1.0, -2.0], requires_grad=True)
        weight = start.clone()
        optimizer = getattr(m.optim, name)([m.nn.Parameter(m.zeros(1))], lr=0.1, differentiable=True)
        optimizer.param_groups[0]["params"] = [weight]
        scale = m.tensor(2.0, requires_grad=True)
        weight.grad = scale * m.tensor([0.5, 1.0])
        optimizer.step()
        (weight**2).sum().backward()
        results.append([start.grad.tolist(), scale.grad.item()])
    assert results[0][0] == pytest.approx(results[1][0], rel=1e-4) and results[0][1] == pytest.approx(results[1][1], rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RAdam"])
def test_gradient_of_the_learning_rate(name):
    results = []
    for m in BOTH:
        lr = m.tensor(0.1, requires_grad=True)
        weight = m.tensor([1.0, -2.0], requires_grad=True).clone()
        optimizer = getattr(m.optim, name)([m.nn.Parameter(m.zeros(1))], lr=lr, differentiable=True, foreach=False)
        optimizer.param_groups[0]["params"] = [weight]
        for _ in range(2):
            weight.grad = m.tensor([0.5, 1.0])
            optimizer.step()
        (weight**2).sum().backward()
        results.append(lr.grad.item())
    assert results[0] == pytest.approx(results[1], rel=1e-4)


def test_swap_in():
    results = []
    for m in BOTH:
        model = m.nn.Linear(2, 1)
        with m.no_grad():
            model.weight.fill_(1.0)
            model.bias.fill_(0.0)
        optimizer = m.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        model(m.ones(1, 2)).sum().backward()
        optimizer.step()
        other = {"weight": m.full((1, 2), 5.0), "bias": m.zeros(1)}
        state = copy.deepcopy(optimizer.state_dict())
        state["param_groups"][0]["lr"] = 1.0
        with m.optim.swap_in_optimizer_params_and_state(optimizer, other, state):
            for p in other.values():
                p.grad = m.ones_like(p)
            optimizer.step()
        results.append([other["weight"].tolist(), model.weight.tolist(), optimizer.param_groups[0]["lr"], state["state"][0]["momentum_buffer"].tolist()])
        with pytest.raises(RuntimeError, match="parameter groups"), m.optim.swap_in_optimizer_params_and_state(optimizer, other, {**state, "param_groups": []}):
            pass
    assert plain(results[0]) == plain(results[1])


@pytest.mark.parametrize("name", "SGD Adam AdamW Adagrad Adamax NAdam RAdam RMSprop Rprop ASGD Adadelta".split())
def test_flags_that_do_not_go_with_the_parameters(name):
    """`fused` with other devices and dtypes, `foreach` with `differentiable`: the first step raises PyTorch's error."""
    for options in ({"fused": True}, {"foreach": True}, {"foreach": True, "differentiable": True}, {}):
        for device in ("cpu", "meta"):
            for dtype in ("float32", "complex64"):
                if (name, device) == ("ASGD", "meta"):
                    continue  # PyTorch's asks a tensor of the step for its number
                kinds = []
                for m in BOTH:

                    def call(m=m, options=options, device=device, dtype=dtype):
                        p = m.nn.Parameter(m.ones(3, device=device, dtype=getattr(m, dtype)))
                        optimizer = getattr(m.optim, name)([p], lr=0.1, **options)
                        p.grad = m.ones(3, device=device, dtype=getattr(m, dtype))
                        optimizer.step()

                    found = tried(call)
                    kinds.append(type(found).__name__ if isinstance(found, Exception) else "taken")
                assert kinds[0] == kinds[1], (options, device, dtype, kinds)
