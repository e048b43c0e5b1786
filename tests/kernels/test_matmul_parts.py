"""Matrix products of float32 by bfloat16 parts and by float16 halves: errors against float64 beside PyTorch's, and the values for
which the matrix unit does not do."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from flambeau.compiler.kernels import matmul
from flambeau.compiler.kernels.matmul import make_matmul
from flambeau.compiler.kernels.matmul_halves import HALVES, LEAST_K, form_of
from flambeau.compiler.kernels.matmul_parts import PARTS, Form
from flambeau.runtime import tiles
from flambeau.runtime.target import Target
from tests.kernels.test_matmul import Case, permuted

pytestmark = pytest.mark.skipif("bfloat16" not in tiles.dtypes(), reason="this machine has no matrix unit, or the system does not lend it")
ORDERS = [(a, b, c) for a in (0, 1) for b in (0, 1) for c in (0, 1)]
Fill = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


@pytest.fixture(autouse=True, params=[PARTS, HALVES], ids=lambda form: form.name)
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Form:
    """All products of float32 are made by this form."""
    if request.param is HALVES and "float16" not in tiles.dtypes():
        pytest.skip("this machine's matrix unit has no float16")
    monkeypatch.setattr(matmul, "parts_pay", lambda m, n, k: True)
    monkeypatch.setattr(matmul, "form_of", lambda target, k: request.param)
    return request.param


def case_of(m: int, n: int, k: int, orders: tuple[int, int, int] = (0, 0, 0)) -> Case:
    strides = [permuted(s, (1, 0) if o else (0, 1)) for s, o in zip(((m, k), (k, n), (m, n)), orders, strict=True)]
    case = Case((m, k), (k, n), a_strides=strides[0], b_strides=strides[1], c_strides=strides[2])
    assert make_matmul(case.graph, 2)[0].key.startswith(f"matmul:{matmul.form_of(case.graph.target, k).name}:")
    return case


def by_multiply_adds(case: Case, monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """The same product as a machine without the unit computes it."""
    with monkeypatch.context() as patch:
        patch.setattr(tiles, "dtypes", frozenset)
        return case.run()


def error(case: Case, result: np.ndarray) -> float:
    """Root mean square of the errors, in terms of the sum of the magnitudes of what is added."""
    a, b = case.a.astype(np.float64), case.b.astype(np.float64)
    return float(np.sqrt(np.mean(((result - a @ b) / (np.abs(a) @ np.abs(b))) ** 2)))


@pytest.mark.parametrize("orders", ORDERS, ids=str)
@pytest.mark.parametrize("size", [(5, 7, 9), (32, 32, 32), (33, 31, 65), (64, 100, 511), (97, 130, 513), (70, 40, 1100), (130, 700, 40)], ids=str)
def test_sizes_and_orders(size: tuple[int, int, int], orders: tuple[int, int, int]) -> None:
    case_of(*size, orders).check()


def test_any_strides() -> None:
    Case((70, 90), (90, 40), a_strides=(271, 3), b_strides=(2, 190), c_strides=(1, 70), offset=3).check()
    Case((70, 90), (90, 40), a_strides=(2, 141), b_strides=(83, 2), offset=5).check()
    Case((3, 2, 33, 40), (3, 2, 40, 50), b_strides=(2000, 0, 50, 1)).check()


def normal(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.standard_normal(shape)


def positive(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.random(shape)


def many_magnitudes(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.standard_normal(shape) * np.exp2(rng.integers(-20, 20, shape))


def cancelling(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Sums that are small beside their terms."""
    values = rng.standard_normal(shape) * 100 + 1000
    return values * np.where(np.arange(shape[-1]) % 2, -1, 1)


@pytest.mark.parametrize("fill", [normal, positive, many_magnitudes, cancelling], ids=lambda f: f.__name__)
@pytest.mark.parametrize("k", [32, 100, 256, 512, 1024, 4096])
def test_errors_are_no_larger_than_those_of_pytorch(fill: Fill, k: int, form: Form) -> None:
    torch = pytest.importorskip("torch")
    if form is HALVES and k < LEAST_K:
        pytest.skip("too short for halves")
    case = case_of(64, 96, k)
    rng = np.random.default_rng(k)
    case.a[:], case.b[:] = fill(rng, case.a.shape), fill(rng, case.b.shape)
    theirs = torch.mm(torch.from_numpy(case.a.copy()), torch.from_numpy(case.b.copy())).numpy()
    # Terms that cancel one after the other keep PyTorch's sums small; halves have lost a quarter of all last bits by then.
    least = 2.0**-26 if form is HALVES and fill is cancelling else 0.0
    assert error(case, case.run()) <= max(error(case, theirs), least)


@pytest.mark.parametrize("k", [1, 2, 3, 8])
def test_errors_of_short_sums(k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within the bound of a chain of k multiply-adds, of which the first one rounds already. (Halves are not used for them.)"""
    assert form_of(Target.host(), k) is PARTS
    monkeypatch.setattr(matmul, "form_of", form_of)
    case = case_of(64, 64, k)
    case.check()
    exact = case.a.astype(np.float64) @ case.b.astype(np.float64)
    sizes = np.abs(case.a).astype(np.float64) @ np.abs(case.b).astype(np.float64)
    assert (np.abs(case.run() - exact) <= (k + 1) * 2.0**-24 * sizes).all()


def test_whole_numbers_are_exact() -> None:
    rng = np.random.default_rng(0)
    case = case_of(70, 80, 64)
    case.a[:], case.b[:] = rng.integers(-511, 512, (70, 64)), rng.integers(-511, 512, (64, 80))
    np.testing.assert_array_equal(case.run(), case.a.astype(np.float64) @ case.b.astype(np.float64))
    case.a[:] = 0
    case.a[np.arange(64), np.arange(64)] = 1  # an identity: every bit of b
    case.b[:] = rng.integers(-(1 << 24), (1 << 24) + 1, (64, 80))
    np.testing.assert_array_equal(case.run()[:64], case.b)
    case.b[:] = rng.standard_normal((64, 80))
    np.testing.assert_array_equal(case.run()[:64], case.b)


def few_terms(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """One number in 40 is not zero: sums of some ten terms."""
    return rng.standard_normal(shape) * (rng.random(shape) < 1 / 40)


def one_in_a_row(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    values = np.zeros(shape)
    values[np.arange(shape[0]), np.arange(shape[0]) * 5 % shape[1]] = rng.standard_normal(shape[0])
    return values


@pytest.mark.parametrize("fill", [few_terms, one_in_a_row], ids=lambda f: f.__name__)
def test_errors_of_few_terms(fill: Fill) -> None:
    """Blocks that are mostly zero are not made by halves, whose errors only long sums hide."""
    torch = pytest.importorskip("torch")
    case = case_of(64, 96, 400)
    rng = np.random.default_rng(1)
    case.a[:], case.b[:] = fill(rng, case.a.shape), rng.standard_normal(case.b.shape)
    theirs = torch.mm(torch.from_numpy(case.a.copy()), torch.from_numpy(case.b.copy())).numpy()
    exact = case.a.astype(np.float64) @ case.b.astype(np.float64)
    ours, others = (float(np.sqrt(np.mean((result - exact) ** 2))) for result in (case.run(), theirs))
    assert ours <= 2 * others


def test_blocks_of_all_kinds() -> None:
    """Short, general, sparse, wide and empty blocks side by side: each with each, in several blocks of K."""
    rng = np.random.default_rng(2)
    case = case_of(192, 192, 900)
    for values in (case.a, case.b.T):
        values[:] = rng.standard_normal(values.shape)
        values[32:64] = rng.integers(-9, 10, (32, 900))
        values[64:96] *= rng.random((32, 900)) < 0.02
        values[96:128] *= np.exp2(rng.integers(-30, 30, (32, 900)))
        values[128:160] = 0
        values[160:, 300:600] *= 1e-30
    result = case.run()
    exact = case.a.astype(np.float64) @ case.b.astype(np.float64)
    sizes = np.abs(case.a).astype(np.float64) @ np.abs(case.b).astype(np.float64)
    assert (np.abs(result - exact) <= 8 * 2.0**-24 * sizes).all()
    whole = slice(32, 64), slice(32, 64)
    np.testing.assert_array_equal(result[whole], exact[whole])
    for splits in (2, 3):
        np.testing.assert_array_equal(case.run(splits), result, strict=True)


SPECIAL = [np.inf, -np.inf, np.nan, 1e-42, -1e-38, 1e-30, 3e38, -1e25, 1e-20]


@pytest.mark.parametrize("orders", [(0, 0, 0), (1, 1, 0), (0, 1, 1), (1, 0, 1)], ids=str)
@pytest.mark.parametrize("value", SPECIAL, ids=str)
def test_special_values(value: float, orders: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """In a, in b and in both, at the borders of panels and of blocks of K: what multiply-adds give."""
    m, n, k = 70, 100, 700  # blocks of K: 352 and 348
    places = [(0, 0), (31, 31), (32, 351), (69, 352), (40, 699)]
    for where in ("a", "b", "both"):
        case = case_of(m, n, k, orders)
        for lane, at in places:
            if where != "b":
                case.a[lane, at] = value
            if where != "a":
                case.b[at, lane] = value
        with np.errstate(invalid="ignore", over="ignore"):
            expected = by_multiply_adds(case, monkeypatch)
            result = case.run()
            sizes = np.abs(case.a).astype(np.float64) @ np.abs(case.b).astype(np.float64)
        finite = sizes < np.finfo(np.float32).max
        special = ~np.isfinite(sizes)  # in between, what becomes infinite depends on the order of the additions
        np.testing.assert_array_equal(result[special], expected[special])
        difference = np.abs(result[finite].astype(np.float64) - expected[finite])
        assert (difference <= 64 * 2.0**-24 * sizes[finite]).all()
        for splits in (2, 3):
            np.testing.assert_array_equal(case.run(splits), result, strict=True)


@pytest.mark.parametrize("scales", [(1e-20, 1e-20), (1e-30, 1.0), (1e-42, 1.0), (1e-42, 1e20), (1e25, 1e-30), (1e-19, 1e-15)], ids=str)
def test_tiny_and_huge_operands(scales: tuple[float, float]) -> None:
    """Operands of one magnitude, denormal results included."""
    torch = pytest.importorskip("torch")
    case = case_of(64, 64, 600)
    rng = np.random.default_rng(0)
    case.a[:], case.b[:] = rng.standard_normal((64, 600)) * scales[0], rng.standard_normal((600, 64)) * scales[1]
    theirs = torch.mm(torch.from_numpy(case.a.copy()), torch.from_numpy(case.b.copy())).numpy()
    assert error(case, case.run()) <= error(case, theirs)


def test_denormal_sum_is_kept() -> None:
    """A block of K with a denormal product, before and after blocks of zeros and of ordinary numbers times zero."""
    for at in (0, 500, 1100):
        case = case_of(40, 40, 1200)
        case.a[:] = 0
        case.b[:] = 0
        case.a[7, at], case.b[at, 9] = 1e-20, 1e-20
        case.a[:, 1199] = 1
        result = case.run()
        assert result[7, 9] == np.float32(np.float64(np.float32(1e-20)) ** 2) != 0
        assert np.count_nonzero(result) == 1


def test_denormals_times_identity() -> None:
    case = case_of(64, 64, 64)
    case.b[:] = np.eye(64)
    case.a[:] = np.random.default_rng(0).integers(0, 1 << 32, case.a.shape, dtype=np.uint32).view(np.float32)
    case.a[~np.isfinite(case.a)] = 1e-44
    np.testing.assert_array_equal(case.run(), case.a)
