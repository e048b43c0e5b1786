"""Each form of an operator: small programs, exported to ONNX, give the program's results in ONNX Runtime and when flambeau reads them back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau as torch
from flambeau.onnx.errors import UnsupportedOperatorError
from tests.onnx.programs import PROGRAMS

pytest.importorskip("onnx")


def _module(function: Any) -> Any:
    class Program(torch.nn.Module):
        def forward(self, *xs: Any) -> Any:
            return function(torch, *xs)

    return Program()


def _flat(made: Any) -> list[Any]:
    return [x for x in torch.utils._pytree.tree_leaves(made) if isinstance(x, torch.Tensor)]


def _same(ours: Any, theirs: Any) -> None:
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
    np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-5)


def inputs(shapes: tuple[Any, ...]) -> tuple[Any, ...]:
    """Numbers from 0.1 to 2 of these shapes, all different."""
    torch.manual_seed(3)
    return tuple([torch.rand(s) * 1.9 + 0.1 for s in shapes])


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_a_program_gives_the_same_in_onnx_runtime(name: str) -> None:
    runtime = pytest.importorskip("onnxruntime")
    function, shapes = PROGRAMS[name]
    xs = inputs(shapes)
    program = torch.onnx.export(_module(function), xs)
    wanted = _flat(function(torch, *xs))
    session = runtime.InferenceSession(program.model_proto.SerializeToString(), providers=["CPUExecutionProvider"])
    for ours, theirs in zip(wanted, session.run(None, dict(zip([i.name for i in session.get_inputs()], [x.numpy() for x in xs], strict=True))), strict=True):
        _same(ours.numpy(), theirs)


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_a_program_gives_the_same_when_it_is_read_back(name: str) -> None:
    function, shapes = PROGRAMS[name]
    xs = inputs(shapes)
    program = torch.onnx.export(_module(function), xs)
    for ours, back in zip(_flat(function(torch, *xs)), program(*xs), strict=True):
        _same(ours.numpy(), back.numpy())


@pytest.mark.parametrize("name", [n for n, (_, shapes) in PROGRAMS.items() if shapes == ((4, 6),)])
def test_a_program_with_a_dynamic_dim_gives_the_same_at_other_sizes(name: str) -> None:
    function, shapes = PROGRAMS[name]
    if name in ("writes", "reshape", "expand", "split", "made", "scatter", "gather", "put", "triangle", "prod", "spread", "part", "t", "turn"):
        pytest.skip("it asks for the size")
    [x] = inputs(shapes)
    try:
        program = torch.onnx.export(_module(function), (x,), dynamic_shapes={"xs": ({0: torch.export.Dim("n", min=2)},)})
    except (torch.export.errors.UserError, UnsupportedOperatorError) as error:
        assert "n" in str(error)
        return
    for size in (2, 7):
        [y] = inputs(((size, 6),))
        for ours, back in zip(_flat(function(torch, y)), program(y), strict=True):
            _same(ours.numpy(), back.numpy())


def test_an_operator_without_a_form_is_named() -> None:
    with pytest.raises(UnsupportedOperatorError, match=r"aten\.\w*digamma"):
        torch.onnx.export(_module(lambda t, x: t.digamma(x)), (torch.ones(3),))
