"""Exponential families: density h(x) exp(<t(x), theta> - F(theta)), theta the natural parameters, F the log normaliser."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau.distributions.distribution import Distribution

__all__ = ["ExponentialFamily"]


def _gradients(normalizer: Any, parameters: Any) -> tuple[Any, list[Any], Any]:
    """(F at the natural parameters, those parameters, its gradients by them: the expectations of t(x)), differentiable."""
    inputs = [p if p.requires_grad else p.detach().requires_grad_() for p in parameters]
    with torch.enable_grad():
        value = normalizer(*inputs)
        expected = torch.autograd.grad(value.sum(), inputs, create_graph=True)
    return value, inputs, expected


class ExponentialFamily(Distribution):
    """The base of exponential families. A subclass that defines `_natural_params` (theta), `_log_normalizer` (F) and
    `_mean_carrier_measure` (the expectation of log h) has an entropy (Nielsen and Nock 2010)."""

    @property
    def _natural_params(self) -> Any:
        raise NotImplementedError

    def _log_normalizer(self, *natural_params: Any) -> Any:
        raise NotImplementedError

    @property
    def _mean_carrier_measure(self) -> Any:
        raise NotImplementedError

    def entropy(self) -> Any:
        """F(theta) - <theta, grad F(theta)> - E[log h], of batch_shape."""
        carrier = self._mean_carrier_measure
        value, parameters, expected = _gradients(self._log_normalizer, self._natural_params)
        for p, e in zip(parameters, expected, strict=True):
            value = value - (p * e).reshape((*self._batch_shape, -1)).sum(-1)
        return value - carrier
