"""Dtypes that PyTorch stores and converts (float8, unsigned integers, complex32, float4): what there is of functions, files, and NumPy."""

from __future__ import annotations

import copy
import io
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flambeau as ft
from flambeau import dtypes
from flambeau.io import safetensors

torch = pytest.importorskip("torch")
warnings.filterwarnings("ignore", message="ComplexHalf support")

NAMES = sorted(d.name for d in dtypes.LIMITED)
CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda m, x: x + x, "add number": lambda m, x: x + 1, "mul": lambda m, x: x * x, "div": lambda m, x: x / x, "neg": lambda m, x: -x,
    "eq": lambda m, x: x == x, "lt": lambda m, x: x < x, "sum": lambda m, x: x.sum(), "prod": lambda m, x: x.prod(), "amax": lambda m, x: x.amax(),
    "argmax": lambda m, x: x.argmax(), "sort": lambda m, x: x.sort().values, "cat": lambda m, x: m.cat([x, x]), "stack": lambda m, x: m.stack([x, x]),
    "mm": lambda m, x: x.view(2, 2) @ x.view(2, 2), "dot": lambda m, x: x @ x, "index": lambda m, x: x[m.tensor([0, 2])], "gather": lambda m, x:
    x.gather(0, m.tensor([0, 1])), "mask": lambda m, x: x[m.tensor([True, False, True, True])], "index_select": lambda m, x:
    x.index_select(0, m.tensor([0, 1])), "set": lambda m, x: x.clone().index_put_((m.tensor([0, 1]),), x[:2]), "where": lambda m, x:
    m.where(m.tensor([True, False, True, True]), x, x), "clone": lambda m, x: x.clone(), "fill": lambda m, x: x.clone().fill_(2), "zero": lambda m, x:
    x.clone().zero_(), "repr": lambda m, x: repr(x), "abs": lambda m, x: x.abs(), "exp": lambda m, x: x.exp(), "isnan": lambda m, x: x.isnan(),
    "isfinite": lambda m, x: x.isfinite(), "clamp": lambda m, x: x.clamp(0, 1), "and": lambda m, x: x & x, "shift": lambda m, x: x << 1,
    "cumsum": lambda m, x: x.cumsum(0), "any": lambda m, x: x.any(), "nonzero": lambda m, x: x.nonzero(), "unique": lambda m, x: x.unique(),
    "roll": lambda m, x: x.roll(1), "repeat": lambda m, x: x.repeat(2), "triu": lambda m, x: x.view(2, 2).triu(), "numpy": lambda m, x: x.numpy().tolist(),
    "tolist": lambda m, x: x.tolist(), "item": lambda m, x: x[1].item(), "bool": lambda m, x: bool(x[0]), "zeros": lambda m, x: m.zeros(2, dtype=x.dtype),
    "ones": lambda m, x: m.ones(2, dtype=x.dtype), "full": lambda m, x: m.full((2,), 2, dtype=x.dtype), "arange": lambda m, x: m.arange(3, dtype=x.dtype),
    "tensor": lambda m, x: m.tensor([1, 2], dtype=x.dtype), "randn": lambda m, x: m.randn(2, dtype=x.dtype), "rand": lambda m, x: m.rand(2, dtype=x.dtype),
    "linspace": lambda m, x: m.linspace(0, 1, 3, dtype=x.dtype), "with float": lambda m, x: x + m.ones(4), "with int": lambda m, x:
    x + m.ones(4, dtype=m.int32), "softmax": lambda m, x: x.softmax(0), "relu": lambda m, x: x.relu(), "bytes": lambda m, x: x.view(m.uint8),
    "embedding": lambda m, x: m.nn.functional.embedding(m.tensor([0, 1]), x.view(2, 2)), "masked_fill": lambda m, x: x.masked_fill(m.tensor([True]), 1),
    "round": lambda m, x: x.round(), "pow": lambda m, x: x**2, "isin": lambda m, x: m.isin(x, x),
    "diag": lambda m, x: x.diag(), "kron": lambda m, x: m.kron(x, x),
    "t": lambda m, x: x.view(2, 2).t().contiguous(), "default": lambda m, x: m.set_default_dtype(x.dtype),
    "cumsum in float32": lambda m, x: x.cumsum(0, dtype=m.float32), "requires_grad": lambda m, x: x.clone().requires_grad_().requires_grad,
}  # fmt: skip
# An element of float4_e2m1fn_x2 is two numbers. PyTorch compares the bytes.
OTHERWISE = {("float4_e2m1fn_x2", "eq"), ("float4_e2m1fn_x2", "isnan"), ("float4_e2m1fn_x2", "mask")}
CODES = [56, 60, 64, 1]  # of floats of one byte: numbers


def make(m: Any, name: str) -> Any:
    """Four numbers of a dtype, of the same bytes under both modules."""
    d = getattr(m, name)
    if d.itemsize == 1:
        return m.tensor(CODES, dtype=m.uint8).view(d)
    return m.tensor([1, 2, 3, 0], dtype=d)


def plain(m: Any, x: Any) -> Any:
    if isinstance(x, m.Tensor):
        return str(x.dtype), tuple(x.shape), x.contiguous().view(m.uint8).tolist() if x.dtype is not m.bool else x.tolist()
    return x


def outcome(m: Any, call: Callable[[Any, Any], Any], name: str) -> Any:
    m.manual_seed(0)
    try:
        return plain(m, call(m, make(m, name)))
    except (TypeError, RuntimeError, ValueError) as error:
        return f"raises {'RuntimeError' if isinstance(error, RuntimeError) else type(error).__name__}"


@pytest.mark.parametrize("name", NAMES)
def test_functions(name: str) -> None:
    wrong = {}
    for what, call in CALLS.items():
        ours, theirs = outcome(ft, call, name), outcome(torch, call, name)
        if ours != theirs and (name, what) not in OTHERWISE:
            wrong[what] = ours, theirs
    assert not wrong


@pytest.mark.parametrize("name", NAMES)
def test_files(name: str) -> None:
    theirs, ours = make(torch, name), make(ft, name)
    expected = theirs.view(torch.uint8).tolist()
    file = io.BytesIO()
    torch.save({"a": theirs, "b": theirs[1:]}, file)
    file.seek(0)
    read = ft.load(file)
    assert read["a"].dtype is ours.dtype and read["a"].view(ft.uint8).tolist() == expected
    assert read["a"].untyped_storage().data_ptr() == read["b"].untyped_storage().data_ptr()
    file = io.BytesIO()
    ft.save({"a": ours, "p": ft.nn.Parameter(ours, requires_grad=False)}, file)
    file.seek(0)
    back = torch.load(file, weights_only=True)
    assert back["a"].dtype == theirs.dtype and back["p"].view(torch.uint8).tolist() == expected
    for copied in (pickle.loads(pickle.dumps(ours)), copy.deepcopy(ours)):
        assert copied.dtype is ours.dtype and copied.view(ft.uint8).tolist() == expected
    if name != "complex32":  # which the format has not
        assert safetensors.load(safetensors.save({"a": ours}))["a"].view(ft.uint8).tolist() == expected


def test_safetensors_as_the_reference() -> None:
    reference = pytest.importorskip("safetensors.torch")
    for name in NAMES:
        if name != "complex32":
            assert reference.save({"a": make(torch, name)}) == safetensors.save({"a": make(ft, name)}), name


def test_numpy() -> None:
    for name in ("uint16", "uint32", "uint64"):
        array = np.array([1, 2, np.iinfo(name).max], name)
        t = ft.from_numpy(array)
        assert t.dtype is getattr(ft, name) and t.tolist() == array.tolist() and t.numpy() is not None
        array[0] = 7
        assert t[0].item() == 7 and ft.from_dlpack(t).dtype is t.dtype and ft.tensor(array).tolist() == array.tolist()
    assert ft.full((2,), 2**64 - 1, dtype=ft.uint64).tolist() == [2**64 - 1] * 2


def test_promotion() -> None:
    for a in NAMES:
        if a == "float4_e2m1fn_x2":
            continue  # an internal assertion there
        for b in dtypes.BY_NAME:
            if b == "float4_e2m1fn_x2":
                continue
            try:
                theirs: Any = str(torch.promote_types(getattr(torch, a), getattr(torch, b)))
            except RuntimeError:
                theirs = RuntimeError
            try:
                ours: Any = str(ft.promote_types(getattr(ft, a), getattr(ft, b)))
            except RuntimeError:
                ours = RuntimeError
            assert ours == theirs, (a, b)
    half = ft.ones(2, dtype=ft.float16)
    assert (half * 1j).dtype is ft.complex32 and ft.complex(half, half).dtype is ft.complex32
    assert ft.view_as_complex(half.view(1, 2)).dtype is ft.complex32


def test_finfo() -> None:
    for d in dtypes.FLOATS8:
        assert repr(ft.finfo(d)) == repr(torch.finfo(getattr(torch, d.name)))


@pytest.mark.parametrize("kind", ["float8_e4m3fn", "float8_e5m2"])
def test_scaled_products(kind: str) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((16, 32)).astype(np.float32), rng.standard_normal((16, 32)).astype(np.float32)
    results = []
    for m in (ft, torch):
        a, b = m.from_numpy(x).to(getattr(m, kind)), m.from_numpy(y).to(m.float8_e4m3fn).t()
        one, two = m.tensor(0.5), m.tensor(3.0)
        rows, columns = m.arange(16.0).view(16, 1), m.arange(16.0).view(1, 16)
        bias = m.arange(16.0)
        results.append([
            m._scaled_mm(a, b, one, two, out_dtype=m.float32), m._scaled_mm(a, b, rows, columns, bias=bias, out_dtype=m.float32),
            m._scaled_mm(a, b, one, two, out_dtype=m.bfloat16).float(), (a @ a.t()).float(),
        ])  # fmt: skip
        # With a matrix unit PyTorch takes float64 scales for one of the two kinds.
        for wrong in ((a, b.t(), one, two), (a.float(), b, one, two), *([(a, b, one.double(), two)] if m is ft else [])):
            with pytest.raises((RuntimeError, ValueError)):
                m._scaled_mm(*wrong)
    for ours, theirs in zip(*results, strict=True):
        assert np.allclose(ours.numpy(), theirs.numpy(), rtol=1e-2, atol=1e-1)


def test_int_mm() -> None:
    a, b = np.arange(-20, 20, dtype=np.int8).reshape(5, 8), np.arange(24, dtype=np.int8).reshape(8, 3)
    for left in (a, a.astype(np.uint8)):
        ours, theirs = (m._int_mm(m.from_numpy(left), m.from_numpy(b)) for m in (ft, torch))
        assert ours.tolist() == theirs.tolist() and ours.dtype is ft.int32
    rng = np.random.default_rng(0)
    for m, k, n in ((1, 64, 40), (40, 64, 1), (33, 70, 65), (64, 200, 20), (17, 0, 8)):
        left, right = (rng.integers(-128, 128, shape, dtype=np.int8) for shape in ((m, k), (n, k)))
        found = ft._int_mm(ft.from_numpy(left), ft.from_numpy(right).t())
        np.testing.assert_array_equal(found.numpy(), left.astype(np.int32) @ right.T.astype(np.int32))
        half = ft._int_mm(ft.from_numpy(left), ft.from_numpy(right).t()).float() * 0.5  # what quantisation makes of it
        np.testing.assert_array_equal(half.numpy(), (left.astype(np.int32) @ right.T.astype(np.int32)) * np.float32(0.5))
    with pytest.raises(RuntimeError, match="int8"):
        ft._int_mm(ft.from_numpy(a).int(), ft.from_numpy(b))
