"""Constructors into a given `out` beside PyTorch: its shape, what is said of it, and numbers of complex ends."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import flambeau

torch = pytest.importorskip("torch")

CALLS = {
    "linspace": (0, 5, 4), "logspace": (0, 2, 4), "arange": (0, 4), "range": (0, 3), "eye": (2, 2), "full": ((4,), 2.0), "zeros": (4,), "ones": (4,),
    "rand": (4,), "randn": (4,), "randint": (3, (4,)), "empty": (4,), "normal": (0.0, 1.0, (4,)),
}  # fmt: skip
SHAPES = [(4,), (2, 2), (6,), (0,), (0, 3), (1, 4)]


def into(module: Any, name: str, out: Any) -> Any:
    module.manual_seed(0)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        result = getattr(module, name)(*CALLS[name], out=out)
    values = [] if name == "empty" else out.reshape(-1).tolist()
    return (tuple(out.shape), tuple(out.stride()), result is out, any("resized" in str(w.message) for w in told)), values


@pytest.mark.parametrize("name", CALLS)
def test_out(name: str) -> None:
    for shape in SHAPES:
        for turned in (False, True):
            ours, theirs = [into(m, name, m.ones(shape[::-1]).permute(*range(len(shape))[::-1]) if turned else m.ones(shape)) for m in (flambeau, torch)]
            assert ours[0] == theirs[0], (shape, turned)
            assert ours[1] == pytest.approx(theirs[1], rel=1e-5)


@pytest.mark.parametrize("ends", [(0, 1j), (1 + 2j, 2), (-1j, 1j), (0.5, 2)])
@pytest.mark.parametrize("name", ["linspace", "logspace"])
def test_complex_ends(name: str, ends: tuple[complex, complex]) -> None:
    for kind in (None, "complex64", "complex128"):
        ours, theirs = [getattr(m, name)(*ends, 5, dtype=kind and getattr(m, kind)) for m in (flambeau, torch)]
        assert str(ours.dtype).partition(".")[2] == str(theirs.dtype).partition(".")[2]
        assert ours.tolist() == pytest.approx(theirs.tolist(), rel=1e-5)
    if isinstance(ends[0], complex):
        for module in (flambeau, torch):
            with pytest.raises(RuntimeError):
                getattr(module, name)(*ends, 5, dtype=module.float32)


OPTIONS = (
    {"device": "meta"}, {"device": "cpu"}, {"layout": "sparse_coo"}, {"layout": "strided"}, {"dtype": "float64"}, {"dtype": "float32"}, {"dtype": "int32"},
    {"requires_grad": True},
)  # fmt: skip


def with_options(m: Any, name: str, options: dict[str, Any], device: str) -> Any:
    out = m.empty(2, 2, device=device) if name == "eye" else m.empty(4, device=device)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            call = {**CALLS, "randperm": (4,)}[name]
            result = getattr(m, name)(*call, out=out, **{k: getattr(m, v) if k in ("dtype", "layout") else v for k, v in options.items()})
    except RuntimeError as error:
        return "does not match" in str(error)
    return result is out, str(out.device), out.requires_grad, str(out.dtype).rpartition(".")[2], str(out.layout).rpartition(".")[2]


@pytest.mark.parametrize("name", [*CALLS, "randperm"])
def test_options_beside_out(name: str) -> None:
    for options in OPTIONS:
        assert with_options(flambeau, name, options, "cpu") == with_options(torch, name, options, "cpu"), options
    if name != "randperm":
        for options in ({"device": "cpu"}, {"device": "meta"}, {}):
            assert with_options(flambeau, name, options, "meta") == with_options(torch, name, options, "meta"), options
