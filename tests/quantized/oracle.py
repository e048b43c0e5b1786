"""The same quantized tensors here and in PyTorch, and a comparison of what functions make of them."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import flambeau as ft

warnings.filterwarnings("ignore", message=".*quantized tensor creation functions.*")
torch = pytest.importorskip("torch")
warnings.filterwarnings("ignore", message=".*quantize_per_tensor.*")


def values(shape: tuple[int, ...], seed: int = 0, scale: float = 1.0) -> np.ndarray[Any, Any]:
    """Normal float32 numbers."""
    return (np.random.default_rng(seed).normal(size=shape) * scale).astype(np.float32)


def same(ours: Any, theirs: Any, quanta: int = 0) -> None:
    """Equal in kind, meaning and integers (`quanta`: as far as integers may differ), or equal values of what is not quantized."""
    if isinstance(theirs, (tuple, list)):
        assert len(ours) == len(theirs)
        for a, b in zip(ours, theirs, strict=True):
            same(a, b, quanta)
        return
    if not isinstance(theirs, torch.Tensor):
        assert ours == theirs or repr(ours) == repr(theirs)
        return
    assert repr(ours.dtype) == repr(theirs.dtype) and tuple(ours.shape) == tuple(theirs.shape) and ours.is_quantized == theirs.is_quantized
    if not theirs.is_quantized:
        np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-5, atol=1e-5)
        return
    assert repr(ours.qscheme()) == repr(theirs.qscheme())
    if theirs.qscheme() == torch.per_tensor_affine:
        assert (ours.q_scale(), ours.q_zero_point()) == pytest.approx((theirs.q_scale(), theirs.q_zero_point()), rel=1e-6)
    else:
        np.testing.assert_array_equal(ours.q_per_channel_scales().numpy(), theirs.q_per_channel_scales().numpy())
        assert ours.q_per_channel_axis() == theirs.q_per_channel_axis()
    off = np.abs(ours.int_repr().numpy().astype(np.int64) - theirs.int_repr().numpy().astype(np.int64))
    assert off.max(initial=0) <= quanta, f"{(off > quanta).sum()} of {off.size} integers differ, by up to {off.max()}"


def both(function: Any, *arrays: np.ndarray[Any, Any], quanta: int = 0) -> None:
    """The same function of the library and of tensors, called with both libraries."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = function(torch, *[torch.from_numpy(a.copy()) for a in arrays])
        ours = function(ft, *[ft.from_numpy(a.copy()) for a in arrays])
    same(ours, theirs, quanta)
