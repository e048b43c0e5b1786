"""Module: registration, errors, hooks, state_dict, conversion, copies, and the module's path in error messages."""

from __future__ import annotations

import copy
import pickle

import pytest

import flambeau as torch
from flambeau import nn
from tests.nn.oracle import torch as oracle


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(3, 2)
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(3, 4), nn.ReLU())])
        self.register_buffer("scale", torch.ones(2), persistent=False)
        self.register_buffer("shift", torch.zeros(2))

    def forward(self, x):
        return self.blocks[0](x)


def test_error_names_the_module_path():
    with pytest.raises(RuntimeError, match=r"\[in module 'blocks\.0\.0' \(Linear\) of Net\]$"):
        Net()(torch.ones(2, 5))
    with pytest.raises(RuntimeError, match=r"\[in module Linear\]$"):
        nn.Linear(3, 2)(torch.ones(2, 5))


def test_errors_with_other_arguments_are_left_alone():
    class Own(RuntimeError):
        pass

    class Raises(nn.Module):
        def __init__(self, error):
            super().__init__()
            self.error = error

        def forward(self):
            raise self.error

    for error in (Own("text"), KeyError("k"), RuntimeError("a", 1)):
        before = error.args
        with pytest.raises(type(error)):
            Raises(error)()
        assert error.args == before


def test_registration():
    net = Net()
    assert [n for n, _ in net.named_parameters()] == ["fc1.weight", "fc1.bias", "blocks.0.0.weight", "blocks.0.0.bias"]
    assert [n for n, _ in net.named_buffers()] == ["scale", "shift"]
    assert [n for n, _ in net.named_modules()] == ["", "fc1", "blocks", "blocks.0", "blocks.0.0", "blocks.0.1"]
    assert net.get_submodule("blocks.0.0") is net.blocks[0][0]
    assert net.get_parameter("fc1.weight") is net.fc1.weight
    assert net.get_buffer("shift") is net.shift
    with pytest.raises(AttributeError, match="has no attribute `nothing`"):
        net.get_submodule("blocks.nothing")
    with pytest.raises(AttributeError, match="'Net' object has no attribute 'missing'"):
        net.missing
    net.tied = net.fc1
    assert len(list(net.parameters())) == 4
    del net.tied
    net.fc1 = None
    assert len(list(net.parameters())) == 2


def test_registration_errors():
    net = Net()
    with pytest.raises(TypeError, match="cannot assign 'str' as parameter 'weight'"):
        net.fc1.weight = "x"
    with pytest.raises(TypeError, match="as child module 'fc1'"):
        net.fc1 = 3
    with pytest.raises(KeyError, match=r"can.*t contain"):
        net.register_buffer("a.b", torch.ones(1))
    with pytest.raises(KeyError, match="already exists"):
        net.register_parameter("forward", nn.Parameter(torch.ones(1)))
    with pytest.raises(TypeError, match="object to parameter 'x'"):
        net.register_parameter("x", net.fc1.weight * 1)

    class Early(nn.Module):
        def __init__(self):
            self.fc = nn.Linear(2, 2)

    with pytest.raises(AttributeError, match=r"before Module.__init__\(\) call"):
        Early()


def test_buffer_class():
    m = nn.Module()
    m.kept = nn.Buffer(torch.zeros(1))
    m.passing = nn.Buffer(torch.ones(1), persistent=False)
    assert sorted(n for n, _ in m.named_buffers()) == ["kept", "passing"]
    assert list(m.state_dict()) == ["kept"]
    m.kept = torch.ones(2)
    assert m.state_dict()["kept"].tolist() == [1.0, 1.0]


def test_load_state_dict():
    net = Net()
    state = Net().state_dict()
    assert str(net.load_state_dict(state)) == "<All keys matched successfully>"
    assert net.fc1.weight.tolist() == state["fc1.weight"].tolist()
    with pytest.raises(RuntimeError) as error:
        net.load_state_dict({"fc1.weight": torch.zeros(3, 3), "zz": torch.zeros(1)})
    text = str(error.value)
    assert text.startswith("Error(s) in loading state_dict for Net:")
    assert 'Missing key(s) in state_dict: "shift", "fc1.bias"' in text
    assert 'Unexpected key(s) in state_dict: "zz"' in text
    assert "size mismatch for fc1.weight: copying a param with shape torch.Size([3, 3]) from checkpoint" in text
    keys = net.load_state_dict({"zz": torch.zeros(1)}, strict=False)
    assert keys.unexpected_keys == ["zz"] and "fc1.bias" in keys.missing_keys
    assigned = {k: v.double() for k, v in state.items()}
    net.load_state_dict(assigned, assign=True)
    assert net.fc1.weight.dtype is torch.float64 and isinstance(net.fc1.weight, nn.Parameter)


def test_state_dict_shares_memory():
    layer = nn.Linear(2, 2)
    layer.state_dict()["weight"].zero_()
    assert layer.weight.tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert not layer.state_dict()["weight"].requires_grad


def test_forward_hooks():
    net = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    seen = []
    net[0].register_forward_pre_hook(lambda m, args: seen.append("pre"))
    net[0].register_forward_hook(lambda m, args, out: seen.append("post"))
    first = net[0].register_forward_hook(lambda m, args, out: seen.append("first"), prepend=True)
    net.register_forward_hook(lambda m, args, kwargs, out: out * 0, with_kwargs=True)
    assert net(torch.ones(1, 3)).tolist() == [[0.0, 0.0]]
    first.remove()
    net(torch.ones(1, 3))
    assert seen == ["pre", "first", "post", "pre", "post"]


def test_always_called_hook():
    net = nn.Linear(3, 2)
    seen = []
    net.register_forward_hook(lambda m, args, out: seen.append(out), always_call=True)
    with pytest.raises(RuntimeError):
        net(torch.ones(1, 5))
    assert seen == [None]


def test_global_hooks():
    seen = []
    handle = nn.modules.module.HookMixin  # the flag stays set: correctness must not depend on it
    from flambeau.nn.modules.hooks import register_module_forward_hook

    with register_module_forward_hook(lambda m, args, out: seen.append(type(m).__name__)):
        nn.Sequential(nn.ReLU())(torch.ones(1))
    nn.ReLU()(torch.ones(1))
    assert seen == ["ReLU", "Sequential"]
    handle._call_hooks = False


def backward_trace(module, tensor_ones):
    out = []
    net = module.Sequential(module.Linear(3, 4), module.Linear(4, 2))
    for p in net.parameters():
        p.data.fill_(0.5)
    net[0].register_full_backward_hook(lambda m, gi, go: out.append((gi[0].sum().item(), go[0].sum().item())))
    net[1].register_full_backward_hook(lambda m, gi, go: (gi[0] * 2,))
    net[1].register_full_backward_pre_hook(lambda m, go: (go[0] * 3,))
    x = tensor_ones
    net(x).sum().backward()
    out.append((x.grad.sum().item(), net[0].weight.grad.sum().item(), net[1].weight.grad.sum().item()))
    return out


def test_backward_hooks_match_pytorch():
    mine = backward_trace(nn, torch.ones(2, 3, requires_grad=True))
    theirs = backward_trace(oracle.nn, oracle.ones(2, 3, requires_grad=True))
    assert mine == [pytest.approx(t) for t in theirs]


def test_state_dict_hooks():
    net = nn.Linear(2, 2)

    def without_bias(module, state, prefix, metadata):
        del state[prefix + "bias"]

    net.register_state_dict_post_hook(without_bias)
    net.register_load_state_dict_pre_hook(lambda m, state, prefix, *rest: state.update({prefix + "bias": torch.ones(2)}))
    seen = []
    net.register_load_state_dict_post_hook(lambda m, keys: seen.append(keys.missing_keys))
    state = net.state_dict()
    assert list(state) == ["weight"]
    net.load_state_dict(state)
    assert net.bias.tolist() == [1.0, 1.0] and seen == [[]]


def test_conversion_keeps_parameter_objects():
    net = Net()
    weight = net.fc1.weight
    net.double()
    assert net.fc1.weight is weight and weight.dtype is torch.float64 and net.shift.dtype is torch.float64
    net.to(torch.float32)
    assert weight.dtype is torch.float32
    net(torch.ones(1, 3)).sum().backward()
    net.half()
    assert net.blocks[0][0].weight.grad.dtype is torch.float16
    with pytest.raises(TypeError, match="floating point"):
        net.to(torch.int64)
    with pytest.raises((RuntimeError, AssertionError)):
        net.cuda()


def test_modes_and_gradients():
    net = Net().eval()
    assert not any(m.training for m in net.modules())
    with pytest.raises(ValueError, match="boolean"):
        net.train(1)
    net.requires_grad_(False)
    assert not any(p.requires_grad for p in net.parameters())
    net.requires_grad_(True)
    net(torch.ones(1, 3)).sum().backward()
    net.zero_grad(set_to_none=False)
    assert net.blocks[0][0].weight.grad.abs().sum().item() == 0
    net.zero_grad()
    assert net.blocks[0][0].weight.grad is None


def test_copies():
    net = Net()
    copied = copy.deepcopy(net)
    assert copied.fc1.weight is not net.fc1.weight
    assert copied.fc1.weight.tolist() == net.fc1.weight.tolist()
    copied.fc1.weight.data.zero_()
    assert net.fc1.weight.abs().sum().item() > 0
    layer = nn.Linear(2, 3)
    again = pickle.loads(pickle.dumps(layer))
    assert isinstance(again.weight, nn.Parameter) and again.weight.tolist() == layer.weight.tolist()


def test_parameter():
    p = nn.Parameter(torch.ones(2))
    assert p.requires_grad and p.is_leaf and repr(p).startswith("Parameter containing:\ntensor([1., 1.]")
    assert type(p + 1) is torch.Tensor
    source = torch.zeros(2)
    shared = nn.Parameter(source)
    with torch.no_grad():
        shared.add_(1)
    assert source.tolist() == [1.0, 1.0]


def test_containers():
    net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    assert len(net) == 3 and isinstance(net[-1], nn.Linear) and len(net[:2]) == 2
    net.append(nn.Tanh()).insert(0, nn.Identity())
    del net[1]
    assert [type(m).__name__ for m in net] == ["Identity", "ReLU", "Linear", "Tanh"]
    assert list(net._modules) == ["0", "1", "2", "3"]
    modules = nn.ModuleList([nn.ReLU()]) + nn.ModuleList([nn.Tanh()])
    modules.extend([nn.Identity()])
    assert len(modules) == 3 and isinstance(modules.pop(0), nn.ReLU) and len(modules) == 2
    with pytest.raises(IndexError, match="out of range"):
        modules[5]
    table = nn.ModuleDict({"a": nn.ReLU()})
    table["b"] = nn.Tanh()
    assert list(table) == ["a", "b"] and "a" in table and isinstance(table.pop("a"), nn.ReLU)
    values = nn.ParameterList([torch.zeros(2), torch.ones(1)])
    assert len(list(values.parameters())) == 2 and values[-1].tolist() == [1.0]
    named = nn.ParameterDict({"w": torch.zeros(2)})
    named["v"] = nn.Parameter(torch.ones(1))
    assert sorted(named.keys()) == ["v", "w"] and len(list(named.parameters())) == 2


def test_the_dictionary_of_a_parameter_is_what_the_user_has_set() -> None:
    """Packages make a new parameter of an old one by `type(p)(data, **p.__dict__)`."""
    p = torch.nn.Parameter(torch.ones(2))
    (p * 2).sum().backward()
    assert p.__dict__ == vars(p) == {} and p.grad is not None
    p.mark = 1
    vars(p)["other"] = 2
    assert p.__dict__ == {"mark": 1, "other": 2} and p.other == 2
    assert p.__dict__.pop("other") == 2 and not hasattr(p, "other")
    p.__dict__ = {"third": 3}
    assert vars(p) == {"third": 3} and not hasattr(p, "mark") and p.grad.tolist() == [2.0, 2.0]

    class Own(torch.Tensor):
        pass

    t = torch.ones(2).as_subclass(Own)
    t.mark = 4
    assert t.__dict__ == {"mark": 4} and (t + 1).tolist() == [2.0, 2.0]
