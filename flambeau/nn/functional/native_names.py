"""Functions of nn.functional as the torch namespace has them: other orders and kinds of the last parameters (`torch.softmax`, `torch.dropout`, ...).

Reductions are numbers here, as in PyTorch's native functions: 0 "none", 1 "mean", 2 "sum".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau.nn import functional as F
from flambeau.nn.functional.activation import rrelu_by
from flambeau.nn.functional.native import REDUCTIONS
from flambeau.nn.functional.normalization import _group_norm
from flambeau.ops.named import public
from flambeau.ops.wrapper import MISSING
from flambeau.tensor import Tensor


def _reduction(name: str, number: int) -> str:
    if not isinstance(number, int):
        raise TypeError(f"{name}(): argument 'reduction' must be int, not {type(number).__name__}: 0 (none), 1 (mean) or 2 (sum)")
    if not 0 <= number < len(REDUCTIONS):
        raise ValueError(f"{name}(): {number} is not a valid value for reduction: 0 (none), 1 (mean) or 2 (sum)")
    return REDUCTIONS[number]


def _dim(name: str, dim: Any, axis: int | None) -> Any:
    """`dim`, or `axis` where it is not given."""
    if dim is not MISSING:
        if axis is not None:
            raise TypeError(f"{name}() got an unexpected keyword argument 'axis': 'dim' is given, too")
        return dim
    if axis is None:
        raise TypeError(f'{name}() missing 1 required positional arguments: "dim"')
    return axis


@public("softmax")
def softmax(input: Tensor, dim: Any = MISSING, dtype: Any = None, *, axis: int | None = None) -> Tensor:
    """exp(x) / sum of exp(x) along `dim`; computed in `dtype` if given."""
    return F.softmax(input, _dim("softmax", dim, axis), 3, dtype)


@public("log_softmax")
def log_softmax(input: Tensor, dim: Any = MISSING, dtype: Any = None, *, axis: int | None = None) -> Tensor:
    """log(softmax(x)) along `dim`; computed in `dtype` if given."""
    return F.log_softmax(input, _dim("log_softmax", dim, axis), 3, dtype)


@public("celu")
def celu(input: Tensor, alpha: float = 1.0) -> Tensor:
    """nn.functional.celu."""
    return F.celu(input, alpha)


@public("selu")
def selu(input: Tensor) -> Tensor:
    """nn.functional.selu."""
    return F.selu(input)


@public("threshold")
def threshold(input: Tensor, threshold: float, value: float) -> Tensor:
    """nn.functional.threshold."""
    return F.threshold(input, threshold, value)


def _check_probability(p: float) -> None:
    if not 0.0 <= p <= 1.0:
        raise RuntimeError(f"dropout probability has to be between 0 and 1, but got {p}")


def dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """nn.functional.dropout."""
    _check_probability(p)
    return F.dropout(input, p, train)


def alpha_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """nn.functional.alpha_dropout."""
    _check_probability(p)
    return F.alpha_dropout(input, p, train)


def feature_alpha_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """nn.functional.feature_alpha_dropout."""
    _check_probability(p)
    return F.feature_alpha_dropout(input, p, train)


def rrelu(input: Tensor, lower: float = 0.125, upper: float = 0.3333333333333333, training: bool = False, generator: Any = None) -> Tensor:
    """nn.functional.rrelu; slopes are drawn from `generator`, if given."""
    if generator is None or not training:
        return F.rrelu(input, lower, upper, training)
    return rrelu_by(generator, input, lower, upper)


def layer_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5, cudnn_enable: bool = True
) -> Tensor:
    """nn.functional.layer_norm."""
    return F.layer_norm(input, normalized_shape, weight, bias, eps)


def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5, cudnn_enabled: bool = True
) -> Tensor:
    """nn.functional.group_norm, also of one value."""
    return _group_norm(input, num_groups, weight, bias, eps)


def max_pool1d(input: Tensor, kernel_size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False) -> Tensor:
    """nn.functional.max_pool1d, without indices."""
    return F.max_pool1d(input, kernel_size, None if stride == () else stride, padding, dilation, ceil_mode)  # type: ignore[no-any-return]


def max_pool2d(input: Tensor, kernel_size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False) -> Tensor:
    """nn.functional.max_pool2d, without indices."""
    return F.max_pool2d(input, kernel_size, None if stride == () else stride, padding, dilation, ceil_mode)  # type: ignore[no-any-return]


# -- losses -------------------------------------------------------------------------------------------------------
def kl_div(input: Tensor, target: Tensor, reduction: int = 1, *, log_target: bool = False) -> Tensor:
    """nn.functional.kl_div."""
    return F.kl_div(input, target, reduction=_reduction("kl_div", reduction), log_target=log_target)


def cosine_embedding_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int = 1) -> Tensor:
    """nn.functional.cosine_embedding_loss."""
    return F.cosine_embedding_loss(input1, input2, target, margin, reduction=_reduction("cosine_embedding_loss", reduction))


def margin_ranking_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int = 1) -> Tensor:
    """nn.functional.margin_ranking_loss."""
    return F.margin_ranking_loss(input1, input2, target, margin, reduction=_reduction("margin_ranking_loss", reduction))


def triplet_margin_loss(
    anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6, swap: bool = False, reduction: int = 1
) -> Tensor:
    """nn.functional.triplet_margin_loss."""
    return F.triplet_margin_loss(anchor, positive, negative, margin, p, eps, swap, reduction=_reduction("triplet_margin_loss", reduction))


def ctc_loss(
    log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any, blank: int = 0, reduction: int = 1, zero_infinity: bool = False
) -> Tensor:
    """nn.functional.ctc_loss."""
    return F.ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, _reduction("ctc_loss", reduction), zero_infinity)
