"""Functions of native code that Python calls as it calls its own builtins: the plan's entry, and what the recorder needs of that kind.

A ctypes call costs 0.1 us and 30 to 70 ns an argument, and packing its words as much again (measured, CPython 3.11). A builtin function object
(`PyCFunction_NewEx`) over an address costs 20 ns. Its code is LLVM IR like all code here; of the interpreter it uses functions of the
stable ABI, whose addresses it is told in its block, and the layout of four structures that has been the same since CPython 3.8: objects
(reference count, type), tuples, lists, bytes. Where that does not hold, or with FLAMBEAU_NATIVE_CALLS=0, `available()` is False and callers
keep to Python and ctypes.

A block is a `bytes` object, the `self` of the builtin, that begins with 8-byte words.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from string import Template
from typing import Any, Final

from flambeau.runtime import jit

UNPACKABLE: Final = (OverflowError, TypeError, struct.error)  # what a number raises that does not fit a word of a call
_FASTCALL: Final = 0x0080  # METH_FASTCALL: (self, address of the arguments, their number)
_NOARGS: Final = 0x0004  # METH_NOARGS: (self, null)
BYTES_AT: Final = bytes.__basicsize__ - 1  # where the content of a bytes object begins

# Of an entry's block: run, program, arguments, and the functions of the interpreter; then the arguments' codes, one byte each.
_ENTRY_FUNCTIONS: Final = ("PyLong_AsLongLong", "PyFloat_AsDouble", "PyErr_Occurred", "PyLong_FromLongLong", "PyErr_BadInternalCall")
_ENTRY: Final = """
define ptr @$NAME(ptr %self, ptr %args, i64 %given) #0 {
entry:
  %block = getelementptr i8, ptr %self, i64 $BYTES
  %run = load ptr, ptr %block
  %p1 = getelementptr i64, ptr %block, i64 1
  %program = load i64, ptr %p1
  %p2 = getelementptr i64, ptr %block, i64 2
  %count = load i64, ptr %p2
  %p3 = getelementptr i64, ptr %block, i64 3
  %as_integer = load ptr, ptr %p3
  %p4 = getelementptr i64, ptr %block, i64 4
  %as_float = load ptr, ptr %p4
  %p5 = getelementptr i64, ptr %block, i64 5
  %occurred = load ptr, ptr %p5
  %codes = getelementptr i64, ptr %block, i64 8
  %right = icmp eq i64 %given, %count
  br i1 %right, label %begin, label %wrong
wrong:
  %p7 = getelementptr i64, ptr %block, i64 7
  %bad_call = load ptr, ptr %p7
  call void %bad_call()
  ret ptr null
begin:
  %words = add i64 %count, 2
  %call = alloca i64, i64 %words, align 16
  store i64 %program, ptr %call
  %team = getelementptr i64, ptr %call, i64 1
  store i64 0, ptr %team
  %io = getelementptr i64, ptr %call, i64 2
  %none = icmp eq i64 %count, 0
  br i1 %none, label %go, label %loop
loop:
  %i = phi i64 [0, %begin], [%i1, %next]
  %ap = getelementptr ptr, ptr %args, i64 %i
  %a = load ptr, ptr %ap
  %to = getelementptr i64, ptr %io, i64 %i
  %cp = getelementptr i8, ptr %codes, i64 %i
  %code = load i8, ptr %cp
  %float = icmp eq i8 %code, 100
  br i1 %float, label %number, label %integer
number:
  %x = call double %as_float(ptr %a)
  store double %x, ptr %to
  %odd_x = fcmp oeq double %x, -1.0
  br i1 %odd_x, label %doubt, label %next
integer:
  %n = call i64 %as_integer(ptr %a)
  store i64 %n, ptr %to
  %odd_n = icmp eq i64 %n, -1
  br i1 %odd_n, label %doubt, label %next
doubt:
  %error = call ptr %occurred()
  %failed = icmp ne ptr %error, null
  br i1 %failed, label %give_up, label %next
give_up:
  ret ptr null
next:
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, %count
  br i1 %more, label %loop, label %go
go:
  %status = call i64 %run(ptr %call)
  %p6 = getelementptr i64, ptr %block, i64 6
  %from_integer = load ptr, ptr %p6
  %result = call ptr %from_integer(i64 %status)
  ret ptr %result
}
attributes #0 = { nounwind }
"""

# Of a reader's block: functions of the interpreter.
_READER_FUNCTIONS: Final = ("PyLong_AsLongLong", "PyErr_Occurred")
_READER: Final = """
define ptr @$NAME(ptr %self, ptr %args, i64 %given) #0 {
entry:
  %block = getelementptr i8, ptr %self, i64 $BYTES
  %as_integer = load ptr, ptr %block
  %p1 = getelementptr i64, ptr %block, i64 1
  %occurred = load ptr, ptr %p1
  %p2 = getelementptr i64, ptr %block, i64 2
  %make = load ptr, ptr %p2
  %a = load ptr, ptr %args
  %address = call i64 %as_integer(ptr %a)
  %odd = icmp eq i64 %address, -1
  br i1 %odd, label %doubt, label %read
doubt:
  %error = call ptr %occurred()
  %failed = icmp ne ptr %error, null
  br i1 %failed, label %give_up, label %read
give_up:
  ret ptr null
read:
  %at = inttoptr i64 %address to ptr
  %x = load $FROM, ptr %at, align 1
  %y = $CONVERT
  %result = call ptr %make($TO %y)
  ret ptr %result
}
attributes #0 = { nounwind }
"""
# By dtype: what is loaded, how it is widened, to what, and what makes it an object.
_READ: Final = {
    "float32": ("float", "fpext float %x to double", "double", "PyFloat_FromDouble"),
    "float64": ("double", "fadd double %x, -0.0", "double", "PyFloat_FromDouble"),
    "int32": ("i32", "sext i32 %x to i64", "i64", "PyLong_FromLongLong"),
    "int64": ("i64", "add i64 %x, 0", "i64", "PyLong_FromLongLong"),
}

_definitions: Final[dict[tuple[int, str], Any]] = {}  # by address and name; they must stay where they are


class _Definition(ctypes.Structure):
    """A PyMethodDef."""

    _fields_ = [("name", ctypes.c_char_p), ("code", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p)]


@cache
def available() -> bool:
    """Whether this interpreter is one whose objects are as described above, and builtins are wanted."""
    return (
        os.environ.get("FLAMBEAU_NATIVE_CALLS", "1") not in ("", "0")
        and sys.implementation.name == "cpython" and sys.platform == "linux" and struct.calcsize("P") == 8
        and bool(getattr(sys, "_is_gil_enabled", lambda: True)())
        and object.__basicsize__ == 16 and tuple.__basicsize__ == 24 and list.__basicsize__ == 40
    )  # fmt: skip


@cache
def address_of(name: str) -> int:
    """The address of a function of the interpreter."""
    found = ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value
    assert found is not None
    return found


def module(name: str, text: str, values: Mapping[str, object]) -> tuple[str, Callable[[], str]]:
    """(key, emit) for `jit.functions`, of a template that has $NAME for the function's name."""
    filled = Template(text).safe_substitute({k: str(v) for k, v in values.items()})
    key = f"flambeau builtin {name} {hashlib.sha256(filled.encode()).hexdigest()[:16]}"
    return key, lambda: Template(filled).substitute(NAME=jit.symbol(key))


def builtin(address: int, block: bytes, name: str) -> Any:
    """A builtin function over native code: (block, address of the arguments, their number) -> a new reference, or null with an error set."""
    definition = _definitions.get((address, name))
    if definition is None:
        definition = _definitions[address, name] = _Definition(name.encode(), address, _FASTCALL, None)
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
    return make(ctypes.addressof(definition), block, None)


def method(cls: type, address: int, name: str) -> Any:
    """A method without arguments of a class over native code: (self, null) -> a new reference, or null with an error set."""
    definition = _definitions[address, "method"] = _Definition(name.encode(), address, _NOARGS, None)
    make = ctypes.pythonapi.PyDescr_NewMethod
    make.restype, make.argtypes = ctypes.py_object, (ctypes.py_object, ctypes.c_void_p)
    return make(cls, ctypes.addressof(definition))


def words(values: Sequence[int]) -> bytes:
    """Words of a block."""
    return struct.pack(f"={len(values)}Q", *values)


def entry_module() -> tuple[str, Callable[[], str]]:
    """(key, emit) of the entry of plans."""
    return module("entry", _ENTRY, {"BYTES": BYTES_AT})


def entry(run: int, program: int, format: str) -> Any:
    """The native runner at `run` for one program, as a builtin of its io words (struct codes in `format`), under the GIL.

    Gives the runner's result; OverflowError or TypeError for a number that is not of its code.
    """
    address, functions = _entry()
    return builtin(address, words([run, program, len(format), *functions]) + format.encode(), "entry")


@cache
def _entry() -> tuple[int, list[int]]:
    """The addresses of the entry's code and of what it calls."""
    return jit.function(*entry_module()), [address_of(name) for name in _ENTRY_FUNCTIONS]


def readers() -> dict[str, tuple[tuple[str, Callable[[], str]], partial[Any]]]:
    """By the dtypes' names: the (key, emit) of a reader, and what makes the builtin from its address: a number from its address in memory."""
    found = {}
    for name, (source, convert, to, make) in _READ.items():
        code = module(f"read {name}", _READER, {"BYTES": BYTES_AT, "FROM": source, "CONVERT": convert, "TO": to})
        block = words([address_of(f) for f in (*_READER_FUNCTIONS, make)])
        found[name] = code, partial(builtin, block=block, name="read")
    return found
