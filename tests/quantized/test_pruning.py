"""torch.ao.pruning: the masks, schedules and smaller models that PyTorch's classes give."""

from __future__ import annotations

import importlib
import io
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as ft
from tests.quantized.oracle import torch, values

PRUNER = "ao.pruning._experimental.pruner"
for _name in ("ao.pruning", PRUNER):
    importlib.import_module(f"torch.{_name}")
    importlib.import_module(f"flambeau.{_name}")


def pruners(t: Any) -> Any:
    """The package of structured pruners."""
    return importlib.import_module(f"{t.__name__}.{PRUNER}")


def both(make: Callable[[Any], Any], seed: int = 0) -> tuple[Any, Any]:
    """A model here and in PyTorch, with the same weights, no two of which are alike."""
    ours, theirs = make(ft), make(torch)
    state = {}
    for i, (name, value) in enumerate(theirs.state_dict().items()):
        fresh = values(tuple(value.shape), seed * 100 + i, 0.5)
        state[name] = np.abs(fresh) + 0.5 if name.endswith("running_var") else fresh.astype(value.numpy().dtype)
    ours.load_state_dict({k: ft.tensor(v) for k, v in state.items()})
    theirs.load_state_dict({k: torch.tensor(v) for k, v in state.items()})
    return ours.eval(), theirs.eval()


def near(a: Any, b: Any, tolerance: float = 1e-5) -> None:
    """Equal shapes, and values up to rounding."""
    a, b = np.asarray(a.detach().numpy(), np.float64), np.asarray(b.detach().numpy(), np.float64)
    assert a.shape == b.shape
    assert np.abs(a - b).max(initial=0.0) <= tolerance * max(1.0, np.abs(b).max(initial=0.0))


def _linear(t: Any) -> Any:
    n = t.nn
    return n.Sequential(n.Linear(7, 12), n.ReLU(), n.Linear(12, 9, bias=False), n.Linear(9, 8), n.Tanh(), n.Linear(8, 3))


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(1, 13),
    columns=st.integers(1, 13),
    level=st.sampled_from([0.0, 0.2, 0.5, 0.77, 1.0]),
    block=st.sampled_from([(1, 4), (1, 1), (2, 3), (4, 1), (5, 5)]),
    part=st.sampled_from([None, 0.5, 0.0]),
    norm=st.sampled_from([None, 1, 2]),
    seed=st.integers(0, 5),
)
def test_norms_of_blocks_choose_pytorchs_zeros(rows: int, columns: int, level: float, block: tuple[int, int], part: float | None, norm: Any, seed: int) -> None:
    masks = []
    zeros = None if part is None else int(part * block[0] * block[1])
    for t in (ft, torch):
        layer = t.nn.Linear(columns, rows)
        layer.weight.data = t.tensor(values((rows, columns), seed))
        sparsifier = t.ao.pruning.WeightNormSparsifier(level, block, zeros, norm)
        sparsifier.prepare(t.nn.Sequential(layer), None)
        try:
            sparsifier.step()
            layer(t.zeros(1, columns))
        except (AssertionError, RuntimeError):
            assert t is torch and (rows % block[0] or columns % block[1])  # PyTorch cuts off the edge's blocks in one of its masks only
            return
        masks.append(sparsifier.groups[0]["module"].parametrizations.weight[0].mask.numpy().astype(bool))
        assert np.array_equal(layer.weight.detach().numpy() != 0, masks[-1])
    assert np.array_equal(*masks)


@pytest.mark.parametrize("near_by", [-1, 0, 1, 3, 5])
def test_nearly_diagonal(near_by: int) -> None:
    masks = []
    for t in (ft, torch):
        model = t.nn.Sequential(t.nn.Linear(6, 4), t.nn.ReLU(), t.nn.Linear(4, 5))
        sparsifier = t.ao.pruning.NearlyDiagonalSparsifier(near_by)
        sparsifier.prepare(model, [{"tensor_fqn": "0.weight"}])
        sparsifier.step()
        masks.append(sparsifier.state["0.weight"]["mask"].numpy())
    assert np.array_equal(*masks)
    for wrong in (2, 9):
        with pytest.raises(ValueError, match="nearliness"):
            ft.ao.pruning.NearlyDiagonalSparsifier(wrong).update_mask(model_with_mask(), "weight", wrong)


def model_with_mask() -> Any:
    """A layer of 4 x 6 with a mask."""
    layer = ft.nn.Linear(6, 4)
    ft.nn.utils.parametrize.register_parametrization(layer, "weight", ft.ao.pruning.FakeSparsity(ft.ones(4, 6)))
    return layer


def test_masks_are_squashed_saved_and_read() -> None:
    for t in (ft, torch):
        model = t.nn.Sequential(t.nn.Linear(8, 8), t.nn.Sequential(t.nn.ReLU(), t.nn.Linear(8, 4)))
        sparsifier = t.ao.pruning.WeightNormSparsifier(0.5, (1, 1))
        sparsifier.prepare(model, [{"tensor_fqn": "0.weight"}, {"tensor_fqn": "1.1.weight", "sparsity_level": 0.25}])
        sparsifier.step()
        assert [g["module_fqn"] for g in sparsifier.groups] == ["0", "1.1"]
        assert "Group 1\n\t    module: ParametrizedLinear(" in repr(sparsifier)
        saved = sparsifier.state_dict()
        assert sorted(saved) == ["groups", "state"] and sorted(saved["groups"][0]) == ["sparse_block_shape", "sparsity_level", "tensor_fqn", "zeros_per_block"]
        other = t.ao.pruning.WeightNormSparsifier()
        fresh = t.nn.Sequential(t.nn.Linear(8, 8), t.nn.Sequential(t.nn.ReLU(), t.nn.Linear(8, 4)))
        other.prepare(fresh, [{"tensor_fqn": "0.weight"}] if t is ft else None)
        other.load_state_dict(saved)
        assert int((fresh[0].weight == 0).sum()) == 32 and int((fresh[1][1].weight == 0).sum()) == 8
        sparsifier.squash_mask(params_to_keep=("sparsity_level",), params_to_keep_per_layer={"0": ("zeros_per_block",)})
        assert model[0].sparse_params == {"sparsity_level": 0.5, "zeros_per_block": 1} and model[1][1].sparse_params == {"sparsity_level": 0.25}
        assert type(model[0]) is t.nn.Linear and int((model[0].weight == 0).sum()) == 32
        assert "mask" not in " ".join(fresh.state_dict())


def test_a_model_with_masks_is_converted() -> None:
    class Made(ft.nn.Module):  # type: ignore[misc, name-defined]
        @classmethod
        def from_dense(cls, mod: Any) -> Any:
            made = cls()
            made.zeros = int((mod.weight == 0).sum())
            return made

    model = ft.nn.Sequential(ft.nn.Linear(8, 8), ft.nn.Sequential(ft.nn.Linear(8, 4)), ft.nn.Linear(4, 2))
    sparsifier = ft.ao.pruning.WeightNormSparsifier(0.5, (1, 1))
    sparsifier.prepare(model, [{"tensor_fqn": "1.0.weight"}])
    sparsifier.step()
    made = sparsifier.convert(model, {ft.nn.Linear: Made})
    assert made[1][0].zeros == 16 and type(made[0]) is ft.nn.Linear and made is not model
    with pytest.raises(NotImplementedError, match="mapping"):
        sparsifier.convert(model)


def test_wrong_configurations_are_named() -> None:
    model = ft.nn.Sequential(ft.nn.Linear(3, 3))
    for config, kind, text in (
        (["0.weight"], AssertionError, "dicts"),
        ([{"name": "0.weight"}], AssertionError, "tensor_fqn is a required"),
        ([{"tensor_fqn": "0.weight", "module_fqn": "1"}], AssertionError, "agree"),
        ([{"tensor_fqn": "4.weight"}], AttributeError, "no tensor '4.weight'"),
    ):
        with pytest.raises(kind, match=text):
            ft.ao.pruning.WeightNormSparsifier().prepare(model, config)
    with pytest.raises(TypeError):
        ft.ao.pruning.BaseSparsifier()


@pytest.mark.parametrize(
    "make",
    [
        lambda p, s: p.LambdaSL(s, lambda epoch: 0.9**epoch),
        lambda p, s: p.LambdaSL(s, [lambda epoch: epoch * 10, lambda epoch: 1 - epoch / 10], last_epoch=2),
        lambda p, s: p.CubicSL(s, init_sl=0.1, init_t=1, delta_t=2, total_t=4),
        lambda p, s: p.CubicSL(s, init_sl=[0.0, 0.3], init_t=[3, 0], delta_t=1, total_t=5, initially_zero=[True, False], verbose=True),
    ],
)
def test_schedules_are_pytorchs(make: Any, capsys: Any) -> None:
    levels, texts = [], []
    for t in (ft, torch):
        model = t.nn.Sequential(t.nn.Linear(4, 4), t.nn.Linear(4, 4))
        sparsifier = t.ao.pruning.WeightNormSparsifier(0.8)
        sparsifier.prepare(model, [{"tensor_fqn": "0.weight"}, {"tensor_fqn": "1.weight", "sparsity_level": 0.6}])
        schedule = make(t.ao.pruning, sparsifier)
        found = [list(schedule.get_last_sl())]
        for _ in range(6):
            sparsifier.step()
            schedule.step()
            found.append(list(schedule.get_last_sl()))
        assert sparsifier._step_count == 6 and schedule.state_dict()["last_epoch"] == schedule.last_epoch
        levels.append(found)
        texts.append(capsys.readouterr().out)
    assert levels[0] == levels[1] and texts[0] == texts[1]
    with pytest.warns(UserWarning, match="before `sparsifier.step"):
        make(ft.ao.pruning, sparsifier_of_two()).step()
    with pytest.raises(TypeError, match="BaseSparsifier"):
        ft.ao.pruning.BaseScheduler(object())


def sparsifier_of_two() -> Any:
    """A sparsifier with two groups that has made no step."""
    sparsifier = ft.ao.pruning.WeightNormSparsifier(0.8)
    sparsifier.prepare(ft.nn.Sequential(ft.nn.Linear(4, 4), ft.nn.Linear(4, 4)), None)
    return sparsifier


def _convolutions(t: Any) -> Any:
    n = t.nn
    return n.Sequential(n.Conv2d(2, 8, 3), n.Conv2d(8, 6, 3, bias=False), n.ReLU(), n.Conv2d(6, 9, 3), n.ReLU(), n.MaxPool2d(2), n.Conv2d(9, 5, 3))


def _padded(t: Any) -> Any:
    n = t.nn
    return n.Sequential(n.Conv2d(2, 8, 3, padding=1), n.Sigmoid(), n.Conv2d(8, 6, 3, padding=1), n.ReLU(), n.Conv2d(6, 4, 3, padding=1, bias=False))


def _flattened(t: Any) -> Any:
    n, F = t.nn, t.nn.functional

    class Flattened(n.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.pool, self.end = n.Conv2d(2, 6, 3), n.AdaptiveAvgPool2d((2, 2)), n.Linear(24, 10)
            self.last = n.Linear(10, 3)

        def forward(self, x: Any) -> Any:
            return self.last(F.leaky_relu(self.end(t.flatten(self.pool(self.conv(x)), 1))))

    return Flattened()


SHAPES: dict[Any, tuple[int, ...]] = {_linear: (5, 7), _convolutions: (3, 2, 16, 16), _padded: (3, 2, 9, 9), _flattened: (3, 2, 9, 9)}
NAMES = {
    _linear: ["0", "2", "3"],
    _convolutions: ["0", "1", "3"],
    _padded: ["0", "2"],
    _flattened: ["conv", "end"],
}  # the last layers keep their outputs


@pytest.mark.parametrize("kind", ["SaliencyPruner", "FPGMPruner"])
@pytest.mark.parametrize("prune_bias", [True, False])
@pytest.mark.parametrize("make", list(SHAPES))
def test_smaller_models_give_what_masked_ones_give_and_pytorchs(make: Any, prune_bias: bool, kind: str) -> None:
    models, outputs = both(make), []
    x = values(SHAPES[make], 9)
    for t, model in zip((ft, torch), models, strict=True):
        pruner = getattr(pruners(t), kind)(**({"defaults": {"sparsity_level": 0.5}} if kind == "SaliencyPruner" else {"sparsity_level": 0.5}))
        pruner.prepare(model, [{"tensor_fqn": f"{name}.weight", "prune_bias": prune_bias} for name in NAMES[make]])
        pruner.step()
        masks = {name: entry["mask"].numpy().copy() for name, entry in pruner.state.items()}
        masked = model(t.tensor(x))
        made = pruner.prune()
        outputs.append((masks, masked, made(t.tensor(x)), model(t.tensor(x)), {k: tuple(v.shape) for k, v in made.state_dict().items()}))
    ours, theirs = outputs
    assert ours[0].keys() == theirs[0].keys() and all(np.array_equal(ours[0][k], theirs[0][k]) for k in ours[0])
    near(ours[1], theirs[1])
    near(ours[2], theirs[2])
    near(ours[3], ours[2])
    if not (prune_bias and make in (_linear, _padded)):  # a bias that goes was a constant behind the activation
        near(ours[2], ours[1])
    if make is not _padded:
        assert ours[4] == theirs[4]
    else:  # zeros around the next layer: PyTorch keeps all channels of both, here those go that give zero
        shape = {k: v[0] for k, v in ours[4].items()}
        assert shape == {"0.weight": 8, "0.bias": 8, "2.weight": 3 if prune_bias else shape["2.weight"], "2.bias": shape["2.weight"], "4.weight": 4}


def test_lstms_are_pytorchs() -> None:
    def make(t: Any, norm: bool) -> Any:
        n = t.nn

        class Recurrent(n.Module):  # type: ignore[misc, name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.lstm, self.norm, self.end = n.LSTM(4, 8, 2), n.LayerNorm(8) if norm else None, n.Linear(8, 3)

            def forward(self, x: Any) -> Any:
                y, _ = self.lstm(x)
                return self.end(self.norm(y) if norm else y)

        return Recurrent()

    x = values((5, 2, 4), 3)
    for norm in (False, True):
        results = []
        for t, model in zip((ft, torch), both(lambda t, norm=norm: make(t, norm)), strict=True):
            pruner = pruners(t).LSTMSaliencyPruner({"sparsity_level": 0.5})
            pruner.prepare(model, [{"tensor_fqn": f"lstm.weight_{k}_l{i}"} for i in (0, 1) for k in ("ih", "hh")])
            pruner.enable_mask_update = True
            pruner.step()
            made = pruner.prune()
            results.append((made(t.tensor(x)), {k: tuple(v.shape) for k, v in made.state_dict().items()}))
        near(results[0][0], results[1][0])
        assert results[0][1] == results[1][1]
        assert results[0][1]["lstm.weight_hh_l1"] == (16, 4)


def _block(channels: int = 6) -> Any:
    n = ft.nn

    class Block(n.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.bn1, self.drop = n.Conv2d(channels, channels, 3, padding=1, bias=False), n.BatchNorm2d(channels), n.Dropout(0.5)
            self.conv2, self.bn2 = n.Conv2d(channels, channels, 3, padding=1, bias=False), n.BatchNorm2d(channels)

        def forward(self, x: Any) -> Any:
            return ft.relu(self.bn2(self.conv2(self.drop(ft.relu(self.bn1(self.conv1(x)))))) + x)

    return Block()


def test_channels_inside_of_residual_blocks_go_with_their_normalisation() -> None:
    model = ft.nn.Sequential(
        ft.nn.Conv2d(2, 6, 3), _block(), _block(), ft.nn.Flatten(), ft.nn.Linear(216, 12), ft.nn.BatchNorm1d(12), ft.nn.GELU(), ft.nn.Linear(12, 3)
    )
    model.load_state_dict(
        {k: ft.tensor(np.abs(values(tuple(v.shape), i)) + 0.1) if v.is_floating_point() else v for i, (k, v) in enumerate(model.state_dict().items())}
    )
    model.eval()
    x = ft.tensor(values((3, 2, 8, 8)))
    pruner = pruners(ft).SaliencyPruner({"sparsity_level": 0.5})
    pruner.prepare(model, [{"tensor_fqn": "1.conv1.weight"}, {"tensor_fqn": "2.conv1.weight"}, {"tensor_fqn": "4.weight", "prune_bias": False}])
    pruner.step()
    for block in (model[1], model[2]):  # the shift goes with the channel
        gone = ~block.conv1.parametrizations.weight[0].mask
        block.bn1.weight.data[gone] = 0
        block.bn1.bias.data[gone] = 0
    masked = model(x)
    made = pruner.prune()
    near(made(x), masked)
    shapes = {k: tuple(v.shape) for k, v in made.state_dict().items()}
    assert shapes["1.conv1.weight"] == (3, 6, 3, 3) and shapes["1.bn1.running_mean"] == (3,) and shapes["1.conv2.weight"] == (6, 3, 3, 3)
    assert shapes["4.weight"] == (6, 216) and shapes["5.weight"] == (6,) and shapes["7.weight"] == (3, 6)
    made.train()
    made(x).sum().backward()
    assert all(p.grad is not None for p in made.parameters())
    file = io.BytesIO()
    ft.save(made.state_dict(), file)
    file.seek(0)
    made.load_state_dict(ft.load(file))


def test_what_cannot_be_pruned_is_refused_before_anything_changes() -> None:
    def refused(model: Any, name: str, text: str) -> None:
        pruner = pruners(ft).SaliencyPruner({"sparsity_level": 0.5})
        pruner.prepare(model, [{"tensor_fqn": f"{name}.weight"}])
        pruner.step()
        before = {k: tuple(v.shape) for k, v in model.state_dict().items()}
        with pytest.raises(Exception, match=f"still contains FakeStructuredSparsity.*{text}"):
            pruner.prune()
        assert {k: tuple(v.shape) for k, v in model.state_dict().items()} == before

    n = ft.nn
    refused(n.Sequential(n.Conv2d(2, 6, 3), _block()), "0", "goes to conv1, add|goes to .*conv1.*add")
    refused(n.Sequential(n.Conv2d(2, 6, 3, groups=2), n.Conv2d(6, 3, 3)), "0", "its groups are 2")
    refused(n.Sequential(n.Conv2d(2, 6, 3), n.ReLU(), n.Conv2d(6, 6, 3, groups=6)), "0", "the groups of 2")
    refused(n.Sequential(n.Linear(4, 6), n.LayerNorm(6), n.Linear(6, 3)), "0", "may mix channels")
    shared = n.Linear(4, 4)
    refused(n.Sequential(shared, n.ReLU(), shared), "0", "called 2 times")


def test_patterns_of_ones_own() -> None:
    seen = []

    def prune(first: Any, activation: Any, last: Any) -> None:
        seen.append((type(activation), last.in_features))
        importlib.import_module(f"flambeau.{PRUNER}.prune_functions").prune_linear_activation_linear(first, activation, last)

    class Own(pruners(ft).BaseStructuredSparsifier):  # type: ignore[misc]
        def update_mask(self, module: Any, tensor_name: str, **kwargs: Any) -> None:
            getattr(module.parametrizations, tensor_name)[0].mask[1] = False

    model = ft.nn.Sequential(ft.nn.Linear(3, 4), ft.nn.SELU(), ft.nn.Linear(4, 2))
    pruner = Own({}, {(ft.nn.Linear, ft.nn.SELU, ft.nn.Linear): prune})
    pruner.prepare(model, [{"tensor_fqn": "0.weight"}])
    pruner.step()
    pruner.prune()
    assert seen == [(ft.nn.SELU, 4)] and model[2].in_features == 3


def test_biases_are_trained_under_a_mask() -> None:
    model = ft.nn.Sequential(ft.nn.Linear(3, 4), ft.nn.ReLU(), ft.nn.Linear(4, 2))
    pruner = pruners(ft).SaliencyPruner({"sparsity_level": 0.25})
    pruner.prepare(model, [{"tensor_fqn": "0.weight"}])
    pruner.step()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(ft.randn(5, 2, 3)).square().sum().backward()  # inputs of more dims, too
    assert model[0]._bias.grad is not None
