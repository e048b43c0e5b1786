"""A stage's backward pass in two halves: any graph's gradients are those of one pass, and the inputs' come without the parameters'."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as torch
from flambeau.distributed.pipelining._backward import stage_backward, stage_backward_input, stage_backward_weight


def grown(steps, inputs, weights):
    """A pool of matrices: each step makes one more of what is there, with or without a weight."""
    pool = [*inputs, torch.linspace(0, 1, 9, dtype=torch.float64).view(3, 3)]
    for kind, i, j in steps:
        x, y, w = pool[i % len(pool)], pool[j % len(pool)], weights[j % len(weights)]
        if kind == "parts":
            pool.extend((x @ w).chunk(3, 0)[0].expand(3, 3).unbind(0)[0].expand(2, 3, 3).unbind(0))
            continue
        made = {
            "product": lambda x=x, w=w: x @ w, "tied": lambda x=x, w=w: torch.tanh(x @ w.T) @ (w * w), "sum": lambda x=x, y=y: torch.sin(x) + y,
            "norm": lambda x=x, w=w: torch.nn.functional.layer_norm(x, (3,), w[0], w[1]), "alone": lambda w=w: torch.cos(w) * 2,
        }  # fmt: skip
        pool.append(made[kind]())
    return pool


STEP = st.tuples(st.sampled_from(["product", "tied", "sum", "norm", "alone", "parts"]), st.integers(0, 20), st.integers(0, 20))


@settings(max_examples=60, deadline=None)
@given(steps=st.lists(STEP, min_size=1, max_size=8), needs=st.lists(st.booleans(), min_size=2, max_size=2), last=st.integers(1, 3), frozen=st.booleans())
def test_as_one_pass(steps, needs, last, frozen):
    torch.manual_seed(len(steps))
    values = [torch.randn(3, 3, dtype=torch.float64) for _ in range(5)]

    def made():
        inputs = [v.clone().requires_grad_(n) for v, n in zip(values[:2], needs, strict=True)]
        weights = [v.clone().requires_grad_(i > 0 or not frozen) for i, v in enumerate(values[2:])]
        return inputs, weights, grown(steps, inputs, weights)[-last:]

    inputs, weights, outputs = made()
    gradients = [torch.full_like(t, 0.5 + i) for i, t in enumerate(outputs)]
    whole = stage_backward(list(outputs), list(gradients), inputs)
    expected = [p.grad for p in weights]
    inputs, weights, outputs = made()
    inner, groups = stage_backward_input(outputs, gradients, inputs, iter(weights))
    assert all(p.grad is None for p in weights)
    made_later = stage_backward_weight(iter(weights), groups)
    for a, b in zip([*whole, *expected], [*inner, *made_later], strict=True):
        assert (a is None) == (b is None)
        assert a is None or torch.allclose(a, b, rtol=1e-12, atol=1e-12)


def test_nothing_is_made_twice_of_parameters_in_a_row():
    """Of a chain of layers each parameter waits, and begins where its layer's gradient is."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.LayerNorm(4), torch.nn.Linear(4, 4))
    x = torch.randn(2, 4, requires_grad=True)
    y = model(x)
    _, groups = stage_backward_input([y], [torch.ones_like(y)], [x], model.parameters())
    assert sorted(len(group["params"]) for group in groups) == [2, 2, 2]
    assert all(len(group["edges"]) == 1 for group in groups)
    for _ in range(2):  # into what is there
        y = model(x)
        stage_backward_weight(model.parameters(), stage_backward_input([y], None, [x], model.parameters())[1])
    doubled = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    model(x).sum().backward()
    assert all(torch.allclose(a, 2 * p.grad, atol=1e-5) for a, p in zip(doubled, model.parameters(), strict=True))
