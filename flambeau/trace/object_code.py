"""A writer of LLVM IR for functions over Python objects: the builtins of known_edge.py are made of it.

The functions of a module share a table of 8-byte words: objects and functions of the interpreter, whose places in the table, as those of the
objects' `__slots__`, are numbers in `places`. Values are operand strings, as in compiler/emit/builder.py; objects are ptr. A reference that is
stored is taken over; `keep` and `exchange` make one of their own. LLVM's first pass (SROA) turns `variable`s into registers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from flambeau.compiler.emit.builder import Builder
from flambeau.runtime.target import Target

# Functions of the interpreter, and the table's words, which end with them.
FUNCTIONS: Final = (
    "PyDict_GetItemWithError", "PyDict_SetItem", "PyList_Append", "Py_IncRef", "Py_DecRef", "PyErr_Occurred", "PyErr_Clear", "PyLong_AsLongLong",
    "PyFloat_AsDouble", "PyLong_FromLongLong", "PyTuple_New", "PyList_New", "PySequence_List", "PyObject_CallNoArgs", "PyObject_CallOneArg", "PyObject_GetAttr",
    "PyObject_SetAttr", "PyObject_RichCompareBool", "PyBytes_FromStringAndSize", "PyGC_Disable", "PyGC_Enable",
)  # fmt: skip
OBJECTS: Final = (
    "LOCALS", "TRACE_NAME", "EMPTY", "TENSOR", "PARAMETER", "TRACE", "NONE", "TRUE", "FALSE", "FLOAT", "INT", "BOOL", "TUPLE", "LIST", "SIZE", "STR",
    "SLICE", "GIVEN", "ALIAS", "FINISH", "LOOK", "MINUS", "ZERO", "ONE", "STORAGE", "BOUNDARY", "BUFFER", "COUNTERS", "MARK", "LISTED", "INPUT_KEY_NAME",
    "DETACHED_NAME", "OFFSET_NAME", "HISTORY_NAME", "HOOKS_NAME", "STATE",
)  # fmt: skip
TABLE: Final = ("THREAD", "NEW", "NEW_TUPLE", "RUN", *OBJECTS, *FUNCTIONS)

OBJECT_TYPE, SIZE, ITEMS = 8, 16, 24  # of an object, a tuple or a list: its type, how many it has, the first (tuple) or their address (list)
ATTRIBUTES: Final = "attributes #0 = { nounwind }"


class ObjectCode(Builder):
    """The body of one function; its parameters are %table, the shared words, and what its header says."""

    def __init__(self, places: Mapping[str, int]) -> None:
        super().__init__(Target.host())
        self.places = places

    # -- control --------------------------------------------------------------------------------------------------
    def fork(self, condition: str, yes: str, no: str) -> None:
        """Go to one of two labels."""
        self.emit(f"br i1 {condition}, label %{yes}, label %{no}")

    def need(self, condition: str, otherwise: str) -> None:
        """Go on if the condition holds, else to the label."""
        after = self.new_label("ok")
        self.fork(condition, after, otherwise)
        self.label(after)

    def refuse(self, condition: str, to: str) -> None:
        """Go to the label if the condition holds, else on."""
        after = self.new_label("ok")
        self.fork(condition, to, after)
        self.label(after)

    @contextmanager
    def where(self, condition: str) -> Iterator[None]:
        """What is written inside runs if the condition holds."""
        then, after = self.new_label("then"), self.new_label("after")
        self.fork(condition, then, after)
        self.label(then)
        yield
        self.fall(after)
        self.label(after)

    @contextmanager
    def each(self, count: str) -> Iterator[tuple[str, str]]:
        """A loop over 0 .. count - 1: (the index, the label that goes on with the next one)."""
        at = self.variable("i64", "0")
        head, body, following, after = (self.new_label(stem) for stem in ("head", "body", "next", "end"))
        self.branch(head)
        self.label(head)
        index = self.get("i64", at)
        self.fork(self.op(f"icmp ult i64 {index}, {count}"), body, after)
        self.label(body)
        yield index, following
        self.fall(following)
        self.label(following)
        self.set("i64", at, self.add(index, 1))
        self.branch(head)
        self.label(after)

    def fall(self, label: str) -> None:
        """Go to a label, unless the block has been ended."""
        if not self.lines[-1].startswith(("  br ", "  ret ")):
            self.branch(label)

    # -- variables and memory ---------------------------------------------------------------------------------------
    def variable(self, type_: str, value: str) -> str:
        """A variable of the function, now with this value."""
        name = self.fresh("v")
        self.allocas.append(f"  {name} = alloca {type_}, align 8")
        self.set(type_, name, value)
        return name

    def room(self, type_: str, count: int) -> str:
        """The address of memory for some values of a type."""
        name = self.fresh("room")
        self.allocas.append(f"  {name} = alloca [{count} x {type_}], align 8")
        return name

    def get(self, type_: str, address: str) -> str:
        return self.op(f"load {type_}, ptr {address}, align {1 if type_ == 'i8' else 8}")

    def set(self, type_: str, address: str, value: str) -> None:
        self.emit(f"store {type_} {value}, ptr {address}, align {1 if type_ == 'i8' else 8}")

    def element(self, type_: str, address: str, index: str | int) -> str:
        """The value at an index of an array."""
        return self.get(type_, self.gep(type_, address, index))

    # -- objects ----------------------------------------------------------------------------------------------------
    def same(self, a: str, b: str) -> str:
        return self.op(f"icmp eq ptr {a}, {b}")

    def other(self, a: str, b: str) -> str:
        return self.op(f"icmp ne ptr {a}, {b}")

    def equal(self, a: str, b: str | int, type_: str = "i64") -> str:
        return self.op(f"icmp eq {type_} {a}, {b}")

    def all(self, *conditions: str) -> str:
        """Whether all of some conditions hold."""
        first, *rest = conditions
        for condition in rest:
            first = self.op(f"and i1 {first}, {condition}")
        return first

    def any(self, *conditions: str) -> str:
        """Whether one of some conditions holds."""
        first, *rest = conditions
        for condition in rest:
            first = self.op(f"or i1 {first}, {condition}")
        return first

    def word(self, name: str) -> str:
        """A word of the table."""
        return self.element("ptr", "%table", self.places[name])

    def place(self, object_: str, name: str) -> str:
        """The address of a field of an object ("TENSOR_GEN": the Tensor's _gen), or of a number of bytes after its beginning."""
        return self.gep("i8", object_, self.places[name])

    def field(self, object_: str, name: str) -> str:
        """A field of an object; no reference is made."""
        return self.get("ptr", self.place(object_, name))

    def type_of(self, object_: str) -> str:
        return self.get("ptr", self.gep("i8", object_, OBJECT_TYPE))

    def size(self, object_: str) -> str:
        """How many objects a tuple, a list or a dictionary has."""
        return self.get("i64", self.gep("i8", object_, SIZE))

    def items(self, object_: str, kind: str = "tuple") -> str:
        """The address of the references of a tuple or a list."""
        inside = self.gep("i8", object_, ITEMS)
        return inside if kind == "tuple" else self.get("ptr", inside)

    def retain(self, object_: str) -> str:
        self.run("void", "Py_IncRef", object_)
        return object_

    def release(self, object_: str) -> None:
        self.run("void", "Py_DecRef", object_)

    def put(self, object_: str, name: str, value: str) -> None:
        """Store a reference in a field that has none; it is taken over."""
        self.set("ptr", self.place(object_, name), value)

    def keep(self, object_: str, name: str, value: str) -> None:
        """Store another reference in a field that has none."""
        self.put(object_, name, self.retain(value))

    def exchange(self, object_: str, name: str, value: str, own: bool = False) -> None:
        """Store another reference in a field and give back the one that it had. `own`: the reference is taken over."""
        at = self.place(object_, name)
        before = self.get("ptr", at)
        self.set("ptr", at, value if own else self.retain(value))
        self.release(before)

    def run(self, result: str, name: str, *arguments: str) -> str:
        """Call a function of the interpreter; arguments are ptr unless they say otherwise."""
        given = ", ".join(a if " " in a else f"ptr {a}" for a in arguments)
        text = f"call {result} {self.word(name)}({given})"
        if result == "void":
            self.emit(text)
            return ""
        return self.op(text)

    def ask(self, result: str, function: str, *arguments: str) -> str:
        """Call a function of this module, with the table."""
        given = ", ".join(a if " " in a else f"ptr {a}" for a in ("%table", *arguments))
        return self.op(f"call {result} @{function}({given})")

    def integer(self, object_: str) -> str:
        """The value of an int that is known to fit."""
        return self.run("i64", "PyLong_AsLongLong", object_)

    def is_tensor(self, object_: str) -> str:
        """Whether an object is a Tensor or a Parameter, no subclass."""
        type_ = self.type_of(object_)
        return self.any(self.same(type_, self.word("TENSOR")), self.same(type_, self.word("PARAMETER")))

    def is_one_of(self, object_: str, *kinds: str) -> str:
        """Whether the type of an object is one of some words of the table."""
        type_ = self.type_of(object_)
        return self.any(*[self.same(type_, self.word(kind)) for kind in kinds])

    # -- the function -----------------------------------------------------------------------------------------------
    def ending(self, label: str, value: str, type_: str = "ptr") -> None:
        """A block that returns a value; for answers that are no objects of their own."""
        self.label(label)
        self.emit(f"ret {type_} {value}")

    def finish(self, name: str, parameters: str, result: str = "ptr", internal: bool = True) -> str:
        """The text of the function; its last block has been ended."""
        kind = "define internal" if internal else "define"
        if not self.lines[-1].startswith(("  br ", "  ret ")):
            self.emit("unreachable")
        return "\n".join([f"{kind} {result} @{name}({parameters}) #0 {{", "entry:", *self.allocas, *self.lines, "}"])


def module(*functions: str) -> str:
    """A module of functions, of which the last is called from outside."""
    return "\n\n".join([*functions, "declare ptr @llvm.thread.pointer.p0()", ATTRIBUTES]) + "\n"
