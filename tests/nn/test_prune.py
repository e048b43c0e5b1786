"""nn.utils.prune against PyTorch: masks, weights, gradients, state_dict, several methods in turn."""

from __future__ import annotations

import importlib

import pytest

import flambeau
from tests.nn.oracle import close, ours, raises_as_torch, torch

importlib.import_module("torch.nn.utils.prune")


def layers(shape=(6, 5)):
    """The same linear layer in both frameworks."""
    made = []
    for m in (flambeau, torch):
        m.manual_seed(7)
        made.append((m, m.nn.Linear(shape[1], shape[0]), m.nn.utils.prune))
    return made


STEPS = {
    "identity": lambda m, p, layer: p.identity(layer, "weight"),
    "l1": lambda m, p, layer: p.l1_unstructured(layer, "weight", 0.4),
    "l1 scores": lambda m, p, layer: p.l1_unstructured(layer, "bias", 2, importance_scores=m.tensor([3.0, 1, 2, 6, 5, 4])),
    "random": lambda m, p, layer: p.random_unstructured(layer, "weight", 7),
    "random rows": lambda m, p, layer: p.random_structured(layer, "weight", 0.5, 0),
    "ln": lambda m, p, layer: p.ln_structured(layer, "weight", 2, n=2, dim=1),
    "ln inf": lambda m, p, layer: p.ln_structured(layer, "weight", 0.5, n=float("inf"), dim=-1),
    "custom": lambda m, p, layer: p.custom_from_mask(layer, "weight", m.tensor([[1.0, 0, 1, 0, 1]] * 6)),
    "none": lambda m, p, layer: p.l1_unstructured(layer, "weight", 0),
    "twice": lambda m, p, layer: p.l1_unstructured(p.ln_structured(layer, "weight", 2, n=1, dim=0), "weight", 0.5),
    "thrice": lambda m, p, layer: p.ln_structured(p.custom_from_mask(p.l1_unstructured(layer, "weight", 5), "weight", m.ones(6, 5).tril()), "weight", 1, 2, 0),
    "global": lambda m, p, layer: p.global_unstructured([(layer, "weight"), (layer, "bias")], p.L1Unstructured, amount=0.5),
}


@pytest.mark.parametrize("name", STEPS)
def test_pruned_as_torch(name):
    found = []
    for m, layer, prune in layers():
        m.manual_seed(1)
        STEPS[name](m, prune, layer)
        assert prune.is_pruned(layer)
        layer(m.ones(2, 5)).sum().backward()
        found.append((layer, prune))
    (mine, my_prune), (theirs, their_prune) = found
    assert list(mine.state_dict()) == list(theirs.state_dict())
    for key, value in theirs.state_dict().items():
        close(mine.state_dict()[key], value, 1e-6)
    for (a, p), (b, q) in zip(mine.named_parameters(), theirs.named_parameters(), strict=True):
        assert a == b
        close(p.grad, q.grad, 1e-6)
    for part in [k.removesuffix("_mask") for k in list(theirs._buffers)]:
        close(getattr(mine, part), getattr(theirs, part), 1e-6)
        my_prune.remove(mine, part)
        their_prune.remove(theirs, part)
    assert list(mine.state_dict()) == list(theirs.state_dict())
    assert not my_prune.is_pruned(mine)
    close(mine.weight, theirs.weight, 1e-6)


WRONG = {
    "share": lambda p, layer: p.l1_unstructured(layer, "weight", 1.5),
    "negative": lambda p, layer: p.l1_unstructured(layer, "weight", -1),
    "text": lambda p, layer: p.l1_unstructured(layer, "weight", "x"),
    "too many": lambda p, layer: p.l1_unstructured(layer, "weight", 31),
    "vector": lambda p, layer: p.ln_structured(layer, "bias", 1, 2, 0),
    "dim": lambda p, layer: p.ln_structured(layer, "weight", 1, 2, 5),
    "not pruned": lambda p, layer: p.remove(layer, "weight"),
    "structured": lambda p, layer: p.global_unstructured([(layer, "weight")], p.LnStructured, amount=1, n=1),
}


@pytest.mark.parametrize("name", WRONG)
def test_errors(name):
    (_, mine, my_prune), (_, theirs, their_prune) = layers()
    raises_as_torch(lambda: WRONG[name](my_prune, mine), lambda: WRONG[name](their_prune, theirs))
    assert sorted(mine.state_dict()) == ["bias", "weight"]


def test_prune_a_tensor():
    x = torch.arange(-6.25, 5.75).reshape(3, 4)
    mine, theirs = (m.nn.utils.prune.L1Unstructured(0.5).prune(t) for m, t in ((flambeau, ours(x)), (torch, x)))
    close(mine, theirs)
