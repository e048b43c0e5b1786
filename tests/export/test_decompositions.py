"""run_decompositions: only core operators remain, and PyTorch and flambeau run what is left with the same results; writes are values."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import flambeau
from flambeau.export.decomposing import core
from tests.export.test_pt2 import _dynamic, _equal, _inputs, _of, _ours, _theirs


def _left(program: Any) -> set[str]:
    """Operators of a program that are not core."""
    return {str(n.target).removeprefix("aten.") for n in program.graph.nodes if n.op == "call_function" and "aten" in str(n.target)} - core()


def _through_pytorch(program: Any) -> Any:
    file = io.BytesIO()
    flambeau.export.save(program, file)
    return torch.export.load(io.BytesIO(file.getvalue())).module()


@pytest.mark.parametrize(("name", "left"), [
    ("MLP", set()), ("CNN", set()), ("ResNet", set()), ("GPT", set()), ("Tour", set()), ("LSTM", {"lstm.input", "gru.input"}),
])  # fmt: skip
def test_models_in_core_operators(name: str, left: set[str]) -> None:
    module = _ours(name)
    reference = _theirs(name, module)
    args, kwargs = _inputs(name, 5)
    program = flambeau.export.export(module, _of(flambeau, args), _of(flambeau, kwargs), dynamic_shapes=_dynamic(flambeau, name)).run_decompositions()
    assert _left(program) == left
    loaded = _through_pytorch(program)
    for batch in (5, 3, 11):
        args, kwargs = _inputs(name, batch, steps=batch + 2 if name == "GPT" else 9)
        wanted = reference(*_of(torch, args), **_of(torch, kwargs))
        _equal(program.module()(*_of(flambeau, args), **_of(flambeau, kwargs)), wanted)
        _equal(loaded(*_of(torch, args), **_of(torch, kwargs)), wanted)


def _program(package: Any, function: Callable[..., Any]) -> Any:
    class Program(package.nn.Module):
        def forward(self, x: Any, y: Any) -> Any:
            return function(package, package.nn.functional, x, y)

    return Program()


# Functions of x and y, both (2, 3, 4, 4).
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "shapes": lambda t, F, x, y: (x.flatten(1), x.transpose(1, 2).reshape(2, -1), x.unflatten(3, (2, -1)), x.unbind(1), x.chunk(2, 2), t.stack([x, y], 1),
                                  x.narrow(2, 1, 2), x.movedim(1, 3), x[:, :1].squeeze(1), x.mT, x.view_as(y), x.expand_as(y), x.split(3, 2), x.tile(1, 2)),
    "dtypes": lambda t, F, x, y: (x.double(), x.to(t.int32), x.type_as(y.double()), x.contiguous(), x.permute(3, 0, 1, 2).contiguous()),
    "creation": lambda t, F, x, y: (t.zeros(2, 3), t.ones(3), t.zeros_like(x), t.ones_like(y), x.new_zeros(2), x.new_full((2,), 3.0), t.arange(5),
                                    t.arange(2, 7)),
    "triangles": lambda t, F, x, y: (x.tril(), x.triu(1), x.tril(-1)),
    "activations": lambda t, F, x, y: (F.silu(x), F.hardswish(x), F.hardsigmoid(x), F.softplus(x * 20), F.mish(x), F.relu6(x * 5), F.selu(x), F.celu(x, 1.5),
                                       F.logsigmoid(x), F.glu(x, 3), F.threshold(x, 0.1, 2.0), F.prelu(x, y[0, :, 0, 0])),
    "arithmetic": lambda t, F, x, y: (1 - x, t.rsub(x, y, alpha=2), x.square(), t.addcmul(x, x, y, value=2), t.addcdiv(x, x, y.abs() + 1), x // 0.3,
                                      t.lerp(x, y, 0.3), t.lerp(x, y, 0.7), x.clamp_min(0.1), x.clamp_max(y), t.where(x > 0, x, 0.0), x.masked_fill(y > 0, 9)),
    "reductions": lambda t, F, x, y: (x.sum(), x.max(), x.min(), t.max(x, y), (x > 0).all(), (x > 0).all(1), x.std(1), x.std(), t.var_mean(x, 1, correction=0),
                                      x.logsumexp((1, 2)), x.norm(), x.norm(1, 2), F.softmax(x, 1), F.log_softmax(x, 1), x.argsort(3)),
    "products": lambda t, F, x, y: (x @ y, x[0, 0] @ y[0, 0], x @ y[0, 0], x[0, 0] @ y, x @ y[0, 0, 0], x[0, 0, 0] @ y, t.baddbmm(x[0], y[0], x[1], beta=0.5),
                                    x[0, 0, 0].dot(y[0, 0, 0]), t.einsum("bchw,bdhw->bcd", x, y), t.einsum("bchw,bcwk->hcbk", x, y),
                                    F.linear(x, y[0, 0], y[0, 0, 0])),
    "attention": lambda t, F, x, y: (F.scaled_dot_product_attention(x, y, x), F.scaled_dot_product_attention(x, y, x, is_causal=True),
                                     F.scaled_dot_product_attention(x, y, x, y > 0), F.scaled_dot_product_attention(x, y, x, y, scale=0.3)),
    "normalisation": lambda t, F, x, y: (F.layer_norm(x, (4, 4)), F.group_norm(x, 3, y[0, :, 0, 0]), F.rms_norm(x, (4,), y[0, 0, 0], 1e-5),
                                         F.batch_norm(x, y[0, :, 0, 0], y[0, :, 0, 0] ** 2 + 1)),
    "convolutions": lambda t, F, x, y: (F.conv2d(x, y[:, :, :3, :3], y[0, 0, 0, :2], 2, 1), F.conv1d(x[0], y[0, :, :, :3]),
                                        F.conv2d(x, y[:, :, :3, :3], padding="same"),
                                        F.conv_transpose2d(x, y.reshape(3, 2, 4, 4), stride=2, output_padding=1)),
    "pooling": lambda t, F, x, y: (F.max_pool2d(x, 2), F.adaptive_avg_pool2d(x, 1), F.adaptive_avg_pool2d(x, 2), F.avg_pool2d(x, 2), F.pad(x, (1, 2)),
                                   F.pad(x, (1, 1, 2, 1), "reflect"), F.dropout(x, 0.5, False)),
    "losses": lambda t, F, x, y: (F.mse_loss(x, y), F.l1_loss(x, y, reduction="sum"), F.cross_entropy(x[:, :, 0, 0], t.tensor([2, 1])),
                                  F.nll_loss(x[0, 0], t.tensor([0, 3, -100, 1]))),
    # writes: to a view, to its source while a view lives, to a view of a view, whole and in part
    "writes": lambda t, F, x, y: _writes(x, y),
    "activations in place": lambda t, F, x, y: F.relu(F.hardtanh(x.clone(), -0.5, 0.7, inplace=True), inplace=True),
}  # fmt: skip


def _writes(x: Any, y: Any) -> Any:
    a = x.clone()
    row, turned, flat = a[0], a.transpose(2, 3), a.view(2, -1)
    a[:, 1] = 5
    row.mul_(2)
    turned[1, 2, 0] = y[1, 2, 1]
    flat[:, ::7].add_(y.view(2, -1)[:, ::7])
    a.unsqueeze(0)[0, 0, 0].zero_()
    first, second = a.split([1, 2], 1)
    first.fill_(3)
    second[0, 0] += first[0, 0]
    return a, row, turned, flat, first, second


@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_functions_in_core_operators(name: str) -> None:
    r = np.random.default_rng(1)
    x, y = r.standard_normal((2, 2, 3, 4, 4)).astype("f")
    wanted = _program(torch, FUNCTIONS[name])(torch.tensor(x), torch.tensor(y))
    program = flambeau.export.export(_program(flambeau, FUNCTIONS[name]), (flambeau.tensor(x), flambeau.tensor(y))).run_decompositions()
    assert not _left(program)
    _equal(program.module()(flambeau.tensor(x), flambeau.tensor(y)), wanted)
    _equal(_through_pytorch(program)(torch.tensor(x), torch.tensor(y)), wanted)


def test_buffers_and_inputs_that_change_are_outputs() -> None:
    class Program(flambeau.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = flambeau.nn.BatchNorm1d(3)

        def forward(self, x: Any, log: Any) -> Any:
            log[0].add_(x.sum())
            return self.norm(x)

    module, x = Program(), flambeau.arange(12.0).reshape(4, 3) ** 2
    reference = copy.deepcopy(module)  # a program's module changes the buffers of the module that was exported
    program = flambeau.export.export(module, (x, flambeau.zeros(2))).run_decompositions()
    assert sorted(program.graph_signature.buffers_to_mutate.values()) == ["norm.num_batches_tracked", "norm.running_mean", "norm.running_var"]
    assert list(program.graph_signature.user_inputs_to_mutate.values()) == ["log"]
    loaded, log, theirs = _through_pytorch(program), flambeau.zeros(2), torch.zeros(2)
    wanted = reference(x, flambeau.zeros(2))
    _equal(program.module()(x, log), wanted)
    _equal(loaded(torch.tensor(x.numpy()), theirs), wanted)
    assert log.tolist() == theirs.tolist() == [x.sum().item(), 0.0]
    for name in ("running_mean", "running_var", "num_batches_tracked"):
        np.testing.assert_allclose(getattr(loaded.norm, name).numpy(), getattr(reference.norm, name).numpy(), rtol=1e-5)
        np.testing.assert_allclose(getattr(module.norm, name).numpy(), getattr(reference.norm, name).numpy(), rtol=1e-5)


def test_a_table_of_ones_own() -> None:
    aten = flambeau.ops.aten
    program = flambeau.export.export(flambeau.nn.Sequential(flambeau.nn.Linear(3, 2), flambeau.nn.SiLU()), (flambeau.ones(1, 3),))
    made = program.run_decompositions({aten.silu.default: lambda x: aten.mul.Tensor(x, aten.sigmoid.default(x))})
    assert [str(n.target) for n in made.graph.nodes if n.op == "call_function"] == ["aten.linear.default", "aten.sigmoid.default", "aten.mul.Tensor"]
    assert [str(n.target) for n in program.graph.nodes if n.op == "call_function"] == ["aten.linear.default", "aten.silu.default"]  # as it was


def test_what_cannot_be_written_to_is_refused() -> None:
    program = flambeau.export.export(_program(flambeau, lambda t, F, x, y: x.clone().diagonal().zero_()), (flambeau.ones(3, 3), flambeau.ones(3)))
    with pytest.raises(NotImplementedError, match=r"a write to what aten\.diagonal"):
        program.run_decompositions()
