"""torch.distributed._composable.contract: once a module, a state for each call, names that stay; and replicate, which is such a function."""

from __future__ import annotations

import copy

import pytest

import flambeau
from flambeau import nn
from flambeau.distributed._composable import _get_registry, contract, replicate


class Wrapped(nn.Module):
    """A module in another: its parameters have other names."""

    def __init__(self, module):
        super().__init__()
        self.module = module


def test_once_a_module_with_a_state():
    @contract()
    def marked(modules, value):
        for each in modules if isinstance(modules, list) else [modules]:
            if each is not inner:
                marked.state(each).value = value
        return modules

    model = nn.Sequential(nn.Sequential(nn.Linear(2, 2)), nn.ReLU(), nn.Linear(2, 2))
    inner = model[0][0]
    marked([model[0], inner, model[1]], 7)  # the inner one is in the first
    marked(model[2], 8)
    assert marked.state(model[0]) is marked.state(model[1])
    assert marked.state(inner) is None
    assert [marked.state(each).value for each in model] == [7, 7, 8]
    assert list(_get_registry(model[0])) == ["marked"]
    assert _get_registry(model) is None
    with pytest.raises(AssertionError, match="marked has already been applied"):
        marked(model[0], 9)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda m: Wrapped(m), "Checking parameters: .* cannot modify FQNs"),
        (lambda m: nn.Sequential(m[0], m[1], nn.Identity()), "Checking modules: .* cannot modify FQNs"),
    ],
)
def test_names_must_stay(change, said):
    with pytest.raises(RuntimeError, match=said):
        contract()(change)(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))


def test_replicate_changes_the_class_only():
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    names = list(model.state_dict())
    assert replicate(model) is model and isinstance(model, nn.Sequential) and type(model).__name__ == "DDPSequential"
    assert list(model.state_dict()) == names and type(model[:2]) is nn.Sequential and len(model[:2]) == 2
    with pytest.raises(AssertionError, match="does not support deepcopy"):
        copy.deepcopy(model)
    with pytest.raises(RuntimeError, match="Expected device_id to be int"):
        replicate(nn.Linear(2, 2), device_id=["cpu"])
    model(flambeau.ones(4, 2)).sum().backward()  # of one process: the module is only called
    assert all(p.grad is not None for p in model.parameters())
