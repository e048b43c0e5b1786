"""Operators of elements as ONNX nodes: operands are brought to the dtype that ATen's promotion gives."""

from __future__ import annotations

import math
from typing import Any, Final

import flambeau
from flambeau.onnx.exporting.builder import FORMS, Builder, Val, form
from flambeau.onnx.importing.values import NUMBERS

_UNARY: Final = (
    "abs Abs neg Neg exp Exp log Log sqrt Sqrt sin Sin cos Cos tan Tan asin Asin acos Acos atan Atan sinh Sinh cosh Cosh asinh Asinh acosh Acosh atanh Atanh "
    "tanh Tanh sigmoid Sigmoid relu Relu erf Erf floor Floor ceil Ceil reciprocal Reciprocal sign Sign hardswish HardSwish mish Mish isnan IsNaN "
    "isinf IsInf special_erf Erf"
).split()
_WHOLE: Final = frozenset("abs neg sign relu floor ceil".split())


def _unary(kind: str, name: str) -> Any:
    def write(b: Builder, self: Any) -> Any:
        x = self
        if not x.floating and name not in ("abs", "neg", "sign", "relu"):
            if name in _WHOLE:
                return b.op("Identity", x)
            x = b.cast(x, b.dtype() if b.dtype() is not flambeau.bool else flambeau.float32)
        return b.op(kind, x)

    return write


for _name, _kind in zip(_UNARY[::2], _UNARY[1::2], strict=True):
    FORMS[_name] = _unary(_kind, _name)


def _common(b: Builder, *xs: Any) -> Any:
    """The dtype that operands are promoted to, as result_type has it; numbers count less than tensors."""
    tensors = [x for x in xs if isinstance(x, Val)]
    dims = [t.dtype for t in tensors if t.shape is None or len(t.shape)]
    scalars = [t.dtype for t in tensors if t.shape is not None and not len(t.shape)]
    kind: Any = None
    for d in dims:
        kind = d if kind is None else flambeau.promote_types(kind, d)
    zero = flambeau.zeros(1, dtype=kind) if kind is not None else None
    for d in scalars:
        if zero is not None:
            kind = flambeau.result_type(zero, flambeau.zeros((), dtype=d))
        else:
            kind = d if kind is None else flambeau.promote_types(kind, d)
        zero = flambeau.zeros(1, dtype=kind) if zero is not None else None
    for x in xs:
        if not isinstance(x, Val):
            number = x if isinstance(x, (bool, int, float, complex)) else 1.0 if x.is_float else 1
            kind = flambeau.result_type(flambeau.zeros(1, dtype=kind), number)
    return kind


def _wide(b: Builder, kind: Any, *xs: Any) -> list[Any]:
    return [b.operand(x, kind) for x in xs]


def binary(b: Builder, onnx: str, self: Any, other: Any, kind: Any = None) -> str:
    """An ONNX operator of two operands in their common dtype."""
    kind = kind or _common(b, self, other)
    return b.op(onnx, *_wide(b, kind, self, other))


def _scaled(b: Builder, other: Any, alpha: Any, kind: Any) -> Any:
    if alpha == 1:
        return b.operand(other, kind)
    if isinstance(other, (int, float)) and isinstance(alpha, (int, float)):
        return b.number(other * alpha, kind)
    return b.op("Mul", b.operand(other, kind), b.number(alpha, kind))


@form("add")
def add(b: Builder, self: Any, other: Any, alpha: Any = 1) -> Any:
    """self + alpha * other."""
    kind = b.dtype()
    if kind is flambeau.bool:
        return b.op("Or", self, b.operand(other, kind))
    return b.op("Add", b.operand(self, kind), _scaled(b, other, alpha, kind))


@form("sub", "subtract")
def sub(b: Builder, self: Any, other: Any, alpha: Any = 1) -> Any:
    """self - alpha * other."""
    kind = b.dtype()
    return b.op("Sub", b.operand(self, kind), _scaled(b, other, alpha, kind))


@form("rsub")
def rsub(b: Builder, self: Any, other: Any, alpha: Any = 1) -> Any:
    """other - alpha * self."""
    kind = b.dtype()
    return b.op("Sub", b.operand(other, kind), _scaled(b, self, alpha, kind))


@form("mul")
def mul(b: Builder, self: Any, other: Any) -> Any:
    """self * other."""
    kind = b.dtype()
    return b.op("And" if kind is flambeau.bool else "Mul", b.operand(self, kind), b.operand(other, kind))


@form("div", "true_divide", "divide")
def div(b: Builder, self: Any, other: Any, rounding_mode: Any = None) -> Any:
    """self / other, rounded down or towards 0 if asked."""
    kind = b.dtype()
    if rounding_mode is None or kind.is_floating_point:
        made = b.op("Div", b.operand(self, kind), b.operand(other, kind))
        return made if rounding_mode is None else b.op("Floor", made) if rounding_mode == "floor" else _trunc(b, made, kind)
    if rounding_mode == "trunc":
        return b.op("Div", b.operand(self, kind), b.operand(other, kind))
    return floor_divide(b, self, other)


@form("floor_divide")
def floor_divide(b: Builder, self: Any, other: Any) -> Any:
    """The quotient rounded down."""
    kind = b.dtype()
    x, y = b.operand(self, kind), b.operand(other, kind)
    if kind.is_floating_point:
        return b.op("Floor", b.op("Div", x, y))
    return b.op("Div", b.op("Sub", x, b.op("Mod", x, y)), y)


def _trunc(b: Builder, x: Any, kind: Any) -> str:
    return b.op("Mul", b.op("Sign", x), b.op("Floor", b.op("Abs", x)))


@form("trunc", "fix")
def trunc(b: Builder, self: Any) -> Any:
    """Without what is after the point."""
    return _trunc(b, self, self.dtype) if self.floating else b.op("Identity", self)


@form("frac")
def frac(b: Builder, self: Any) -> Any:
    """What is after the point."""
    return b.op("Sub", self, _trunc(b, self, self.dtype))


@form("remainder")
def remainder(b: Builder, self: Any, other: Any) -> Any:
    """The remainder with the divisor's sign."""
    kind = b.dtype()
    x, y = b.operand(self, kind), b.operand(other, kind)
    if kind.is_floating_point:
        return b.op("Sub", x, b.op("Mul", b.op("Floor", b.op("Div", x, y)), y))
    return b.op("Mod", x, y)


@form("fmod")
def fmod(b: Builder, self: Any, other: Any) -> Any:
    """The remainder with the dividend's sign."""
    kind = b.dtype()
    return b.op("Mod", b.operand(self, kind), b.operand(other, kind), fmod=1)


@form("pow")
def power(b: Builder, self: Any, exponent: Any) -> Any:
    """self to the power exponent."""
    kind = b.dtype()
    x = b.operand(self, kind)
    if exponent == 2:
        return b.op("Mul", x, x)
    if exponent == 0.5:
        return b.op("Sqrt", x)
    if exponent == -1 and kind.is_floating_point:
        return b.op("Reciprocal", x)
    return b.op("Pow", x, b.operand(exponent, kind))


@form("square")
def square(b: Builder, self: Any) -> Any:
    """self * self."""
    return b.op("Mul", self, self)


@form("rsqrt")
def rsqrt(b: Builder, self: Any) -> Any:
    """1 / sqrt(self)."""
    return b.op("Reciprocal", b.op("Sqrt", b.cast(self, b.dtype())))


for _name, _kind in {"eq": "Equal", "gt": "Greater", "ge": "GreaterOrEqual", "lt": "Less", "le": "LessOrEqual"}.items():
    FORMS[_name] = lambda b, self, other, kind=_kind: _compared(b, kind, self, other)


def _compared(b: Builder, kind: str, self: Any, other: Any) -> str:
    common = _common(b, self, other)
    if common is flambeau.bool and kind != "Equal":
        common = flambeau.int32
    return binary(b, kind, self, other, common)


@form("ne", "not_equal")
def ne(b: Builder, self: Any, other: Any) -> Any:
    """Where they differ."""
    return b.op("Not", binary(b, "Equal", self, other))


FORMS["maximum"] = lambda b, self, other: binary(b, "Max", self, other, b.dtype())
FORMS["minimum"] = lambda b, self, other: binary(b, "Min", self, other, b.dtype())
FORMS["max.other"] = FORMS["maximum"]
FORMS["min.other"] = FORMS["minimum"]
_true: Final = flambeau.bool
for _name, _kind in {"logical_and": "And", "logical_or": "Or", "logical_xor": "Xor"}.items():
    FORMS[_name] = lambda b, self, other, kind=_kind: binary(b, kind, self, other, _true)
FORMS["logical_not"] = lambda b, self: b.op("Not", b.cast(self, _true))
for _word in ("And", "Or", "Xor"):
    for _name in (f"bitwise_{_word.lower()}", f"__{_word.lower()}__"):
        FORMS[_name] = lambda b, self, other, word=_word: binary(b, word if b.dtype() is _true else f"Bitwise{word}", self, other, b.dtype())


@form("bitwise_left_shift", "bitwise_right_shift", "__lshift__", "__rshift__")
def shifted(b: Builder, self: Any, other: Any) -> Any:
    """Shifts of bits; the format has them of unsigned integers only. Right, the sign stays; by the width or more nothing stays (right, the sign)."""
    kind, wide = b.dtype(), flambeau.int64
    x, left = b.operand(self, wide), "left" in b.where or "lshift" in b.where
    amount = b.operand(other, wide)
    beyond = b.op("Or", b.op("Less", amount, b.number(0, wide)), b.op("Greater", amount, b.number(8 * kind.itemsize - 1, wide)))
    most = b.number(0 if left else 63, wide)
    amount = b.op("Cast", b.op("Where", beyond, most, amount), to=NUMBERS["uint64"])

    def moved(bits: Any) -> str:
        return b.op("Cast", b.op("BitShift", b.op("Cast", bits, to=NUMBERS["uint64"]), amount, direction="LEFT" if left else "RIGHT"), to=NUMBERS["int64"])

    if left:
        made = b.op("Where", beyond, b.number(0, wide), moved(x))
    else:
        negative = b.op("Less", x, b.number(0, wide))
        made = moved(b.op("Where", negative, b.op("BitwiseNot", x), x))
        made = b.op("Where", negative, b.op("BitwiseNot", made), made)
    return b.op("Cast", made, to=NUMBERS[kind.name])


FORMS["bitwise_not"] = lambda b, self: b.op("Not" if self.dtype is _true else "BitwiseNot", self)


@form("clamp", "clip", "hardtanh", "clamp_min", "clamp_max")
def clamp(b: Builder, self: Any, min: Any = None, max: Any = None, min_val: Any = None, max_val: Any = None) -> Any:
    """Within limits that are numbers or tensors."""
    if b.where.startswith("aten.hardtanh"):
        min, max = -1.0 if min_val is None else min_val, 1.0 if max_val is None else max_val
    kind = b.dtype()
    x = b.operand(self, kind)
    if not isinstance(min, Val) and not isinstance(max, Val):
        return b.op("Clip", x, None if min is None else b.number(min, kind), None if max is None else b.number(max, kind))
    made: Any = x
    if min is not None:
        made = b.op("Max", made, b.operand(min, kind))
    return made if max is None else b.op("Min", made, b.operand(max, kind))


@form("relu6")
def relu6(b: Builder, self: Any) -> Any:
    """Within 0 and 6."""
    return b.op("Clip", self, b.number(0, self.dtype), b.number(6, self.dtype))


@form("where")
def where(b: Builder, condition: Any, self: Any, other: Any) -> Any:
    """self where a condition holds, else other."""
    kind = b.dtype()
    return b.op("Where", b.cast(condition, _true), b.operand(self, kind), b.operand(other, kind))


@form("masked_fill")
def masked_fill(b: Builder, self: Any, mask: Any, value: Any) -> Any:
    """value where the mask holds."""
    kind = b.dtype()
    return b.op("Where", mask, b.operand(value, kind), b.operand(self, kind))


@form("round")
def round_(b: Builder, self: Any, decimals: int = 0) -> Any:
    """The nearest whole number, ties to the even one."""
    if not self.floating:
        return b.op("Identity", self)
    if not decimals:
        return b.op("Round", self)
    scale = b.number(10.0**decimals, self.dtype)
    return b.op("Div", b.op("Round", b.op("Mul", self, scale)), scale)


@form("gelu")
def gelu(b: Builder, self: Any, approximate: str = "none") -> Any:
    """GELU, exact or by tanh."""
    return b.op("Gelu", self, approximate=approximate)


@form("silu")
def silu(b: Builder, self: Any) -> Any:
    """x * sigmoid(x)."""
    return b.op("Mul", self, b.op("Sigmoid", self))


@form("leaky_relu")
def leaky_relu(b: Builder, self: Any, negative_slope: float = 0.01) -> Any:
    """A slope below 0."""
    return b.op("LeakyRelu", self, alpha=float(negative_slope))


@form("elu")
def elu(b: Builder, self: Any, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Any:
    """Exponential below 0."""
    if scale != 1 or input_scale != 1:
        raise b.refuse("scale and input_scale other than 1 have no form")
    return b.op("Elu", self, alpha=float(alpha))


FORMS["selu"] = lambda b, self: b.op("Selu", self)
FORMS["celu"] = lambda b, self, alpha=1.0: b.op("Celu", self, alpha=float(alpha))
FORMS["hardsigmoid"] = lambda b, self: b.op("HardSigmoid", self, alpha=1 / 6, beta=0.5)
FORMS["softsign"] = lambda b, self: b.op("Softsign", self)
FORMS["log_sigmoid"] = lambda b, self: b.op("Neg", b.op("Softplus", b.op("Neg", self)))
FORMS["tanhshrink"] = lambda b, self: b.op("Sub", self, b.op("Tanh", self))


@form("softplus")
def softplus(b: Builder, self: Any, beta: float = 1, threshold: float = 20) -> Any:
    """log(1 + exp(beta * x)) / beta; x itself above the threshold."""
    scaled = self if beta == 1 else b.op("Mul", self, b.number(beta, self.dtype))
    soft = b.op("Softplus", scaled)
    soft = soft if beta == 1 else b.op("Div", soft, b.number(beta, self.dtype))
    return b.op("Where", b.op("Greater", scaled, b.number(threshold, self.dtype)), self, soft)


@form("threshold")
def threshold(b: Builder, self: Any, threshold: Any, value: Any) -> Any:
    """A value where x is not above a threshold."""
    return b.op("Where", b.op("Greater", self, b.number(threshold, self.dtype)), self, b.number(value, self.dtype))


@form("hardshrink")
def hardshrink(b: Builder, self: Any, lambd: float = 0.5) -> Any:
    """0 within limits."""
    return b.op("Shrink", self, lambd=float(lambd), bias=0.0)


@form("softshrink")
def softshrink(b: Builder, self: Any, lambd: float = 0.5) -> Any:
    """Towards 0."""
    return b.op("Shrink", self, lambd=float(lambd), bias=float(lambd))


@form("prelu")
def prelu(b: Builder, self: Any, weight: Any) -> Any:
    """A slope of each channel below 0."""
    if weight.ndim == 1 and self.ndim > 2:
        weight = b.op("Reshape", weight, b.ints([-1] + [1] * (self.ndim - 2)))
    return b.op("PRelu", self, weight)


@form("glu")
def glu(b: Builder, self: Any, dim: int = -1) -> Any:
    """Half of it times the sigmoid of the other half."""
    x, y = b.several("Split", 2, self, axis=dim, num_outputs=2)
    return b.op("Mul", x, b.op("Sigmoid", y))


@form("log2", "log10", "log1p", "exp2", "expm1", "erfc")
def logarithms(b: Builder, self: Any) -> Any:
    """Other logarithms and exponentials by the natural ones."""
    kind = b.dtype()
    x, name = b.cast(self, kind), b.where.split(".")[1]
    if name in ("log2", "log10"):
        return b.op("Mul", b.op("Log", x), b.number(1 / math.log(2 if name == "log2" else 10), kind))
    if name == "log1p":
        return b.op("Log", b.op("Add", x, b.number(1, kind)))
    if name == "exp2":
        return b.op("Exp", b.op("Mul", x, b.number(math.log(2), kind)))
    return b.op("Sub", b.op("Exp", x), b.number(1, kind)) if name == "expm1" else b.op("Sub", b.number(1, kind), b.op("Erf", x))


@form("addcmul", "addcdiv")
def addcmul(b: Builder, self: Any, tensor1: Any, tensor2: Any, value: Any = 1) -> Any:
    """self + value * a * b, or a / b."""
    made = b.op("Mul" if "addcmul" in b.where else "Div", tensor1, tensor2)
    return b.op("Add", self, made if value == 1 else b.op("Mul", made, b.number(value, self.dtype)))


@form("lerp")
def lerp(b: Builder, self: Any, end: Any, weight: Any) -> Any:
    """Between two tensors."""
    return b.op("Add", self, b.op("Mul", b.operand(weight, self.dtype), b.op("Sub", end, self)))


@form("atan2")
def atan2(b: Builder, self: Any, other: Any) -> Any:
    """The angle of a point."""
    kind = b.dtype()
    y, x = b.operand(self, kind), b.operand(other, kind)
    zero, pi = b.number(0, kind), b.number(math.pi, kind)
    half = b.op("Where", b.op("Less", x, zero), b.op("Where", b.op("Less", y, zero), b.number(-math.pi, kind), pi), zero)
    plain = b.op("Add", b.op("Atan", b.op("Div", y, x)), half)
    return b.op("Where", b.op("And", b.op("Equal", x, zero), b.op("Equal", y, zero)), zero, plain)


@form("isfinite")
def isfinite(b: Builder, self: Any) -> Any:
    """Where x is a number and not infinite."""
    return b.op("Not", b.op("Or", b.op("IsNaN", self), b.op("IsInf", self)))


@form("nan_to_num")
def nan_to_num(b: Builder, self: Any, nan: Any = None, posinf: Any = None, neginf: Any = None) -> Any:
    """Numbers in place of NaN and infinities."""
    kind, most = self.dtype, flambeau.finfo(self.dtype).max
    x: Any = b.op("Where", b.op("IsNaN", self), b.number(nan or 0.0, kind), self)
    x = b.op("Where", b.op("IsInf", x, detect_negative=0), b.number(most if posinf is None else posinf, kind), x)
    return b.op("Where", b.op("IsInf", x, detect_positive=0), b.number(-most if neginf is None else neginf, kind), x)


@form("_to_copy", "to", "type_as", "_to_cpu", "to.dtype", "to.dtype_layout", "to.other")
def to(b: Builder, self: Any, **_: Any) -> Any:
    """Another dtype."""
    return b.op("Identity", self) if b.dtype() is self.dtype else b.op("Cast", self, to=NUMBERS[b.dtype().name])


@form("clone", "detach", "alias", "contiguous", "lift_fresh_copy", "dropout", "alpha_dropout", "feature_dropout", "positive",
      "lift_fresh", "native_dropout")  # fmt: skip
def same(b: Builder, self: Any = None, input: Any = None, p: float = 0.0, train: Any = False, **_: Any) -> Any:
    """The same values; what drops elements in training is refused."""
    if train and p:
        raise b.refuse("it drops elements in training: export the module after eval()")
    return b.op("Identity", self if self is not None else input)
