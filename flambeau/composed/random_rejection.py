"""Random tensors whose draws depend on the values of tensors: gamma, Dirichlet, Poisson, binomial (by rejection), slopes of rrelu.

PyTorch's CPU stream for the same seed. Draws happen at the call, in row-major order, from the parameters' values. A gradient of a gamma or
Dirichlet number with respect to its parameters is the implicit one (implicit_gradients.py); of a count it is 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flambeau import dtypes
from flambeau.autograd.function import Function
from flambeau.ops.implicit_gradients import dirichlet_grad, standard_gamma_grad
from flambeau.ops.random import _filled, _state, draws
from flambeau.queries import finfo
from flambeau.runtime.random import MersenneState

if TYPE_CHECKING:
    from flambeau.tensor import Tensor

Gradient = Callable[..., tuple[Any, ...]]


class _Draw(Function):
    """apply(draw, gradient, *parameters): `draw(*parameters)` is the sample, `gradient(grad, sample, *parameters)` the gradients."""

    @staticmethod
    def forward(ctx: Any, draw: Any, gradient: Gradient, *parameters: Tensor) -> Any:
        sample = draw(*parameters)
        ctx.gradient = gradient
        ctx.save_for_backward(sample, *parameters)
        return sample

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (grad,) = grads
        return (None, None, *ctx.gradient(grad, *ctx.saved_tensors))


def _drawn(kind: str, generator: Any, gradient: Gradient, *parameters: Tensor) -> Tensor:
    """A sample of MersenneState's fill `kind`, of the shape and dtype of the first parameter."""
    d = parameters[0].dtype
    if not d.is_floating_point:
        raise NotImplementedError(f'"{kind}_cpu" not implemented for {d.name}: its parameters must be floating tensors')

    def draw(*given: Tensor) -> Tensor:
        dense = [p.detach()._plain().contiguous() for p in given]  # type: ignore[attr-defined]
        state: MersenneState = _state(generator)
        return _filled(tuple(given[0].shape), d, lambda a, n: getattr(state, kind)(a, n, d, *[p._address() for p in dense]), given[0].device)

    if any(p.requires_grad for p in parameters):
        return _Draw.apply(draw, gradient, *parameters)  # type: ignore[no-any-return]
    return draw(*parameters)


def _zeros(grad: Any, sample: Any, *parameters: Any) -> tuple[Any, ...]:
    return tuple(p.new_zeros(p.shape) for p in parameters)


class _Slope(Function):
    """apply(function, *parameters): an implicit gradient, which cannot be differentiated by its parameters again."""

    @staticmethod
    def forward(ctx: Any, function: Any, *parameters: Tensor) -> Any:
        ctx.name = function.__name__
        return function(*parameters)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise NotImplementedError(f"the derivative for '{ctx.name}' is not implemented.")


def _gamma_gradient(grad: Any, sample: Any, alpha: Any) -> tuple[Any, ...]:
    return (grad * _Slope.apply(standard_gamma_grad, alpha, sample),)


def _dirichlet_gradient(grad: Any, sample: Any, alpha: Any) -> tuple[Any, ...]:
    total = alpha.sum(-1, True).expand(alpha.shape)
    return (_Slope.apply(dirichlet_grad, sample, alpha, total) * (grad - (sample * grad).sum(-1, True)),)


@draws
def standard_gamma(self: Tensor, generator: Any = None) -> Tensor:
    """Numbers of the distributions Gamma(self, 1). `self`: positive floating tensor of any shape."""
    return _drawn("gamma", generator, _gamma_gradient, self)


@draws
def sample_dirichlet(self: Tensor, generator: Any = None) -> Tensor:
    """Points of the simplex of the last dim, of the Dirichlet distributions with the concentrations `self` (positive, floating).

    Gamma numbers are drawn in double, so that small concentrations do not all become 0, and divided by their sum."""

    def draw(alpha: Tensor) -> Tensor:
        gammas = standard_gamma(alpha.detach().to(dtypes.float64), generator)  # type: ignore[attr-defined]
        info = finfo(alpha.dtype)
        below_one = 1.0 - info.eps / 2
        return (gammas / gammas.sum(-1, True)).to(alpha.dtype).clamp(info.tiny, below_one)  # type: ignore[attr-defined, no-any-return]

    if self.requires_grad:
        return _Draw.apply(draw, _dirichlet_gradient, self)  # type: ignore[no-any-return]
    return draw(self)


@draws
def rrelu_slopes(input: Tensor, lower: float, upper: float, generator: Any = None) -> Tensor:
    """What rrelu multiplies by while training: numbers of [lower, upper) where `input` is at most 0, drawn in row-major order, else 1.

    Of the input's dtype; of float32 for 16 bits."""
    if not input.dtype.is_floating_point:
        raise NotImplementedError(f'"rrelu_with_noise_out_cpu" not implemented for {input.dtype.name}: the input must be a floating tensor')
    dense = input.detach()._plain().contiguous()  # type: ignore[attr-defined]
    d = dtypes.float64 if input.dtype is dtypes.float64 else dtypes.float32
    return _filled(
        tuple(input.shape), d, lambda a, n: _state(generator).rrelu(a, n, d, dense._address(), input.dtype, float(lower), float(upper)), input.device
    )


@draws
def poisson(input: Tensor, generator: Any = None) -> Tensor:
    """Counts of the Poisson distributions with the rates `input` (floating, at least 0), in its shape and dtype.

    RuntimeError where a rate is negative or NaN."""
    return _drawn("poisson", generator, _zeros, input)


@draws
def binomial(count: Tensor, prob: Tensor, generator: Any = None) -> Tensor:
    """Successes among `count` trials with the probability `prob`: floating tensors of one dtype, `prob` broadcast to the shape of `count`."""
    if count.dtype is not prob.dtype:
        raise RuntimeError(f"Found dtype {prob.dtype!r} but expected {count.dtype!r}: binomial takes count and prob of one dtype")
    return _drawn("binomial", generator, _zeros, count, prob.expand(count.shape))  # type: ignore[attr-defined]


_standard_gamma, _sample_dirichlet = standard_gamma, sample_dirichlet
_standard_gamma_grad, _dirichlet_grad = standard_gamma_grad, dirichlet_grad
