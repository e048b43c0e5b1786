"""Everything that programs do with nn.Module besides computing, run in both frameworks: the same results, the same error texts."""

from __future__ import annotations

import copy
import pickle
import re
import warnings

import pytest

import flambeau
from tests.nn.oracle import torch

BOTH = (flambeau, torch)
SCENARIOS = []


def scenario(function):
    SCENARIOS.append(function)
    return function


def plain(x):
    """Tensors as lists, classes by name; errors by type and text."""
    if isinstance(x, (flambeau.Tensor, torch.Tensor)):
        return (str(x.dtype), tuple(x.shape), x.requires_grad, plain(x.detach().tolist()))
    if isinstance(x, float):
        return float(f"{x:.5g}")
    if isinstance(x, Exception):
        text = str(x).replace("flambeau", "torch").split("\n[in module")[0].split(" Please file an issue")[0]
        return (type(x).__name__, re.sub(r"^[A-Z]\w+\(\): ", "", text.split("object at")[0]))  # ours names the class whose constructor it is
    if isinstance(x, dict):
        return {str(k): plain(v) for k, v in x.items()}
    if isinstance(x, (list, tuple)):
        return [plain(v) for v in x]
    if isinstance(x, (flambeau.nn.Module, torch.nn.Module, flambeau.dtype, torch.dtype)):
        return repr(x)
    return x


def tried(call):
    """The result of a call, or its error."""
    try:
        return call()
    except Exception as error:
        return error


def net(m):
    m.manual_seed(0)
    return m.nn.Sequential(m.nn.Linear(2, 3), m.nn.Sequential(m.nn.BatchNorm1d(3), m.nn.ReLU()), m.nn.Linear(3, 1))


@scenario
def registration(m):
    a = m.nn.Module()
    a.p = m.nn.Parameter(m.ones(1))
    a.register_parameter("none", None)
    a.register_buffer("b", m.zeros(1))
    a.register_buffer("hidden", m.ones(2), persistent=False)
    a.register_buffer("nothing", None)
    a.child = m.nn.Linear(1, 1, bias=False)
    a.add_module("empty", None)
    a.plain = m.ones(1)
    out = [list(a._parameters), list(a._buffers), list(a._modules), a._non_persistent_buffers_set, [n for n, _ in a.named_parameters()],
           [n for n, _ in a.named_buffers()], [n for n, _ in a.named_modules()], [n for n, _ in a.named_children()], list(a.state_dict())]  # fmt: skip
    a.none = m.nn.Parameter(m.ones(2))
    a.b = m.ones(3)
    a.nothing = m.ones(1)
    a.p = None
    a.child = m.nn.ReLU()
    a.empty = m.nn.ReLU()
    out += [a.none, a.b, a.p, repr(a), list(a.state_dict())]
    a.child = None
    a.hidden = m.zeros(1)
    del a.b, a.none, a.empty
    out += [list(a.state_dict()), a._non_persistent_buffers_set, hasattr(a, "b"), sorted(set(dir(a)) & {"p", "plain", "hidden", "child"})]
    a.plain = m.nn.Parameter(m.ones(1))  # an attribute becomes a parameter
    a.q = m.ones(1)
    a.register_buffer("r", a.q)
    a.hidden = m.nn.Parameter(m.ones(1))  # a buffer becomes a parameter
    out += ["plain" in a.__dict__, list(a._parameters), list(a._buffers), a._non_persistent_buffers_set]
    a.mod = m.nn.ReLU()
    a.mod = m.nn.Parameter(m.ones(1))
    a.p = m.nn.Parameter(m.ones(1))
    a.buf = m.nn.Buffer(m.ones(1))
    a.buf2 = m.nn.Buffer(m.ones(1), persistent=False)
    return [*out, list(a._modules), list(a._parameters), list(a._buffers), list(a.state_dict())]


@scenario
def registration_errors(m):
    a = m.nn.Module()
    a.w = m.nn.Parameter(m.ones(1))
    a.l = m.nn.Linear(1, 1)
    a.register_buffer("b", m.ones(1))
    a.x = 1

    class Early(m.nn.Module):
        def __init__(self, what):
            what(self)

    calls = [
        lambda: setattr(a, "w", m.ones(1)), lambda: setattr(a, "l", 3), lambda: setattr(a, "b", "text"), lambda: a.register_buffer("x", m.ones(1)),
        lambda: a.register_buffer("a.b", m.ones(1)), lambda: a.register_buffer("", m.ones(1)), lambda: a.register_buffer(3, m.ones(1)),
        lambda: a.register_buffer("c", 3), lambda: a.register_parameter("x", m.nn.Parameter(m.ones(1))), lambda: a.register_parameter("y", m.ones(1)),
        lambda: a.register_parameter("y", a.w * 2), lambda: a.register_parameter("y.z", None), lambda: a.register_parameter("", None),
        lambda: a.register_parameter(2, None), lambda: a.add_module("x", m.nn.ReLU()), lambda: a.add_module("m.n", m.nn.ReLU()),
        lambda: a.add_module("", m.nn.ReLU()), lambda: a.add_module("k", 3), lambda: a.add_module(3, m.nn.ReLU()), lambda: a.missing,
        lambda: delattr(a, "missing"), lambda: a(1), lambda: m.nn.Module(1), lambda: m.nn.Module(x=1),
        lambda: Early(lambda s: setattr(s, "p", m.nn.Parameter(m.ones(1)))), lambda: Early(lambda s: setattr(s, "p", m.nn.ReLU())),
        lambda: Early(lambda s: s.register_buffer("p", m.ones(1))), lambda: Early(lambda s: s.register_parameter("p", None)),
        lambda: a.train(3), lambda: a.to(m.int32), lambda: a.get_extra_state(), lambda: a.set_extra_state(3), lambda: a.load_state_dict(3),
        lambda: setattr(a, "w", m.nn.ReLU()), lambda: a.type("torch.DoubleTensor").b,
    ]  # fmt: skip
    return [tried(c) for c in calls]


@scenario
def paths(m):
    a = net(m)
    a.register_buffer("buf", m.ones(1))
    good = ["", "0", "1", "1.0", "1.1"]
    bad = ["9", "1.9", "0.weight", "1.0.weight.x", "0.bias.x"]
    out = [tried(lambda p=p: a.get_submodule(p)) for p in good + bad]
    out += [tried(lambda p=p: a.get_parameter(p)) for p in ("0.weight", "1.0.bias", "0.nope", "1.0.running_mean", "7.x", "")]
    out += [tried(lambda p=p: a.get_buffer(p)) for p in ("buf", "1.0.running_mean", "0.weight", "nope")]
    a.set_submodule("1.1", m.nn.Tanh())
    a.set_submodule("1.new", m.nn.GELU())
    out += [repr(a)]
    out += [tried(lambda: a.set_submodule("", m.nn.ReLU())), tried(lambda: a.set_submodule("1.zzz", m.nn.ReLU(), strict=True))]
    return [*out, tried(lambda: a.set_submodule("q.r", m.nn.ReLU())), tried(lambda: a.set_submodule("1.1", 3))]


@scenario
def traversal_with_sharing(m):
    a = net(m)
    a.again = a[0]
    a.tied = a[2].weight
    out = []
    for duplicates in (True, False):
        out += [[n for n, _ in a.named_parameters(remove_duplicate=duplicates)], [n for n, _ in a.named_modules(remove_duplicate=duplicates)],
                [n for n, _ in a.named_buffers("pre", remove_duplicate=duplicates)]]  # fmt: skip
    out += [[n for n, _ in a.named_parameters("x", recurse=False)], len(list(a.parameters())), len(list(a.modules())), len(list(a.children()))]
    order = []
    a.apply(lambda module: order.append(type(module).__name__))
    return [*out, order, list(a.state_dict())]


@scenario
def conversions(m):
    a = net(m)
    a.register_buffer("count", m.arange(2))
    weight = a[0].weight
    out = []
    for change in ("half", "double", "bfloat16", "float"):
        getattr(a, change)()
        out.append([str(p.dtype) for p in a.state_dict().values()])
    out += [a[0].weight is weight, a.to(m.float64) is a, str(a[0].weight.dtype), str(a.count.dtype)]
    a.to("cpu", m.float32)
    a.to(m.ones(1, dtype=m.float16))
    out += [str(a[0].weight.dtype)]
    a.float().requires_grad_(False)
    out += [[p.requires_grad for p in a.parameters()]]
    a.requires_grad_()
    a.train()
    a(m.ones(4, 2)).sum().backward()
    out += [a[0].weight.grad is not None]
    a.zero_grad(set_to_none=False)
    out += [a[0].weight.grad]
    a.zero_grad()
    out += [a[0].weight.grad, [x.training for x in a.eval().modules()], [x.training for x in a.train().modules()]]
    a.to_empty(device="cpu")
    return [*out, [tuple(p.shape) for p in a.parameters()], a.type(m.float64)[0].bias.dtype]


@scenario
def state_dicts(m):
    a = net(m)
    state = a.state_dict()
    out = [type(state).__name__, dict(state._metadata), list(a.state_dict(prefix="p.")), [v.requires_grad for v in state.values()],
           [v.requires_grad for v in a.state_dict(keep_vars=True).values()], a.state_dict(keep_vars=True)["0.weight"] is a[0].weight]  # fmt: skip
    own = {}
    out += [a.state_dict(destination=own, prefix="q.") is own, list(own)]
    b = net(m)
    with m.no_grad():
        b[0].weight.zero_()
    out += [b.load_state_dict(state), repr(b.load_state_dict(state)), b[0].weight]
    partial = {k: v for k, v in state.items() if not k.startswith("0.")}
    partial["zzz.x"] = m.ones(1)
    partial["1.0.extra"] = m.ones(1)
    out += [tried(lambda: b.load_state_dict(partial)), tried(lambda: b.load_state_dict(partial, strict=False))]
    wrong = {**state, "0.weight": m.ones(5, 5), "2.bias": 3}
    out += [tried(lambda: b.load_state_dict(wrong)), tried(lambda: b.load_state_dict(wrong, strict=False))]
    fresh = net(m).requires_grad_(False)
    given = {k: v.clone() for k, v in state.items()}
    fresh.load_state_dict(given, assign=True)
    out += [fresh[0].weight.data_ptr() == given["0.weight"].data_ptr(), fresh[0].weight.requires_grad, type(fresh[0].weight).__name__]
    out += [fresh.load_state_dict({k: v.double() for k, v in state.items()}, assign=True), str(fresh[0].weight.dtype)]
    scalar = m.nn.Module()
    scalar.s = m.nn.Parameter(m.tensor(1.0))
    return [*out, scalar.load_state_dict({"s": m.tensor([3.0])}), scalar.s]


@scenario
def extra_state(m):
    class Extra(m.nn.Module):
        def __init__(self):
            super().__init__()
            self.value = 0

        def get_extra_state(self):
            return {"value": self.value}

        def set_extra_state(self, state):
            self.value = state["value"]

    a = m.nn.Sequential(Extra(), m.nn.ReLU())
    a[0].value = 7
    state = a.state_dict()
    b = m.nn.Sequential(Extra(), m.nn.ReLU())
    out = [dict(state), b.load_state_dict(state), b[0].value]
    return [*out, tried(lambda: b.load_state_dict({})), tried(lambda: m.nn.Sequential(m.nn.ReLU()).load_state_dict(state))]


@scenario
def state_dict_hooks(m):
    a = m.nn.Sequential(m.nn.Linear(1, 1))
    seen = []

    def forget(module, keys):
        seen.append(("post", list(keys.missing_keys), list(keys.unexpected_keys)))
        keys.unexpected_keys.clear()

    handles = [
        a.register_state_dict_pre_hook(lambda module, prefix, keep: seen.append(("pre", prefix, keep))),
        a[0].register_state_dict_post_hook(lambda module, state, prefix, meta: state.__setitem__(prefix + "extra", 5)),
        a._register_state_dict_hook(lambda module, state, prefix, meta: {**state, "top": 1}),
        a.register_load_state_dict_pre_hook(lambda module, state, prefix, meta, strict, *lists: seen.append(("load", sorted(state), strict))),
        a[0]._register_load_state_dict_pre_hook(lambda state, prefix, *rest: state.pop(prefix + "extra", None)),
        a.register_load_state_dict_post_hook(forget),
    ]  # fmt: skip
    state = a.state_dict()
    out = [dict(state), a.load_state_dict(state), seen]
    for h in handles:
        h.remove()
    bad = a.register_load_state_dict_post_hook(lambda module, keys: 3)
    out.append(tried(lambda: a.load_state_dict(a.state_dict())))
    bad.remove()
    a[0].register_state_dict_post_hook(lambda *args: 3)
    return [*out, tried(a.state_dict)]


@scenario
def overridden_saving(m):
    class Custom(m.nn.Module):
        _version = 3

        def __init__(self):
            super().__init__()
            self.w = m.nn.Parameter(m.ones(1))

        def _save_to_state_dict(self, destination, prefix, keep_vars):
            super()._save_to_state_dict(destination, prefix, keep_vars)
            destination[prefix + "note"] = m.tensor([2.0])

        def _load_from_state_dict(self, state, prefix, meta, strict, missing, unexpected, errors):
            self.read = (meta.get("version"), state.pop(prefix + "note").item())
            super()._load_from_state_dict(state, prefix, meta, strict, missing, unexpected, errors)

    a = m.nn.Sequential(Custom())
    state = a.state_dict()
    b = m.nn.Sequential(Custom())
    return [dict(state), dict(state._metadata), b.load_state_dict(state), b[0].read, tried(lambda: Custom().load_state_dict(dict(a[0].state_dict())))]


@scenario
def forward_hooks(m):
    class Scale(m.nn.Module):
        def forward(self, x, by=1.0):
            if by < 0:
                raise ValueError("negative")
            return x * by

    a = Scale()
    seen = []
    x = m.ones(2)
    handles = [
        a.register_forward_pre_hook(lambda module, args: seen.append("pre1")),
        a.register_forward_pre_hook(lambda module, args: (args[0] + 1,)),
        a.register_forward_pre_hook(lambda module, args, kwargs: (args, {**kwargs, "by": kwargs.get("by", 1.0) * 2}), with_kwargs=True),
        a.register_forward_pre_hook(lambda module, args: seen.append("first"), prepend=True),
        a.register_forward_hook(lambda module, args, result: seen.append(("post", result.tolist()))),
        a.register_forward_hook(lambda module, args, kwargs, result: result + kwargs["by"], with_kwargs=True),
        a.register_forward_hook(lambda module, args, result: seen.append(("always", result is None)), always_call=True),
    ]  # fmt: skip
    out = [a(x), a(x, by=3.0), tried(lambda: a(x, by=-1.0)), list(seen)]
    handles[1].remove()
    out += [a(x)]
    with handles[2]:
        pass
    handles[5].remove()
    out += [a(x, by=5.0), len(a._forward_pre_hooks), len(a._forward_hooks), len(a._forward_pre_hooks_with_kwargs), len(a._forward_hooks_always_called)]
    single = Scale()
    single.register_forward_pre_hook(lambda module, args: args[0] * 5)
    bad = Scale()
    bad.register_forward_pre_hook(lambda module, args, kwargs: 3, with_kwargs=True)
    return [*out, single(x), tried(lambda: bad(x))]


@scenario
def global_hooks(m):
    seen = []
    from importlib import import_module

    module = import_module(f"{m.__name__}.nn.modules.module")
    handles = [
        module.register_module_forward_pre_hook(lambda mod, args: seen.append(("pre", type(mod).__name__))),
        module.register_module_forward_hook(lambda mod, args, result: seen.append(("post", type(mod).__name__))),
        module.register_module_forward_hook(lambda mod, args, kwargs, result: seen.append(("kw", sorted(kwargs))), with_kwargs=True),
        module.register_module_full_backward_pre_hook(lambda mod, grad: seen.append(("bpre", type(mod).__name__))),
        module.register_module_full_backward_hook(lambda mod, gi, go: seen.append(("back", type(mod).__name__, len(gi), len(go)))),
        module.register_module_buffer_registration_hook(lambda mod, name, buffer: seen.append(("buffer", name))),
        module.register_module_module_registration_hook(lambda mod, name, sub: seen.append(("module", name, type(sub).__name__))),
        module.register_module_parameter_registration_hook(lambda mod, name, p: m.nn.Parameter(m.full_like(p, 0.5)) if name == "weight" else None),
    ]  # fmt: skip
    a = m.nn.Sequential(m.nn.Linear(2, 1), m.nn.ReLU())
    x = m.ones(1, 2, requires_grad=True)
    a(x).sum().backward()
    out = [a[0].weight.tolist(), list(seen)]
    b = m.nn.Module()
    b.child = m.nn.ReLU()
    b.register_module("other", m.nn.Tanh())
    b.register_buffer("buf", m.ones(1))
    b.assigned = m.nn.Buffer(m.ones(1))
    out.append(seen[len(out[1]) :])
    for h in handles:
        h.remove()
    del seen[:]
    a(x).sum().backward()
    return [*out, seen, tried(lambda: m.nn.Linear(1, 1).weight.tolist() == [[0.5]])]


@scenario
def backward_hooks(m):
    m.manual_seed(1)
    a = m.nn.Sequential(m.nn.Linear(2, 2), m.nn.Tanh())
    seen = []
    handles = [
        a[0].register_full_backward_hook(lambda mod, gi, go: seen.append(("linear", gi[0] is None, go[0]))),
        a[1].register_full_backward_hook(lambda mod, gi, go: (gi[0] * 2,)),
        a[1].register_full_backward_hook(lambda mod, gi, go: seen.append("tanh first"), prepend=True),
        a.register_full_backward_pre_hook(lambda mod, go: (go[0] * 3,)),
        a.register_full_backward_pre_hook(lambda mod, go: seen.append("pre first"), prepend=True),
    ]  # fmt: skip
    x = m.ones(1, 2)
    a(x).sum().backward()
    out = [a[0].weight.grad, list(seen)]
    y = m.ones(1, 2, requires_grad=True)
    a(y).sum().backward()
    out += [y.grad, len(seen)]
    handles[1].remove()
    a(y).sum().backward()
    out += [y.grad]

    class Two(m.nn.Module):
        def forward(self, a, b):
            return a * b, a + b

    two = Two()
    two.register_full_backward_hook(lambda mod, gi, go: (gi[0] + 1, gi[1] + 2))
    p, q = m.ones(2, requires_grad=True), m.full((2,), 3.0, requires_grad=True)
    r, s = two(p, q)
    (r.sum() + s.sum() * 2).backward()
    bad = Two()
    bad.register_full_backward_hook(lambda mod, gi, go: (gi[0],))
    return [*out, p.grad, q.grad, tried(lambda: sum(t.sum() for t in bad(p, q)).backward())]


@scenario
def texts(m):
    class Named(m.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = m.nn.ModuleList([m.nn.Linear(1, 2), m.nn.ReLU(), m.nn.ReLU()])
            self.table = m.nn.ModuleDict({"a": m.nn.Conv2d(1, 2, 3, padding=1), "b": m.nn.Dropout(0.3)})
            self.numbers = m.nn.ParameterList([m.ones(2), m.zeros(1, 2)])
            self.entries = m.nn.ParameterDict({"k": m.ones(3)})

        def extra_repr(self):
            return "first=1,\nsecond=2"

    class Short(m.nn.Module):
        def extra_repr(self):
            return "n=3"

        def _get_name(self):
            return "Renamed"

    return [repr(Named()), repr(Short()), repr(m.nn.Sequential()), str(m.nn.Module()), m.nn.Module().extra_repr()]


@scenario
def copies(m):
    a = net(m)
    a.note = [1, 2]
    a.register_forward_hook(_noop)
    a[0].tied = a[2].weight
    out = []
    for copier in (copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))):
        b = copier(a)
        b[0].weight.data.zero_()
        out += [b[0].tied is b[2].weight, a[0].weight.tolist(), b.note, b.note is a.note, len(b._forward_hooks), list(b.state_dict())]
    shallow = copy.copy(a)
    out += [shallow[0] is a[0], shallow._modules is a._modules]
    old = m.nn.Linear(1, 1)
    state = old.__dict__.copy()
    for table in ("_forward_hooks_with_kwargs", "_non_persistent_buffers_set", "_backward_pre_hooks", "_state_dict_pre_hooks", "_is_full_backward_hook"):
        state.pop(table)
    again = m.nn.Linear.__new__(m.nn.Linear)
    again.__setstate__(state)
    return [*out, again(m.zeros(1)).shape == (1,), again._non_persistent_buffers_set]


def _noop(module, args, result):
    return None


@scenario
def containers(m):
    s = m.nn.Sequential(m.nn.Linear(1, 1), m.nn.ReLU())
    s.append(m.nn.Tanh())
    s.insert(0, m.nn.Identity())
    s.extend([m.nn.GELU(), m.nn.SiLU()])
    out = [repr(s), len(s), repr(s[1:3]), repr(s[-1]), repr(s + m.nn.Sequential(m.nn.ReLU())), repr(m.nn.Sequential(m.nn.ReLU()) * 2)]
    del s[0]
    popped = s.pop(0)
    s[0] = m.nn.ELU()
    out += [repr(s), repr(popped), tried(lambda: s[9]), tried(lambda: s + 3), tried(lambda: s * 0), tried(lambda: m.nn.Sequential(3))]
    items = m.nn.ModuleList([m.nn.ReLU()])
    items += [m.nn.Tanh()]
    items.insert(1, m.nn.GELU())
    items.extend(m.nn.ModuleList([m.nn.SiLU()]))
    del items[0]
    joined = items.__add__([m.nn.ReLU()])
    out += [repr(items), len(items), repr(items[0:2]), repr(joined), tried(lambda: items(1)), tried(lambda: items.append(3)), repr(items.pop(-1))]
    d = m.nn.ModuleDict([["a", m.nn.ReLU()], ["b", m.nn.Tanh()]])
    d.update({"c": m.nn.GELU()})
    d["d"] = m.nn.SiLU()
    out += [list(d), repr(d.pop("a")), list(d.keys()), [type(v).__name__ for v in d.values()], "b" in d, len(d)]
    out += [tried(lambda: d["z"]), tried(lambda: d.update(3))]
    d.clear()
    p = m.nn.ParameterList([m.ones(1), m.nn.Parameter(m.zeros(2))])
    p.append(m.ones(3))
    q = m.nn.ParameterDict({"x": m.ones(1)})
    q["y"] = m.ones(2)
    q.setdefault("z", m.zeros(1))
    return [*out, len(d), repr(p), repr(q), list(q.state_dict()), list(p.state_dict()), [type(v).__name__ for v in q.values()], q.get("nope", 4), sorted(q | q)]


@pytest.mark.parametrize("call", SCENARIOS, ids=lambda f: f.__name__)
def test_as_pytorch(call):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mine, theirs = (plain(call(m)) for m in BOTH)
    for i, (a, b) in enumerate(zip(mine, theirs, strict=True)):
        assert a == b, f"{call.__name__}, item {i}"
