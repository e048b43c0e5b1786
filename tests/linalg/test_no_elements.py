"""Decompositions of matrices without elements, and what least squares make of `rcond`: as PyTorch."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau

torch = pytest.importorskip("torch")
INFINITY = float("inf")


def outcome(library: Any, name: str, *shapes: Any, **options: Any) -> Any:
    """Shapes, dtypes and values of the results, or the error's kind."""
    xs = [library.ones(shape) for shape in shapes]
    try:
        made = eval(f"library.{name}", {"library": library})(*xs, **options)
    except RuntimeError:
        return "refused"
    parts = made if isinstance(made, (tuple, list)) else (made,)
    return [(tuple(p.shape), str(p.dtype).rpartition(".")[2], p.tolist()) for p in parts]


@pytest.mark.parametrize("batch", [(), (0,), (2,), (1, 0)])
@pytest.mark.parametrize("size", [(0, 0), (0, 1), (1, 0), (3, 0)])
def test_matrices_without_elements(batch: tuple[int, ...], size: tuple[int, int]) -> None:
    shape = batch + size
    for p in (None, 2, -2, 1, -1, INFINITY, -INFINITY):
        assert outcome(flambeau, "linalg.cond", shape, p=p) == outcome(torch, "linalg.cond", shape, p=p), p
    for name in ("linalg.lu", "linalg.lu_factor", "linalg.lu_factor_ex"):
        assert outcome(flambeau, name, shape) == outcome(torch, name, shape), name
    ours, theirs = (lib.lu_unpack(*lib.linalg.lu_factor(lib.ones(shape))) for lib in (flambeau, torch))
    assert [x.tolist() for x in ours] == [x.tolist() for x in theirs]


@pytest.mark.parametrize("driver", ["gelsy", "gelsd", "gelss", "gels"])
def test_a_right_hand_side_without_batches(driver: str) -> None:
    ours = flambeau.linalg.lstsq(flambeau.eye(3)[None, :, :2], flambeau.ones(0, 3, 1), driver=driver)
    assert tuple(ours.solution.shape) == (0, 2, 1)
    assert ours.rank.tolist() == ([] if driver == "gels" else [2])  # PyTorch's is not initialised
    assert ours.singular_values.tolist() == ([[1.0, 1.0]] if driver in ("gelsd", "gelss") else [])


SPECTRA = ((1.0, 0.4, 0.1), (1.0, 0.4, 1e-7), (1.0, 1e-10, 0.0), (0.0, 0.0, 0.0))


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
@pytest.mark.parametrize("rcond", [None, 2.0, 1.0, 0.6, 0.2, 0.05, 0.0, -1.0])
def test_rank_and_solution_by_rcond(dtype: str, rcond: float | None) -> None:
    for driver in ("gels", "gelsy", "gelsd", "gelss"):
        for spectrum in SPECTRA[:1] if driver == "gels" else SPECTRA:
            results = []
            for lib in (flambeau, torch):
                a = lib.diag(lib.tensor(spectrum)).to(getattr(lib, dtype))
                b = lib.ones(3, 1, dtype=a.dtype)
                made = lib.linalg.lstsq(a, b, rcond=rcond, driver=driver)
                results.append((made.rank.tolist(), made.solution.abs().flatten().tolist()))
            if driver == "gelsy":
                # PyTorch hands LAPACK columns' numbers that are not initialised, so which column is the first one is not defined.
                assert results[0][0] >= (max(spectrum) > 0), (driver, spectrum)
                continue
            assert results[0][0] == results[1][0], (driver, spectrum, results)
            assert results[0][1] == pytest.approx(results[1][1], rel=1e-4, abs=1e-6), (driver, spectrum)


@pytest.mark.parametrize("pending", [False, True])
@pytest.mark.parametrize("value", [0, 3, -1])
def test_pivots_that_name_no_row(value: int, pending: bool) -> None:
    packed, pivots = flambeau.linalg.lu_factor(flambeau.eye(2).repeat(3, 1, 1) + 1)
    pivots[0] = value
    if not pending:
        pivots.tolist()
    kept = flambeau.ones(2) * 3
    for call in (lambda: flambeau.lu_unpack(packed, pivots)[0], lambda: flambeau.linalg.lu_solve(packed, pivots, flambeau.ones(3, 2, 2), adjoint=True)):
        with pytest.raises(RuntimeError, match=rf"pivot {value} is out of bounds.*(at least 1)"):
            call().tolist()
    assert kept.tolist() == [3.0, 3.0]
