"""Every core operator of ATen: in a program of flambeau's that PyTorch runs, and in one of PyTorch's that flambeau runs, with equal results."""

from __future__ import annotations

import ast
import io
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

import flambeau
from flambeau.export import decomposing
from tests.export import schemas
from tests.export.core_operators import UNREACHABLE, calls, tensors

RANDOM = frozenset("rand.default randn.default randperm.default empty.memory_format empty_strided.default".split())  # shapes and dtypes are compared


@cache
def _tensors() -> dict[str, Any]:
    found = tensors()
    places = torch.ops.aten.max_pool2d_with_indices.default(torch.tensor(found["I"]), [2, 2], [2, 2])[1]
    statistics = {"stat": np.array([[0.1, -0.2], [0.3, 0.5]], "f"), "row": np.array([[0.1], [-0.2], [0.7]], "f")}
    return found | statistics | {"places": places.numpy()}


def _module(package: Any, call: str) -> tuple[Any, list[Any]]:
    """(a module that makes the call, the arrays that it is given)."""
    letters = sorted({n.id for n in ast.walk(ast.parse(call)) if isinstance(n, ast.Name) and n.id in _tensors()})
    code = compile("aten." + call, call, "eval")

    class Program(package.nn.Module):
        def forward(self, *arrays: Any) -> Any:
            names = {"aten": package.ops.aten, "float64": package.float64, "cpu": package.device("cpu")}
            result = eval(code, names | dict(zip(letters, arrays, strict=True)))
            return tuple(result) if isinstance(result, tuple) else result  # named tuples have no form in files, here as in PyTorch

    return Program(), [_tensors()[letter] for letter in letters]


def _leaves(tree: Any) -> list[Any]:
    return [leaf for part in tree for leaf in _leaves(part)] if isinstance(tree, (tuple, list)) else [tree]


def _equal(ours: Any, theirs: Any, values: bool) -> None:
    left, right = _leaves(ours), _leaves(theirs)
    assert len(left) == len(right) > 0
    for a, b in zip(left, right, strict=True):
        x, y = [np.asarray(v.detach()) for v in (a, b)]
        assert x.shape == y.shape and x.dtype == y.dtype
        if values:
            np.testing.assert_allclose(x, y, rtol=2e-4, atol=2e-5)


def test_the_table_has_all_core_operators() -> None:
    """Those that PyTorch tags as core."""
    core = set(schemas.core())
    assert not set(calls()) & set(UNREACHABLE)
    assert set(calls()) | set(UNREACHABLE) == decomposing.core() <= core
    later = {"avg_pool1d.default", "adaptive_avg_pool1d.default", "resize_.default", "sym_is_contiguous.default"}
    assert core - decomposing.core() <= later  # PyTorch tags them once other parts of it were imported


@pytest.mark.parametrize("operator", list(calls()))
def test_programs_go_both_ways(operator: str) -> None:
    call = calls()[operator]
    (ours, arrays), (theirs, _) = _module(flambeau, call), _module(torch, call)
    given, wanted = tuple([flambeau.tensor(a) for a in arrays]), theirs(*[torch.tensor(a) for a in arrays])
    values = operator not in RANDOM
    program = flambeau.export.export(ours, given)
    assert f"aten.{operator}" in [str(n.target) for n in program.graph.nodes]
    file = io.BytesIO()
    flambeau.export.save(program, file)
    loaded = torch.export.load(io.BytesIO(file.getvalue())).module()
    _equal(loaded(*[torch.tensor(a) for a in arrays]), wanted, values)
    _equal(flambeau.export.load(io.BytesIO(file.getvalue())).module()(*given), wanted, values)

    back = io.BytesIO()
    torch.export.save(torch.export.export(theirs, tuple([torch.tensor(a) for a in arrays])), back)
    _equal(flambeau.export.load(io.BytesIO(back.getvalue())).module()(*given), wanted, values)


@pytest.mark.parametrize(("operator", "call"), [("nonzero", "nonzero.default(x)"), ("item", "_local_scalar_dense.default(x.sum())")])
def test_what_depends_on_values_is_refused(operator: str, call: str) -> None:
    module, arrays = _module(flambeau, call)
    with pytest.raises(flambeau.export.errors.GuardOnDataDependentSymNode, match="result depends on values"):
        flambeau.export.export(module, tuple([flambeau.tensor(a) for a in arrays]))


def test_calls_that_fit_no_parameters_are_refused() -> None:
    module, arrays = _module(flambeau, "add.Tensor(x, y, 2)")
    with pytest.raises(TypeError, match=r"aten.add.Tensor takes \(self, other, alpha\), got a tensor of shape \[3, 4\]"):
        flambeau.export.export(module, tuple([flambeau.tensor(a) for a in arrays]))


@pytest.mark.parametrize("keywords", [False, True])
def test_arguments_of_any_number_are_named_as_in_pytorch(keywords: bool) -> None:
    def program(package: Any) -> Any:
        class Program(package.nn.Module):
            def forward(self, x: Any, *rest: Any, **more: Any) -> Any:
                return x + rest[0] * rest[1] + sum(more.values())

        arguments = {"z": package.full((3,), 4.0)} if keywords else {}
        return package.export.export(Program(), (package.ones(3), package.full((3,), 2.0), package.full((3,), 3.0)), arguments)

    names = [p.module_call_graph[0].signature.forward_arg_names for p in (program(flambeau), program(torch))]
    assert names[0] == names[1] == ["x", "rest_0", "rest_1", "z"][: 3 + keywords]
    file = io.BytesIO()
    flambeau.export.save(program(flambeau), file)
    arguments = {"z": torch.full((3,), 4.0)} if keywords else {}
    found = torch.export.load(io.BytesIO(file.getvalue())).module()(torch.ones(3), torch.full((3,), 2.0), torch.full((3,), 3.0), **arguments)
    assert found.tolist() == [7.0 + 4.0 * keywords] * 3


@pytest.mark.parametrize("name", ["relu", "relu6", "elu", "selu", "celu", "leaky_relu", "hardtanh", "hardsigmoid", "hardswish", "silu", "mish"])
def test_activations_in_place_of_modules_with_any_name(name: str) -> None:
    """Modules may have names that are none of Python's: torchvision's RegNet has a `block1-0`."""

    def program(package: Any) -> Any:
        class Program(package.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.add_module("block1-0", package.nn.BatchNorm1d(4))

            def forward(self, x: Any) -> Any:
                return getattr(package.nn.functional, name)(getattr(self, "block1-0")(x), inplace=True)

        return Program().eval()

    x = _tensors()["x"] * 4
    exported, wanted = flambeau.export.export(program(flambeau), (flambeau.tensor(x),)), program(torch)(torch.tensor(x))
    for made in (exported, exported.run_decompositions()):
        file = io.BytesIO()
        flambeau.export.save(made, file)
        _equal(torch.export.load(io.BytesIO(file.getvalue())).module()(torch.tensor(x)), wanted, True)
        _equal(flambeau.export.load(io.BytesIO(file.getvalue())).module()(flambeau.tensor(x)), wanted, True)
