"""ONNX models as modules: parts of ONNX's own suite, parameters that train, control flow, functions, errors that name the operator."""

from __future__ import annotations

import re
import unittest
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flambeau as torch
from tests import processes

onnx = pytest.importorskip("onnx")
helper: Any = onnx.helper
F32, I64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64


def _model(nodes: Any, inputs: Any, outputs: Any, initializers: Any = (), functions: Any = (), opset: int = 20) -> Any:
    graph = helper.make_graph(list(nodes), "g", list(inputs), list(outputs), [onnx.numpy_helper.from_array(a, n) for n, a in dict(initializers).items()])
    imports = [helper.make_opsetid("", opset), *([helper.make_opsetid("own", 1)] if functions else [])]
    made = helper.make_model(graph, opset_imports=imports, functions=list(functions))
    made.ir_version = 10
    return made


def _info(name: str, shape: Any, kind: int = F32) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


# What does not pass, and why: random numbers of another generator, images that only a decoder reads, gradients as operators, values below the tolerance.
NOT = re.compile(r"bernoulli|training_dropout(?!_zero)|image_decoder|gradient_of|dft_inverse|loop16_seq_none|attention_4d_causal_fp16")


def _items() -> dict[str, Any]:
    from tests.onnx import suite

    return {name: item for tests in suite.items().values() for name, item in tests.items()}


@pytest.fixture(scope="module")
def items() -> dict[str, Any]:
    return _items()


PARTS = (
    "simple operator convtranspose lstm gru rnn loop scan if sequence optional string quantize qlinear resize attention layer_norm "
    "scatter gather pool pad slice top_k einsum nonmax roialign dft cast unique reduce softmax split tfidf gridsample momentum tree "
    "conv bitshift mod clip"
).split()


@pytest.mark.parametrize("part", PARTS)
def test_onnx_suite(part: str, items: dict[str, Any]) -> None:
    """Six tests of each part, or all of small ones: `python -m tests.onnx.suite` runs the whole suite."""
    found = [n for n in sorted(items) if part in n and not NOT.search(n) and "expanded" not in n]
    if not found:
        pytest.skip("no test of this name in this version of onnx")
    for name in found[:: max(1, len(found) // 6)]:
        items[name].func(unittest.TestCase())


@pytest.mark.slow
def test_the_whole_suite(items: dict[str, Any]) -> None:
    from tests.onnx import suite

    failed = [n for n, item in items.items() if suite.run(item) is not None]
    assert len(items) - len(failed) >= 1900
    assert [n for n in failed if not NOT.search(n)] == []


def test_float_initializers_are_parameters_that_train() -> None:
    w = np.ones((3, 2), np.float32)
    model = torch.onnx.load(_model([helper.make_node("MatMul", ["x", "layer.w"], ["y"])], [_info("x", ["n", 3])], [_info("y", ["n", 2])], {"layer.w": w}))
    assert [n for n, _ in model.named_parameters()] == ["layer_w"]
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model(torch.ones(4, 3)).sum().backward()
    optimizer.step()
    np.testing.assert_allclose(model.layer_w.detach().numpy(), 1 - 0.4)
    assert set(model.state_dict()) == {"layer_w"}


def test_sizes_are_known_without_a_kernel_and_inputs_may_differ() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]), helper.make_node("Gather", ["s", "zero"], ["n"]), helper.make_node("Concat", ["n", "rest"], ["t"], axis=0),
        helper.make_node("Reshape", ["x", "t"], ["y"]),
    ]  # fmt: skip
    proto = _model(nodes, [_info("x", ["n", 2, 3])], [_info("y", ["n", 6])], {"zero": np.array([0]), "rest": np.array([-1])})
    model = torch.onnx.load(proto)
    for n in (1, 4):
        assert model(torch.ones(n, 2, 3)).shape == (n, 6)
    with pytest.raises(ValueError, match=r"input 'x' has the shape \['n', 2, 3\], got one of \[2, 3\]"):
        model(torch.ones(2, 3))
    with pytest.raises(TypeError, match=r"input 'x' is of dtype float32, got a tensor of torch\.int64"):
        model(torch.ones(1, 2, 3, dtype=torch.int64))
    with pytest.raises(TypeError, match="input 'x' is missing"):
        model()
    with pytest.raises(TypeError, match="no input 'z'"):
        model(z=torch.ones(1))


def test_branches_see_the_values_around_them() -> None:
    double = helper.make_graph([helper.make_node("Mul", ["x", "two"], ["a"])], "t", [], [_info("a", ["n"])])
    same = helper.make_graph([helper.make_node("Identity", ["x"], ["b"])], "e", [], [_info("b", ["n"])])
    nodes = [helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0), helper.make_node("Greater", ["s", "zero"], ["c"]),
             helper.make_node("If", ["c"], ["y"], then_branch=double, else_branch=same)]  # fmt: skip
    held = {"two": np.float32(2), "zero": np.float32(0)}
    model = torch.onnx.load(_model(nodes, [_info("x", ["n"])], [_info("y", ["n"])], held))
    assert model(torch.tensor([1.0, 2.0])).tolist() == [2.0, 4.0]
    assert model(torch.tensor([-1.0, -2.0])).tolist() == [-1.0, -2.0]


def test_functions_of_the_model() -> None:
    body = helper.make_node("LeakyRelu", ["a"], ["b"])
    body.attribute.append(onnx.AttributeProto(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT))
    function = helper.make_function("own", "Slope", ["a"], ["b"], [body], [helper.make_opsetid("", 20)], ["slope"])
    node = helper.make_node("Slope", ["x"], ["y"], domain="own", slope=0.5)
    model = torch.onnx.load(_model([node], [_info("x", ["n"])], [_info("y", ["n"])], functions=[function]))
    assert model(torch.tensor([-2.0, 2.0])).tolist() == [-1.0, 2.0]


def test_operators_that_are_not_there_are_named_when_a_model_is_read() -> None:
    nodes = [helper.make_node("Foo", ["x"], ["a"], domain="com.example"), helper.make_node("ImageDecoder", ["a"], ["y"])]
    with pytest.raises(NotImplementedError, match=r"ImageDecoder, com\.example\.Foo"):
        torch.onnx.load(_model(nodes, [_info("x", ["n"])], [_info("y", ["n"])]))


def test_an_error_says_which_node_it_came_from() -> None:
    model = torch.onnx.load(_model([helper.make_node("MatMul", ["x", "x"], ["y"], name="square")], [_info("x", [2, 3])], [_info("y", None)]))
    with pytest.raises(RuntimeError) as caught:
        model(torch.ones(2, 3))
    assert "in the node 'square' (MatMul) of the ONNX model" in caught.value.__notes__


def test_files_that_are_no_models(tmp_path: Path) -> None:
    path = tmp_path / "no.onnx"
    for content in (b"", b"\x00\x01\x02 no protobuf", b"PK\x03\x04"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="no ONNX model"):
            torch.onnx.load(path)
    with pytest.raises(FileNotFoundError):
        torch.onnx.load(tmp_path / "missing.onnx")


def test_run_takes_and_gives_arrays() -> None:
    proto = _model([helper.make_node("Add", ["x", "x"], ["y"]), helper.make_node("Neg", ["x"], ["z"])], [_info("x", [2])], [_info("y", [2]), _info("z", [2])])
    x = np.array([1.0, 2.0], np.float32)
    [z] = torch.onnx.run(proto, {"x": x}, ["z"])
    assert isinstance(z, np.ndarray) and z.tolist() == [-1.0, -2.0]
    with pytest.raises(ValueError, match="no output 'w'; its outputs: y, z"):
        torch.onnx.run(proto, [x], ["w"])


def test_without_the_package_the_extra_is_named() -> None:
    code = "import sys; sys.modules['onnx'] = None\nimport flambeau as torch\ntorch.onnx.load('m.onnx')"
    done = processes.python("-c", code, timeout=120)
    assert "pip install 'flambeau[onnx]'" in done.stderr
