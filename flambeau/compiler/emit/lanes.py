"""Typed lanes: a thin value class over `Builder`, so that polynomials and conversions read as formulas.

A `Lanes` is one LLVM value of type `element` (width 1) or `<width x element>`. The operators append instructions to the
builder; Python numbers on either side become constants of the same type. Nothing here is fast-math, and the same
instructions are made for every width, so a value never depends on the number of lanes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from flambeau.compiler.emit.builder import Builder, vector

INTRINSIC_SUFFIX = {"float": "f32", "double": "f64", "half": "f16"}
INTEGER_OF = {"float": "i32", "double": "i64", "half": "i16"}
FLOAT_OF = {"i32": "float", "i64": "double", "i16": "half"}

Number = int | float


def float_bits(value: float) -> str:
    """LLVM's spelling of a float or double constant: the bits of the double."""
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def literal(element: str, value: Number) -> str:
    """A scalar constant of type `element`, rounded to it."""
    if element in ("float", "half"):
        code = "f" if element == "float" else "e"
        try:
            value = struct.unpack("<" + code, struct.pack("<" + code, float(value)))[0]
        except OverflowError:
            value = float("inf") if value > 0 else float("-inf")
        if element == "half":
            return f"0xH{struct.unpack('<H', struct.pack('<e', value))[0]:04X}"
        return float_bits(float(value))
    if element == "double":
        return float_bits(float(value))
    if element == "i1":
        return "true" if value else "false"
    bits = int(element[1:])
    wrapped = int(value) & ((1 << bits) - 1)
    return str(wrapped - (1 << bits) if wrapped >> (bits - 1) else wrapped)


def constant(element: str, width: int, value: Number) -> str:
    """The same constant in every lane (LLVM 19's `splat` spelling)."""
    text = literal(element, value)
    return text if width == 1 else f"splat ({element} {text})"


class Lanes:
    """`width` lanes of `element`; `name` is the LLVM operand. See the module's docstring."""

    __slots__ = ("b", "element", "name", "width")

    def __init__(self, b: Builder, element: str, width: int, name: str) -> None:
        self.b = b
        self.element = element
        self.width = width
        self.name = name

    # -- construction -------------------------------------------------------------------------------------------
    @property
    def type(self) -> str:
        return vector(self.element, self.width)

    @property
    def suffix(self) -> str:
        """Overload suffix of an intrinsic on this type: "f32", "v16f32", "v8i64"."""
        name = INTRINSIC_SUFFIX.get(self.element, self.element)
        return name if self.width == 1 else f"v{self.width}{name}"

    @property
    def is_float(self) -> bool:
        return self.element in INTRINSIC_SUFFIX

    def like(self, value: Number | Lanes, element: str | None = None) -> Lanes:
        """A constant of this width (and element, unless another is named); a Lanes comes back as it is."""
        if isinstance(value, Lanes):
            return value
        element = element or self.element
        return Lanes(self.b, element, self.width, constant(element, self.width, value))

    def _new(self, text: str, element: str | None = None) -> Lanes:
        return Lanes(self.b, element or self.element, self.width, self.b.op(text))

    def _binary(self, instruction: str, other: Number | Lanes) -> Lanes:
        return self._new(f"{instruction} {self.type} {self.name}, {self.like(other).name}")

    def call(self, intrinsic: str, *others: Number | Lanes, extra: tuple[tuple[str, str], ...] = ()) -> Lanes:
        """`llvm.<intrinsic>.<suffix>` of this and other values of the same type."""
        arguments = [(self.type, self.name), *((self.type, self.like(o).name) for o in others), *extra]
        name = self.b.call(self.type, f"llvm.{intrinsic}.{self.suffix}", arguments)
        return Lanes(self.b, self.element, self.width, name)

    # -- arithmetic ---------------------------------------------------------------------------------------------
    def __add__(self, other: Number | Lanes) -> Lanes:
        return self._binary("fadd" if self.is_float else "add", other)

    def __sub__(self, other: Number | Lanes) -> Lanes:
        return self._binary("fsub" if self.is_float else "sub", other)

    def __mul__(self, other: Number | Lanes) -> Lanes:
        return self._binary("fmul" if self.is_float else "mul", other)

    def __truediv__(self, other: Number | Lanes) -> Lanes:
        return self._binary("fdiv", other)

    def __radd__(self, other: Number) -> Lanes:
        return self.like(other) + self

    def __rsub__(self, other: Number) -> Lanes:
        return self.like(other) - self

    def __rmul__(self, other: Number) -> Lanes:
        return self.like(other) * self

    def __rtruediv__(self, other: Number) -> Lanes:
        return self.like(other) / self

    def __neg__(self) -> Lanes:
        if self.is_float:
            return self._new(f"fneg {self.type} {self.name}")
        return self.like(0) - self

    def fma(self, factor: Number | Lanes, addend: Number | Lanes) -> Lanes:
        """`self * factor + addend`, rounded once; where the machine has no such instruction, with errors of products and sums that are as exact."""
        if self.b.target.fused:
            return self.call("fma", factor, addend)
        factor, addend = self.like(factor), self.like(addend)
        if self.element == "float":  # a double holds the product exactly
            wide = Lanes(self.b, "double", self.width, "")
            x, y, z = (wide._new(f"fpext {v.type} {v.name} to {wide.type}") for v in (self, factor, addend))
            total = x * y + z
            return self._new(f"fptrunc {wide.type} {total.name} to {self.type}")
        product = self * factor
        rest = _split_product(self, factor, product)
        total = product + addend
        back = total - product
        return total + (((product - (total - back)) + (addend - back)) + rest)

    def multiply_add(self, factor: Number | Lanes, addend: Number | Lanes) -> Lanes:
        """`self * factor + addend`, rounded once where the machine does so in one instruction, else twice: where only speed counts."""
        return self.fma(factor, addend) if self.b.target.fused else self * factor + addend

    def __abs__(self) -> Lanes:
        if self.is_float:
            return self.call("fabs")
        return self.call("abs", extra=(("i1", "false"),))

    def sqrt(self) -> Lanes:
        return self.call("sqrt")

    def floor(self) -> Lanes:
        return self.call("floor")

    def trunc(self) -> Lanes:
        return self.call("trunc")

    def rint(self) -> Lanes:
        """Nearest integer, halves to even, whatever the rounding mode says."""
        return self.call("roundeven")

    def copysign(self, sign: Number | Lanes) -> Lanes:
        return self.call("copysign", sign)

    def minimum(self, other: Number | Lanes) -> Lanes:
        """The smaller one; `other` where either is NaN (one minps)."""
        other = self.like(other)
        return self.lt(other).select(self, other)

    def maximum(self, other: Number | Lanes) -> Lanes:
        """The larger one; `other` where either is NaN (one maxps)."""
        other = self.like(other)
        return self.gt(other).select(self, other)

    # -- bits ---------------------------------------------------------------------------------------------------
    def __and__(self, other: Number | Lanes) -> Lanes:
        return self._binary("and", other)

    def __or__(self, other: Number | Lanes) -> Lanes:
        return self._binary("or", other)

    def __xor__(self, other: Number | Lanes) -> Lanes:
        return self._binary("xor", other)

    def __invert__(self) -> Lanes:
        return self ^ -1

    def __lshift__(self, other: Number | Lanes) -> Lanes:
        return self._binary("shl", other)

    def __rshift__(self, other: Number | Lanes) -> Lanes:
        """Arithmetic shift; see `logical_right`."""
        return self._binary("ashr", other)

    def logical_right(self, other: Number | Lanes) -> Lanes:
        return self._binary("lshr", other)

    def sdiv(self, other: Number | Lanes) -> Lanes:
        return self._binary("sdiv", other)

    def bits(self) -> Lanes:
        """The integer lanes with the same bits."""
        element = INTEGER_OF[self.element]
        return self._new(f"bitcast {self.type} {self.name} to {vector(element, self.width)}", element)

    def as_float(self) -> Lanes:
        """The floating lanes with the same bits."""
        element = FLOAT_OF[self.element]
        return self._new(f"bitcast {self.type} {self.name} to {vector(element, self.width)}", element)

    def to(self, element: str, instruction: str) -> Lanes:
        """One LLVM conversion ("fpext", "sitofp", "zext", ...); the same element is no instruction."""
        if element == self.element:
            return self
        return self._new(f"{instruction} {self.type} {self.name} to {vector(element, self.width)}", element)

    # -- comparisons: i1 lanes ----------------------------------------------------------------------------------
    def compare(self, predicate: str, other: Number | Lanes) -> Lanes:
        """`predicate` is LLVM's, e.g. "olt" (floats) or "slt" (integers)."""
        instruction = "fcmp" if self.is_float else "icmp"
        return self._new(f"{instruction} {predicate} {self.type} {self.name}, {self.like(other).name}", "i1")

    def eq(self, other: Number | Lanes) -> Lanes:
        return self.compare("oeq" if self.is_float else "eq", other)

    def ne(self, other: Number | Lanes) -> Lanes:
        return self.compare("une" if self.is_float else "ne", other)

    def lt(self, other: Number | Lanes) -> Lanes:
        return self.compare("olt" if self.is_float else "slt", other)

    def le(self, other: Number | Lanes) -> Lanes:
        return self.compare("ole" if self.is_float else "sle", other)

    def gt(self, other: Number | Lanes) -> Lanes:
        return self.compare("ogt" if self.is_float else "sgt", other)

    def ge(self, other: Number | Lanes) -> Lanes:
        return self.compare("oge" if self.is_float else "sge", other)

    def isnan(self) -> Lanes:
        return self.compare("uno", self)

    def select(self, yes: Number | Lanes, no: Number | Lanes) -> Lanes:
        """Of i1 lanes: `yes` where set, `no` elsewhere. One of the two must be a Lanes."""
        typed = yes if isinstance(yes, Lanes) else no
        if not isinstance(typed, Lanes):
            raise TypeError("select: one of the two values must be lanes, both are Python numbers")
        yes, no = typed.like(yes), typed.like(no)
        name = self.b.op(f"select {self.type} {self.name}, {yes.type} {yes.name}, {no.type} {no.name}")
        return Lanes(self.b, yes.element, self.width, name)

    def any(self) -> str:
        """Of i1 lanes: an i1, whether any lane is set."""
        if self.width == 1:
            return self.name
        return self.b.call("i1", f"llvm.vector.reduce.or.v{self.width}i1", [(self.type, self.name)])


def polynomial(x: Lanes, coefficients: list[float]) -> Lanes:
    """Horner's rule with fused multiply-add; `coefficients` from the constant term upwards."""
    value = x.like(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        value = value.multiply_add(x, coefficient)
    return value


def estrin(x: Lanes, coefficients: list[float]) -> Lanes:
    """Estrin's scheme: the same polynomial with a shorter chain of dependent operations."""
    terms = [x.like(c) for c in coefficients]
    power = x
    while len(terms) > 1:
        pairs = [terms[i + 1].multiply_add(power, terms[i]) for i in range(0, len(terms) - 1, 2)]
        if len(terms) % 2:
            pairs.append(terms[-1])
        terms = pairs
        if len(terms) > 1:
            power = power * power
    return terms[0]


def repeat_while(start: list[Lanes], condition: Callable[[list[Lanes]], Lanes], body: Callable[[list[Lanes]], list[Lanes]]) -> list[Lanes]:
    """Run `body` on the values as long as `condition` holds in any lane. `body` must leave finished lanes alone."""
    b = start[0].b
    before, head, work, done = b.block, b.new_label("again"), b.new_label("work"), b.new_label("done")
    b.branch(head)
    b.label(head)
    values = [Lanes(b, v.element, v.width, b.fresh("w")) for v in start]
    at = len(b.lines)
    b.emit(f"br i1 {condition(values).any()}, label %{work}, label %{done}")
    b.label(work)
    following = body(values)
    back = b.block
    b.branch(head)
    phis = [f"  {v.name} = phi {v.type} [{s.name}, %{before}], [{n.name}, %{back}]" for v, s, n in zip(values, start, following, strict=True)]
    b.lines[at:at] = phis
    b.label(done)
    return values


def _split_product(x: Lanes, y: Lanes, product: Lanes) -> Lanes:
    """What the rounded product of two doubles lacks of the exact one (T. J. Dekker, 1971: halves of 26 bits); for sizes whose halves do not overflow."""

    def halves(v: Lanes) -> tuple[Lanes, Lanes]:
        scaled = v * 134217729.0  # 2^27 + 1
        high = scaled - (scaled - v)
        return high, v - high

    (a, b), (c, d) = halves(x), halves(y)
    return b * d - (((product - a * c) - b * c) - a * d)
