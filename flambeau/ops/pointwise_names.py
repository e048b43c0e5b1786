"""Functions of each element alone, by name: what tensors made of tensors (nested, masked) pass on to their values."""

from __future__ import annotations

from typing import Final

POINTWISE: Final = frozenset(
    """abs absolute acos acosh add addcdiv addcmul asin asinh atan atan2 atanh bitwise_and bitwise_not bitwise_or bitwise_xor ceil celu clamp clamp_max
    clamp_min clip copysign cos cosh deg2rad digamma div divide dropout alpha_dropout elu eq erf erfc erfinv exp exp2 expm1 fill floor floor_divide fmod frac
    ge gelu greater greater_equal gt hardshrink hardsigmoid hardswish hardtanh hypot isfinite isinf isnan isneginf isposinf isreal le leaky_relu lerp less
    less_equal lgamma log log10 log1p log2 logaddexp logical_and logical_not logical_or logical_xor logit logsigmoid lt masked_fill maximum minimum mish
    mul multiply nan_to_num ne neg negative not_equal positive pow prelu rad2deg reciprocal relu relu6 remainder round rsqrt rsub selu sgn sigmoid sign
    signbit silu sin sinc sinh softplus softshrink softsign sqrt square sub subtract tan tanh tanhshrink threshold true_divide trunc where xlogy zero
    radd rmul rdiv rtruediv truediv floordiv rfloordiv mod rmod rpow iadd isub imul itruediv ifloordiv ipow invert and or xor pos bool_ type_as
    to float double half bfloat16 int long short char byte bool cpu clone contiguous requires_grad_ detach_ native_dropout feature_dropout
    zeros_like ones_like empty_like full_like rand_like randn_like randint_like copy cuda type bernoulli uniform normal random""".split()
)


def plain_name(name: str) -> str:
    """The name of a function without what says that it is in place, or an operator."""
    return name.strip("_") if name.startswith("__") else name.removesuffix("_").strip("_")


def writes(name: str) -> bool:
    """Whether a function of this name writes its first argument."""
    return (name.endswith("_") and not name.endswith("__")) or (name.startswith("__i") and name != "__invert__")
