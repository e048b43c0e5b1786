"""serve/prepared.py: a whole call as its plan gives the bits of the recorded call, and what cannot be one plan is told."""

import numpy as np
import pytest

import flambeau as torch
from flambeau import nn
from flambeau.runtime.memory import view_as_numpy
from flambeau.serve.prepared import prepare


def _run(call, tensors):
    for t in tensors:
        t.sum().item()  # so that its bytes are there
    made = call.run([t._storage.buffer for t in tensors])
    return [view_as_numpy(b.address, b.nbytes, b)[: r.nbytes].view(r.detach().numpy().dtype).reshape(r.shape) for b, r in zip(made, call.results, strict=True)]


@pytest.mark.parametrize("rows", [1, 3, 8])
def test_the_bits_of_a_network(rows):
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 5), nn.LogSoftmax(1)).eval()
    call = prepare(lambda x: [model(x)], [torch.randn(rows, 1, 8, 8)])
    assert call is not None
    for _ in range(3):
        x = torch.randn(rows, 1, 8, 8)
        with torch.no_grad():
            assert np.array_equal(_run(call, [x])[0], model(x).numpy())
    with torch.no_grad():  # a parameter that is written to is seen
        model[4].bias.add_(1.0)
        model[4].bias.sum().item()
        x = torch.randn(rows, 1, 8, 8)
        assert np.array_equal(_run(call, [x])[0], model(x).numpy())


def test_several_inputs_and_results_in_their_order():
    def f(a, b, c):
        return [a.float() + b, b.sum(), c[:, 1:].contiguous() * 2]

    examples = [torch.arange(6).reshape(2, 3), torch.randn(2, 3), torch.randn(2, 4)]
    call = prepare(f, examples)
    assert call is not None
    given = [torch.arange(6).reshape(2, 3) + 5, torch.randn(2, 3), torch.randn(2, 4)]
    for one, other in zip(_run(call, given), f(*given), strict=True):
        assert np.array_equal(one, other.numpy())


def test_an_input_that_is_not_used():
    call = prepare(lambda a, b: [b + 1], [torch.randn(2), torch.randn(2)])
    assert call is not None and np.array_equal(_run(call, [torch.zeros(2), torch.ones(2)])[0], [2, 2])


_held = torch.zeros(3)


@pytest.mark.parametrize("f", [
    lambda x: [x * 2 if x.sum() > 0 else x + 1], lambda x: [x], lambda x: [x[1:]], lambda x: [x * torch.rand(3)], lambda x: [x.add_(1)],
    lambda x: [_held.add_(x) * 1], lambda x: [torch.nonzero(x)],
], ids=["looks", "input", "view", "random", "writes", "state", "sizes"])  # fmt: skip
def test_what_one_plan_cannot_be(f):
    assert prepare(f, [torch.rand(3) + 1]) is None


def test_two_examples_of_one_memory():
    x = torch.randn(3)
    assert prepare(lambda a, b: [a + b], [x, x]) is None
