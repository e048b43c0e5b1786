"""torch.ops.aten's gradients of activations, losses and selections, beside PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import flambeau

_random = np.random.default_rng(0)


def _x(*shape: int) -> np.ndarray:
    return (_random.standard_normal(shape) * 2).astype(np.float32)


_PROBABILITIES = _random.uniform(0.05, 0.95, (3, 4)).astype(np.float32)
_TARGETS = np.array([1, 3, 0])
_IMAGE_TARGETS = _random.integers(0, 4, (2, 5))
_EDGES = np.array([-3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0, np.nan], np.float32)
G, X, E, GE = _x(3, 4), _x(3, 4), _EDGES, _x(8)

CALLS: dict[str, tuple[str, tuple[Any, ...], dict[str, Any]]] = {
    f"{name} {i}": (name, args, {})
    for name, found in {
        "tanh_backward": [(G, np.tanh(X))], "sigmoid_backward": [(G, _PROBABILITIES)], "threshold_backward": [(G, X, 0), (GE, E, 0), (G, X, 0.5)],
        "silu_backward": [(G, X)], "mish_backward": [(G, X)], "leaky_relu_backward": [(G, X, 0.1, False), (GE, E, 0.1, True)],
        "elu_backward": [(G, 1.5, 2.0, 0.5, False, X), (G, 1.5, 2.0, 0.5, True, X)], "hardtanh_backward": [(G, X, -1, 1), (GE, E, -1, 1)],
        "hardsigmoid_backward": [(GE, E)], "hardswish_backward": [(GE[:-1], E[:-1])], "softplus_backward": [(G, X, 2, 1)],
        "softshrink_backward": [(GE, E, 0.5)], "hardshrink_backward": [(GE, E, 0.5)], "log_sigmoid_forward": [(X,)],
        "log_sigmoid_backward": [(G, X, np.exp(-np.abs(X)))],
        "logit_backward": [(G, _PROBABILITIES, None), (G, X, 0.1), (G, X, None)], "glu_backward": [(_x(3, 2), X, 1)],
        "native_dropout_backward": [(G, X > 0, 2.0)], "_log_softmax_backward_data": [(G, np.log(_PROBABILITIES), 1, "float32")],
        "mse_loss_backward": [(_x(), X, G, 1), (G, X, G, 0)], "smooth_l1_loss_backward": [(_x(), X, G, 1, 0.5), (_x(), X, G, 2, 0.0)],
        "huber_loss_backward": [(_x(), X, G, 1, 0.5)], "binary_cross_entropy_backward": [(_x(), _PROBABILITIES, _PROBABILITIES[::-1].copy(), G, 1)],
        "nll_loss_forward": [(X, _TARGETS, None, 1, -100), (X, _TARGETS, _PROBABILITIES[0], 1, 3), (X, _TARGETS, None, 0, 0),
                             (X[0], _TARGETS[0], None, 2, -100)],
        "nll_loss_backward": [(_x(), X, _TARGETS, None, 1, -100, np.float32(3)), (_x(3), X, _TARGETS, _PROBABILITIES[0], 0, 3, np.float32(0))],
        "nll_loss2d_forward": [(_x(2, 4, 5, 1), _IMAGE_TARGETS[..., None], _PROBABILITIES[0], 1, 2)],
        "nll_loss2d_backward": [(_x(), _x(2, 4, 5, 1), _IMAGE_TARGETS[..., None], None, 2, 2, np.float32(3))],
        "native_batch_norm_backward": [
            (_x(2, 4, 5), _x(2, 4, 5), _x(4), _x(4), np.abs(_x(4)), _x(4), np.abs(_x(4)), train, 1e-3, (True, True, True)) for train in (True, False)
        ],
        "select_backward": [(_x(3), (3, 4), 1, 2), (_x(4), (3, 4), 0, -1)], "slice_backward": [(_x(3, 2), (3, 4), 1, 0, 4, 2)],
        "diagonal_backward": [(_x(3), (3, 4), 1, 0, 1)], "trace_backward": [(_x(), (3, 4))],
        "index_select_backward": [(_x(3, 3), (3, 4), 1, np.array([1, 1, 3]))], "gather_backward": [(_x(3, 2), X, 1, np.array([[0, 0], [1, 3], [2, 2]]), False)],
        "masked_select_backward": [(_x(int((X > 0).sum())), X, X > 0)], "value_selecting_reduction_backward": [(_x(3), 1, _TARGETS, (3, 4), False)],
        "unfold_backward": [(_x(3, 3, 2), (3, 4), 1, 2, 1), (_x(2, 4, 2), (5, 4), 0, 2, 3)],
    }.items()
    for i, args in enumerate(found)
} | {f"gelu_backward {kind}": ("gelu_backward", (G, X), {"approximate": kind}) for kind in ("none", "tanh")}  # fmt: skip


def _called(t: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    def given(x: Any) -> Any:
        if isinstance(x, (np.ndarray, np.generic)):
            return t.tensor(np.asarray(x))
        return getattr(t, x) if isinstance(x, str) else x

    found = getattr(t.ops.aten, name)(*map(given, args), **kwargs)
    return list(found) if isinstance(found, (tuple, list)) else [found]


@pytest.mark.parametrize("case", CALLS)
def test_values_are_pytorchs(case: str) -> None:
    name, args, kwargs = CALLS[case]
    for ours, theirs in zip(_called(flambeau, name, args, kwargs), _called(torch, name, args, kwargs), strict=True):
        assert tuple(ours.shape) == tuple(theirs.shape) and str(ours.dtype).split(".")[1] == str(theirs.dtype).split(".")[1]
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=2e-5, atol=2e-6)


def test_what_a_result_cannot_tell() -> None:
    g = flambeau.ones(2)
    with pytest.raises(RuntimeError, match="negative_slope"):
        flambeau.ops.aten.leaky_relu_backward(g, g, -0.1, True)
    with pytest.raises(RuntimeError, match="alpha"):
        flambeau.ops.aten.elu_backward(g, -1.0, 1.0, 1.0, True, g)
    with pytest.raises(RuntimeError, match="approximate"):
        flambeau.ops.aten.gelu_backward(g, g, approximate="sigmoid")
