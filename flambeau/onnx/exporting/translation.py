"""A graph of aten as a graph of ONNX: nodes in order; writes in place become new values, which views of the same memory then show."""

from __future__ import annotations

import importlib
import operator
from collections.abc import Callable
from typing import Any, Final

import flambeau
from flambeau._ops import OpOverload
from flambeau.export.program import ExportedProgram
from flambeau.export.schemas import schema
from flambeau.fx.node import Node
from flambeau.onnx.errors import UnsupportedOperatorError
from flambeau.onnx.exporting import coded
from flambeau.onnx.exporting.builder import FORMS, Builder, SizeVal, Val, described
from flambeau.onnx.exporting.shapes import END, permuted, written
from flambeau.onnx.importing.values import NUMBERS
from flambeau.tensor import Tensor

for _name in ("pointwise", "shapes", "indexing", "reductions", "networks", "recurrent", "losses", "quantized"):
    importlib.import_module(f"flambeau.onnx.exporting.{_name}")

_IGNORED: Final = frozenset("device layout pin_memory memory_format generator non_blocking copy".split())
_NOTHING: Final = frozenset("_assert_tensor_metadata _assert_scalar _assert_async sym_constrain_range sym_constrain_range_for_size".split())
_VIEWS: Final = frozenset("select slice view reshape transpose permute t unsqueeze squeeze expand alias detach narrow flatten unflatten diagonal mT numpy_T "
                          "expand_as view_as _unsafe_view movedim split chunk unbind split_with_sizes contiguous".split())  # fmt: skip


class Translation:
    """The values of one program's nodes, as they are now."""

    def __init__(self, program: ExportedProgram, builder: Builder) -> None:
        self.program, self.b = program, builder
        self.values: dict[Node, Any] = {}
        self.same: dict[Node, Node] = {}  # what wrote in place -> what it wrote to
        self.parents: dict[Node, Node] = {}  # views -> what they are of
        self.versions: dict[Node, int] = {}  # roots -> how often they were written to
        self.seen: dict[Node, int] = {}  # views -> at which version their value was made
        self.coded, self.dead = coded.coded(program) if builder.opset >= coded.least_opset(program) else ({}, set())

    # -- memory ---------------------------------------------------------------------------------------------------------
    def _root(self, n: Node) -> Node:
        while n in self.parents:
            n = self._owner(self.parents[n])
        return n

    def _owner(self, n: Node) -> Node:
        while n in self.same:
            n = self.same[n]
        return n

    def read(self, n: Node) -> Any:
        """The value of a node now: a view of what was written to is made again."""
        n = self._owner(n)
        if n in self.parents and self.seen[n] != self.versions.get(self._root(n), 0):
            self.values[n] = self._translate(n)
            self.seen[n] = self.versions.get(self._root(n), 0)
        return self.values[n]

    def write(self, n: Node, value: Any) -> None:
        """A new value of what a node stands for, and of what it is a view of."""
        n = self._owner(n)
        if n not in self.parents:
            self.values[n] = value
            self.versions[n] = self.versions.get(n, 0) + 1
            return
        parent = self._owner(self.parents[n])
        self.write(parent, Val(self._unview(n, self.read(parent), value), value.dtype, self.read(parent).shape))
        self.values[n] = value
        self.seen[n] = self.versions.get(self._root(n), 0)

    def _unview(self, n: Node, whole: Val, new: Val) -> str:
        """What a view is of, with the view's place taken by a new value."""
        b, name, args = self.b, _packet(n), self._arguments(n)
        match name:
            case "select":
                dim, index = args["dim"], args["index"]
                if not isinstance(index, int):
                    raise b.refuse("a write at a place that is a size has no form")
                return written(b, whole, b.op("Unsqueeze", new, b.ints([dim])), dim, index, END if index == -1 else index + 1)
            case "slice" | "narrow":
                dim, start, end, step = args.get("dim", 0), args.get("start") or 0, args.get("end"), args.get("step", 1)
                if name == "narrow" or step != 1:
                    raise b.refuse("a write to a slice with steps has no form")
                return written(b, whole, new, dim, start, END if end is None else end)
            case "view" | "reshape" | "unsqueeze" | "squeeze" | "flatten" | "unflatten" | "view_as" | "_unsafe_view":
                return b.op("Reshape", new, b.op("Shape", whole))
            case "transpose" | "t" | "mT" | "numpy_T":
                if name == "transpose":
                    order = list(range(whole.ndim))
                    d0, d1 = args["dim0"], args["dim1"]
                    order[d0], order[d1] = order[d1], order[d0]
                    return permuted(b, new, order)
                return permuted(b, new, list(range(whole.ndim))[::-1] if name != "mT" else [*range(whole.ndim - 2), whole.ndim - 1, whole.ndim - 2])
            case "permute":
                order = [d % whole.ndim for d in args["dims"]]
                return permuted(b, new, [order.index(d) for d in range(whole.ndim)])
            case "alias" | "detach" | "contiguous":
                return b.op("Identity", new)
        raise b.refuse(f"a write to a view made by aten.{name} has no form")

    # -- nodes ----------------------------------------------------------------------------------------------------------
    def _value(self, x: Any) -> Any:
        if isinstance(x, Node):
            return self.read(x)
        if isinstance(x, (list, tuple)):
            return [self._value(v) for v in x]
        return x

    def _arguments(self, n: Node) -> dict[str, Any]:
        found = schema(_packet(n), n.target._overloadname)
        if found is None:
            raise self.b.refuse("its schema is not known")
        names = [p.name for p in found.parameters]
        given = dict(zip(names, n.args, strict=False)) | dict(n.kwargs)
        return {k: self._value(v) for k, v in given.items() if k not in _IGNORED}

    def _translate(self, n: Node) -> Any:
        """What a node gives, as values."""
        b, value = self.b, n.meta.get("val")
        target = n.target
        if target is operator.getitem:
            return self._value(n.args[0])[n.args[1]]
        if not isinstance(target, OpOverload):
            return self._arithmetic(n)
        name, overload = _packet(n), target._overloadname
        b.where, b.out = f"aten.{name}.{overload}", value
        if name == "sym_size":
            x, d = self.read(n.args[0]), n.args[1]
            return SizeVal(b.op("Shape", x, start=d, end=d + 1))
        if name in _NOTHING:
            return None
        args = self._arguments(n)
        b.where, b.out = f"aten.{name}.{overload}", value  # reading the arguments may have made views anew
        plain = name
        if name not in FORMS and f"{name}.{overload}" not in FORMS and name.endswith("_"):
            plain = name.rstrip("_")
            b.where = f"aten.{plain}.{overload}"
        write = FORMS.get(f"{plain}.{overload}") or FORMS.get(plain)
        if write is None or target.namespace != "aten":
            raise UnsupportedOperatorError(f"torch.onnx.export: the operator {target} has no form in ONNX here (node {n.name!r})")
        try:
            made = write(b, **args)
        except TypeError as error:
            if "argument" not in str(error):
                raise
            raise UnsupportedOperatorError(f"torch.onnx.export: the operator {target} has no form in ONNX with these arguments: {error}") from None
        return self._named(made, value)

    def _named(self, made: Any, value: Any) -> Any:
        if isinstance(made, str):
            kind, shape = described(value)
            return Val(made, kind, shape)
        if isinstance(made, list):
            return [self._named(m, v) for m, v in zip(made, value, strict=False)]
        return made

    def _arithmetic(self, n: Node) -> SizeVal:
        b, args = self.b, [self._value(a) for a in n.args]
        real = any(isinstance(a, float) or (isinstance(a, SizeVal) and a.is_float) for a in args) or n.target is operator.truediv
        kind = flambeau.float32 if real else flambeau.int64

        def operand(a: Any) -> str:
            if isinstance(a, SizeVal):
                return b.op("Cast", a.name, to=NUMBERS[kind.name]) if real and not a.is_float else a.name
            return b.op("Reshape", b.number(a, kind), b.ints([1]))

        names: dict[Any, str] = {operator.add: "Add", operator.sub: "Sub", operator.mul: "Mul", operator.floordiv: "Div", operator.truediv: "Div",
                                 operator.mod: "Mod", operator.pow: "Pow", flambeau.sym_max: "Max", flambeau.sym_min: "Min"}  # fmt: skip
        if n.target is flambeau.sym_float:
            return SizeVal(b.op("Cast", args[0].name, to=1), True)
        if n.target is flambeau.sym_int:
            return SizeVal(b.op("Cast", args[0].name, to=7))
        if n.target not in names:
            raise UnsupportedOperatorError(f"torch.onnx.export: sizes that are computed by {n.target} have no form")
        return SizeVal(b.op(names[n.target], *[operand(a) for a in args]), real)

    def run(self, given: dict[Node, Any], custom: dict[Any, Callable[..., Any]]) -> list[Any]:
        """Translate all nodes; the values of the results."""
        for n in self.program.graph.nodes:
            if n.op == "placeholder":
                self.values[n] = given[n]
            elif n.op == "output":
                return [self._value(x) for x in n.args[0]]
            elif n in self.coded:
                found = self.coded[n]
                self.values[n] = self._named(coded.write(self.b, found, self.read(found.input), self._value(found.bias)), n.meta.get("val"))
            elif n not in self.dead:
                self._step(n)
        return []

    def _step(self, n: Node) -> None:
        name = _packet(n) if isinstance(n.target, OpOverload) else ""
        found = schema(name, n.target._overloadname) if name else None
        written = found is not None and bool(found.parameters) and found.parameters[0].written and name.endswith("_")
        value = self._translate(n)
        if written:
            self.same[n] = n.args[0]
            now = self.read(n.args[0])
            self.write(n.args[0], self.b.cast(self._spread(value, now), now.dtype))
            return
        self.values[n] = value
        source = n.args[0] if n.args and isinstance(n.args[0], Node) else None
        of_view = name in _VIEWS or (n.target is operator.getitem and source is not None and self._owner(source) in self.parents)
        if of_view and source is not None and isinstance(n.meta.get("val"), (Tensor, list, tuple)):
            self.parents[n] = source
            self.seen[n] = self.versions.get(self._root(n), 0)

    def _spread(self, new: Val, now: Val) -> Val:
        return Val(new.name, new.dtype, now.shape)


def _packet(n: Node) -> str:
    return str(n.target.overloadpacket.__name__)
