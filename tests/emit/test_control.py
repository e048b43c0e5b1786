"""Loops and conditions of native code: random programs of them do what the same programs do in Python."""

from __future__ import annotations

import ctypes
import hashlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flambeau.compiler.emit.builder import KERNEL_HEADER, Builder, Parameters, module
from flambeau.compiler.emit.code import Code
from flambeau.compiler.emit.lanes import Lanes
from flambeau.runtime import jit
from flambeau.runtime.target import Target

# A program is a list of statements over one number: add k; a loop; a condition (the number is even) with or without another arm; a loop that carries.
_SIMPLE = st.tuples(st.just("add"), st.integers(-5, 9))
_BOUNDS = st.tuples(st.integers(-2, 4), st.integers(-2, 6), st.integers(1, 3))


def _compound(body: Any) -> Any:
    several = st.lists(body, min_size=1, max_size=3)
    return st.one_of(
        st.tuples(st.just("for"), _BOUNDS, several), st.tuples(st.just("if"), several), st.tuples(st.just("else"), several, several),
        st.tuples(st.just("fold"), _BOUNDS, st.integers(-3, 3), several),
    )  # fmt: skip


PROGRAMS = st.lists(st.recursive(_SIMPLE, _compound, max_leaves=6), min_size=1, max_size=3)


def _run(program: Any, total: int) -> int:
    """What a program makes of a number."""
    for kind, *of in program:
        if kind == "add":
            total += of[0]
        elif kind == "for":
            for i in range(*of[0]):
                total = _run(of[1], total + i)
        elif kind in ("if", "else"):
            total = _run(of[0] if total % 2 == 0 else of[1] if kind == "else" else [], total)
        else:
            carried = of[1]
            for i in range(*of[0]):
                total = _run(of[2], total)
                carried += total + i
            total += carried
    return total


def _write(c: Code, program: Any, total: Any) -> None:
    """The same in native code, over a variable."""
    for kind, *of in program:
        if kind == "add":
            total.add(of[0])
        elif kind == "for":
            with c.for_(*of[0]) as i:
                total.add(i)
                _write(c, of[1], total)
        elif kind in ("if", "else"):
            with c.if_((total.get() & 1).eq(0)):
                _write(c, of[0], total)
            if kind == "else":
                with c.else_():
                    _write(c, of[1], total)
        else:
            low, high, step = of[0]
            with c.b.fold(low, high, step, [("i64", str(of[1]))]) as (index, carried):
                _write(c, of[2], total)
                carried[:] = [c.b.add(carried[0], (total.get() + Lanes(c.b, "i64", 1, index)).name)]
            total.add(Lanes(c.b, "i64", 1, carried[0]))


@settings(max_examples=25, deadline=None)
@given(PROGRAMS, st.integers(-4, 4))
def test_programs(program: Any, start: int) -> None:
    key = "tests:control:" + hashlib.sha256(repr(program).encode()).hexdigest()

    def emit() -> str:
        c = Code(["to"], Target.host())
        to, total = c.array("to", "i64"), c.cell("i64")
        total.set(to[0])
        _write(c, program, total)
        to.store(0, total.get())
        return c.kernel(jit.symbol(key))

    number = ctypes.c_int64(start)
    words = (ctypes.c_int64 * 1)(ctypes.addressof(number))
    function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(jit.function(key, emit))
    assert function(ctypes.addressof(words), 0, 1, 0) == 0
    assert number.value == _run(program, start)


def test_an_else_stands_behind_its_if() -> None:
    b = Builder(Target.host())
    with pytest.raises(ValueError, match="else_ must stand just behind an if_"), b.else_():
        pass
    with b.if_("true"):
        pass
    b.add("%a", 1)
    with pytest.raises(ValueError, match="else_ must stand just behind an if_"), b.else_():
        pass


def test_a_body_leaves_as_many_values_as_it_was_given() -> None:
    b = Builder(Target.host())
    with pytest.raises(ValueError, match="2 values for 1 carried"), b.fold(0, 3, 1, [("i64", "0")]) as (_, values):
        values[:] = ["1", "2"]


@pytest.mark.parametrize("by_address", (False, True))
def test_functions_are_defined_and_called_by_the_same_parameters(by_address: bool) -> None:
    """to[0] = a + (b if chosen else 0), by a function of the module, called by its name or at its address."""
    target = Target.host()
    parameters = Parameters("to* a chosen:i1") + "b"
    assert parameters.text == "ptr noalias %to, i64 %a, i1 %chosen, i64 %b" and parameters.arguments[2] == ("i1", "%chosen")
    b = Builder(target)
    b.store("i64", b.add("%a", b.op("select i1 %chosen, i64 %b, i64 0")), "%to", 8)
    texts = [b.define("choose", parameters)]
    b = Builder(target)
    function = b.op("select i1 true, ptr @choose, ptr null") if by_address else "choose"
    to = b.load("ptr", "%args", 8)
    b.invoke(function, parameters, to, "%begin", "true", 100)
    b.invoke(function, parameters, b.gep("i64", to, 1), "%end", "false", "%worker")
    with pytest.raises(ValueError, match="zip"):
        b.invoke(function, parameters, to, "%begin", "true")
    key = f"test:parameters:{by_address}"
    texts.append(b.function(KERNEL_HEADER.format(name=jit.symbol(key)), "ret i64 0"))
    out = (ctypes.c_int64 * 2)()
    words = (ctypes.c_void_p * 1)(ctypes.addressof(out))
    address = jit.function(key, lambda: module(texts, b.declarations, target))
    ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, *[ctypes.c_int64] * 3)(address)(ctypes.addressof(words), 5, 7, 9)
    assert list(out) == [105, 7]
