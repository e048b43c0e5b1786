"""torchaudio's operators beside what they compute by definition."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import flambeau as ft
from flambeau.extensions import torchaudio as ours

RANDOM = np.random.default_rng(1)


def test_recursive_filter() -> None:
    scipy = pytest.importorskip("scipy.signal")
    a = np.array([[1.0, -0.4, 0.2], [1.0, 0.3, -0.1]])
    x = RANDOM.normal(size=(3, 2, 20))
    out = ft.zeros(3, 2, 22, dtype=ft.float64)
    ours._lfilter_core_loop(ft.tensor(x), ft.tensor(a[:, ::-1].copy()), out)
    wanted = np.stack([scipy.lfilter([1.0], a[c], x[:, c], axis=-1) for c in range(2)], 1)
    np.testing.assert_allclose(out[:, :, 2:].numpy(), wanted, rtol=1e-12)


def test_overdrive() -> None:
    x, temp = RANDOM.normal(size=(2, 2, 6))
    out = ft.zeros(2, 6, dtype=ft.float64)
    ours._overdrive_core_loop(*[ft.tensor(v) for v in (x, temp, np.zeros(2), np.zeros(2))], out)
    last, before = np.zeros(2), np.zeros(2)
    for i in range(6):
        last, before = temp[:, i] - before + 0.995 * last, temp[:, i]
        np.testing.assert_allclose(out[:, i].numpy(), x[:, i] * 0.5 + last * 0.75, rtol=1e-12)


@pytest.mark.parametrize("targets", [[1, 2], [1, 1], [2]])
def test_forced_align_finds_the_likeliest_path(targets: list[int]) -> None:
    steps, classes = 5, 3
    scores = np.log(RANDOM.dirichlet(np.ones(classes), steps))

    def spelled(path: tuple[int, ...]) -> list[int]:
        return [label for label, _ in itertools.groupby(path) if label != 0]

    best = max((p for p in itertools.product(range(classes), repeat=steps) if spelled(p) == targets), key=lambda p: scores[range(steps), p].sum())
    length = ft.tensor([len(targets)])
    path, same = ours.forced_align(ft.tensor(scores)[None], ft.tensor([targets]), ft.tensor([steps]), length, 0)
    assert tuple(path[0].tolist()) == best and same.shape == (1, steps, classes)
    with pytest.raises(RuntimeError, match="targets length is too long for CTC"):
        ours.forced_align(ft.tensor(scores[:1])[None], ft.tensor([targets * 3]), ft.tensor([1]), ft.tensor([3 * len(targets)]), 0)
