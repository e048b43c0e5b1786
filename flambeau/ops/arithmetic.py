"""Arithmetic, comparison, logic and bits: the binary pointwise functions and operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flambeau import dtypes
from flambeau.ops import primitives as prim
from flambeau.ops.dtype_rules import refuse_dtype
from flambeau.ops.from_memory import from_numpy, is_array
from flambeau.ops.primitive import broadcast_shapes
from flambeau.ops.promotion import convert, fitted, fitting, is_changing, need_tensor, promote, promote_float, result_type
from flambeau.ops.registry import Exponent, Number, operation
from flambeau.ops.result_strides import over_operands, over_reversed_operands, over_tensors
from flambeau.ops.tied import tied
from flambeau.ops.wrapper import declined, is_foreign, twin
from flambeau.trace.once import warn_once
from flambeau.trace.strides import like_strides

if TYPE_CHECKING:
    from flambeau.tensor import Tensor


_NARROW = (dtypes.float16, dtypes.bfloat16)


def _wide(d: dtypes.dtype, *scalars: Any) -> dtypes.dtype:
    """What to compute a result of dtype `d` in: 16 bits with a number among `scalars` are computed in float32 and rounded once, as
    PyTorch does."""
    if d in _NARROW and any(isinstance(x, (int, float)) or x._meta.ndim == 0 for x in scalars):
        return dtypes.float32
    return d


def _check_alpha(name: str, alpha: Any, d: dtypes.dtype) -> None:
    """PyTorch's errors for a factor of another kind than the result, also for a 1."""
    kind = alpha._meta.dtype if hasattr(alpha, "_meta") else dtypes.of_number(alpha)
    if kind is dtypes.bool_ and d is not dtypes.bool_:
        raise RuntimeError(f"{name}(): Boolean alpha only supported for Boolean results, but the result is {d}; give a number")
    if kind.category > 1 and d.category < 2:
        raise RuntimeError(f"{name}(): For integral input tensors, argument alpha must not be a floating point number.")
    if kind.is_complex and not d.is_complex:
        raise RuntimeError(f"{name}(): For non-complex input tensors, argument alpha must not be a complex number.")


def _scaled_sum(name: str, combine: Any, a: Any, b: Any, alpha: Any, d: dtypes.dtype) -> Any:
    """combine(a, alpha * b) in dtype d. For 16 bits: in float32, of alpha rounded to them, and rounded once."""
    _check_alpha(name, alpha, d)
    if isinstance(alpha, (int, float, complex)) and alpha == 1:
        return combine(convert(a, d), convert(b, d))
    w = dtypes.float32 if d in _NARROW else d
    return convert(combine(convert(a, w), prim.mul(convert(b, w), convert(fitted(alpha, d, name), w))), d)


@operation(method=True, inplace=True, out=True)
@over_operands
def add(input: Tensor | Number, other: Tensor | Number, *, alpha: Number = 1) -> Tensor:
    """input + alpha * other, with broadcasting and type promotion."""
    d = result_type(input, other)
    return _scaled_sum("add", prim.add, input, other, alpha, d)


def _refuse_bool(a: Any, b: Any) -> None:
    """PyTorch's errors for the subtraction of truth values."""
    kinds = [x._meta.dtype is dtypes.bool_ if hasattr(x, "_meta") else isinstance(x, bool) for x in (a, b)]
    if all(kinds):
        raise RuntimeError("Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or `logical_xor()` operator instead.")
    if any(kinds):
        raise RuntimeError(
            "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert a mask, use the `~` "
            "or `logical_not()` operator instead."
        )


@operation(method=True, inplace=True, out=True, aliases=("subtract",))
@over_operands
def sub(input: Tensor | Number, other: Tensor | Number, *, alpha: Number = 1) -> Tensor:
    """input - alpha * other, with broadcasting and type promotion."""
    d = result_type(input, other)
    _refuse_bool(input, other)
    return _scaled_sum("sub", prim.sub, input, other, alpha, d)


@operation(method=True)
@over_reversed_operands
def rsub(input: Tensor | Number, other: Tensor | Number, *, alpha: Number = 1) -> Tensor:
    """other - alpha * input."""
    need_tensor("rsub", input)
    d = result_type(input, other)
    _refuse_bool(input, other)
    return _scaled_sum("rsub", prim.sub, other, input, alpha, d)


@operation(method=True, inplace=True, out=True, aliases=("multiply",))
@over_operands
def mul(input: Tensor | Number, other: Tensor | Number) -> Tensor:
    """input * other, with broadcasting and type promotion."""
    d = result_type(input, other)
    w = _wide(d, input, other)
    return convert(prim.mul(convert(input, w), convert(other, w)), d)


def _quotient(a: Any, b: Any) -> Any:
    """a / b of floating numbers."""
    d = result_type(a, b)
    w = _wide(d, a, b)
    if w is not d:
        return convert(prim.div(convert(a, w), convert(b, w)), d)
    return prim.div(*promote_float(a, b))


def _rounded(primitive: Any, a: Any, b: Any) -> Any:
    """A quotient rounded to a whole number. 16 bits over one number are divided in float32, by the number as it is, and rounded last."""
    d = result_type(a, b)
    if d in _NARROW and (not hasattr(b, "_meta") or b._meta.numel == 1):
        w = dtypes.float32
        return convert(primitive(convert(a, w), convert(b, w)), d)
    return primitive(*promote(a, b))


@operation(method=True, inplace=True, out=True, aliases=("divide",))
@over_operands
def div(input: Tensor | Number, other: Tensor | Number, *, rounding_mode: str | None = None) -> Tensor:
    """input / other; true division unless `rounding_mode` is "floor" or "trunc"."""
    if rounding_mode is None:
        return _quotient(input, other)
    if hasattr(input, "_meta"):
        refuse_dtype(f"div_{rounding_mode}", input._meta.dtype)
    if rounding_mode == "floor":
        return _rounded(prim.div_floor, input, other)
    if rounding_mode == "trunc":
        return _rounded(prim.div_trunc, input, other)
    raise RuntimeError(f"div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '{rounding_mode}'")


@operation(method=True, inplace=True, out=True)
@over_operands
def true_divide(input: Tensor | Number, other: Tensor | Number) -> Tensor:
    """input / other as floating numbers."""
    return _quotient(input, other)


_NO_SLOPE = "derivative for aten::floor_divide is not implemented."


@operation(method=True, inplace=True, out=True)
@over_operands
def floor_divide(input: Tensor | Number, other: Tensor | Number) -> Tensor:
    """The quotient rounded towards minus infinity."""
    a, b = [prim.detach(x) if hasattr(x, "_meta") else x for x in (input, other)]
    quotient = _rounded(prim.div_floor, a, b)
    return tied(quotient, *[x for x in (input, other) if hasattr(x, "_meta")], refused=_NO_SLOPE)


@operation(method=True, inplace=True, out=True)
@over_operands
def remainder(input: Tensor | Number, other: Tensor | Number) -> Tensor:
    """The remainder with the sign of `other`, as Python's %."""
    need_tensor("remainder", input, other)
    return prim.remainder(*promote(input, other))


@operation(method=True, inplace=True, out=True)
@over_operands
def fmod(input: Tensor | Number, other: Tensor | Number) -> Tensor:
    """The remainder with the sign of `input`, as C's fmod."""
    need_tensor("fmod", input)
    return prim.fmod(*promote(input, other))


def _power(x: Any, exponent: complex) -> Any:
    """The exact short forms that PyTorch uses too. A power's gradient is of its input, whatever becomes of the result."""
    if exponent == 2:
        return prim.mul(x, x)
    if exponent == 3:
        return prim.mul(prim.mul(x, x), x)
    if exponent == 1:
        return x
    if exponent == 0.5:
        return prim.sqrt(x, of_input=True)
    if exponent == -0.5:
        return prim.rsqrt(x, of_input=True)
    if exponent == -1:
        return prim.reciprocal(x, of_input=True)
    if exponent == -2:
        return prim.reciprocal(prim.mul(x, x), of_input=True)
    return None


@operation(name="pow", method=True, inplace=True, out=True)
@over_tensors
def pow_(input: Tensor | Exponent, exponent: Tensor | Exponent) -> Tensor:
    """input ** exponent; integers to negative powers raise RuntimeError."""
    need_tensor("pow", input, exponent)
    d = result_type(input, exponent)
    a = convert(input, d)
    if d not in (dtypes.float32, dtypes.complex64):  # there PyTorch computes with a double
        fitting("pow", d, exponent)
    if isinstance(exponent, (int, float)) or is_changing(exponent) or (isinstance(exponent, complex) and exponent.imag == 0):
        if d.category == 1 and exponent < 0:  # type: ignore[operator]
            raise RuntimeError("Integers to negative integer powers are not allowed.")
        if exponent == 0:
            return tied(prim.full_of(tuple(a.shape), prim.constant(1, d)), a)
        short = _power(a, exponent) if d.category >= 2 or exponent in (2, 3) else None
        if short is a:
            short = prim.copy(a, strides=like_strides(a.shape, a._meta.strides))
        if short is not None:
            return short
    b = convert(exponent, d)
    if d.is_complex and (isinstance(input, (int, float, complex)) or is_changing(input)) and input is not True and input == 1:  # even to NaN
        return tied(prim.full_of(tuple(b.shape), prim.constant(1, d)), b)
    return prim.pow(a, b)


def _comparison(name: str, alias: tuple[str, ...], text: str) -> Any:
    primitive = getattr(prim, name)

    def compare(input: Tensor | Number, other: Tensor | Number) -> Tensor:
        need_tensor(name, input)
        d = result_type(input, other)
        if d.is_complex and name not in ("eq", "ne"):
            broadcast_shapes(name, [tuple(x._meta.shape) for x in (input, other) if hasattr(x, "_meta")])  # PyTorch's first complaint
            raise NotImplementedError(f'"{name}" is not implemented for complex numbers: they have no order')
        return primitive(convert(input, d), convert(other, d))

    compare.__doc__ = f"input {text} other, elementwise: a bool tensor."
    return operation(name=name, aliases=alias, method=True, inplace=True, out=True)(over_operands(compare))


eq = _comparison("eq", (), "==")
ne = _comparison("ne", ("not_equal",), "!=")
lt = _comparison("lt", ("less",), "<")
le = _comparison("le", ("less_equal",), "<=")
gt = _comparison("gt", ("greater",), ">")
ge = _comparison("ge", ("greater_equal",), ">=")


def _two(name: str, text: str, public: str | None = None, floats: bool = False, aliases: tuple[str, ...] = ()) -> Any:
    """A public function that promotes and applies one primitive."""
    primitive = getattr(prim, name)
    rule = promote_float if floats else promote

    def body(input: Tensor, other: Tensor) -> Tensor:
        a, b = rule(input, other)
        if a._meta.dtype.is_complex:
            raise RuntimeError(f"{public or name} is not supported for complex tensors")
        return primitive(a, b)

    body.__doc__ = text
    return operation(name=public or name, method=True, inplace=True, out=True, aliases=aliases)(over_operands(body))


maximum = _two("maximum", "The larger of two elements; NaN wins.")
minimum = _two("minimum", "The smaller of two elements; NaN wins.")
fmax = _two("fmax", "The larger of two elements; a number wins over NaN.")
fmin = _two("fmin", "The smaller of two elements; a number wins over NaN.")
atan2 = _two("atan2", "The angle of (other, input) in radians, in (-pi, pi].", floats=True, aliases=("arctan2",))
hypot = _two("hypot", "sqrt(input^2 + other^2) without overflow.", floats=False)
nextafter = _two("nextafter", "The next representable number after input in the direction of other.")


@operation(method=True, inplace=True, out=True)
@over_operands
def copysign(input: Tensor, other: Tensor | Number) -> Tensor:
    """The magnitude of input with the sign of other."""
    result = prim.copysign(*promote_float(input, other))
    return tied(result, other) if hasattr(other, "_meta") and other.dtype.is_floating_point else result  # the sign is a step of `other`


def _bits(name: str, text: str) -> Any:
    primitive = getattr(prim, name)

    def body(input: Tensor | Number, other: Tensor | Number) -> Tensor:
        need_tensor(name, input, other)
        d = result_type(input, other)
        if d.category > 1:
            raise NotImplementedError(f'"{name}_cpu" not implemented for {d.name}: bitwise functions take integers or booleans')
        return primitive(convert(input, d), convert(other, d))

    body.__doc__ = text
    return operation(name=name, method=True, inplace=True, out=True)(over_operands(body))


bitwise_and = _bits("bitwise_and", "input & other; logical and for booleans.")
bitwise_or = _bits("bitwise_or", "input | other; logical or for booleans.")
bitwise_xor = _bits("bitwise_xor", "input ^ other; exclusive or for booleans.")


def _shift(primitive: Any, public: str, text: str) -> Any:
    def body(input: Tensor | Number, other: Tensor | Number) -> Tensor:
        need_tensor(public, input, other)
        d = result_type(input, other)
        if d.category != 1:
            raise NotImplementedError(f'"{public}" not implemented for {d.name}: shifts take integers')
        return primitive(convert(input, d), convert(other, d))

    body.__doc__ = text
    return operation(name=public, method=True, inplace=True, out=True)(over_operands(body))


bitwise_left_shift = _shift(prim.shift_left, "bitwise_left_shift", "input << other.")
bitwise_right_shift = _shift(prim.shift_right, "bitwise_right_shift", "input >> other, arithmetic for signed integers.")


def _truth(x: Any) -> Any:
    """x != 0 as bool."""
    return convert(x, dtypes.bool_)


def _logic(primitive: Any, public: str, text: str) -> Any:
    def body(input: Tensor, other: Tensor) -> Tensor:
        return primitive(_truth(input), _truth(other))

    body.__doc__ = text
    return operation(name=public, method=True, inplace=True, out=True)(over_operands(body))


logical_and = _logic(prim.bitwise_and, "logical_and", "Whether both elements are nonzero.")
logical_or = _logic(prim.bitwise_or, "logical_or", "Whether any of the two elements is nonzero.")
logical_xor = _logic(prim.bitwise_xor, "logical_xor", "Whether exactly one of the two elements is nonzero.")


@operation(method=True, inplace=True, out=True)
def logical_not(input: Tensor) -> Tensor:
    """Whether an element is zero."""
    return prim.bitwise_not(_truth(input))


@operation(method=True, inplace=True, out=True)
def bitwise_not(input: Tensor) -> Tensor:
    """~input; logical not for booleans."""
    if input.dtype.category > 1:
        raise NotImplementedError(f'"bitwise_not_cpu" not implemented for {input.dtype.name}: it takes integers or booleans')
    return prim.bitwise_not(input)


@operation(method=True, inplace=True, out=True)
@over_tensors
def lerp(input: Tensor, end: Tensor, weight: Tensor | Number) -> Tensor:
    """input + weight * (end - input), evaluated from the nearer end so that weight 1 gives `end` exactly."""
    if input.dtype is not end.dtype:
        raise RuntimeError(f"lerp: expected dtype {input.dtype} for `end` but got dtype {end.dtype}")
    d = dtypes.float32 if input.dtype in _NARROW else input.dtype
    w, first, last = fitted(weight, d, "lerp"), convert(input, d), convert(end, d)
    near = prim.lt(prim.abs(w), 0.5)
    # One product, so that the slope of the weight is the gap, also where that is infinite.
    step = prim.mul(prim.where(near, w, prim.neg(prim.sub(prim.constant(1, d), w))), prim.sub(last, first))
    return convert(prim.add(prim.where(near, first, last), step), input.dtype)


def _plus_scaled(name: str, combine: Any, a: Any, b: Any, c: Any, factor: Any, d: dtypes.dtype) -> Any:
    """a + combine(factor * b, c) in dtype d, the factor first, as PyTorch. For 16 bits: in float32, and rounded once."""
    if d.category > 1:
        w = dtypes.float32 if d in _NARROW else d
        a, b, c = (convert(x, w) for x in (a, b, c))
        if not (isinstance(factor, (int, float, complex)) and factor == 1):
            b = prim.mul(fitted(factor, w, name), b)
        return convert(prim.add(a, combine(b, c)), d)
    product = combine(convert(b, d), convert(c, d))
    plain = isinstance(factor, (int, float, complex)) and factor == 1
    return prim.add(convert(a, d), product if plain else prim.mul(product, fitted(factor, d, name)))


@operation(method=True, inplace=True, out=True)
@over_tensors
def addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1) -> Tensor:
    """input + value * tensor1 * tensor2."""
    d = result_type(input, tensor1, tensor2)
    return _plus_scaled("addcmul", prim.mul, input, tensor1, tensor2, value, d)


@operation(method=True, inplace=True, out=True)
@over_tensors
def addcdiv(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1) -> Tensor:
    """input + value * tensor1 / tensor2; integers are refused, as in PyTorch."""
    d = result_type(input, tensor1, tensor2)
    if d.category < 2:
        raise RuntimeError("Integer division with addcdiv is no longer supported: convert the tensors to floating point first")
    return _plus_scaled("addcdiv", prim.div, input, tensor1, tensor2, value, d)


@operation(out=True)
@over_operands
def where(condition: Tensor, input: Tensor | Number, other: Tensor | Number) -> Tensor:
    """input where condition holds, else other."""
    if condition.dtype is dtypes.uint8:
        warn_once(
            "where received a uint8 condition tensor. This behavior is deprecated and will be removed in a future version of PyTorch. "
            "Use a boolean condition instead."
        )
        condition = convert(condition, dtypes.bool_)
    d = result_type(input, other)
    return prim.where(condition, fitted(input, d, "where", True), fitted(other, d, "where", True))


def where_or_nonzero(condition: Any, input: Any = None, other: Any = None, *, out: Any = None) -> Any:
    """torch.where: input where condition holds, else other; of a condition alone, the indices where it holds, one tensor a dim."""
    if input is not None and other is not None:
        for position, x in enumerate((input, other), start=2):
            if out is not None and isinstance(x, (int, float, complex)):
                raise TypeError(f"where(): argument '{('input', 'other')[position - 2]}' (position {position}) must be Tensor, not {type(x).__name__}")
        return where(condition, input, other) if out is None else where(condition, input, other, out=out)
    if input is not None or other is not None or out is not None:
        raise TypeError("where() takes a condition alone, or a condition, input and other (and then out=)")
    from flambeau.ops.selection import nonzero

    return nonzero(condition, as_tuple=True)


where_or_nonzero.__name__ = where_or_nonzero.__qualname__ = "where"


def _where_method(self: Any, condition: Any, other: Any) -> Any:
    """This tensor where condition holds, else other."""
    return where(condition, self, other)


def _reflected(function: Any, name: str) -> Any:
    """A binary operator whose second operand is self."""
    from flambeau.ops.elementwise import reciprocal

    def operator(self: Any, other: Any) -> Any:
        foreign = is_foreign(other) or is_array(other)
        if foreign and function is not div:
            return NotImplemented
        try:
            return reciprocal(self) * other if foreign else function(other, self)  # as in PyTorch: NumPy's arrays leave the division to us
        except TypeError:
            return declined(function.__name__, other)

    operator.__name__ = operator.__qualname__ = name
    return operator


def _operator(function: Any, name: str) -> Any:
    """A comparison that leaves lists, strings and the like to their own methods, and takes NumPy's arrays."""

    def operator(self: Any, other: Any) -> Any:
        if is_foreign(other):
            return NotImplemented
        try:
            return function(self, from_numpy(other) if is_array(other) and other.ndim else other)
        except TypeError:
            return declined(function.__name__, other)

    operator.__name__ = operator.__qualname__ = name
    return operator


def install_operators(cls: Any) -> None:
    """Python's operators on the Tensor class. The hot ones are the code of the public functions themselves: no further call."""
    for name, function in (
        ("add", add), ("sub", sub), ("mul", mul), ("truediv", div), ("div", div), ("floordiv", floor_divide), ("mod", remainder), ("pow", pow_),
        ("and", bitwise_and), ("or", bitwise_or), ("xor", bitwise_xor), ("lshift", bitwise_left_shift), ("rshift", bitwise_right_shift),
        ("lt", lt), ("le", le), ("gt", gt), ("ge", ge), ("radd", add), ("rsub", rsub), ("rmul", mul), ("rand", bitwise_and), ("ror", bitwise_or),
        ("rxor", bitwise_xor),
    ):  # fmt: skip
        setattr(cls, f"__{name}__", twin(function, f"__{name}__"))
    for name, function in (
        ("rtruediv", div), ("rdiv", div), ("rfloordiv", floor_divide), ("rmod", remainder), ("rpow", pow_), ("rlshift", bitwise_left_shift),
        ("rrshift", bitwise_right_shift),
    ):  # fmt: skip
        setattr(cls, f"__{name}__", _reflected(function, f"__{name}__"))
    cls.where = _where_method
    from flambeau.ops.elementwise import abs_, neg, positive

    cls.__invert__, cls.__neg__, cls.__pos__, cls.__abs__ = bitwise_not, neg, positive, abs_
    cls.__eq__, cls.__ne__ = _operator(eq, "__eq__"), _operator(ne, "__ne__")
    for name, function in (
        ("__iadd__", add), ("__isub__", sub), ("__imul__", mul), ("__itruediv__", div), ("__idiv__", div), ("__ifloordiv__", floor_divide),
        ("__imod__", remainder), ("__ipow__", pow_), ("__iand__", bitwise_and), ("__ior__", bitwise_or),
        ("__ixor__", bitwise_xor), ("__ilshift__", bitwise_left_shift), ("__irshift__", bitwise_right_shift),
    ):  # fmt: skip
        setattr(cls, name, twin(function.operation.inplace, name))
