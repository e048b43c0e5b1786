"""Checkpoints without reentrant passes: results in any structure, gradients inside of the function, and second runs that differ from the first."""

import collections
import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

import flambeau
from flambeau.utils import checkpoint as checkpoints

torch = pytest.importorskip("torch")


class Named(NamedTuple):
    first: Any
    second: Any


@dataclasses.dataclass
class Data:
    value: Any
    other: Any = None
    count: int = 0


class Output(collections.OrderedDict[str, Any]):
    """As the outputs of transformers' models: items are attributes, too."""

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        super().__setattr__(key, value)


def _output(y: Any, z: Any) -> Output:
    found = Output()
    found["logits"], found["hidden"] = y, (z, [y + z])
    return found


STRUCTURES: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any], list[Any]]]] = {
    "one": (lambda y, z: y, lambda r: [r]),
    "tuple": (lambda y, z: (y, 3, z), lambda r: [r[0], r[2]]),
    "list": (lambda y, z: [y, [z, None]], lambda r: [r[0], r[1][0]]),
    "dict": (lambda y, z: {"a": y, "b": {"c": [z], "d": "x"}}, lambda r: [r["a"], r["b"]["c"][0]]),
    "named tuple": (lambda y, z: Named(y, (z,)), lambda r: [r.first, r.second[0]]),
    "dataclass": (lambda y, z: Data(y, {"z": z}, 2), lambda r: [r.value, r.other["z"]]),
    "ordered dict": (_output, lambda r: [r.logits, r["hidden"][0], r.hidden[1][0]]),
}


def gradients(m: Any, checkpoint: Any, name: str) -> Any:
    make, tensors = STRUCTURES[name]
    m.manual_seed(0)
    layer = m.nn.Linear(3, 3)
    x = m.rand(2, 3, requires_grad=True)

    def function(x: Any, scale: float = 1.0) -> Any:
        y = layer(x).sin() * scale
        return make(y, y.exp())

    result = function(x, 2.0) if checkpoint is None else checkpoint(function, x, use_reentrant=False, scale=2.0)
    found = tensors(result)
    kinds = (type(result).__name__, [t.requires_grad for t in found])
    sum(((i + 1) * t).sum() for i, t in enumerate(found) if t.requires_grad).backward()
    return kinds, [t.tolist() for t in (x.grad, layer.weight.grad, layer.bias.grad)]


@pytest.mark.parametrize("name", STRUCTURES)
def test_structures_of_results(name: str) -> None:
    plain = gradients(flambeau, None, name)
    kinds, found = gradients(flambeau, checkpoints.checkpoint, name)
    assert kinds == plain[0] == gradients(torch, torch.utils.checkpoint.checkpoint, name)[0]
    assert [flambeau.tensor(g).allclose(flambeau.tensor(p)) for g, p in zip(found, plain[1], strict=True)] == [True] * 3


def forces(checkpointed: bool, twice: bool) -> list[Any]:
    """The gradient of an energy inside of the function, as force fields have it, and the gradients of a loss of it."""
    flambeau.manual_seed(0)
    layer = flambeau.nn.Linear(3, 3)
    x = flambeau.rand(2, 3, requires_grad=True)

    def function(x: Any) -> Any:
        noise = flambeau.rand(2, 3)
        energy = (layer(x + noise).sin() ** 2).sum()
        (force,) = flambeau.autograd.grad(energy, x, create_graph=True)
        return {"energy": energy, "force": force}

    def run(x: Any) -> Any:
        return checkpoints.checkpoint(function, x, use_reentrant=False) if checkpointed else function(x)

    result = checkpoints.checkpoint(run, x, use_reentrant=False) if twice else run(x)
    (result["force"].square().sum() + result["energy"]).backward()
    return [x.grad, layer.weight.grad, layer.bias.grad, result["energy"].detach(), result["force"].detach(), flambeau.rand(3)]


@pytest.mark.parametrize("twice", [False, True])
def test_gradients_inside_of_a_checkpoint(twice: bool) -> None:
    for _ in range(3):  # what the first call has found out holds for the next ones
        for found, expected in zip(forces(True, twice), forces(False, False), strict=True):
            assert found.allclose(expected, atol=1e-6), (found, expected)


def changing(first: Callable[[Any], Any], then: Callable[[Any], Any]) -> Callable[[Any], Any]:
    calls = []

    def function(x: Any) -> Any:
        calls.append(1)
        return first(x) if len(calls) == 1 else then(x)

    return function


@pytest.mark.parametrize("debug", [None, False, True])
def test_a_second_run_that_differs(debug: bool | None) -> None:
    x = flambeau.rand(1, requires_grad=True)
    for then, words in (
        (lambda x: x.sin() * flambeau.tensor([1.0, 2.0]), "Recomputed values for the following tensors have different metadata"),
        (lambda x: x.sin().double(), "saved metadata: .*float32"),
        (lambda x: (x.sin(), x.cos()), "A different number of tensors was saved"),
    ):
        with checkpoints.set_checkpoint_debug_enabled(debug):
            result = checkpoints.checkpoint(changing(lambda x: x.sin(), then), x, use_reentrant=False)
            with pytest.raises(checkpoints.CheckpointError, match=words) as caught:
                result.sum().backward()
            assert ("passed `debug=True`" in str(caught.value)) == bool(debug)
    other = changing(lambda x: x.sin(), lambda x: x.sin().double())
    checkpoints.checkpoint(other, x, use_reentrant=False, determinism_check="none").sum().backward()
    assert x.grad is not None
