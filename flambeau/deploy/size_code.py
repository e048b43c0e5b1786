"""Expressions of sizes as LLVM IR: integers of 64 bits, with Python's floor division and remainder."""

from __future__ import annotations

from typing import Any, Final

from flambeau.deploy.errors import BuildError
from flambeau.symbols import Expr, Sym, SymFloat, operands_first

_COMPARE: Final = {"==": ("eq", "oeq"), "<": ("slt", "olt"), "<=": ("sle", "ole")}


class SizeCode:
    """Writes the lines that compute expressions, in one block or in blocks that follow one another. `sizes`: an operand for each symbol's number."""

    def __init__(self, sizes: list[str], lines: list[str] | None = None) -> None:
        self.sizes = sizes
        self.lines: list[str] = [] if lines is None else lines
        self.known: dict[int, tuple[Expr, str, bool]] = {}  # by the expression's id: itself, its operand, whether it is a double
        self.count = 0

    def op(self, text: str) -> str:
        """The operand of a new line."""
        self.count += 1
        self.lines.append(f"  %e{self.count} = {text}")
        return f"%e{self.count}"

    def field(self, base: str, offset: int) -> str:
        """The address so many bytes behind another."""
        return self.op(f"getelementptr i8, ptr {base}, i64 {offset}")

    def load(self, type_: str, address: str) -> str:
        """What lies at an address on a boundary of 8 bytes."""
        return self.op(f"load {type_}, ptr {address}, align 8")

    def store(self, type_: str, value: str, address: str) -> None:
        """Write to an address on a boundary of 8 bytes."""
        self.lines.append(f"  store {type_} {value}, ptr {address}, align 8")

    def address_in(self, list_: str, index: int) -> str:
        """The pointer at this place of a caller's list of pointers, as an integer."""
        at = self.op(f"getelementptr ptr, ptr {list_}, i64 {index}")
        pointer = self.op(f"load ptr, ptr {at}")
        return self.op(f"ptrtoint ptr {pointer} to i64")

    def integer(self, x: Any) -> str:
        """The operand of a number, a symbol or an expression that is an int."""
        operand, real = self._value(x.expr if isinstance(x, (Sym, SymFloat)) else x)
        if real:
            raise BuildError(f"a plan has the float {x} where a library wants an int")
        return operand

    def holds(self, guard: tuple[str, Any, Any, bool]) -> str:
        """An i1: whether a guard gives its answer."""
        op, a, b, answer = guard
        (left, left_real), (right, right_real) = self._value(a), self._value(b)
        of_ints, of_reals = _COMPARE[op]
        if left_real or right_real:
            left, right = self._real(left, left_real), self._real(right, right_real)
            found = self.op(f"fcmp {of_reals} double {left}, {right}")
        else:
            found = self.op(f"icmp {of_ints} i64 {left}, {right}")
        return found if answer else self.op(f"xor i1 {found}, true")

    # -- expressions ------------------------------------------------------------------------------------------------
    def _value(self, e: Any) -> tuple[str, bool]:
        """(operand, whether it is a double) of an expression or a number."""
        if not isinstance(e, Expr):
            return (_double(e), True) if isinstance(e, float) else (str(int(e)), False)
        for top in operands_first(e, self.known):
            operand, real = self._made(top)
            self.known[id(top)] = top, operand, real
        _, operand, real = self.known[id(e)]
        return operand, real

    def _made(self, e: Expr) -> tuple[str, bool]:
        if e.op == "size":
            return self.sizes[e.a], False
        if e.op == "sum":
            total = ""
            for m, c in (e.terms or {}).items():
                term = str(c)
                for factor in m:
                    operand = self._value(factor)[0]
                    term = operand if term == "1" else self.op(f"mul i64 {term}, {operand}")
                total = term if not total else self.op(f"add i64 {total}, {term}")
            return total or "0", False
        a, a_real = self._value(e.a)
        if e.op == "float":
            return self._real(a, a_real), True
        if e.op == "int":
            return self.op(f"fptosi double {a} to i64") if a_real else a, False
        b, b_real = self._value(e.b)
        real = a_real or b_real or e.op == "/"
        if real:
            a, b = self._real(a, a_real), self._real(b, b_real)
            if e.op in _REAL:
                return self.op(f"{_REAL[e.op]} double {a}, {b}"), True
            if e.op in ("max", "min"):
                return self.op(f"select i1 {self.op(f'fcmp {_ORDER[e.op]} double {a}, {b}')}, double {a}, double {b}"), True
            if e.op == "at_most":
                return self.op(f"zext i1 {self.op(f'fcmp ole double {a}, {b}')} to i64"), False
        elif e.op in _WHOLE:
            return self.op(f"{_WHOLE[e.op]} i64 {a}, {b}"), False
        elif e.op in ("//", "%"):
            return self._divided(e.op, a, b), False
        elif e.op in ("max", "min"):
            return self.op(f"call i64 @llvm.s{e.op}.i64(i64 {a}, i64 {b})"), False
        elif e.op == "at_most":
            return self.op(f"zext i1 {self.op(f'icmp sle i64 {a}, {b}')} to i64"), False
        raise BuildError(f"a plan has sizes that follow by {e.op!r}, which a library does not compute")

    def _divided(self, op: str, a: str, b: str) -> str:
        """Floor division or its remainder; by 0, where only a guard that does not hold can come to, as by 1."""
        if not b.lstrip("-").isdigit() or b == "0":
            b = self.op(f"select i1 {self.op(f'icmp eq i64 {b}, 0')}, i64 1, i64 {b}")
        rest = self.op(f"srem i64 {a}, {b}")
        uneven, opposite = self.op(f"icmp ne i64 {rest}, 0"), self.op(f"icmp slt i64 {self.op(f'xor i64 {a}, {b}')}, 0")
        below = self.op(f"and i1 {uneven}, {opposite}")
        if op == "%":
            return self.op(f"add i64 {rest}, {self.op(f'select i1 {below}, i64 {b}, i64 0')}")
        return self.op(f"sub i64 {self.op(f'sdiv i64 {a}, {b}')}, {self.op(f'zext i1 {below} to i64')}")

    def _real(self, operand: str, real: bool) -> str:
        if real:
            return operand
        return _double(float(operand)) if operand.lstrip("-").isdigit() else self.op(f"sitofp i64 {operand} to double")


_WHOLE: Final = {"+": "add", "-": "sub", "*": "mul"}
_REAL: Final = {"+": "fadd", "-": "fsub", "*": "fmul", "/": "fdiv"}
_ORDER: Final = {"max": "ogt", "min": "olt"}


def _double(x: float) -> str:
    """LLVM's spelling of a double, exact."""
    import struct

    return f"0x{struct.unpack('>Q', struct.pack('>d', x))[0]:016X}"
