"""Gradients, and gradients of gradients, of the decompositions against finite differences: PyTorch is not asked here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flambeau as ft
from flambeau.autograd import gradcheck, gradgradcheck

CASES: dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]] = {
    "inv": (ft.linalg.inv, (3, 3)),
    "det": (ft.linalg.det, (2, 3, 3)),
    "slogdet": (lambda a: ft.linalg.slogdet(a)[1], (3, 3)),
    "cholesky": (lambda a: ft.linalg.cholesky(a @ a.mT + 3 * ft.eye(3, dtype=ft.float64)), (3, 3)),
    "solve": (lambda a: ft.linalg.solve(a, a.mT + 1), (3, 3)),
    "solve_triangular": (lambda a: ft.linalg.solve_triangular(a + 3 * ft.eye(3, dtype=ft.float64), a.mT, upper=True), (3, 3)),
    "qr": (lambda a: ft.linalg.qr(a), (4, 3)),
    "qr of a wide matrix": (lambda a: ft.linalg.qr(a).R, (2, 4)),
    "eigvalsh": (lambda a: ft.linalg.eigvalsh(a + a.mT), (3, 3)),
    "eigh": (lambda a: ft.linalg.eigh(a + a.mT)[1] ** 2, (3, 3)),
    "svd": (lambda a: ft.linalg.svd(a, full_matrices=False).U ** 2, (4, 3)),
    "svdvals": (ft.linalg.svdvals, (2, 3)),
    "pinv": (ft.linalg.pinv, (4, 2)),
    "lstsq": (lambda a: ft.linalg.lstsq(a, a[:, :1] * 2 + 1).solution, (4, 2)),
    "lu": (lambda a: ft.linalg.lu(a)[1:], (3, 3)),
    "matrix_exp": (ft.linalg.matrix_exp, (3, 3)),
    "matrix_norm": (lambda a: ft.linalg.matrix_norm(a, "nuc"), (3, 2)),
    "rfft": (lambda a: ft.fft.rfft(a).abs(), (2, 5)),
    "irfft": (lambda a: ft.fft.irfft(ft.fft.rfft2(a) ** 2, 6), (2, 5)),
}


@pytest.mark.parametrize("name", CASES)
def test_gradients(name: str) -> None:
    function, shape = CASES[name]
    x = ft.tensor(np.random.default_rng(3).normal(size=shape)).requires_grad_()
    assert gradcheck(function, (x,))
    assert gradgradcheck(function, (x,), atol=1e-4)
