"""Functions of each element alone, with broadcasting, and in place."""

from __future__ import annotations

from typing import Any, Final

import flambeau
from flambeau.distributed.tensor.calls import Call, Rule
from flambeau.distributed.tensor.rules.letters import WHOLE, by_letters, names
from flambeau.ops.pointwise_names import POINTWISE

_UNARY: Final = frozenset("neg negative positive pos clone contiguous to float double half bfloat16 type_as copy cpu zero".split())  # linear in one tensor
_ADDING: Final = frozenset("add sub subtract iadd isub".split())
_SCALING: Final = frozenset("mul multiply rmul imul".split())
_DIVIDING: Final = frozenset("div divide truediv true_divide itruediv".split())
_RANDOM: Final = frozenset("dropout alpha_dropout feature_dropout native_dropout bernoulli uniform normal random rand_like randn_like randint_like".split())
MORE: Final = frozenset(
    """logical_and logical_or logical_xor logical_not tril_ nextafter heaviside frexp ldexp softmin_ rrelu_ relu_ isclose float_power arctan arctan2 arcsin
    arccos arcsinh arccosh arctanh fmax fmin bitwise_left_shift bitwise_right_shift real imag angle conj i0 special_expit erfcx fix
    exp2 special_log1p logaddexp2 gcd lcm addcmul addcdiv lerp clamp_ nan_to_num_ square_ floor_divide rsub remainder""".split()
)


def _letters(c: Call) -> tuple[list[str], str]:
    ndim = max(len(t._layout.shape) for t in c.tensors)
    out = names(ndim)
    ins = []
    for t in c.tensors:
        shape = t._layout.shape
        letters = out[ndim - len(shape) :]
        wide = [max([u._layout.shape[d - ndim] if len(u._layout.shape) >= ndim - d else 1 for u in c.tensors]) for d in range(ndim - len(shape), ndim)]
        ins.append("".join([letter if n == w else WHOLE for letter, n, w in zip(letters, shape, wide, strict=True)]))
    return ins, out


def pointwise(c: Call, *args: Any, **kwargs: Any) -> Rule:
    """Dims are aligned from the last; what is broadcast is whole."""
    ins, out = _letters(c)
    return Rule(by_letters(ins, out, _linear(c, *args)), strided=True)


def _linear(c: Call, *args: Any) -> list[list[int]]:
    count = len(c.tensors)
    if c.name in _UNARY and count == 1:
        kinds = [a for a in args[1:] if isinstance(a, flambeau.dtype)] + [c.tensors[0].dtype]
        return [[0]] if all(k.is_floating_point or k.is_complex for k in kinds) else []
    if (c.name in _ADDING and count == 2) or c.name == "copy":
        return [list(range(count))]
    if c.name in _SCALING:
        return [[i] for i in range(count)]
    return [[0]] if c.name in _DIVIDING and c.tensors[0] is args[0] else []


_MAKING: Final = frozenset("zeros_like ones_like empty_like full_like requires_grad detach".split())
RULES: Final[dict[str, Any]] = dict.fromkeys((POINTWISE | MORE) - _RANDOM - _MAKING, pointwise)
