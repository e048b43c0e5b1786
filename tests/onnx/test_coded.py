"""Weights and values of 8 and 4 bits as ONNX models: DequantizeLinear and MatMul, which ONNX Runtime and flambeau's own reading multiply by the codes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau as torch
from flambeau.ao.quantization import (
    Int4WeightOnlyConfig,
    Int8DynamicActivationInt8WeightConfig,
    Int8WeightOnlyConfig,
    IntxWeightOnlyConfig,
    MappingType,
    PerGroup,
    disable_observer,
    get_default_qat_qconfig_mapping,
    quantize_,
)  # fmt: skip
from flambeau.ao.quantization.quantize_fx import prepare_qat_fx
from flambeau.export import Dim
from flambeau.onnx.importing import coded
from flambeau.onnx.importing.values import from_array

onnx = pytest.importorskip("onnx")
nn = torch.nn

SYMMETRIC = IntxWeightOnlyConfig(torch.int4, PerGroup(32))
CONFIGS = {
    "int8 by rows": (Int8WeightOnlyConfig(), "INT8", 20), "int8 by 32": (Int8WeightOnlyConfig(32), "INT8", 21),
    "uint8": (IntxWeightOnlyConfig(torch.int8, PerGroup(64), MappingType.ASYMMETRIC), "UINT8", 21),
    "uint4 by 32": (Int4WeightOnlyConfig(32), "UINT4", 21), "uint4 by 128": (Int4WeightOnlyConfig(128), "UINT4", 21), "int4": (SYMMETRIC, "INT4", 21),
}  # fmt: skip


def network(config: Any, inputs: int, bias: bool) -> Any:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(inputs, 48, bias=bias), nn.ReLU(), nn.Linear(48, 7)).eval()
    quantize_(net, config)
    return net


def exported(net: Any, inputs: int, **more: Any) -> Any:
    return torch.onnx.export(net, (torch.randn(4, inputs),), dynamic_shapes=({0: Dim("batch", min=1, max=64)},), **more)


def kinds(proto: Any) -> list[str]:
    return [n.op_type for n in proto.graph.node]


def near(found: Any, wanted: Any, most: float = 1e-3) -> None:
    found, wanted = (np.asarray(x.detach().numpy() if isinstance(x, torch.Tensor) else x) for x in (found, wanted))
    assert found.shape == wanted.shape and np.abs(found - wanted).max() < most * np.abs(wanted).max()


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize(("inputs", "bias"), [(256, True), (100, False)])
def test_codes_stay_codes(name: str, inputs: int, bias: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    config, kind, opset = CONFIGS[name]
    net = network(config, inputs, bias)
    program = exported(net, inputs)
    proto = program.model_proto
    assert proto.opset_import[0].version == opset
    assert kinds(proto).count("DequantizeLinear") == kinds(proto).count("MatMul") == 2 and not {"Cast", "Mul", "Sub", "Gemm"} & set(kinds(proto))
    held = {t.name: t for t in proto.graph.initializer}
    for n in proto.graph.node:
        if n.op_type == "DequantizeLinear":
            assert held[n.input[0]].data_type == getattr(onnx.TensorProto, kind)
    used = []
    real = coded.coded_linear
    monkeypatch.setattr(coded, "coded_linear", lambda *a: used.append(1) or real(*a))
    runtime = pytest.importorskip("onnxruntime")
    sessions = []
    for level, most in (("1", 2e-3), ("4", 0.02)):  # by float inputs, and by inputs that are rounded to 8 bits, which is its default
        options = runtime.SessionOptions()
        options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", level)
        sessions.append((runtime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"]), most))
    read = torch.onnx.load(proto)
    for rows in (1, 3, 9, 40):
        x = torch.randn(rows, inputs)
        with torch.no_grad():
            wanted = net(x)
            used.clear()
            near(read(x), wanted, 1e-4)  # inputs of a product keep 15 bits, so a last bit of the layer before counts
            assert used == [1, 1]
        for session, most in sessions:
            near(session.run(None, {session.get_inputs()[0].name: x.numpy()})[0], wanted, most)
        near(program.call_reference(x)[0], wanted)


def test_what_is_read_can_be_trained() -> None:
    net = network(SYMMETRIC, 64, True)
    read, x = torch.onnx.load(exported(net, 64).model_proto), torch.randn(5, 64)
    near(read(x), net(x))
    read(x).square().sum().backward()
    scales = [p for n, p in read.named_parameters() if "scales" in n]
    assert len(scales) == 2 and all(p.grad.abs().sum() > 0 for p in scales)
    with torch.no_grad():
        before = read(x)
        read(x)
        for p in scales:
            p.mul_(2)
        assert not torch.allclose(read(x), before)


def test_older_opsets_and_odd_zero_points_keep_the_steps() -> None:
    net, x = network(SYMMETRIC, 64, True), torch.randn(3, 64)
    old = exported(net, 64, opset_version=20)
    assert "DequantizeLinear" not in kinds(old.model_proto)
    near(old(x)[0], net(x), 1e-4)
    net[0].zeros += 0.25
    odd = exported(net, 64)
    assert "DequantizeLinear" not in kinds(odd.model_proto) and odd.model_proto.opset_import[0].version == 20
    near(odd(x)[0], net(x), 1e-4)


def test_one_weight_in_two_places_is_one() -> None:
    net = network(SYMMETRIC, 64, True)
    net = nn.Sequential(net, nn.Linear(7, 64), net)
    proto = exported(net, 64).model_proto
    assert kinds(proto).count("DequantizeLinear") == 2 and kinds(proto).count("MatMul") == 4
    x = torch.randn(2, 64)
    near(torch.onnx.load(proto)(x), net(x))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.end = nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.Linear(288, 10)

    def forward(self, x: Any) -> Any:
        return self.end(torch.flatten(torch.relu(self.norm(self.conv(x))), 1))


def of_static() -> Any:
    """Convolution and dense layer with weights and values between them rounded to 8 bits, as training with rounding leaves them."""
    model = prepare_qat_fx(Net().train(), get_default_qat_qconfig_mapping("x86"), (torch.randn(4, 1, 8, 8),))
    for _ in range(3):
        model(torch.randn(64, 1, 8, 8))
    return model.eval().apply(disable_observer)


def of_dynamic() -> Any:
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)).eval()
    quantize_(model, Int8DynamicActivationInt8WeightConfig())
    return model


@pytest.mark.parametrize(("make", "found"), [(of_static, {"QuantizeLinear", "DequantizeLinear"}), (of_dynamic, {"MatMulInteger"})])
def test_values_of_8_bits(make: Any, found: set[str]) -> None:
    runtime = pytest.importorskip("onnxruntime")
    torch.manual_seed(0)
    model = make()
    shapes = ({0: Dim("batch", min=1, max=64)},)
    program = torch.onnx.export(torch.export.export(model, (torch.randn(4, 1, 8, 8),), dynamic_shapes=shapes))
    assert found <= set(kinds(program.model_proto))
    session = runtime.InferenceSession(program.model_proto.SerializeToString(), providers=["CPUExecutionProvider"])
    for rows in (1, 50):
        x = torch.randn(rows, 1, 8, 8)
        with torch.no_grad():
            wanted = model(x)
        near(program(x)[0], wanted, 0.02)  # a value between two codes may become either
        theirs = session.run(None, {session.get_inputs()[0].name: x.numpy()})[0]
        near(theirs, wanted, 0.05)
        assert np.abs(theirs - wanted.numpy()).mean() < 2e-3 * np.abs(theirs).max()


def n_bits(bits: int, zeros: str, rows: int = 24, count: int = 80, group: int = 32) -> Any:
    """A model of one MatMulNBits, and its weight (N, K)."""
    random = np.random.default_rng(bits)
    blocks = -(-count // group)
    codes = random.integers(0, 1 << bits, (rows, blocks * group)).astype(np.uint8)
    scales = random.random((rows, blocks), np.float32) + 0.5
    middle = np.full((rows, blocks), float(1 << (bits - 1)), np.float32)
    inputs = {"b": codes, "scales": scales}

    def packed(a: Any) -> Any:
        each = 8 // bits
        a = np.pad(a, ((0, 0), (0, -a.shape[1] % each))).reshape(rows, -1, each).astype(np.uint8)
        made = np.zeros(a.shape[:2], np.uint8)
        for i in range(each):
            made |= a[:, :, i] << (i * bits)
        return made

    if zeros == "codes":
        middle = random.integers(0, 1 << bits, middle.shape).astype(np.float32)
        inputs["zeros"] = packed(middle)
    elif zeros == "floats":
        middle = (random.random(middle.shape) * 7).astype(np.float32)
        inputs["zeros"] = middle
    inputs["b"] = packed(codes).reshape(rows, blocks, -1)
    helper = onnx.helper
    held = [onnx.numpy_helper.from_array(a, name) for name, a in inputs.items()]
    node = helper.make_node("MatMulNBits", ["x", *inputs], ["y"], domain="com.microsoft", K=count, N=rows, bits=bits, block_size=group)
    info = helper.make_tensor_value_info
    graph = helper.make_graph([node], "g", [info("x", 1, ["n", count])], [info("y", 1, ["n", rows])], held)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)], ir_version=10)
    weight = (codes.astype(np.float32) - middle.repeat(group, 1)) * scales.repeat(group, 1)
    return proto, weight[:, :count]


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zeros", ["", "codes", "floats"])
@pytest.mark.parametrize(("count", "group"), [(80, 32), (256, 128), (48, 16)])
def test_mat_mul_n_bits(bits: int, zeros: str, count: int, group: int) -> None:
    proto, weight = n_bits(bits, zeros, count=count, group=group)
    read = torch.onnx.load(proto)
    for rows in (1, 11):
        x = torch.randn(rows, count)
        wanted = x.numpy() @ weight.T
        near(read(x), wanted)
        with torch.no_grad():
            for _ in range(2):
                near(read(x), wanted)
    if bits == 4 or (bits == 8 and zeros != "floats"):
        runtime = pytest.importorskip("onnxruntime")
        session = runtime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
        near(session.run(None, {"x": x.numpy()})[0], wanted, 0.02)


def test_a_matrix_of_codes_by_hand() -> None:
    """DequantizeLinear of other forms is read as it says: another axis, blocks of a size that no kernel has, a weight that is shown."""
    random = np.random.default_rng(0)
    helper, info = onnx.helper, onnx.helper.make_tensor_value_info
    for axis, block, shape in ((0, 16, (4, 24)), (1, 8, (64, 3)), (0, 0, (64,)), (1, 0, (24,)), (0, 32, (2, 24))):
        q, scale = random.integers(-128, 128, (64, 24)).astype(np.int8), random.random(shape, np.float32) + 0.5
        nodes = [helper.make_node("DequantizeLinear", ["q", "s"], ["w"], axis=axis, **({"block_size": block} if block else {})),
                 helper.make_node("MatMul", ["x", "w"], ["y"])]  # fmt: skip
        outputs = [info("y", 1, ["n", 24])] + ([info("w", 1, [64, 24])] if axis == 1 else [])
        held = [onnx.numpy_helper.from_array(q, "q"), onnx.numpy_helper.from_array(scale, "s")]
        graph = helper.make_graph(nodes, "g", [info("x", 1, ["n", 64])], outputs, held)
        read = torch.onnx.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]))
        weight = q * (scale.repeat(block, axis) if block else scale[:, None] if axis == 0 else scale)
        x = torch.randn(3, 64)
        with torch.no_grad():
            made = read(x)
        near(made[0] if axis == 1 else made, x.numpy() @ weight)
        if axis == 1:
            near(made[1], weight)
    assert from_array(q).dtype is torch.int8
