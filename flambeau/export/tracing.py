"""Tracing for export: the program runs once over tensors that have no elements, and each public function that it calls becomes a node of aten.

A `Traced` tensor has a shape that may be over symbols (symbols.py), a dtype, and the node that made it. What a call returns is found by running the public
function over placeholders (shapes.py); which operator it is, by the schemas (schemas.py). So nothing is computed, and no shape rule is written twice.
"""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, Final

import flambeau
from flambeau import operator_shapes, symbols
from flambeau._ops import OpOverload, watch
from flambeau.dtypes import dtype
from flambeau.export import rules
from flambeau.export.errors import data_dependent
from flambeau.export.functional import CALLS
from flambeau.export.schemas import Schema, bound, overloads, resolve, schema, schema_of
from flambeau.export.shapes import layout_of, metas
from flambeau.fx.graph import Graph
from flambeau.fx.node import Node
from flambeau.module_names import under_flambeau
from flambeau.ops import below, dispatch, instrument
from flambeau.symbols import Expr, Recording, Sym, SymFloat
from flambeau.tensor import Tensor
from flambeau.trace.meta import Meta, Size, meta
from flambeau.trace.objects import bare
from flambeau.trace.programs import active, program_of
from flambeau.utils._pytree import tree_leaves, tree_map


class Traced(Tensor):
    """A tensor of a program that is being exported: a shape, a dtype and a node, and no elements. Of a graph it is the value of a node (`meta["val"]`)."""

    node: Node | None = None
    grad_fn = None
    grad: Any = None
    stands_in_a_program = True

    @property
    def requires_grad(self) -> bool:
        """Whether it depends on what is differentiated."""
        return layout_of(self, True).requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None) -> Any:
        if active.tracer is not None:
            return active.tracer.call(func, tuple(args), kwargs or {})
        return _wrapped(metas(instrument.original(func) if not isinstance(func, dispatch._Getter) else func, args, kwargs or {}))

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        m = layout_of(self)
        sizes = ", ".join([str(s.expr) if isinstance(s, Sym) else str(s) for s in m.shape])
        return f"FakeTensor(..., size=({sizes}{',' if m.ndim == 1 else ''}), dtype={m.dtype})"


dispatch.admit(Traced)


def traced(m: Meta) -> Traced:
    """A tensor without elements of this layout."""
    made: Traced = bare(Traced)
    made._meta = meta(m.shape, m.strides, m.dtype, m.offset, m.requires_grad, True, False, False, m.device, m.bits)
    made._storage = None
    return made


def _on(t: Traced, device: Any) -> Traced:
    """A tensor like this one on another device."""
    m = layout_of(t)
    return traced(meta(m.shape, m.strides, m.dtype, m.offset, device=device))


def _wrapped(result: Any) -> Any:
    return tree_map(lambda m: traced(m) if isinstance(m, Meta) else m, result)


def _moved(x: Any, numbers: Callable[[Any], Any]) -> Any:
    """A tensor without elements, a layout or a number over symbols of another recording."""
    if isinstance(x, (Traced, Meta)):
        m = layout_of(x) if isinstance(x, Traced) else x
        shape, strides, offset = numbers((tuple(m.shape), tuple(m.strides), m.offset))
        made = meta(shape, strides, m.dtype, offset, m.requires_grad, True, m.wrapped, False, m.device, m.bits)
        return traced(made) if isinstance(x, Traced) else made
    return numbers(x) if isinstance(x, (Sym, SymFloat, Size)) else x


def _same_expression(a: Any, b: Any) -> bool:
    return repr(a) == repr(b)


UNLIKELY: Final = (1009, 1013, 1019, 1021, 1031, 1033, 1039, 1049, 1051, 1061, 1063, 1069, 1087, 1091, 1093, 1097, 1103, 1109, 1117, 1123, 1129, 1151,
                   1153, 1163, 1171, 1181, 1187, 1193, 1201, 1213, 1217, 1223, 1229, 1231, 1237, 1249, 1259, 1277, 1279, 1283, 1289, 1291)  # fmt: skip

# Python's operators, as functions name them, and aten's names for them.
_OPERATORS: Final = {
    "radd": "add", "rmul": "mul", "rsub": "rsub", "iadd": "add_", "isub": "sub_", "imul": "mul_", "itruediv": "div_", "truediv": "div",
    "floordiv": "floor_divide", "mod": "remainder", "invert": "bitwise_not", "and": "__and__", "or": "__or__", "xor": "__xor__", "pow": "pow",
    "ipow": "pow_", "ifloordiv": "floor_divide_", "imod": "remainder_", "iand": "__iand__", "ior": "__ior__", "ixor": "__ixor__", "lshift": "__lshift__",
    "rshift": "__rshift__", "rand": "__and__", "ror": "__or__", "rxor": "__xor__", "pos": "positive",
}  # fmt: skip
_SAME: Final = {
    "subtract": "sub", "multiply": "mul", "divide": "div", "true_divide": "div", "negative": "neg", "absolute": "abs", "concat": "cat",
    "concatenate": "cat", "swapaxes": "transpose", "swapdims": "transpose", "clip": "clamp", "clip_": "clamp_", "sigmoid": "sigmoid",
    "greater": "gt", "less": "lt", "greater_equal": "ge", "less_equal": "le", "not_equal": "ne", "moveaxis": "movedim", "arccos": "acos",
    "arcsin": "asin", "arctan": "atan", "fix": "trunc",
}  # fmt: skip
_TENSOR_PROPERTIES: Final = {"T": "numpy_T", "mT": "mT", "H": "matrix_H", "mH": "mH", "data": "detach", "real": "real", "imag": "imag"}
_VALUES: Final = frozenset("item tolist numpy __bool__ __int__ __float__ __index__ __array__ __complex__ nonzero masked_select unique equal allclose "
                           "is_nonzero nonzero_static unique_consecutive bincount data_ptr __contains__ argwhere _local_scalar_dense".split())  # fmt: skip
_NO_EFFECT: Final = frozenset("requires_grad_ retain_grad register_hook share_memory_ is_pinned __hash__ __deepcopy__ __len__ __format__ __repr__".split())


class Tracer:
    """Records one program. `real`: the tensors that the program holds (parameters, buffers, constants), by their ids, with their placeholders.
    `transforms`: whether it can differentiate and map what it records."""

    transforms = False

    def __init__(self, recording: Recording) -> None:
        self.graph = Graph()
        self.recording = recording
        self.real: dict[int, tuple[Tensor, Node]] = {}
        self.symbols: dict[int, tuple[Any, Node]] = {}  # by the id of an expression, which is kept
        self.sources: dict[int, tuple[Node, int] | Node] = {}  # the number of a symbol -> the input and the dim that has it
        self.internal: dict[Any, Any] = {}  # what our own shape rules have asked
        self.constants: dict[str, Tensor] = {}
        self.last_input: Node | None = None
        self.lift: Callable[[Tensor, str], Node] | None = None
        self.mode = _Mode(self)

    # -- running a program ------------------------------------------------------------------------------------------
    def run(self, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Call a program; what it calls is recorded."""
        before, watched = active.tracer, watch.record
        stubs = instrument.everything()
        stubs.__enter__()
        below.modes.stack.append(self.mode)
        dispatch.state.modes.append(self.mode)
        active.tracer, watch.record = self, self.overload
        try:
            with flambeau.no_grad() if not flambeau.is_grad_enabled() else flambeau.enable_grad():
                return function(*args, **kwargs)
        finally:
            active.tracer, watch.record = before, watched
            dispatch.state.modes.remove(self.mode)
            below.modes.stack.remove(self.mode)
            stubs.__exit__(None, None, None)

    def composed(self, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """A function that is no operator of aten: it runs, and what it calls is recorded."""
        operation = getattr(function, "operation", None)
        if operation is not None and under_flambeau(operation.body.__module__).startswith("flambeau.nn.functional"):
            function = operation.body  # the function itself would ask its arguments, which answer by calling it
        elif instrument.original(function) is function and operation is not None:
            raise NotImplementedError(f"torch.export: {function.__name__} with these arguments is no operator of aten that flambeau records")
        dispatch.state.modes.append(self.mode)
        try:
            return (function if operation is not None else instrument.original(function))(*args, **kwargs)
        finally:
            dispatch.state.modes.pop()

    # -- calls --------------------------------------------------------------------------------------------------------
    def call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A public function that the program calls."""
        if isinstance(function, dispatch._Getter):
            name = next((n for n in _TENSOR_PROPERTIES if vars(Tensor).get(n) is function.plain), None)
            if name is not None:
                return self.operator(_TENSOR_PROPERTIES[name], args, {}, function)
            return self.ask(function, args, {})
        operation = getattr(function, "operation", None)
        plain = function.__name__ if operation is None else below._in_aten(operation.name)
        space = under_flambeau(getattr(function, "__module__", None) or "")
        if plain in _VALUES:
            raise data_dependent(plain, args)
        if plain == "backward":
            program_of("backward()", args)
        if plain in below._QUESTIONS or plain in _NO_EFFECT:
            return args[0] if plain == "requires_grad_" else self.ask(function, args, kwargs)
        if space == "flambeau.nn.init":
            return self.composed(function, args, kwargs)
        inner = plain.strip("_") if plain.startswith("__") else plain
        special = _SPECIAL.get(inner)
        if special is not None:
            return special(self, function, args, kwargs)
        if plain.startswith("__"):
            inner = _OPERATORS.get(inner, inner)
            if inner in ("add", "mul", "__and__", "__or__", "__xor__") and len(args) == 2 and not isinstance(args[0], Tensor):
                args = (args[1], args[0])
        inner = _SAME.get(inner, inner)
        if not overloads(inner) and overloads(f"linalg_{inner}"):
            inner = f"linalg_{inner}"
        if space.startswith("flambeau.nn.functional") and not (operation is not None and "." not in operation.name):
            adapt = CALLS.get(inner)
            if adapt is not None:
                found = adapt(*args, **kwargs)
                return self.composed(function, args, kwargs) if found is None else self.operator(found[0], found[1], {}, function, (args, kwargs))
        return self.operator(inner, args, kwargs, function)

    def overload(self, op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call of one overload, which is recorded as it is."""
        if op.namespace != "aten":
            return self.own(op, args, kwargs)
        name, overload = op.overloadpacket.__name__, op._overloadname
        if name in _VALUES:
            raise data_dependent(name, args)
        s = schema(name, overload)
        if s is None:
            raise NotImplementedError(f"torch.export: aten.{name}.{overload} is no overload that is known")
        call = bound(s, args, kwargs)
        if call is None or len(args) > len([p for p in s.parameters if not p.keyword]):
            raise TypeError(f"torch.export: aten.{name}.{overload} takes ({', '.join([p.name for p in s.parameters])}), got {_described(args, kwargs)}")
        return self.record(s, *call, op, (args, kwargs))

    def own(self, op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call of an operator that torch.library has registered: one node, its results by the function of `register_fake`. TypeError for other arguments."""
        s = schema_of(op)
        call = None if s is None else bound(s, args, kwargs)
        if s is None or call is None:
            raise TypeError(f"torch.export: {op.name()} does not take {_described(args, kwargs)}; its schema is {op._schema}")
        return self.record(s, *call, op, (args, kwargs))

    def without_values(self, op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """What an own operator's function without values says, found as for a function of ours (`ask`)."""
        definition = op._function
        with _unseen(self), operator_shapes.context(operator_shapes.FakeImplCtx(op.name())):
            result = self.ask(lambda *a, **k: definition.without_values(a, k), args, kwargs)
        if not definition._for_meta:
            return result
        device = next((t.device for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)), flambeau.device("cpu"))
        return tree_map(lambda t: _on(t, device) if isinstance(t, Traced) else t, result)

    def ask(self, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """What a call returns, over symbols; nothing is recorded. What our own rules ask on the way is kept apart."""
        if isinstance(function, OpOverload):
            function = function._function
        plain = function if isinstance(function, dispatch._Getter) else instrument.original(function)
        try:
            return _wrapped(self._elsewhere(plain, args, kwargs))
        except Exception:  # it holds for the example's sizes only, or not even for those
            rec = self.recording
            before, rec.guards = rec.guards, self.internal
            try:
                return _wrapped(metas(plain, args, kwargs))
            finally:
                rec.guards = before

    def _elsewhere(self, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """What a call returns, found at sizes that are no others of the program by chance: 5 classes and a batch of 5 are two things."""
        rec = self.recording
        if not rec.count:
            return metas(function, args, kwargs)
        found: list[set[Any]] = []
        back = symbols.at_sizes([rec.size(i) for i in range(rec.count)])
        for sizes in (UNLIKELY[: rec.count], UNLIKELY[-rec.count :]):
            apart = Recording(sizes)
            there = symbols.at_sizes([apart.size(i) for i in range(rec.count)])
            given, named = tree_map(lambda x, there=there: _moved(x, there), (tuple(args), dict(kwargs)))
            result = metas(function, given, named)
            found.append({(a, b) for op, a, b, answer in apart.guards.values() if op == "==" and answer})
            if not found[-1]:
                break
        else:
            for left, right in found[0]:
                if any(_same_expression(left, a) and _same_expression(right, b) for a, b in found[1]):
                    self.internal["==", left, right] = "==", left, right, True
        before, rec.guards = rec.guards, {}
        try:
            return tree_map(lambda x: _moved(x, back), result)
        finally:
            rec.guards = before

    def operator(self, name: str, args: Sequence[Any], kwargs: dict[str, Any], function: Any, public: Any = None) -> Any:
        """A call of the operator of aten of this name; of `function`, what results are like (called with `public`, if its arguments are others)."""
        if kwargs.get("out") is not None:
            raise NotImplementedError(f"torch.export: {name}(out=...) writes into a tensor that is given; assign the result instead")
        kwargs = {k: v for k, v in kwargs.items() if k not in ("out", "requires_grad", "_stacklevel", "generator")} if kwargs else kwargs
        found = resolve(name, args, kwargs)
        if found is None:
            if overloads(name) and hasattr(function, "operation"):
                raise NotImplementedError(f"torch.export: no overload of aten.{name} takes {_described(args, kwargs)}")
            return self.composed(function, args, kwargs)
        s, given, named = found
        call = (args, kwargs) if public is None else public
        return self.record(s, given, named, function, call)

    def record(self, s: Schema, args: Sequence[Any], kwargs: dict[str, Any], function: Any, call: tuple[Sequence[Any], dict[str, Any]]) -> Any:
        """Add a node, and give its results."""
        written = bool(s.parameters) and s.parameters[0].written and s.name.endswith("_")
        own = isinstance(function, OpOverload) and function.namespace != "aten"
        written = written and not own
        rule = rules.RULES.get(s.name)
        if own:
            result = self.without_values(function, *call)
        elif rule is not None:
            result = _wrapped(rule(*args, **kwargs))
        elif written:
            result = traced(layout_of(args[0]))
        else:
            result = self.ask(function, *call)
        kwargs = kwargs if own else _factory(s, kwargs, result)
        target = function if own else getattr(getattr(flambeau.ops.aten, s.name), s.overload)
        node = self.graph.call_function(target, self.nodes(args), self.nodes(kwargs), name=_node_name(s.name.rpartition("::")[2]))
        if written and isinstance(args[0], Traced):
            args[0].node = node
            node.meta["val"] = result
            return args[0]
        if isinstance(result, Traced):
            self.name(result, node)
        elif isinstance(result, (tuple, list)):
            node.meta["val"] = result
            for i, part in enumerate(result):
                if isinstance(part, Traced):
                    self.name(part, self.graph.call_function(operator.getitem, (node, i)))
        else:
            node.meta["val"] = None
        return result

    def name(self, t: Traced, node: Node) -> None:
        """Note which node makes a tensor."""
        t.node = node
        node.meta["val"] = t

    # -- arguments as nodes ----------------------------------------------------------------------------------------
    def nodes(self, x: Any) -> Any:
        """Arguments with nodes in place of tensors and symbols."""
        if isinstance(x, Tensor):
            return self.node_of(x)
        if isinstance(x, (Sym, SymFloat)):
            return self.symbol(x.expr, x)
        if isinstance(x, (tuple, list)):
            return type(x)([self.nodes(y) for y in x]) if type(x) in (tuple, list) else [self.nodes(y) for y in x]
        if isinstance(x, dict):
            return {k: self.nodes(v) for k, v in x.items()}
        return x

    def node_of(self, t: Tensor) -> Node:
        """The node that stands for a tensor: what made it, or the placeholder of what the program holds."""
        if isinstance(t, Traced):
            if t.node is None:
                raise RuntimeError("torch.export: a tensor of another export is used here")
            return t.node
        known = self.real.get(id(t))
        if known is None:
            assert self.lift is not None
            known = self.real[id(t)] = (t, self.lift(t, ""))
        return known[1]

    def symbol(self, e: Any, x: Any = None) -> Any:
        """The node of an expression of sizes."""
        if e.__class__ is not Expr:
            return e
        known = self.symbols.get(id(e))
        if known is not None:
            return known[1]
        if e.op == "size":
            source = self.sources[e.a]
            if isinstance(source, Node):
                node = source
            else:
                with self.graph.inserting_after(self.last_input):
                    node = self.graph.call_function(flambeau.ops.aten.sym_size.int, source, name="sym_size_int")
                    self.last_input = node
            value: Any = self.recording.size(e.a)
        else:
            node, value = self._arithmetic(e)
        node.meta.setdefault("val", value)
        self.symbols[id(e)] = (e, node)
        return node

    def _arithmetic(self, e: Expr) -> tuple[Node, Any]:
        def value(a: Any) -> Any:
            return a.meta["val"] if isinstance(a, Node) else a

        def apply(function: Any, a: Any, b: Any = None) -> Node:
            args = (a,) if b is None else (a, b)
            node = self.graph.call_function(function, args)
            node.meta["val"] = _PYTHON[function](*[value(x) for x in args])
            return node

        if e.op == "sum":
            total: Any = None
            for factors, count in (e.terms or {}).items():
                product: Any = None
                for f in factors:
                    product = self.symbol(f) if product is None else apply(operator.mul, product, self.symbol(f))
                product = count if product is None else apply(operator.mul, product, count) if count != 1 else product
                total = product if total is None else apply(operator.add, total, product)
            return total, value(total)
        function = _FUNCTIONS.get(e.op)
        if function is None:
            raise NotImplementedError(f"torch.export: a size that is computed by {e.op} cannot be an argument of a node")
        made = apply(function, self.symbol(e.a), None if e.b is None else self.symbol(e.b))
        return made, made.meta["val"]


_FUNCTIONS: Final[dict[str, Any]] = {
    "//": operator.floordiv, "%": operator.mod, "/": operator.truediv, "**": operator.pow, "max": flambeau.sym_max, "min": flambeau.sym_min,
    "float": flambeau.sym_float, "int": flambeau.sym_int,
}  # fmt: skip
_PYTHON: Final[dict[Any, Any]] = {
    **{f: f for f in (*_FUNCTIONS.values(), operator.mul, operator.add)}, flambeau.sym_max: symbols.maximum, flambeau.sym_min: symbols.minimum,
    flambeau.sym_float: symbols.as_float, flambeau.sym_int: symbols.as_int,
}  # fmt: skip


def _node_name(name: str) -> str:
    return name.lower()


def _factory(s: Schema, kwargs: dict[str, Any], result: Any) -> dict[str, Any]:
    """The arguments of an operator that makes tensors, with the device that PyTorch writes down."""
    names = [p.name for p in s.parameters]
    if "pin_memory" not in names:
        return kwargs
    made = dict(kwargs)
    if s.parameters[0].kind != "Tensor":
        made.setdefault("device", flambeau.device("cpu"))
    made["pin_memory"] = False
    return {n: made[n] for n in names if n in made}


def _described(args: Sequence[Any], kwargs: dict[str, Any]) -> str:
    parts = [f"a tensor of shape {list(a.shape)}" if isinstance(a, Tensor) else repr(a) for a in args]
    return ", ".join([*parts, *[f"{k}={v!r}" for k, v in kwargs.items() if not isinstance(v, Tensor)]])


class _Mode:
    """What sees the calls: of public functions, and of operators that indexing and its like are made of."""

    def __init__(self, tracer: Tracer) -> None:
        self.tracer = tracer

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.tracer.call(function, args, kwargs or {})

    def __torch_dispatch__(self, op: OpOverload, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, overload = op.overloadpacket.__name__, op._overloadname
        s = schema(name, overload)
        if s is None:
            return self.tracer.operator(name, args, kwargs or {}, op)
        return self.tracer.record(s, args, kwargs or {}, op, (args, kwargs or {}))


# -- functions that are other operators -------------------------------------------------------------------------------
def _getitem(tr: Tracer, function: Any, args: Any, kwargs: Any) -> Any:
    return below._getitem(*args)


def _setitem(tr: Tracer, function: Any, args: Any, kwargs: Any) -> Any:
    x, index, value = args
    if not isinstance(value, Tensor):
        value = tr.call(flambeau.tensor, (value,), {"dtype": x.dtype})
    below._setitem(x, index, value)


def _to(tr: Tracer, function: Any, args: Any, kwargs: Any) -> Any:
    x, rest = args[0], args[1:]
    named = dict(kwargs)
    for a in rest:
        if isinstance(a, dtype):
            named["dtype"] = a
        elif isinstance(a, (str, flambeau.device)):
            named["device"] = a
        elif isinstance(a, Tensor):
            named |= {"dtype": a.dtype, "device": a.device}
    flags = [a for a in rest if isinstance(a, bool)]
    copy = bool(named.get("copy", flags[1] if len(flags) > 1 else False))
    kind = named.get("dtype") or x.dtype
    memory = named.get("memory_format")
    if memory is not None and memory is not flambeau.preserve_format:
        x = tr.operator("contiguous", (x,), {"memory_format": memory}, Tensor.contiguous)
    return tr.operator("to", (x, kind, False, copy) if copy else (x, kind), {}, Tensor.to, ((x, kind), {}))


def _as(kind: str) -> Callable[..., Any]:
    return lambda tr, function, args, kwargs: _to(tr, function, (args[0], getattr(flambeau, kind)), {})


def _type(tr: Tracer, function: Any, args: Any, kwargs: Any) -> Any:
    if len(args) == 1 and not kwargs:
        return tr.ask(function, args, kwargs)
    return _to(tr, function, (args[0], getattr(args[1], "dtype", args[1])), {})


def _split(tr: Tracer, function: Any, args: Any, kwargs: Any) -> Any:
    names = ("self", "split_size", "dim")
    other = {"split_size_or_sections": "split_size", "tensor": "self", "input": "self"}
    given = dict(zip(names, args, strict=False)) | {other.get(k, k): v for k, v in kwargs.items()}
    size, dim = given["split_size"], given.get("dim", 0)
    if isinstance(size, (tuple, list)):
        return tr.operator("split_with_sizes", (given["self"], list(size), dim), {}, Tensor.split_with_sizes)
    return tr.operator("split", (given["self"], size, dim), {}, Tensor.split)


def _new_tensor(tr: Tracer, function: Any, args: Any, kwargs: Any) -> Any:
    """torch.tensor of numbers: a constant of the program, and a copy of it that may be written to. Of symbols it is refused."""
    data = args[0] if args else kwargs.get("data")
    if isinstance(data, Tensor):
        if function.__name__ in ("as_tensor", "asarray"):
            return _to(tr, function, (data,), {k: v for k, v in kwargs.items() if k in ("dtype", "device")})
        return tr.operator("clone", (data,), {}, Tensor.clone)
    leaves = flambeau.utils._pytree.tree_leaves(data)
    if builtins.any(isinstance(x, (Sym, SymFloat)) for x in leaves) and not isinstance(data, (list, tuple)):
        return tr.operator("scalar_tensor", (data,), {"dtype": kwargs.get("dtype") or flambeau.int64}, flambeau.scalar_tensor)
    if builtins.any(isinstance(x, (Traced, Sym, SymFloat)) for x in leaves):
        parts = [tr.call(flambeau.tensor, (x,), {"dtype": kwargs.get("dtype")}) for x in data]
        return tr.call(flambeau.stack, (parts,), {})
    with _unseen(tr):
        made = flambeau.tensor(*args, **kwargs)
    assert tr.lift is not None
    tr.real[id(made)] = (made, tr.lift(made, "lifted_tensor"))
    return tr.operator("lift_fresh_copy", (made,), {}, Tensor.clone)


class _unseen:
    """A block whose calls are not recorded."""

    def __init__(self, tr: Tracer) -> None:
        self.tr = tr

    def __enter__(self) -> None:
        self.before = dispatch.state.modes, below.modes.stack, active.tracer, watch.record
        dispatch.state.modes, below.modes.stack, active.tracer, watch.record = [], [], None, None

    def __exit__(self, *_: Any) -> None:
        dispatch.state.modes, below.modes.stack, active.tracer, watch.record = self.before


def _item(tr: Tracer, function: Any, args: Any, kwargs: Any) -> Any:
    raise data_dependent("item", args)


def _rdiv(tr: Tracer, function: Any, args: Any, kwargs: Any) -> Any:
    x, number = args
    return tr.operator("mul", (tr.operator("reciprocal", (x,), {}, flambeau.reciprocal), number), {}, flambeau.mul)


def _swapped(name: str) -> Callable[..., Any]:
    return lambda tr, function, args, kwargs: tr.operator(name, (args[1], args[0]), {}, getattr(flambeau, name))


def _rsub(tr: Tracer, function: Any, args: Any, kwargs: Any) -> Any:
    if isinstance(args[1], Tensor):
        return tr.operator("sub", (args[1], args[0]), kwargs, flambeau.sub)
    return tr.operator("rsub", args, kwargs, flambeau.rsub)


def _einsum(tr: Tracer, function: Any, args: Any, kwargs: Any) -> Any:
    if len(args) == 2 and isinstance(args[1], (list, tuple)):
        args = (args[0], *args[1])
    return tr.operator("einsum", (args[0], list(args[1:])), {}, function)


def _contiguous(tr: Tracer, function: Any, args: Any, kwargs: Any) -> Any:
    memory = (*args[1:], *kwargs.values(), flambeau.contiguous_format)[0]
    if memory is flambeau.contiguous_format and layout_of(args[0]).is_contiguous:
        return args[0]
    return tr.operator("contiguous", args, kwargs, function)


def _additive_mask(tr: Tracer, function: Any, args: Any, kwargs: Any) -> Any:
    """What PyTorch's attention makes of a bool mask."""
    mask, kind = args
    zeros = tr.operator("zeros_like", (mask,), {"dtype": kind}, flambeau.zeros_like)
    return tr.operator("masked_fill", (zeros, mask, -math.inf), {}, flambeau.masked_fill)


def _meshgrid(tr: Tracer, function: Any, args: Any, kwargs: Any) -> Any:
    if len(args) == 1 and isinstance(args[0], (list, tuple)):
        args = tuple(args[0])
    return tr.operator("meshgrid", (list(args),), {"indexing": kwargs.get("indexing") or "ij"}, function)


_SPECIAL: Final[dict[str, Callable[..., Any]]] = {
    "getitem": _getitem, "setitem": _setitem, "to": _to, "type": _type, "split": _split, "tensor": _new_tensor, "as_tensor": _new_tensor,
    "asarray": _new_tensor, "item": _item, "rtruediv": _rdiv, "rpow": _swapped("pow"), "rmatmul": _swapped("matmul"), "rsub": _rsub,
    "einsum": _einsum, "contiguous": _contiguous, "meshgrid": _meshgrid, "additive_mask": _additive_mask,
    **{name: _as(kind) for name, kind in below._DTYPES.items() if name not in ("bool", "int", "float")},
    "float": _as("float32"), "int": _as("int32"), "bool": _as("bool"), "cpu": lambda tr, function, args, kwargs: args[0],
}  # fmt: skip
