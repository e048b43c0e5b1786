"""The array API namespace beside array_api_strict, the standard's own minimal implementation: values, dtypes, shapes, error or not."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flambeau as ft

strict: Any = pytest.importorskip("array_api_strict")
xp = ft.array_api
REAL = ["float32", "float64"]
INEXACT = [*REAL, "complex64", "complex128"]
WHOLE = ["int8", "int32", "int64", "uint8"]
NUMERIC = [*WHOLE, *INEXACT]
OURS_ONLY = {"uint16", "uint32", "uint64", "Device", "__version__"}  # not ours: dtypes that flambeau has not


def numbers(dtype: str, shape: tuple[int, ...], seed: int = 0, low: float = -3, high: float = 3) -> np.ndarray:
    source = np.random.default_rng(seed)
    if dtype == "bool":
        return source.integers(0, 2, shape).astype(bool)
    if np.dtype(dtype).kind in "iu":
        return source.integers(0 if dtype == "uint8" else int(low), int(high) + 1, shape).astype(dtype)
    if np.dtype(dtype).kind == "c":
        return (source.uniform(low, high, shape) + 1j * source.uniform(low, high, shape)).astype(dtype)
    return source.uniform(low, high, shape).astype(dtype)


def leaves(x: Any) -> list[Any]:
    return [leaf for part in x for leaf in leaves(part)] if isinstance(x, (tuple, list)) else [x]


def agree(call: Callable[[Any, Any], Any], *arrays: np.ndarray) -> None:
    """The call with each namespace; an error of the standard's implementation asks for one of ours."""
    try:
        expected = leaves(call(strict, [strict.asarray(a) for a in arrays]))
    except Exception:
        return  # the standard does not say what happens then
    got = leaves(call(xp, [xp.asarray(a) for a in arrays]))
    assert len(got) == len(expected)
    for x, y in zip(got, expected, strict=True):
        if not hasattr(y, "shape"):
            assert x == y
            continue
        reference = np.asarray(y._array) if hasattr(y, "_array") else np.asarray(y)
        name = "int64" if reference.dtype.name == "uint64" else reference.dtype.name  # sums of uint8
        assert str(x.dtype) == f"torch.{name}", (x.dtype, name)
        assert tuple(x.shape) == reference.shape
        close = 2e-4 if reference.dtype.itemsize <= 4 or reference.dtype == np.complex64 else 1e-9
        np.testing.assert_allclose(x.detach().numpy(), reference.astype(name), rtol=close, atol=close)


UNARY = (
    "abs acos acosh asin asinh atan atanh bitwise_invert ceil conj cos cosh exp expm1 floor imag isfinite isinf isnan log log1p log2 log10 "
    "logical_not negative positive real reciprocal round sign signbit sin sinh square sqrt tan tanh trunc"
).split()
BINARY = (
    "add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor copysign divide equal floor_divide greater "
    "greater_equal hypot less less_equal logaddexp logical_and logical_or logical_xor maximum minimum multiply nextafter not_equal pow "
    "remainder subtract"
).split()


def test_names() -> None:
    missing = {n for n in strict.__all__ if not hasattr(xp, n) and "trict" not in n} - OURS_ONLY
    assert not missing
    for space in ("linalg", "fft"):
        assert not {n for n in getattr(strict, space).__all__ if not hasattr(getattr(xp, space), n)}
    assert ft.ones(2).__array_namespace__() is xp
    with pytest.raises(ValueError, match="1999"):
        ft.ones(2).__array_namespace__(api_version="1999.12")


@pytest.mark.parametrize("dtype", ["bool", *NUMERIC])
@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str, dtype: str) -> None:
    low, high = (1.1, 3) if name == "acosh" else (-0.9, 0.9) if name in ("acos", "asin", "atanh") else (0.1, 3) if "log" in name else (-3, 3)
    agree(lambda m, a: getattr(m, name)(a[0]), numbers(dtype, (3, 4), low=low, high=high))


@pytest.mark.parametrize("dtype", ["bool", *NUMERIC])
@pytest.mark.parametrize("name", BINARY)
def test_binary(name: str, dtype: str) -> None:
    x = numbers(dtype, (3, 4), 1, low=0 if name in ("pow",) or "shift" in name else -3)
    y = numbers(dtype, (4,), 2, low=1, high=3)
    agree(lambda m, a: getattr(m, name)(a[0], a[1]), x, y)
    if dtype != "bool":
        agree(lambda m, a: (getattr(m, name)(a[0], 2), getattr(m, name)(2, a[0])), np.abs(x).astype(dtype) + np.asarray(1, dtype))


A = [(3, 4)]
AB = [(3, 4), (3, 4)]
CALLS: dict[str, tuple[Callable[[Any, Any], Any], list[tuple[int, ...]], list[str]]] = {
    "sum": (lambda m, a: (m.sum(a[0]), m.sum(a[0], axis=0), m.sum(a[0], axis=(0, 1), keepdims=True), m.sum(a[0], dtype=m.float64)), A, NUMERIC[:-2]),
    "prod": (lambda m, a: (m.prod(a[0]), m.prod(a[0], axis=-1, keepdims=True), m.prod(a[0], axis=(0, 1))), A, NUMERIC),
    "mean": (lambda m, a: (m.mean(a[0]), m.mean(a[0], axis=(0,), keepdims=True)), A, INEXACT),
    "var": (lambda m, a: (m.var(a[0]), m.var(a[0], axis=1, correction=1), m.std(a[0], axis=0, keepdims=True)), A, REAL),
    "extremes": (lambda m, a: (m.max(a[0]), m.min(a[0], axis=0), m.max(a[0], axis=(0, 1), keepdims=True)), A, [*REAL, *WHOLE]),
    "arg": (lambda m, a: (m.argmax(a[0]), m.argmin(a[0], axis=1), m.argmax(a[0], axis=0, keepdims=True)), A, [*REAL, *WHOLE]),
    "all": (lambda m, a: (m.all(a[0]), m.any(a[0], axis=0), m.all(a[0], axis=(0, 1), keepdims=True), m.count_nonzero(a[0], axis=1)), A, ["bool", *NUMERIC]),
    "cumulative": (lambda m, a: (m.cumulative_sum(a[0], axis=1), m.cumulative_prod(a[0], axis=0, include_initial=True)), A, NUMERIC),
    "cumulative of a vector": (lambda m, a: m.cumulative_sum(a[0], include_initial=True), [(5,)], NUMERIC),
    "sort": (lambda m, a: (m.sort(a[0]), m.sort(a[0], axis=0, descending=True), m.argsort(a[0]), m.argsort(a[0], descending=True)), A, [*REAL, *WHOLE]),
    "unique": (lambda m, a: (m.unique_values(a[0]), m.unique_counts(a[0]), m.unique_inverse(a[0]), m.unique_all(a[0])), A, WHOLE),
    "searchsorted": (lambda m, a: m.searchsorted(m.sort(a[0]), a[1], side="right"), [(6,), (4,)], REAL),
    "diff": (lambda m, a: (m.diff(a[0]), m.diff(a[0], axis=0, n=2)), A, REAL),
    "isin": (lambda m, a: m.isin(a[0], a[1]), AB, WHOLE),
    "shapes": (lambda m, a: (m.reshape(a[0], (2, 6)), m.permute_dims(a[0], (1, 0)), m.expand_dims(a[0], axis=1), m.expand_dims(a[0], axis=-3)), A, REAL),
    "moves": (lambda m, a: (m.moveaxis(a[0], 0, 1), m.flip(a[0]), m.flip(a[0], axis=1), m.roll(a[0], 2), m.roll(a[0], (1, -1), axis=(0, 1))), A, REAL),
    "joins": (lambda m, a: (m.concat(a, axis=1), m.concat(a, axis=None), m.stack(a, axis=-1), m.unstack(a[0], axis=1)), AB, REAL),
    "repeats": (lambda m, a: (m.repeat(a[0], 2), m.repeat(a[0], 2, axis=1), m.tile(a[0], (2, 1, 2)), m.repeat(a[0], m.asarray([1, 0, 2]), axis=0)), A, REAL),
    "squeeze": (lambda m, a: (m.squeeze(a[0], 0), m.squeeze(a[0], (0, 2))), [(1, 3, 1)], REAL),
    "broadcast": (lambda m, a: (m.broadcast_to(a[0], (2, 3, 4)), m.broadcast_arrays(a[0], a[1])), [(3, 4), (4,)], REAL),
    "take": (lambda m, a: (m.take(a[0], m.asarray([2, 0, 1]), axis=1), m.take_along_axis(a[0], m.asarray([[0], [1], [2]]), axis=1)), A, REAL),
    "where": (lambda m, a: (m.where(a[0] > 0, a[0], a[1]), m.nonzero(a[0] > 0), m.clip(a[0], -1, 1), m.clip(a[0], max=0.5)), AB, REAL),
    "triangles": (lambda m, a: (m.tril(a[0]), m.triu(a[0], k=1)), A, NUMERIC),
    "products": (lambda m, a: (m.matmul(a[0], m.matrix_transpose(a[1])), m.vecdot(a[0], a[1]), m.tensordot(a[0], a[1], axes=2)), AB, INEXACT),
    "outer": (lambda m, a: m.linalg.outer(a[0], a[1]), [(3,), (4,)], NUMERIC),
    "norms": (lambda m, a: (m.linalg.vector_norm(a[0]), m.linalg.vector_norm(a[0], axis=1, ord=1, keepdims=True), m.linalg.matrix_norm(a[0])), A, INEXACT),
    "square": (lambda m, a: (m.linalg.det(a[0]), m.linalg.inv(a[0]), m.linalg.slogdet(a[0]), m.linalg.trace(a[0]), m.linalg.diagonal(a[0])), [(3, 3)], REAL),
    "solve": (lambda m, a: (m.linalg.solve(a[0], a[1]), m.linalg.solve(a[0], a[1][:, 0])), [(3, 3), (3, 3)], REAL),
    "spectra": (lambda m, a: (m.linalg.svdvals(a[0]), m.linalg.eigvalsh(a[0] + m.matrix_transpose(a[0])), m.linalg.matrix_rank(a[0])), [(3, 3)], REAL),
    "powers": (lambda m, a: (m.linalg.matrix_power(a[0], 3), m.linalg.pinv(a[0])), [(3, 3)], REAL),
    "cross": (lambda m, a: m.linalg.cross(a[0], a[1]), [(2, 3), (2, 3)], REAL),
    "fft": (lambda m, a: (m.fft.fft(a[0], n=5), m.fft.ifftn(a[0]), m.fft.fftshift(a[0])), A, ["complex64", "complex128"]),
    "rfft": (lambda m, a: (m.fft.rfft(a[0], axis=0), m.fft.irfft(m.fft.rfft(a[0]))), A, ["float64"]),
    "frequencies": (lambda m, a: (m.fft.fftfreq(5, dtype=m.float64), m.fft.rfftfreq(4, d=0.5, dtype=m.float64)), A, ["float64"]),
    "operators": (lambda m, a: (a[0] + a[1], 2 * a[0], a[0] - 1, -a[0], abs(a[0]), a[0] == a[1], a[0][1, :], a[0][..., None], a[0].T), AB, NUMERIC),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_calls(name: str) -> None:
    call, shapes, dtypes = CALLS[name]
    for dtype in dtypes:
        agree(call, *[numbers(dtype, shape, seed) for seed, shape in enumerate(shapes)])


CREATION: list[Callable[[Any], Any]] = [
    lambda m: m.arange(5), lambda m: m.arange(1, 4, 0.5), lambda m: m.arange(5, 1), lambda m: m.arange(5, 1, -2), lambda m: m.eye(3, 4, k=1),
    lambda m: m.eye(2, k=-5), lambda m: m.full((2, 3), 7), lambda m: m.full(3, 1.5, dtype=m.float64), lambda m: m.linspace(0, 1, 5),
    lambda m: m.linspace(0, 1, 5, endpoint=False, dtype=m.float64), lambda m: m.ones((2,), dtype=m.int32), lambda m: m.zeros(()),
    lambda m: m.meshgrid(m.arange(3), m.arange(2)), lambda m: m.meshgrid(m.arange(3), m.arange(2), indexing="ij"),
    lambda m: m.full_like(m.ones((2, 2)), 3), lambda m: m.asarray([[1, 2], [3, 4]]), lambda m: m.astype(m.ones(3), m.int8), lambda m: m.asarray(True),
]  # fmt: skip


@pytest.mark.parametrize("make", CREATION)
def test_creation(make: Callable[[Any], Any]) -> None:
    before = ft.get_default_dtype()
    ft.set_default_dtype(ft.float64)  # the standard's implementation makes float64
    try:
        agree(lambda m, a: make(m))
    finally:
        ft.set_default_dtype(before)


def test_types() -> None:
    for a in ("bool", *NUMERIC):
        for b in ("bool", *NUMERIC):
            try:
                expected = strict.result_type(getattr(strict, a), getattr(strict, b))
            except TypeError:
                continue
            assert str(xp.result_type(getattr(xp, a), getattr(xp, b))) == f"torch.{expected._np_dtype.name}"
            assert xp.can_cast(getattr(xp, a), getattr(xp, b)) == strict.can_cast(getattr(strict, a), getattr(strict, b))
        for kind in ("bool", "signed integer", "unsigned integer", "integral", "real floating", "complex floating", "numeric"):
            assert xp.isdtype(getattr(xp, a), kind) == strict.isdtype(getattr(strict, a), kind)
    assert xp.finfo(xp.float32).eps == float(strict.finfo(strict.float32).eps) and xp.iinfo(xp.int8).max == 127
    info = xp.__array_namespace_info__()
    assert info.default_dtypes()["real floating"] is xp.float32 and set(info.dtypes(kind="bool")) == {"bool"}
    assert info.devices() == [info.default_device()]


def test_signatures_name_the_standards_parameters() -> None:
    for name in strict.__all__:
        theirs, ours = getattr(strict, name), getattr(xp, name, None)
        if not inspect.isfunction(theirs) or ours is None or "strict" in name:
            continue
        wanted = {p.name for p in inspect.signature(theirs).parameters.values() if p.kind is p.KEYWORD_ONLY}
        got = set(inspect.signature(ours).parameters)
        assert wanted <= got, (name, wanted - got)


def test_errors() -> None:
    x = ft.ones(2, 3)
    for call in (
        lambda: xp.squeeze(x, 0), lambda: xp.reshape(x.T, (6,), copy=False), lambda: xp.matrix_transpose(x[0]), lambda: xp.cumulative_sum(x),
        lambda: xp.isdtype(xp.float32, "float"), lambda: xp.asarray([1.0], copy=False), lambda: xp.broadcast_shapes((2,), (3,)),
    ):  # fmt: skip
        with pytest.raises(ValueError):
            call()
    with pytest.raises(TypeError, match="complex"):
        xp.astype(ft.ones(1, dtype=ft.complex64), xp.float32)
    with pytest.raises(IndexError, match="expand_dims"):
        xp.expand_dims(x, axis=5)
