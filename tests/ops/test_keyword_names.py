"""Every argument that an operator of PyTorch's schemas has can be given by that name, as torch.f and as a method."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import flambeau as ft

torch = pytest.importorskip("torch")

# Arguments of schemas that no program can give: TorchScript's overloads for numbers and lists, results of `out=` overloads, names of dims.
_SCRIPT = {"a", "b", "l", "n", "x", "i", "t", "list", "idx", "names", "reverse"}
_RESULTS = set("out out0 out1 out2 values indices max min max_values min_indices L U P S V Vh Q R X M LU LD info pivots tau mantissa exponent hist bin_edges "
               "eigenvalues eigenvectors eigvals eigvecs inverse result sign logabsdet rank residuals singular_values solution save_mean save_invstd "
               "grad_input ext_tensor".split())  # fmt: skip
_LEFT_OUT = {
    ("Tensor", "to"): {"layout", "pin_memory"},  # the Python method has neither
    ("Tensor", "copy_"): {"src"},  # of the schema; Python's name is other
    ("torch", "sparse_coo_tensor"): {"layout"},
    ("torch", "quantize_per_tensor"): {"tensors", "scales", "zero_points"},  # of lists of tensors
    ("torch", "dequantize"): {"tensors", "qtensor", "qtensors"},
    **{(space, name): {"out_dtype"} for space in ("torch", "Tensor") for name in ("mm", "bmm", "addmm", "baddbmm")},  # of CUDA alone
}
SPACES: dict[str, tuple[Any, Any, str]] = {
    "torch": (ft, torch, ""), "Tensor": (ft.Tensor, torch.Tensor, ""), "linalg": (ft.linalg, torch.linalg, "linalg_"), "fft": (ft.fft, torch.fft, "fft_"),
    "special": (ft.special, torch.special, "special_"),
}  # fmt: skip


def accepted(function: Any) -> set[str] | None:
    """The names that a function takes by keyword; None where it takes any."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    return {p.name for p in parameters if p.kind is not p.VAR_POSITIONAL}


def wanted(function: Any, operator: str, method: bool) -> set[str]:
    """The names that PyTorch's function takes: of its Python signature, or of the operator's schemas."""
    if inspect.isfunction(function):
        return {p.name for p in inspect.signature(function).parameters.values() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    schemas = [{a.name for a in schema.arguments} for schema in torch._C._jit_get_schemas_for_operator(f"aten::{operator}")]
    return set().union(*(names for names in schemas if not method or "self" in names)) - _SCRIPT


@pytest.mark.parametrize("space", SPACES)
def test_names_of_schemas(space: str) -> None:
    ours, theirs, prefix = SPACES[space]
    lacking, seen = {}, 0
    for name in dir(theirs):
        mine = getattr(ours, name, None)
        if name.startswith("_") or name in ("save", "from_dlpack") or not callable(mine) or isinstance(mine, type) or (names := accepted(mine)) is None:
            continue
        seen += 1
        lack = wanted(getattr(theirs, name), prefix + name, space == "Tensor") - names - _RESULTS - {"self", "input"} - _LEFT_OUT.get((space, name), set())
        if lack and not name.startswith("from_dlpack"):
            lacking[name] = sorted(lack)
    assert seen > 10 and not lacking


def test_they_work() -> None:
    for m in (ft, torch):
        x = m.arange(6.0)
        assert x.unflatten(dim=0, sizes=(2, 3)).shape == (2, 3) and m.unflatten(x, dim=0, sizes=[3, -1]).shape == (3, 2)
        assert m.zeros(6).copy_(other=x).tolist() == x.tolist()
        assert m.tril_indices(2, 2, pin_memory=False).shape == (2, 3) and m.fft.rfftfreq(4, pin_memory=False).shape == (3,)
    with pytest.raises(TypeError, match="sizes"):
        ft.ones(6).unflatten(0)
