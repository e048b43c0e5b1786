"""Losses, and the operators of training."""

from __future__ import annotations

from typing import Any

import flambeau
from flambeau.onnx.importing.registry import TRAINING, Call, operator


def _reduced(n: Call, loss: Any, weight: Any) -> Any:
    how = n.get("reduction", "mean")
    if how == "none":
        return loss
    if how == "sum":
        return loss.sum()
    return loss.mean() if weight is None else loss.sum() / weight.sum()


def _nll(n: Call, scores: Any, target: Any, weight: Any) -> Any:
    ignored = n.get("ignore_index")
    target = target.to(flambeau.int64)
    seen = None if ignored is None else target != ignored
    safe = target if seen is None else flambeau.where(seen, target, flambeau.zeros((), dtype=flambeau.int64))
    loss = -scores.gather(1, safe.unsqueeze(1)).squeeze(1)
    each = None if weight is None else weight[safe]
    if seen is not None:
        each = seen.to(scores.dtype) if each is None else flambeau.where(seen, each, flambeau.zeros((), dtype=each.dtype))
    return _reduced(n, loss if each is None else loss * each, each)


@operator("NegativeLogLikelihoodLoss")
def negative_log_likelihood_loss(n: Call, scores: Any, target: Any, weight: Any = None) -> Any:
    """Minus the scores of the targets."""
    return _nll(n, scores, target, weight)


@operator("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy_loss(n: Call, scores: Any, target: Any, weight: Any = None) -> Any:
    """The same of the logarithm of a softmax, which is the second result."""
    logarithms = flambeau.log_softmax(scores, 1)
    loss = _nll(n, logarithms, target, weight)
    return (loss, logarithms) if len(n.outputs) > 1 else loss


def _tensors(xs: tuple[Any, ...], kinds: int) -> list[tuple[Any, ...]]:
    """(tensor, gradient, states) of each of the tensors that an optimizer's step takes."""
    count = len(xs) // kinds
    return [tuple([xs[k * count + i] for k in range(kinds)]) for i in range(count)]


@operator("Adagrad", domain=TRAINING)
def adagrad(n: Call, rate: Any, step: Any, *xs: Any) -> Any:
    """One step of Adagrad."""
    r = rate / (1.0 + step.to(rate.dtype) * n.get("decay_factor", 0.0))
    new, states = [], []
    for x, g, h in _tensors(xs, 3):
        g = g + n.get("norm_coefficient", 0.0) * x
        h = h + g * g
        new.append(x - r * g / (h.sqrt() + n.get("epsilon", 1e-6)))
        states.append(h)
    return (*new, *states)


@operator("Momentum", domain=TRAINING)
def momentum(n: Call, rate: Any, step: Any, *xs: Any) -> Any:
    """One step with momentum, plain or Nesterov's."""
    alpha, beta = n.get("alpha"), n.get("beta")
    new, states = [], []
    at = int(step.item())
    for x, g, v in _tensors(xs, 3):
        g = g + n.get("norm_coefficient") * x
        v = alpha * v + (beta if at > 0 else 1.0) * g
        new.append(x - rate * (g + alpha * v if n.get("mode") == "nesterov" else v))
        states.append(v)
    return (*new, *states)


@operator("Adam", domain=TRAINING)
def adam(n: Call, rate: Any, step: Any, *xs: Any) -> Any:
    """One step of Adam."""
    a, b, at = n.get("alpha", 0.9), n.get("beta", 0.999), int(step.item())
    new, first, second = [], [], []
    for x, g, v, h in _tensors(xs, 4):
        g = g + n.get("norm_coefficient", 0.0) * x
        v, h = a * v + (1 - a) * g, b * h + (1 - b) * g * g
        r = rate * ((1 - b**at) ** 0.5 / (1 - a**at)) if at > 0 else rate
        moved = x - r * v / (h.sqrt() + n.get("epsilon", 1e-6))
        new.append((1 - n.get("norm_coefficient_post", 0.0)) * moved)
        first.append(v)
        second.append(h)
    return (*new, *first, *second)
