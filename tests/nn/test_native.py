"""Layers under the names of the torch namespace, in its order of arguments, beside PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau as ft
from tests.ops.oracle import arrays, check, compare

torch: Any = pytest.importorskip("torch")


def weights(*shapes: tuple[int, ...], seed: int = 3) -> list[np.ndarray]:
    return [a / 3 for a in arrays(*shapes, seed=seed)]


CALLS = {
    "batch_norm": (lambda m, x, w, b: m.batch_norm(x, w, b, None, None, True, 0.1, 1e-5, False), [(4, 3, 5), (3,), (3,)]),
    "instance_norm": (lambda m, x, w, b: m.instance_norm(x, w, b, None, None, True, 0.1, 1e-5, False), [(4, 3, 5), (3,), (3,)]),
    "convolution": (lambda m, x, w: m.convolution(x, w, None, [1, 2], [1, 0], [1, 1], False, [0, 0], 1), [(2, 3, 6, 7), (4, 3, 3, 2)]),
    "convolution, transposed": (lambda m, x, w: m.convolution(x, w, None, [2], [1], [1], True, [1], 1), [(2, 3, 6), (3, 4, 3)]),
    "constant_pad_nd": (lambda m, x: m.constant_pad_nd(x, [1, 2, -1, 0], 0.5), [(3, 4)]),
    "max_pool1d_with_indices": (lambda m, x: m.max_pool1d_with_indices(x, 2, 1), [(2, 3, 7)]),
    "max_pool3d": (lambda m, x: m.max_pool3d(x, 2), [(2, 3, 4, 4, 4)]),
    "adaptive_max_pool1d": (lambda m, x: m.adaptive_max_pool1d(x, 3), [(2, 3, 7)]),
    "grid_sampler, bicubic": (lambda m, x, g: m.grid_sampler(x, g / 2, 2, 2, False), [(2, 3, 5, 4), (2, 3, 3, 2)]),
    "grid_sampler, volumes": (lambda m, x, g: m.grid_sampler_3d(x, g / 2, 0, 1, True), [(2, 2, 3, 4, 5), (2, 2, 2, 3, 3)]),
    "affine_grid_generator": (lambda m, t: m.affine_grid_generator(t, [2, 3, 2, 3, 4], False), [(2, 3, 4)]),
    "hinge_embedding_loss": (lambda m, x: m.hinge_embedding_loss(x, m.sign(x.detach()), 1.0, 2), [(3, 4)]),
    "binary_cross_entropy_with_logits": (lambda m, x, y: m.binary_cross_entropy_with_logits(x, y.sigmoid(), None, None, 0), [(3, 4), (3, 4)]),
    "poisson_nll_loss": (lambda m, x, y: m.poisson_nll_loss(x, y.abs(), True, False, 1e-8, 1), [(3, 4), (3, 4)]),
    "norm_except_dim": (lambda m, x: (m.norm_except_dim(x, 2, 0), m.norm_except_dim(x, 2, 1), m.norm_except_dim(x, 2, -1)), [(3, 4, 2)]),
    "embedding": (lambda m, w: m.embedding(w, m.tensor([1, 0, 2, 1]), 0), [(3, 4)]),
    "split_with_sizes_copy": (lambda m, x: m.split_with_sizes_copy(x, [1, 3], 1), [(3, 4)]),
    "lstm_cell": (lambda m, x, h, c, w, r: m.lstm_cell(x, (h, c), w, r), [(2, 3), (2, 4), (2, 4), (16, 3), (16, 4)]),
    "gru_cell": (lambda m, x, h, w, r: m.gru_cell(x, h, w, r), [(2, 3), (2, 4), (12, 3), (12, 4)]),
    "rnn_tanh_cell": (lambda m, x, h, w, r, b, d: m.rnn_tanh_cell(x, h, w, r, b, d), [(2, 3), (2, 4), (4, 3), (4, 4), (4,), (4,)]),
    "rnn_relu_cell": (lambda m, x, h, w, r: m.rnn_relu_cell(x, h, w, r), [(2, 3), (2, 4), (4, 3), (4, 4)]),
}


@pytest.mark.parametrize("name", CALLS)
def test_native(name: str) -> None:
    expression, shapes = CALLS[name]
    check(expression, arrays(*shapes), second=False)


@pytest.mark.parametrize("name,gates", [("lstm", 4), ("gru", 3), ("rnn_tanh", 1), ("rnn_relu", 1)])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_recurrent(name: str, gates: int, bidirectional: bool) -> None:
    sides = 2 if bidirectional else 1
    shapes: list[tuple[int, ...]] = []
    for layer in range(2):
        for _ in range(sides):
            shapes += [(4 * gates, 3 if layer == 0 else 4 * sides), (4 * gates, 4), (4 * gates,), (4 * gates,)]
    state = [(2 * sides, 2, 4)] * (2 if name == "lstm" else 1)
    given = arrays((2, 5, 3)) + weights(*state, *shapes)

    def call(m: Any, x: Any, *rest: Any) -> Any:
        hx = rest[:2] if name == "lstm" else rest[0]
        parameters = list(rest[len(state) :])
        return getattr(m, name)(x, hx, parameters, True, 2, 0.0, False, bidirectional, True)

    check(call, given, second=False)


def test_packed() -> None:
    shapes = [(1, 3, 4), (1, 3, 4), (16, 3), (16, 4), (16,), (16,)]
    given = arrays((6, 3)) + weights(*shapes)

    def call(m: Any, x: Any, h: Any, c: Any, *parameters: Any) -> Any:
        return m.lstm(x, m.tensor([3, 2, 1]), (h, c), list(parameters), True, 1, 0.0, False, False)

    check(call, given, second=False)


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min", "prod"])
def test_segment_reduce(reduce: str) -> None:
    lengths = np.array([2, 0, 3])
    check(lambda m, x: m.segment_reduce(x, reduce, lengths=m.tensor(lengths), initial=1.0), arrays((5, 2)), second=False)
    with pytest.raises(RuntimeError, match=r"sum to data.size\(0\), which is 5"):
        ft.segment_reduce(ft.ones(5), reduce, lengths=ft.tensor([2, 2]))


@pytest.mark.filterwarnings("ignore:torch.range")
def test_range_and_windows() -> None:
    compare(ft.range(1, 2, 0.25, dtype=ft.float64), torch.range(1, 2, 0.25, dtype=torch.float64))
    compare(ft.kaiser_window(9, False, 3.0, dtype=ft.float64), torch.kaiser_window(9, False, 3.0, dtype=torch.float64), tolerance=1e-7)
    compare(ft.kaiser_window(8, dtype=ft.float64), torch.kaiser_window(8, dtype=torch.float64), tolerance=1e-7)


def test_dropouts_in_place() -> None:
    x = ft.ones(2, 64, 5)
    assert ft.dropout_(x, 0.5, True) is x
    assert set(x.reshape(-1).tolist()) == {0.0, 2.0}
    y, kept = ft.native_dropout(ft.ones(1000), 0.25, True)
    assert 600 < int(kept.sum()) < 880 and (y[kept] == 1 / 0.75).all()
    channels = ft.feature_dropout(ft.ones(4, 32, 3, 3), 0.5, True).flatten(2)
    assert ((channels == 0).all(2) | (channels == 2).all(2)).all()
    z = ft.tensor([-1.0, 2.0])
    assert ft.celu_(z) is z and z.tolist() == pytest.approx([np.expm1(-1.0), 2.0])
