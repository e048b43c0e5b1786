"""Products by float16 halves whose panels' scales are guessed wrongly, too small or too large: the same errors as of others."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import flambeau as ft
from flambeau.runtime import tiles

pytestmark = pytest.mark.skipif("float16" not in tiles.dtypes(), reason="this machine's matrix unit has no float16")
M, N, K = 70, 100, 500  # blocks of K, panels and steps that are not whole


def _greater_later(x: np.ndarray) -> None:
    x[:, 60:] *= 1000  # what a sample of the first columns does not see
    x[1::2] *= 50  # nor one of every second row


def _smaller_later(x: np.ndarray) -> None:
    x[:, 16:] *= 1e-4
    x[1:] *= 1e-3


def _zeros_first(x: np.ndarray) -> None:
    x[:, :16] = 0
    x[:32:2] = 0
    x *= 1e-20


def _wide(x: np.ndarray) -> None:
    x *= np.exp2(np.random.default_rng(1).integers(-25, 25, x.shape)).astype(np.float32)


def _one_huge(x: np.ndarray) -> None:
    x[33, 450] = 1e30


def _whole_numbers(x: np.ndarray) -> None:
    np.round(x * 100, out=x)


def _tiny(x: np.ndarray) -> None:
    x *= 1e-38  # some are denormal


def _same(x: np.ndarray) -> None:
    del x


KINDS = (_same, _greater_later, _smaller_later, _zeros_first, _wide, _one_huge, _whole_numbers, _tiny)


@pytest.mark.parametrize("transposed", [(False, False), (False, True), (True, False), (True, True)], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_a_wrong_guess_is_mended(kind: Callable[[np.ndarray], None], transposed: tuple[bool, bool]) -> None:
    rng = np.random.default_rng(0)
    for both in (False, True):
        a, b = rng.standard_normal((M, K)).astype(np.float32), rng.standard_normal((K, N)).astype(np.float32)
        kind(a)
        if both and kind not in (_tiny, _one_huge):  # their products leave float32
            kind(b.T)
        x, y = (ft.from_numpy(np.ascontiguousarray(z.T)).t() if turned else ft.from_numpy(z) for z, turned in zip((a, b), transposed, strict=True))
        got = (x @ y).numpy()
        exact, sizes = a.astype(np.float64) @ b, np.abs(a).astype(np.float64) @ np.abs(b)
        assert (np.abs(got - exact) <= 8 * 2.0**-24 * sizes + K * 2.0**-149).all()
