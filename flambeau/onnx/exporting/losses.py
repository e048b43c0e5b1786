"""Losses as ONNX nodes."""

from __future__ import annotations

from typing import Any

from flambeau.onnx.exporting.builder import Builder, form

_REDUCTIONS = ("none", "mean", "sum")


def _reduced(b: Builder, x: str, reduction: int) -> str:
    return x if reduction == 0 else b.op("ReduceMean" if reduction == 1 else "ReduceSum", x, keepdims=0)


@form("mse_loss", "l1_loss")
def mse_loss(b: Builder, self: Any, target: Any, reduction: int = 1) -> Any:
    """Squares of differences, or their sizes."""
    away = b.op("Sub", self, target)
    return _reduced(b, b.op("Abs", away) if "l1" in b.where else b.op("Mul", away, away), reduction)


@form("cross_entropy_loss", "nll_loss_nd", "nll_loss", "nll_loss2d")
def cross_entropy_loss(
    b: Builder, self: Any, target: Any, weight: Any = None, reduction: int = 1, ignore_index: int = -100, label_smoothing: float = 0.0
) -> Any:
    """Of classes."""
    if label_smoothing or target.floating:
        raise b.refuse("probabilities as targets and label smoothing have no form")
    kind = "SoftmaxCrossEntropyLoss" if "cross_entropy" in b.where else "NegativeLogLikelihoodLoss"
    x, y = self, target
    if self.ndim == 1:
        x, y = b.op("Unsqueeze", self, b.ints([0])), b.op("Unsqueeze", target, b.ints([0]))
    made = b.op(kind, x, y, weight, reduction=_REDUCTIONS[reduction], ignore_index=ignore_index)
    return b.op("Squeeze", made, b.ints([0])) if self.ndim == 1 and reduction == 0 else made


@form("binary_cross_entropy")
def binary_cross_entropy(b: Builder, self: Any, target: Any, weight: Any = None, reduction: int = 1) -> Any:
    """Of probabilities; logarithms are not below -100."""
    kind = self.dtype
    one, least = b.number(1, kind), b.number(-100, kind)
    yes, no = b.op("Max", b.op("Log", self), least), b.op("Max", b.op("Log", b.op("Sub", one, self)), least)
    made = b.op("Neg", b.op("Add", b.op("Mul", target, yes), b.op("Mul", b.op("Sub", one, target), no)))
    return _reduced(b, made if weight is None else b.op("Mul", made, weight), reduction)


@form("binary_cross_entropy_with_logits")
def binary_cross_entropy_with_logits(b: Builder, self: Any, target: Any, weight: Any = None, pos_weight: Any = None, reduction: int = 1) -> Any:
    """Of logits."""
    one = b.number(1, self.dtype)
    yes = b.op("Mul", target, b.op("Softplus", b.op("Neg", self)))
    yes = yes if pos_weight is None else b.op("Mul", yes, pos_weight)
    made = b.op("Add", yes, b.op("Mul", b.op("Sub", one, target), b.op("Softplus", self)))
    return _reduced(b, made if weight is None else b.op("Mul", made, weight), reduction)


@form("smooth_l1_loss", "huber_loss")
def smooth_l1_loss(b: Builder, self: Any, target: Any, reduction: int = 1, beta: float = 1.0, delta: float = 1.0) -> Any:
    """Squares near 0, sizes beyond."""
    huber = "huber" in b.where
    limit = delta if huber else beta
    kind = self.dtype
    away = b.op("Abs", b.op("Sub", self, target))
    near = b.op("Mul", b.op("Mul", away, away), b.number(0.5 if huber or not limit else 0.5 / limit, kind))
    far = b.op("Sub", away, b.number(0.5 * limit, kind))
    far = b.op("Mul", far, b.number(limit, kind)) if huber else far
    return _reduced(b, b.op("Where", b.op("Less", away, b.number(limit, kind)), near, far), reduction)
