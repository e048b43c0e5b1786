"""torch.ao.quantization.quantize_fx: traced models become those of integers that PyTorch makes of them."""

from __future__ import annotations

import copy
import importlib
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flambeau as ft
from tests.quantized.oracle import torch, values

for module in ("quantize_fx", "fx.custom_config"):
    importlib.import_module(f"torch.ao.quantization.{module}")
pytestmark = pytest.mark.filterwarnings("ignore")


def _convolutional(t: Any) -> Any:
    n = t.nn
    return n.Sequential(n.Conv2d(3, 8, 3, padding=1), n.BatchNorm2d(8), n.ReLU(), n.MaxPool2d(2), n.Conv2d(8, 8, 3), n.ReLU(), n.Flatten(), n.Linear(32, 5))


def _residual(t: Any) -> Any:
    n, F = t.nn, t.nn.functional

    class Block(n.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.bn1 = n.Conv2d(3, 6, 3, padding=1), n.BatchNorm2d(6)
            self.conv2, self.bn2 = n.Conv2d(6, 6, 3, padding=1), n.BatchNorm2d(6)
            self.down = n.Sequential(n.Conv2d(3, 6, 1), n.BatchNorm2d(6))
            self.pool, self.end = n.AdaptiveAvgPool2d(1), n.Linear(12, 4)

        def forward(self, x: Any) -> Any:
            y = F.relu(self.bn1(self.conv1(x)))
            y = self.bn2(self.conv2(y))
            z = self.down(x)
            a = F.relu(y + z)
            b = t.cat([a, t.mul(y, z)], 1)
            b = self.pool(b) + 0.5
            return self.end(t.flatten(b, 1))

    return Block()


def _dense(t: Any) -> Any:
    n = t.nn
    return n.Sequential(n.Linear(7, 16), n.ReLU(), n.Linear(16, 16), n.Tanh(), n.Linear(16, 8), n.Sigmoid(), n.Linear(8, 3))


def _functions(t: Any) -> Any:
    n, F = t.nn, t.nn.functional

    class Functions(n.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.kernel, self.kernel_bias = n.Parameter(t.empty(6, 3, 3, 3)), n.Parameter(t.empty(6))
            self.weight, self.bias = n.Parameter(t.empty(5, 24)), n.Parameter(t.empty(5))

        def forward(self, x: Any) -> Any:
            y = F.relu(F.conv2d(x, self.kernel, self.kernel_bias, (2, 2), (1, 1), (1, 1), 1))
            y = F.max_pool2d(y, 2).reshape(x.shape[0], -1)
            return F.linear(y, self.weight, self.bias)

    return Functions()


SHAPES = {_convolutional: (4, 3, 8, 8), _residual: (4, 3, 6, 6), _dense: (6, 7), _functions: (4, 3, 8, 8)}
MODELS = list(SHAPES)


def _pair(make: Callable[[Any], Any]) -> list[tuple[Any, Any]]:
    """The same model of both libraries, with random statistics."""
    theirs, ours = make(torch), make(ft)
    state = {}
    for i, (name, value) in enumerate(theirs.state_dict().items()):
        drawn = values(tuple(value.shape), i, 0.3)
        state[name] = np.int64(1) if value.ndim == 0 else np.abs(drawn) + 0.5 if "running_var" in name else drawn
    theirs.load_state_dict({k: torch.tensor(v) for k, v in state.items()})
    ours.load_state_dict({k: ft.tensor(v) for k, v in state.items()})
    return [(torch, theirs), (ft, ours)]


def _quantum(made: Any) -> float:
    """The scale of the result: that of the last module that has one."""
    scales = [float(m.scale) for m in made.modules() if hasattr(m, "scale") and not callable(m.scale)]
    return scales[-1] if scales else 0.0


def _kinds(made: Any) -> list[str]:
    """What a graph calls, in its order; a packed weight's function is named by the module that stands for it here."""
    modules, found = dict(made.named_modules()), []
    for node in made.graph.nodes:
        if node.op == "call_module":
            found.append(type(modules[node.target]).__name__)
        elif node.op in ("call_function", "call_method"):
            found.append(node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target)))
    return found


def _static(t: Any, model: Any, make: Any, mapping: Any) -> tuple[Any, Any]:
    x = t.from_numpy(values(SHAPES[make], 0))
    prepared = t.ao.quantization.quantize_fx.prepare_fx(model.eval(), mapping, (x,))
    for i in range(3):
        prepared(t.from_numpy(values(SHAPES[make], i) * (1 + i % 2)))
    made = t.ao.quantization.quantize_fx.convert_fx(prepared)
    return made, made(t.from_numpy(values(SHAPES[make], 9))).detach().numpy()


@pytest.mark.parametrize("backend", ["x86", "qnnpack"])
@pytest.mark.parametrize("make", MODELS)
def test_static(make: Any, backend: str) -> None:
    (theirs, a), (ours, b) = [_static(t, m, make, t.ao.quantization.get_default_qconfig_mapping(backend)) for t, m in _pair(make)]
    np.testing.assert_allclose(b, a, rtol=1e-5, atol=1.01 * _quantum(ours) + 1e-6)
    assert np.abs(a - b).mean() <= 0.1 * _quantum(ours) + 1e-6  # few differ at all
    if make is not _functions:
        assert [k.partition(".")[0] for k in _kinds(ours)] == [k.partition(".")[0] for k in _kinds(theirs)]
        assert sorted(ours.state_dict()) == sorted(theirs.state_dict())


def _layer(t: Any, name: str) -> Any:
    """A layer with another before and behind it."""
    n = t.nn
    arguments = {
        "ConvTranspose2d": (3, 3, 2),
        "LayerNorm": (6,),
        "BatchNorm2d": (3,),
        "InstanceNorm2d": (3,),
        "GroupNorm": (1, 3),
        "Softmax": (1,),
        "PReLU": (3,),
    }
    made = getattr(n, name)(*arguments.get(name, ()), **({"affine": True} if name == "InstanceNorm2d" else {}))
    return n.Sequential(n.Conv2d(3, 3, 3, padding=1), made, n.Conv2d(3, 2, 1))


LAYERS = (
    "ConvTranspose2d LayerNorm BatchNorm2d InstanceNorm2d GroupNorm Softmax PReLU ELU LeakyReLU Hardswish Hardsigmoid Sigmoid Tanh ReLU6 Hardtanh Identity "
    "Dropout GELU"
).split()


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name: str) -> None:
    found = []
    for t, model in _pair(lambda t: _layer(t, name)):
        made, result = _static(t, model, _residual, t.ao.quantization.get_default_qconfig_mapping("x86"))
        if name == "PReLU" and t is torch:  # with a slope for each channel its kernel takes the wrong ones: results are compared with the float model's
            result = model(t.from_numpy(values(SHAPES[_residual], 9))).detach().numpy()
        found.append((_kinds(made), result, made))
    assert found[1][0] == found[0][0]
    if name == "PReLU":
        np.testing.assert_allclose(found[1][1], found[0][1], atol=2 * _quantum(found[1][2]))
        return
    np.testing.assert_allclose(found[1][1], found[0][1], atol=1.01 * _quantum(found[1][2]) + 1e-6)
    assert np.mean(np.abs(found[1][1] - found[0][1])) <= 0.1 * _quantum(found[1][2])


@pytest.mark.parametrize("kind", ["LSTM", "Embedding"])
def test_recurrent_layers_and_tables(kind: str) -> None:
    found = []
    for t, model in _pair(lambda t: t.nn.Sequential(t.nn.LSTM(7, 5) if kind == "LSTM" else t.nn.Embedding(9, 8))):
        q = t.ao.quantization
        qconfig = q.default_dynamic_qconfig if kind == "LSTM" else q.float_qparams_weight_only_qconfig
        x = t.from_numpy(values((3, 2, 7)) if kind == "LSTM" else np.int64([[1, 5, 8]]))
        prepared = q.quantize_fx.prepare_fx(model.eval(), q.QConfigMapping().set_global(qconfig), (x,))
        prepared(x)
        made = q.quantize_fx.convert_fx(prepared)
        result = made(x)
        found.append((_kinds(made), (result[0] if kind == "LSTM" else result).detach().numpy(), "quantized" in type(getattr(made, "0")).__module__))
    assert found[1][0] == found[0][0] and found[1][2]
    np.testing.assert_allclose(found[1][1], found[0][1], atol=1e-5)


@pytest.mark.parametrize("make", [_dense, _functions])
def test_dynamic(make: Any) -> None:
    found = []
    for t, model in _pair(make):
        q = t.ao.quantization
        mapping = q.QConfigMapping().set_global(q.default_dynamic_qconfig)
        made, result = _static(t, model, make, mapping)
        found.append(result)
        if t is ft:
            assert sum(isinstance(m, ft.ao.nn.quantized.dynamic.Linear) for m in made.modules()) == (4 if make is _dense else 1)
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("make", [_convolutional, _residual, _dense])
def test_training_with_rounding(make: Any) -> None:
    found = []
    for t, model in _pair(make):
        q = t.ao.quantization
        x = t.from_numpy(values(SHAPES[make], 0))
        prepared = q.quantize_fx.prepare_qat_fx(model.train(), q.get_default_qat_qconfig_mapping("x86"), (x,))
        optimizer = t.optim.SGD(prepared.parameters(), lr=0.01)
        for i in range(3):
            loss = prepared(t.from_numpy(values(SHAPES[make], i))).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        made = q.quantize_fx.convert_fx(prepared.eval())
        found.append((loss.item(), made(x).detach().numpy(), made))
    assert found[1][0] == pytest.approx(found[0][0], rel=2e-2)
    # A value next to the middle of two codes may go to the other one in training, and weights differ from there on.
    np.testing.assert_allclose(found[1][1], found[0][1], atol=3 * _quantum(found[1][2]) + 2e-2 * np.abs(found[0][1]).max())
    assert [type(m).__name__ for m in found[1][2].children()] == [type(m).__name__ for m in found[0][2].children()]


@pytest.mark.parametrize("rule", ["name", "regex", "type", "function", "order"])
def test_parts_that_stay_floats(rule: str) -> None:
    kinds, results = [], []
    for t, model in _pair(_residual):
        mapping = t.ao.quantization.get_default_qconfig_mapping("x86")
        if rule == "name":
            mapping.set_module_name("down", None)
        elif rule == "regex":
            mapping.set_module_name_regex("conv.*", None)
        elif rule == "type":
            mapping.set_object_type(t.nn.Linear, None)
        elif rule == "function":
            mapping.set_object_type(operator.add, None)
        else:
            mapping.set_module_name_object_type_order("", t.nn.Conv2d, 1, None)
        made, result = _static(t, model, _residual, mapping)
        kinds.append([k.partition(".")[0] for k in _kinds(made)])
        results.append(result)
    assert kinds[0] == kinds[1]
    np.testing.assert_allclose(results[1], results[0], atol=0.05)


def _odd(t: Any) -> Any:
    """A layer that is called twice, a relu behind two users, sizes, a branch that stays a float, a nested block, dropout."""
    n, F = t.nn, t.nn.functional

    class Odd(n.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.block = n.Conv2d(3, 3, 3, padding=1), n.Sequential(n.Sequential(n.Conv2d(3, 3, 1), n.ReLU()), n.Dropout(0.1))
            self.end = n.Linear(216, 4)

        def forward(self, x: Any) -> Any:
            y = self.conv(x)
            z = F.relu(y) - y  # a difference has no operation of integers
            z = self.block(self.conv(z)) * 0.5
            z = F.avg_pool2d(z, 3, 1, 1)
            return self.end(t.cat((z, y.relu()), 1).reshape(x.size(0), -1))

    return Odd()


def test_what_is_not_plain() -> None:
    found = []
    for t, model in _pair(_odd):
        made, result = _static(t, model, _residual, t.ao.quantization.get_default_qconfig_mapping("x86"))
        found.append((result, made))
        assert np.abs(result - model(t.from_numpy(values(SHAPES[_residual], 9))).detach().numpy()).max() < 0.3
    np.testing.assert_allclose(found[1][0], found[0][0], atol=2.01 * _quantum(found[1][1]))
    again = copy.deepcopy(found[1][1])
    np.testing.assert_array_equal(again(ft.from_numpy(values(SHAPES[_residual], 9))).numpy(), found[1][0])


def test_the_prepared_graph() -> None:
    """Observers stand where PyTorch's do, and the same are shared."""
    found = []
    for t, model in _pair(_residual):
        x = t.from_numpy(values(SHAPES[_residual], 0))
        prepared = t.ao.quantization.quantize_fx.prepare_fx(model.eval(), t.ao.quantization.get_default_qconfig_mapping("x86"), (x,))
        modules = dict(prepared.named_modules(remove_duplicate=False))
        ids: dict[int, int] = {}
        found.append([])
        for node in prepared.graph.nodes:
            if node.op == "call_module":
                module = modules[node.target]
                found[-1].append((type(module).__name__, ids.setdefault(id(module), len(ids))))
            else:
                found[-1].append(node.op)
    assert found[0] == found[1]


def test_fuse_and_kept_attributes() -> None:
    for t, model in _pair(_convolutional):
        model.eval().note = "kept"
        x = t.from_numpy(values(SHAPES[_convolutional], 1))
        custom = t.ao.quantization.fx.custom_config.FuseCustomConfig().set_preserved_attributes(["note"])
        fused = t.ao.quantization.quantize_fx.fuse_fx(model, custom)
        assert fused.note == "kept" and _kinds(fused) == ["ConvReLU2d", "MaxPool2d", "ConvReLU2d", "Flatten", "Linear"]
        np.testing.assert_allclose(fused(x).detach().numpy(), model(x).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_inputs_and_outputs_that_are_quantized() -> None:
    found = []
    for t, model in _pair(_dense):
        q = t.ao.quantization
        custom = q.fx.custom_config.PrepareCustomConfig().set_input_quantized_indexes([0]).set_output_quantized_indexes([0])
        prepared = q.quantize_fx.prepare_fx(model.eval(), q.get_default_qconfig_mapping("x86"), (), custom)
        x = t.from_numpy(values(SHAPES[_dense], 0))
        prepared(x)
        found.append(q.quantize_fx.convert_fx(prepared)(t.quantize_per_tensor(x, 0.05, 60, t.quint8)))
    assert found[1].is_quantized
    np.testing.assert_allclose(found[1].int_repr().numpy().astype(int), found[0].int_repr().numpy().astype(int), atol=1)


def test_saved_weights_are_read() -> None:
    _, (_, ours) = _pair(_residual)
    made, result = _static(ft, copy.deepcopy(ours), _residual, ft.ao.quantization.get_default_qconfig_mapping("x86"))
    again, _ = _static(ft, _residual(ft), _residual, ft.ao.quantization.get_default_qconfig_mapping("x86"))
    again.load_state_dict(made.state_dict())
    np.testing.assert_array_equal(again(ft.from_numpy(values(SHAPES[_residual], 9))).numpy(), result)


def test_errors() -> None:
    q = ft.ao.quantization
    fx, x = q.quantize_fx, (ft.zeros(1, 7),)
    mapping = q.get_default_qconfig_mapping()
    with pytest.raises(TypeError, match="expected a QConfigMapping"):
        fx.prepare_fx(_dense(ft).eval(), q.default_qconfig, x)
    with pytest.raises(TypeError, match="expected a PrepareCustomConfig"):
        fx.prepare_fx(_dense(ft).eval(), mapping, x, {"non_traceable_module_name": []})
    with pytest.raises(NotImplementedError, match="QConfigMapping"):
        q.backend_config.BackendConfig().set_backend_pattern_config(None)
    with pytest.raises(NotImplementedError, match="one set of operations"):
        q.backend_config.BackendConfig("tensorrt")
    with pytest.raises(AssertionError, match="must be produced by prepare_fx"):
        fx.convert_fx(_dense(ft))
    with pytest.raises(NotImplementedError, match="reference"):
        fx.convert_to_reference_fx(None)
    with pytest.raises(LookupError, match="same qconfigs"):
        fx.prepare_fx(_dense(ft).eval(), q.get_default_qconfig_mapping().set_object_type(ft.nn.Linear, q.default_qconfig), x)
    with pytest.raises(NotImplementedError, match="Embedding"):
        fx.prepare_qat_fx(ft.nn.Sequential(ft.nn.Embedding(3, 2)).train(), q.get_default_qat_qconfig_mapping(), ())
